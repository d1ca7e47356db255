//! The relay leaves while its database is away: what waits for the database ends in time, and so does the process.

use crate::{
    rig::{ANSWER_MAX, Fault, Rig},
    support::{
        PATIENCE,
        raw_socket::RawSocket,
        wire::{eventually, registered},
    },
};
use relay_endpoints::admin::Admin;
use serde_json::{Value, json};
use tokio::time::Instant;

/// A registration whose look-up hangs is answered before its socket is told to go; connected devices are told in their turn.
#[tokio::test(flavor = "multi_thread")]
async fn a_registration_that_waits_for_a_stalled_database_is_answered_before_the_relay_leaves() {
    let Rig { mut relay, account, proxy, .. } = Rig::start(2).await;
    let mut connected = registered(&account.raw_desktop(), account.desktops[0]).await;
    let mut coming = RawSocket::open(&account.raw_desktop()).await;
    let admin = Admin::new(format!("http://{}", relay.ready().admin).parse().unwrap(), relay.admin_token()).unwrap();
    Fault::Stalled.begin(&proxy);
    let register = json!({"type": "register", "payload": {"deviceId": account.desktops[1], "relayProtocolVersion": "1.7"}});
    coming.text(&register.to_string()).await;
    let in_flight = async || admin.status().await.unwrap()["drain"]["inFlight"] == 1;
    eventually("its look-up runs", in_flight).await;

    let begun = Instant::now();
    relay.signal("TERM");
    eventually("the drain begins", async || relay.log().contains("\"draining\"")).await;
    let progress = admin.drain(false).await.unwrap();
    assert_eq!((progress.phase.as_str(), progress.in_flight), ("draining", 1));
    connected.text(r#"{"type":"ping","payload":{}}"#).await;
    assert_eq!(connected.next_text().await, r#"{"type":"pong","payload":{}}"#, "established sockets go on meanwhile");

    let answer: Value = serde_json::from_str(&coming.next_text().await).unwrap();
    assert_eq!((&answer["type"], &answer["payload"]["code"]), (&json!("error"), &json!("deviceLookupUnavailable")), "{answer}");
    for socket in [&mut coming, &mut connected] {
        assert_eq!(socket.closed(PATIENCE).await, Some((1012, "relayDraining".to_owned())));
    }
    assert_eq!(relay.exited().await.code(), Some(0));
    assert!(begun.elapsed() < 2 * ANSWER_MAX, "it took {:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_whose_database_refuses_leaves_in_time_and_says_what_it_could_not_store() {
    let Rig { mut relay, account, proxy, .. } = Rig::start(1).await;
    let mut connected = registered(&account.raw_desktop(), account.desktops[0]).await;
    Fault::Refused.begin(&proxy);
    let begun = Instant::now();
    relay.signal("TERM");
    assert_eq!(connected.closed(PATIENCE).await, Some((1012, "relayDraining".to_owned())));
    assert_eq!(relay.exited().await.code(), Some(0));
    assert!(begun.elapsed() < ANSWER_MAX, "it took {:?}", begun.elapsed());
    assert!(relay.log().contains("some statuses could not be stored in time"), "{}", relay.log());
}
