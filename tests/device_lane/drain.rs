//! A drain as operators and clients see it: who is told what and in which order, the calls about it, and that the process ends in time
//! whatever its clients do. `closes/drain.rs` has the plain end by a signal.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod lost_peers;
mod signals;

use super::{
    closes::{desktop, phone},
    registration::{accepted, naming, next_answer, open_desktop, options, resume_of, send},
};
use crate::support::{
    PATIENCE,
    account::Account,
    metrics::Scrape,
    raw_socket::{Frame, RawSocket, Received, opcode},
    relay_process::RelayProcess,
    scale::scaled,
    timeline::{interest, next_update, stream},
    wire::{eventually, request},
};
use relay_endpoints::{
    address::RelayAddress,
    admin::{Admin, ApiError, DrainProgress},
};
use relay_protocol::device::Role;
use serde_json::{Value, json};
use std::{net::SocketAddr, time::Duration};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};

const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// A drain without routing work takes this long at most, whatever its sockets do: a frozen one is ended 2 s after its close.
const DRAINED_WITHIN: Duration = Duration::from_secs(10);
/// More than the kernel takes for a connection whose peer does not read.
const MORE_THAN_THE_KERNEL_TAKES: usize = 16 * 1024 * 1024;

fn draining() -> Option<(u16, String)> {
    Some((1012, "relayDraining".to_owned()))
}

fn admin(relay: &RelayProcess) -> Admin {
    let address: RelayAddress = format!("http://{}", relay.ready().admin).parse().unwrap();
    Admin::new(address, relay.admin_token()).unwrap()
}

/// Asks until nothing is left to wait for.
async fn drained(admin: &Admin) -> DrainProgress {
    let deadline = Instant::now() + DRAINED_WITHIN;
    loop {
        let progress = admin.drain(false).await.unwrap();
        if progress.is_drained() {
            return progress;
        }
        assert!(Instant::now() < deadline, "{progress}");
        sleep(POLL_INTERVAL).await;
    }
}

async fn get(listener: SocketAddr, path: &str) -> Option<u16> {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    Some(client.get(format!("http://{listener}{path}")).send().await.ok()?.status().as_u16())
}

/// Has a phone watch a session, and gives the generation that its desktop is told.
async fn watched(phone: &mut RawSocket, desktop: &mut RawSocket, session: &str) -> String {
    phone.text(&interest(session, true)).await;
    next_update(desktop).await.generation().to_owned()
}

/// A desktop whose lane is full of what it does not read, so that its actor stands still.
async fn frozen(relay: &RelayProcess, account: &Account, desktop: usize, phone_index: usize) -> (RawSocket, RawSocket) {
    let mut stalled = open_desktop(account).await;
    accepted(&mut stalled, &naming(account.desktops[desktop], json!({})), "registered").await;
    let (mut caller, _) = phone(account, phone_index, desktop).await;
    caller.text(&request("large", &format!("{:?}", "x".repeat(MORE_THAN_THE_KERNEL_TAKES)))).await;
    eventually("what it does not read waits for it", async || {
        let all = super::registration::connections(relay, account.user).await;
        all.iter().any(|live| live["queuedBytes"].as_u64().unwrap() > 1024 * 1024)
    })
    .await;
    (stalled, caller)
}

/// Reads to the end: code and reason of the close that came.
fn told(mut socket: RawSocket) -> JoinHandle<Option<(u16, String)>> {
    tokio::spawn(async move { socket.closed(PATIENCE).await })
}

