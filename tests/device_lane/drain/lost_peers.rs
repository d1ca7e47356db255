//! Peers that a network has lost: what was sent to them stays in the kernel, and nothing comes back.

use super::{DRAINED_WITHIN, draining, told};
use crate::{
    closes::{desktop, phone},
    support::{
        account::Account,
        relay_process::RelayProcess,
        stall_proxy::{Network, StallProxy},
        wire::{connections, request},
    },
};
use std::time::Duration;
use tokio::time::Instant;

/// More than the kernel takes for a connection that does not move.
const LARGE: usize = 16 * 1024 * 1024;

/// With nothing to send to them, and with more than the connection takes.
#[tokio::test(flavor = "multi_thread")]
async fn peers_behind_a_dead_network_do_not_keep_the_relay_and_the_others_are_told() {
    let mut relay = RelayProcess::start(&[]).await;
    let proxy = StallProxy::start(relay.ready().public).await;
    let account = Account::new(&relay, 2, 4).await;
    let address = format!("http://{}", proxy.address()).parse().unwrap();
    let lost = Account { address, ..account.with_token(&account.token) };
    let lost_sockets = [desktop(&lost, 0).await.0, phone(&lost, 0, 0).await.0, phone(&lost, 1, 1).await.0];
    let mut near = vec![desktop(&account, 1).await.0, phone(&account, 2, 0).await.0, phone(&account, 3, 1).await.0];
    proxy.set(Network::Stalls);
    near[1].text(&request("lost", &format!("{:?}", "x".repeat(LARGE)))).await;
    crate::support::wire::eventually("it waits for the lost desktop", async || {
        connections(&relay, Some(account.user)).await.iter().any(|live| live["queuedBytes"].as_u64().unwrap() > 1024 * 1024)
    })
    .await;
    let begun = Instant::now();
    relay.signal("TERM");
    for socket in near {
        assert_eq!(told(socket).await.unwrap(), draining());
    }
    assert_eq!(relay.exited().await.code(), Some(0));
    assert!(begun.elapsed() < DRAINED_WITHIN, "it took {:?}", begun.elapsed());
    // Where the network only slept, the close comes with the end of what was on its way.
    proxy.set(Network::Works);
    let [_, first, second] = lost_sockets;
    for mut socket in [first, second] {
        assert_eq!(socket.closed(Duration::from_secs(10)).await, draining());
    }
}
