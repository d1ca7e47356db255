//! C35: phones that their system suspends: their connections stay up without a byte or a FIN, and new ones come beside them.

use crate::support::{
    PATIENCE,
    account::Account,
    raw_socket::{RawOptions, RawSocket},
    relay_process::RelayProcess,
    running_desktop::RunningDesktop,
    scale::scaled,
    stall_proxy::{Network, StallProxy},
    wire::{Before, Rig, connections, eventually, next_of, payload_field, registered, request, round_trip},
};
use relay_endpoints::desktop::SampleRouter;
use relay_protocol::id::DeviceId;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// How long a connection that waits for room is told from one that is slow.
const A_WHILE: Duration = Duration::from_millis(500);

/// A phone through a network of its own, so that it can be suspended by itself.
async fn connected(relay: &RelayProcess, account: &Account, device: DeviceId) -> (StallProxy, RawSocket) {
    let proxy = StallProxy::start(relay.ready().public).await;
    let options = RawOptions { address: proxy.address(), ..account.raw_phone() };
    let phone = registered(&options, device).await;
    (proxy, phone)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_phone_that_comes_back_beside_its_suspended_connections_holds_one() {
    let rig = Rig::start(&[], 1).await;
    let mut desktop = rig.desktop().await;
    let before = Before::of(&rig.relay).await;
    let mut suspended = Vec::new();
    for round in 0..scaled(20, 200) {
        let (proxy, mut phone) = connected(&rig.relay, &rig.account, rig.account.phones[0]).await;
        round_trip(&mut phone, &mut desktop, &format!("awake-{round}")).await;
        proxy.set(Network::Stalls);
        suspended.push((proxy, phone));
    }
    // All but the newest are given up although their networks stand still, long before they are silent.
    eventually("one of the phone is left", async || connections(&rig.relay, Some(rig.account.user)).await.len() == 2).await;
    drop(suspended.pop());
    before.given_back(&rig.relay).await;
    // What they find when they wake up.
    for (proxy, mut phone) in suspended {
        proxy.set(Network::Works);
        assert_eq!(phone.closed(PATIENCE).await, Some((4002, "replaced".to_owned())));
    }
}

/// Suspended phones take up connections until their silence is over, and no longer.
#[tokio::test(flavor = "multi_thread")]
async fn suspended_phones_of_many_devices_make_room_by_the_silence_limit() {
    const SILENCE: Duration = Duration::from_secs(4);
    // Room for 64 connections or less, whatever the number of processors.
    let relay = RelayProcess::start_with_descriptors(256, &["--silence-timeout=4s", "--heartbeat-interval=500ms"]).await;
    let account = Account::new(&relay, 1, 70).await;
    let (_desktop, _) = RunningDesktop::start(account.desktop(0), SampleRouter).await;
    let mut suspended = Vec::new();
    let mut phones = account.phones.iter();
    let (mut waiting, since) = loop {
        let mut next = Box::pin(connected(&relay, &account, *phones.next().expect("there are more phones than there is room")));
        match timeout(A_WHILE, &mut next).await {
            Ok((proxy, phone)) => {
                proxy.set(Network::Stalls);
                suspended.push((proxy, phone));
            }
            Err(_elapsed) => break (next, Instant::now() - A_WHILE),
        }
    };
    let there = connections(&relay, Some(account.user)).await.len();
    assert_eq!(there, suspended.len() + 1, "the next one waits because all those are there");
    let (_proxy, mut phone) = timeout(PATIENCE, &mut waiting).await.expect("there is room again");
    let waited = since.elapsed();
    // Their limit, the moment in which their closes linger, and what a busy machine takes.
    assert!(waited < SILENCE + Duration::from_secs(4), "room came only after {waited:?}");
    phone.text(&request("served", "1")).await;
    assert_eq!(payload_field(&next_of(&mut phone, "rpc.response").await, "id"), r#""served""#);
    eventually("the suspended ones are gone, and nobody else", async || connections(&relay, Some(account.user)).await.len() == 2).await;
}