/// C77.
#[tokio::test(flavor = "multi_thread")]
async fn heavy_every_client_that_reads_is_told_and_the_process_ends_in_time_whatever_they_do() {
    // Of eight sockets each, and two more in every fourth.
    let accounts = scaled(14, 120);
    // Nobody's time is over before all are there.
    let mut relay = RelayProcess::start(&["--register-timeout", "5m", "--request-head-timeout", "5m", "--interest-ttl", "5m"]).await;
    let (mut reading, mut calling, mut cut, mut streaming, mut silent) = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for number in 0..accounts {
        let account = Account::new(&relay, 2, 4).await;
        // Two that stream, and one that watches.
        let (mut desktop_socket, _) = desktop(&account, 0).await;
        let (mut watcher, _) = phone(&account, 0, 0).await;
        let generation = watched(&mut watcher, &mut desktop_socket, "session").await;
        reading.push(watcher);
        // One with an open request, one that will be in the middle of a fragmented message, one idle.
        let (mut caller, _) = phone(&account, 1, 0).await;
        caller.text(&request("open", "1")).await;
        next_answer(&mut desktop_socket).await;
        calling.push(caller);
        streaming.push((desktop_socket, generation));
        cut.push(phone(&account, 2, 0).await.0);
        let (idle, _) = phone(&account, 3, 0).await;
        // One that has not registered, one in the middle of a frame before it.
        let (unregistered, mut half) = (open_desktop(&account).await, open_desktop(&account).await);
        half.half_frame(&Frame::text("{\"type\":\"ping\",\"payload\":{}}"), 9).await;
        reading.extend([idle, unregistered, half]);
        // One connection that never became a socket.
        let mut raw = RawSocket::connect(relay.ready().public, None).await;
        raw.write(b"GET /ws/device-link HTTP/1.1\r\nHost:").await;
        silent.push(raw);
        if number % 4 == 0 {
            let (stalled, caller) = frozen(&relay, &account, 1, 3).await;
            silent.push(stalled);
            reading.push(caller);
        }
    }
    for socket in &mut cut {
        socket.frame(&Frame { fin: false, ..Frame::text("{\"type\":") }).await;
    }
    let ends: Vec<_> = reading.into_iter().chain(cut).map(told).collect();
    // Phones before desktops: no end of a desktop answers what its phones have asked.
    let unanswered = calling.into_iter().map(|mut socket| {
        tokio::spawn(async move {
            loop {
                let received = socket.read(PATIENCE).await;
                if !received.text().is_some_and(|text| text.contains("device-status")) {
                    return received;
                }
            }
        })
    });
    let unanswered: Vec<_> = unanswered.collect();
    let streams: Vec<_> = streaming
        .into_iter()
        .map(|(mut socket, generation)| {
            tokio::spawn(async move {
                for number in 0.. {
                    let frame = Frame::text(&stream("session", &generation, None, number)).encode();
                    if !socket.try_write(&frame, PATIENCE).await {
                        break;
                    }
                    if let close @ Some(_) = socket.read(Duration::from_millis(1)).await.close() {
                        return close;
                    }
                }
                socket.closed(PATIENCE).await
            })
        })
        .collect();
    let delivered = "relay_event_frames_total{fate=\"delivered\"}";
    eventually("timelines flow", async || Scrape::of(&relay).await.get(delivered) > accounts as f64).await;
    let begun = Instant::now();
    relay.signal("TERM");
    for end in ends.into_iter().chain(streams) {
        assert_eq!(end.await.unwrap(), draining());
    }
    for received in unanswered {
        let received = received.await.unwrap();
        assert_eq!(received.close(), draining(), "open requests stay unanswered: {:?}", received.text());
    }
    assert_eq!(relay.exited().await.code(), Some(0));
    assert!(begun.elapsed() < DRAINED_WITHIN, "it took {:?}", begun.elapsed());
    assert!(!relay.log().contains("in time") && !relay.log().contains("still open"), "{}", relay.log());
    let rows = relay.data_dir().sql().await.rows("SELECT DISTINCT status FROM devices WHERE status = 'online'").await;
    assert!(rows.is_empty(), "what the drain ended is stored as ended");
    drop(silent);
}

