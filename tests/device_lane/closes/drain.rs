//! SIGTERM: every socket is closed with 1012, nobody new comes in, open requests stay unanswered, and the process ends with 0.

use super::{TCP_ENDS_WITHIN, desktop, ends, phone};
use crate::{
    registration::{accepted, connections, naming, next_answer, open_desktop, options, refused, resume_of, send},
    support::{
        PATIENCE,
        account::Account,
        raw_socket::{RawOptions, RawSocket, Received},
        relay_process::RelayProcess,
    },
};
use relay_protocol::device::Role;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{sleep, timeout};

const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// More than the kernel takes for a connection whose peer does not read.
const MORE_THAN_THE_KERNEL_TAKES: usize = 16 * 1024 * 1024;

/// Has a phone call its desktop, which does not answer.
async fn call(phone: &mut RawSocket, id: &str, params: Value) {
    let request = json!({"id": id, "method": "session.list", "params": params, "traceparent": TRACEPARENT});
    send(phone, "rpc.request", &request).await;
}

/// Waits until something is queued for the account, and nothing of it moves any more.
async fn stands_still(relay: &RelayProcess, account: &Account) {
    let still = timeout(PATIENCE, async {
        let (mut before, mut unchanged) = (0, 0);
        while before == 0 || unchanged < 50 {
            sleep(Duration::from_millis(10)).await;
            let queued: u64 = connections(relay, account.user).await.iter().map(|live| live["queuedBytes"].as_u64().unwrap()).sum();
            unchanged = if queued == before { unchanged + 1 } else { 0 };
            before = queued;
        }
    });
    still.await.expect("the desktop's lane fills");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_relay_ends_at_once() {
    let mut relay = RelayProcess::start(&[]).await;
    relay.signal("TERM");
    assert_eq!(relay.exited().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_socket_is_told_and_a_new_process_knows_no_session() {
    let mut relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 1).await;
    let mut unregistered = open_desktop(&account).await;
    let (mut desktop_socket, answer) = desktop(&account, 0).await;
    let (mut phone_socket, _) = phone(&account, 0, 0).await;
    relay.signal("TERM");
    assert_eq!(unregistered.closed(PATIENCE).await, Some((1012, "relayDraining".to_owned())));
    send(&mut unregistered, "register", &naming(account.desktops[0], json!({}))).await;
    assert_eq!(unregistered.read(TCP_ENDS_WITHIN).await, Received::End, "a register during the drain has no effect");
    ends(&mut desktop_socket, 1012, "relayDraining").await;
    ends(&mut phone_socket, 1012, "relayDraining").await;
    assert_eq!(relay.exited().await.code(), Some(0));

    let successor = RelayProcess::start_on(relay.data_dir(), &[]).await;
    assert_ne!(successor.ready().relay_instance_id, relay.ready().relay_instance_id);
    let mut again = RawSocket::open(&RawOptions::device_link(&successor.address(), &account.token, Role::Desktop, None)).await;
    refused(&mut again, &naming(account.desktops[0], resume_of(&answer)), "invalidResume", false).await;
    let registered = accepted(&mut again, &naming(account.desktops[0], json!({})), "registered").await;
    assert_eq!(registered["relayInstanceId"], json!(successor.ready().relay_instance_id));
}

#[tokio::test(flavor = "multi_thread")]
async fn open_requests_stay_unanswered() {
    const PHONES: usize = 60;
    let mut relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, PHONES).await;
    let (mut desktop_socket, _) = desktop(&account, 0).await;
    let mut phones = Vec::new();
    for index in 0..PHONES {
        let (mut socket, _) = phone(&account, index, 0).await;
        call(&mut socket, &index.to_string(), json!({})).await;
        assert_eq!(next_answer(&mut desktop_socket).await.0, "rpc.request");
        phones.push(socket);
    }
    relay.signal("TERM");
    ends(&mut desktop_socket, 1012, "relayDraining").await;
    for socket in &mut phones {
        let first = socket.read(PATIENCE).await;
        assert_eq!(first.close(), Some((1012, "relayDraining".to_owned())), "the first frame that comes: {:?}", first.text());
    }
    assert_eq!(relay.exited().await.code(), Some(0));
}

/// A peer that takes nothing keeps the relay from ending for a moment: what a newcomer finds in it.
#[tokio::test(flavor = "multi_thread")]
async fn a_leaving_relay_takes_nobody_new_and_ends_in_spite_of_a_peer_that_does_not_read() {
    let mut relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 1).await;
    // With the kernel's own buffer sizes: a tiny receive buffer would go on taking a little now and then.
    let mut stalled = open_desktop(&account).await;
    accepted(&mut stalled, &naming(account.desktops[0], json!({})), "registered").await;
    let (mut phone_socket, _) = phone(&account, 0, 0).await;
    call(&mut phone_socket, "large", json!("x".repeat(MORE_THAN_THE_KERNEL_TAKES))).await;
    stands_still(&relay, &account).await;

    relay.signal("TERM");
    assert_eq!(phone_socket.closed(PATIENCE).await, Some((1012, "relayDraining".to_owned())));
    let answer = RawSocket::try_open(&options(&account, Role::Mobile, None)).await.err().expect("no upgrade").to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 503 ") && answer.contains("\r\nretry-after: "), "{answer}");
    assert_eq!(phone_socket.read(TCP_ENDS_WITHIN).await, Received::End);
    assert_eq!(relay.exited().await.code(), Some(0));
}
