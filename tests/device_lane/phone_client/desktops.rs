//! What a phone shows while its desktop goes and comes.

use super::{Rig, SESSION, hear, until, until_ready};
use relay_endpoints::phone::client::Status;

/// What a desktop hears first of a phone that watches a session.
const VERIFICATION: [&str; 3] = ["watched", "system.ping", "run.chatLoad"];

#[tokio::test(flavor = "multi_thread")]
async fn after_each_registration_the_desktop_hears_lease_ping_and_load_in_this_order() {
    let rig = Rig::start(&[]).await;
    let mut desktop = rig.desktop().await;
    let client = rig.client();
    let (mut status, mut window) = (client.status(), client.window());
    let _watch = client.watch(SESSION);
    for expected in VERIFICATION {
        assert_eq!(hear(&mut desktop).await, expected);
    }
    until_ready(&mut status).await;
    assert_eq!(window.borrow_and_update().as_ref().unwrap().result.get(), r#"{"entries":[]}"#);

    for _gap in 0..2 {
        rig.lose_phone(&mut status).await;
        assert_eq!(hear(&mut desktop).await, "unwatched", "the lease ends with the connection");
        rig.let_back(&mut status).await;
        for expected in VERIFICATION {
            assert_eq!(hear(&mut desktop).await, expected);
        }
        until_ready(&mut status).await;
        assert!(window.has_changed().unwrap(), "what was missed is in the window");
        window.mark_unchanged();
        assert!(client.registered().borrow().as_ref().unwrap().resumed, "with the token of before");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reconnecting_and_offline_are_told_apart_and_a_return_is_verified() {
    let rig = Rig::start(&["--reconnect-grace", "1s"]).await;
    let client = rig.client();
    let mut status = client.status();
    let _watch = client.watch(SESSION);
    until(&mut status, |status| matches!(status, Status::DesktopOffline)).await;
    for _return in 0..2 {
        let mut desktop = rig.desktop().await;
        // Pings may have been on their way, and the lease is told at once.
        while hear(&mut desktop).await != "run.chatLoad" {}
        until_ready(&mut status).await;
        drop(desktop);
        until(&mut status, |status| matches!(status, Status::DesktopReconnecting)).await;
        until(&mut status, |status| matches!(status, Status::DesktopOffline)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_the_desktop_does_not_give_is_told_apart_and_loaded_again_on_demand() {
    let rig = Rig::start(&[]).await;
    let mut desktop = rig.desktop().await;
    let client = rig.client();
    let mut status = client.status();
    let _watch = client.watch(SESSION);
    assert_eq!([hear(&mut desktop).await, hear(&mut desktop).await], VERIFICATION[..2]);
    let (text, _) = super::request(&mut desktop, "run.chatLoad").await;
    let refusal = crate::support::wire::response(&text, "0").replace(r#""result":0"#, r#""error":{"code":-32603,"message":"no"}"#);
    desktop.text(&refusal).await;
    let shown = until(&mut status, |status| matches!(status, Status::HistoryUnavailable(_))).await;
    assert_eq!(shown.to_string(), "connected, but history unavailable: -32603 no");
    client.reload();
    assert_eq!(hear(&mut desktop).await, "run.chatLoad");
    until_ready(&mut status).await;
}