/// C78, for one process.
#[tokio::test(flavor = "multi_thread")]
async fn readiness_goes_before_the_first_client_is_told_and_nobody_who_was_sent_away_is_taken_back() {
    const PHONES: usize = 20;
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, PHONES).await;
    let (public, operators) = (relay.ready().public, relay.ready().admin);
    let mut clients = vec![(desktop(&account, 0).await.0, options(&account, Role::Desktop, None))];
    for index in 0..PHONES {
        clients.push((phone(&account, index, 0).await.0, options(&account, Role::Mobile, Some(account.desktops[0]))));
    }
    let probes = [(public, "/readyz"), (operators, "/readyz"), (public, "/livez"), (operators, "/livez")].map(|(listener, path)| {
        tokio::spawn(async move {
            let mut seen = Vec::new();
            // Until some time after the drain.
            let deadline = Instant::now() + Duration::from_secs(2);
            while Instant::now() < deadline {
                seen.push((Instant::now(), get(listener, path).await));
                sleep(POLL_INTERVAL).await;
            }
            seen
        })
    });
    sleep(5 * POLL_INTERVAL).await;
    let clients: Vec<_> = clients
        .into_iter()
        .map(|(mut socket, options)| {
            tokio::spawn(async move {
                assert_eq!(socket.closed(PATIENCE).await, draining());
                let told = Instant::now();
                for _ in 0..5 {
                    let answer = RawSocket::try_open(&options).await.err().expect("nobody is taken back").to_ascii_lowercase();
                    assert!(answer.starts_with("http/1.1 503 ") && answer.contains("\r\nretry-after: 1"), "{answer}");
                    sleep(POLL_INTERVAL).await;
                }
                told
            })
        })
        .collect();
    let asked = Instant::now();
    admin(&relay).drain(false).await.unwrap();
    let mut first_told = Instant::now();
    for client in clients {
        first_told = first_told.min(client.await.unwrap());
    }
    for (probe, is_readiness) in probes.into_iter().zip([true, true, false, false]) {
        let seen = probe.await.unwrap();
        let answers = |from: Option<Instant>, to: Option<Instant>| {
            let within = |at: Instant| from.is_none_or(|from| at >= from) && to.is_none_or(|to| at < to);
            seen.iter().filter(|(at, _)| within(*at)).map(|(_, status)| *status).collect::<Vec<_>>()
        };
        let after = if is_readiness { 503 } else { 200 };
        let before = answers(None, Some(asked - POLL_INTERVAL));
        assert!(!before.is_empty() && before.iter().all(|status| *status == Some(200)), "{before:?}");
        let later = answers(Some(first_told), None);
        assert!(later.len() > 5 && later.iter().all(|status| *status == Some(after)), "{later:?}");
    }
    assert_eq!(drained(&admin(&relay)).await.sockets_left, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_by_a_call_leaves_the_process_until_it_is_asked_to_end() {
    let mut relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 1).await;
    let (mut desktop_socket, _) = desktop(&account, 0).await;
    let (mut phone_socket, _) = phone(&account, 0, 0).await;
    phone_socket.text(&request("open", "1")).await;
    next_answer(&mut desktop_socket).await;
    watched(&mut phone_socket, &mut desktop_socket, "session").await;
    let unregistered = open_desktop(&account).await;
    let admin = admin(&relay);
    let before = admin.status().await.unwrap();
    assert_eq!(before["relayInstanceId"], json!(relay.ready().relay_instance_id));
    assert_eq!(before["sockets"], json!({"desktop": 1, "mobile": 1, "unregistered": 1}));
    assert_eq!(
        [&before["accounts"], &before["pending"], &before["leases"], &before["storage"]],
        [&json!(1), &json!(1), &json!(1), &json!("ok")]
    );
    assert_eq!(before["drain"], json!({"phase": "serving", "inFlight": 0, "socketsLeft": 3, "elapsedMs": 0}));

    admin.drain(false).await.unwrap();
    for socket in [desktop_socket, phone_socket, unregistered] {
        assert_eq!(told(socket).await.unwrap(), draining());
    }
    let done = drained(&admin).await;
    assert_eq!((done.in_flight, done.sockets_left), (0, 0));
    assert_eq!(admin.drain(false).await.unwrap(), done, "it is over");
    let after = admin.status().await.unwrap();
    assert_eq!((&after["drain"], &after["accounts"], &after["pending"]), (&json!(done), &json!(0), &json!(0)));
    assert!(relay.alive());

    admin.drain(true).await.unwrap();
    assert_eq!(relay.exited().await.code(), Some(0));
    assert!(matches!(admin.status().await, Err(ApiError::Unreachable(_))));
    let log = relay.log();
    let places: Vec<usize> = ["draining", "closing sockets", "drained", "stopped"].map(|line| log.find(line).expect(line)).to_vec();
    assert!(places.is_sorted(), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_a_process_that_was_drained_by_a_call() {
    let mut relay = RelayProcess::start(&[]).await;
    drained(&admin(&relay)).await;
    relay.signal("TERM");
    assert_eq!(relay.exited().await.code(), Some(0));
}

/// A peer that reads nothing keeps the first one from ending at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_the_process_at_once() {
    let mut relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 1).await;
    let (_stalled, caller) = frozen(&relay, &account, 0, 0).await;
    relay.signal("TERM");
    assert_eq!(told(caller).await.unwrap(), draining());
    eventually("it waits for the other socket", async || relay.log().contains("closing sockets")).await;
    relay.signal("TERM");
    assert_eq!(relay.exited().await.code(), Some(1));
    assert!(relay.log().contains("a second signal") && !relay.log().contains("drained"), "{}", relay.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_closes_one_connection_and_it_may_resume() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 1).await;
    let (mut other, _) = phone(&account, 0, 0).await;
    let (mut socket, answer) = desktop(&account, 0).await;
    let close = async |id: &str| {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let call = client.post(format!("http://{}/admin/connections/{id}/close", relay.ready().admin)).bearer_auth(relay.admin_token());
        call.send().await.unwrap().status().as_u16()
    };
    let id = answer["connectionId"].as_str().unwrap();
    assert_eq!(close(id).await, 204);
    assert_eq!(socket.closed(PATIENCE).await, Some((1012, "closedByOperator".to_owned())));
    socket.frame(&Frame::close(1012, "")).await;
    eventually("it is gone", async || close(id).await == 404).await;
    let mut again = open_desktop(&account).await;
    accepted(&mut again, &naming(account.desktops[0], resume_of(&answer)), "resumed").await;
    send(&mut other, "ping", &json!({})).await;
    let kinds = async |socket: &mut RawSocket| -> (String, Value) { next_answer(socket).await };
    assert_eq!(kinds(&mut other).await.0, "pong", "nobody else was closed");
    assert!(!matches!(again.read(POLL_INTERVAL).await, Received::Frame { opcode: opcode::CLOSE, .. }));
}
