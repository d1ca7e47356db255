//! Calls that lose their connection, their desktop, or their relay.

use super::{Rig, SOON, answer, create, fence, request, until, until_ready};
use crate::support::{PATIENCE, metrics::Scrape, relay_process::RelayProcess, scale::scaled, stall_proxy::Network, wire::next_of};
use relay_endpoints::phone::{
    Client, ClientOptions, Request,
    client::{CALLS_MAX, Failure, MemoryStore, Retries, Status},
};
use std::time::Duration;
use tokio::time::{Instant, timeout};

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_behind_a_gap_is_delivered_and_one_inside_it_is_missed_until_the_deadline() {
    const DEADLINE: Duration = Duration::from_secs(4);
    let rig = Rig::start(&[]).await;
    let mut desktop = rig.desktop().await;
    let client = rig.quiet_client().await;
    let mut status = client.status();
    let started = Instant::now();
    let missed = client.call(Request { deadline: Some(DEADLINE), ..create() }).unwrap();
    let delivered = client.call(create()).unwrap();
    let (first, second) = (request(&mut desktop, "session.create").await.0, request(&mut desktop, "session.create").await.0);

    rig.lose_phone(&mut status).await;
    answer(&mut desktop, &first, "\"in the gap\"").await;
    fence(&mut desktop).await;
    let held = client.call(Request::new("session.list")).unwrap();
    rig.let_back(&mut status).await;
    let (third, _) = request(&mut desktop, "session.list").await;
    answer(&mut desktop, &third, "3").await;
    answer(&mut desktop, &second, "2").await;
    assert_eq!(timeout(PATIENCE, held.result()).await.unwrap().unwrap().get(), "3", "it waited for the connection");
    assert_eq!(timeout(PATIENCE, delivered.result()).await.unwrap().unwrap().get(), "2");

    let failure = timeout(PATIENCE, missed.result()).await.unwrap().unwrap_err();
    assert!(matches!(failure, Failure::TimedOut(DEADLINE)), "{failure}");
    assert!(failure.advice().contains("may still have run"));
    let waited = started.elapsed();
    assert!(waited >= DEADLINE && waited < DEADLINE + Duration::from_secs(2), "{waited:?}");
    // Neither was sent again: what comes next is what is asked next.
    let next = client.call(Request::new("system.ping")).unwrap();
    let (ping, _) = request(&mut desktop, "system.ping").await;
    answer(&mut desktop, &ping, "4").await;
    assert_eq!(timeout(PATIENCE, next.result()).await.unwrap().unwrap().get(), "4");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_finds_no_connection_by_its_deadline_says_that_nothing_was_sent() {
    let rig = Rig::start(&[]).await;
    let mut desktop = rig.desktop().await;
    let client = rig.quiet_client().await;
    let mut status = client.status();
    rig.lose_phone(&mut status).await;
    let deadline = Duration::from_millis(300);
    let call = client.call(Request { deadline: Some(deadline), ..create() }).unwrap();
    let failure = timeout(PATIENCE, call.result()).await.unwrap().unwrap_err();
    assert!(matches!(failure, Failure::NotSent(after) if after == deadline), "{failure}");
    rig.let_back(&mut status).await;
    let _list = client.call(Request::new("session.list")).unwrap();
    request(&mut desktop, "session.list").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_goes_on_with_the_desktop_that_takes_the_place_of_another() {
    let rig = Rig::start(&[]).await;
    let mut desktop = rig.desktop().await;
    let client = rig.quiet_client().await;
    let call = client.call(create()).unwrap();
    let (_, first) = request(&mut desktop, "session.create").await;
    let mut successor = rig.desktop().await;
    let (text, second) = request(&mut successor, "session.create").await;
    assert_eq!(first["idempotencyKey"], second["idempotencyKey"], "whether the first one ran is for the desktops to know");
    assert_ne!(first["id"], second["id"], "a late answer to the first is not one to the second");
    answer(&mut successor, &text, "2").await;
    assert_eq!(timeout(PATIENCE, call.result()).await.unwrap().unwrap().get(), "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_was_restarted_has_forgotten_what_was_asked() {
    let mut rig = Rig::start(&[]).await;
    let mut desktop = rig.desktop().await;
    let client = rig.quiet_client().await;
    let (mut status, mut registered) = (client.status(), client.registered());
    let former = registered.wait_for(Option::is_some).await.unwrap().clone().unwrap();
    let call = client.call(create()).unwrap();
    request(&mut desktop, "session.create").await;

    rig.proxy.set(Network::Refuses);
    rig.relay.kill();
    until(&mut status, |status| matches!(status, Status::Reconnecting { .. })).await;
    rig.relay = RelayProcess::start_on(rig.relay.data_dir(), &[]).await;
    rig.account.address = rig.relay.address();
    rig.proxy.lead_to(rig.relay.ready().public);
    let mut desktop = rig.desktop().await;
    rig.let_back(&mut status).await;
    let failure = timeout(PATIENCE, call.result()).await.unwrap().unwrap_err();
    assert!(matches!(failure, Failure::ReplyLost), "{failure}");
    let current = registered.borrow_and_update().clone().unwrap();
    assert_ne!(current.relay_instance_id, former.relay_instance_id);
    assert!(!current.resumed, "the new process does not know the session");

    let next = client.call(Request::new("session.list")).unwrap();
    let (list, _) = request(&mut desktop, "session.list").await;
    answer(&mut desktop, &list, "1").await;
    assert_eq!(timeout(PATIENCE, next.result()).await.unwrap().unwrap().get(), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_to_a_desktop_that_is_away_for_long_share_their_retries() {
    const BURST: u32 = 32;
    let rig = Rig::start(&[]).await;
    let retries = Retries { per_call: 5, burst: BURST, every: Duration::from_secs(3_600), backoff: SOON };
    let options = ClientOptions { retries, verifies: false, ..rig.options() };
    let client = Client::connect(options, MemoryStore::default()).await.unwrap();
    let rounds = scaled(2, 50);
    for _round in 0..rounds {
        let calls: Vec<_> = (0..CALLS_MAX).map(|_call| client.call(create()).unwrap()).collect();
        for call in calls {
            let failure = timeout(PATIENCE, call.result()).await.unwrap().unwrap_err();
            assert!(matches!(failure, Failure::DesktopOffline(_)), "{failure}");
        }
    }
    let refused = Scrape::of(&rig.relay).await.get(r#"relay_refusals_total{reason="desktopOffline",code="-32010"}"#);
    // Six times as much, if each call had its five retries for itself.
    assert_eq!(refused, f64::from(u32::try_from(CALLS_MAX * rounds).unwrap() + BURST));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_meets_a_desktop_that_comes_while_it_tries_again() {
    let rig = Rig::start(&[]).await;
    let retries = Retries { per_call: 1_000, burst: 1_000, backoff: SOON, ..Retries::default() };
    let client = Client::start(ClientOptions { retries, ..rig.options() }, MemoryStore::default());
    let mut status = client.status();
    until(&mut status, |status| matches!(status, Status::DesktopOffline)).await;
    let call = client.call(create()).unwrap();
    let mut desktop = rig.desktop().await;
    let serve = async {
        loop {
            let text = next_of(&mut desktop, "rpc.request").await;
            answer(&mut desktop, &text, "1").await;
        }
    };
    let met = async {
        assert_eq!(timeout(PATIENCE, call.result()).await.unwrap().unwrap().get(), "1");
        until_ready(&mut status).await;
    };
    tokio::select! {
        () = met => {}
        () = serve => {}
    }
}
