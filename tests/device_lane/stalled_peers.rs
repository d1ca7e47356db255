//! A peer that stops reading, with and without traffic: it is retired, its TCP connection ends although its actor stands still, it
//! costs a bounded amount of memory meanwhile, and nobody else notices.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod coalescing;
mod others;
mod suspended;
mod vanished;

use crate::support::{
    PATIENCE,
    account::Account,
    neighbours::Neighbours,
    raw_socket::{Frame, RawOptions, RawSocket, Received, opcode},
    scale::scaled,
    stall_proxy::{Network, StallProxy},
    wire::{
        Before, KIB, MIB, Rig, connection_of, connections, eventually, next_of, next_refusal, next_status, payload_field, registered,
        request, request_of, response, round_trip,
    },
};
use relay_protocol::id::{DeviceId, UserId};
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;

/// One message is a quarter of what may wait for a connection.
const LIMITS: [&str; 4] = ["--max-message", "256KiB", "--outbound-limit", "1MiB"];
const OUTBOUND_LIMIT: usize = MIB;
const RESULT_BYTES: usize = 240 * KIB;
/// More replies of that size than the kernel's buffers and the lane hold together.
const REPLIES: usize = 48;

/// Options of a peer that will stop reading: the kernel holds as little as possible for it.
fn freezing(options: RawOptions) -> RawOptions {
    RawOptions { receive_buffer_bytes: Some(4_096), ..options }
}

fn result(bytes: usize) -> String {
    format!("\"{}\"", "r".repeat(bytes))
}

async fn is_gone(rig: &Rig, device: DeviceId) -> bool {
    connection_of(&rig.relay, rig.account.user, device).await.is_none()
}

async fn queued_bytes(rig: &Rig, user: UserId, device: DeviceId) -> usize {
    let connection = connection_of(&rig.relay, user, device).await.expect("the connection is there");
    usize::try_from(connection["queuedBytes"].as_u64().unwrap()).unwrap()
}

/// Sends requests of a phone that will stop reading. Its actor will not read either then, so they come first.
async fn ask_many(phone: &mut RawSocket, desktop: &mut RawSocket, id: &str, count: usize) -> Vec<String> {
    let mut requests = Vec::new();
    for index in 0..count {
        phone.text(&request(&format!("{id}-{index}"), "1")).await;
        requests.push(next_of(desktop, "rpc.request").await);
    }
    requests
}

/// Sends a large reply, masked with zeros: many of them are masked byte by byte otherwise.
async fn reply_at_length(desktop: &mut RawSocket, request: &str) {
    let reply = response(request, &result(RESULT_BYTES));
    let header = Frame { mask: Some([0; 4]), ..Frame::header_only(opcode::TEXT, reply.len() as u64) };
    desktop.write(&[&header.encode(), reply.as_bytes()].concat()).await;
}

/// What was left for it comes, or is lost; then the connection is found to have ended.
async fn expect_ended(socket: &mut RawSocket) -> usize {
    let taken = socket.discard(usize::MAX, PATIENCE).await;
    let end = socket.read(PATIENCE).await;
    assert!(matches!(end, Received::End | Received::EndInsideFrame | Received::Reset), "{end:?}");
    taken
}

#[tokio::test(flavor = "multi_thread")]
async fn a_phone_that_does_not_take_its_replies_is_retired_and_its_connection_ended() {
    let rig = Rig::start(&LIMITS, 2).await;
    let (mut desktop, mut phone, mut neighbours) = (rig.desktop().await, rig.phone(1).await, Neighbours::start(&rig.relay).await);
    let before = Before::of(&rig.relay).await;
    let peak_kib = rig.relay.rss_peak_kib();
    let mut frozen = registered(&freezing(rig.account.raw_phone()), rig.account.phones[0]).await;
    for request in ask_many(&mut frozen, &mut desktop, "frozen", REPLIES).await {
        reply_at_length(&mut desktop, &request).await;
    }
    let mut trips = 0;
    eventually("the frozen phone is gone", async || {
        trips += 1;
        round_trip(&mut phone, &mut desktop, &format!("beside-{trips}")).await;
        neighbours.round_trip().await;
        is_gone(&rig, rig.account.phones[0]).await
    })
    .await;
    // It has read nothing, so its actor has stood still all the time; its descriptors are given back nevertheless.
    before.given_back(&rig.relay).await;
    let grown_kib = rig.relay.rss_peak_kib() - peak_kib;
    assert!(grown_kib < 32 * 1024, "it cost {grown_kib} KiB");
    round_trip(&mut phone, &mut desktop, "afterwards").await;
    neighbours.round_trip().await;
    let taken = expect_ended(&mut frozen).await;
    assert!(taken < REPLIES * RESULT_BYTES, "all {taken} bytes came: it was not frozen");
    let mut back = rig.phone(0).await;
    round_trip(&mut back, &mut desktop, "back").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_desktop_that_does_not_take_its_requests_answers_them_by_its_end() {
    let rig = Rig::start(&LIMITS, 2).await;
    let mut neighbours = Neighbours::start(&rig.relay).await;
    let (mut caller, mut watcher) = (rig.phone(0).await, rig.phone(1).await);
    let before = Before::of(&rig.relay).await;
    let mut frozen = registered(&freezing(rig.account.raw_desktop()), rig.account.desktops[0]).await;
    let (status, _, online) = next_status(&mut watcher).await;
    assert_eq!(status, "online");

    let ids: Vec<String> = (0..REPLIES).map(|index| format!("open-{index}")).collect();
    for id in &ids {
        caller.text(&request_of(id, RESULT_BYTES)).await;
    }
    neighbours.round_trip().await;
    let mut answers = Vec::new();
    for _ in &ids {
        answers.push(next_refusal(&mut caller).await);
    }
    // What found no room is refused at once; what was open is answered when the desktop is given up.
    let (no_room, open): (Vec<_>, Vec<_>) = answers.iter().cloned().partition(|(_, code)| *code == -32023);
    assert!(!no_room.is_empty() && !open.is_empty(), "{answers:?}");
    assert!(open.iter().all(|(_, code)| *code == -32011), "{answers:?}");
    assert!(answers.starts_with(&no_room), "room ran out before the desktop was given up: {answers:?}");
    let mut answered: Vec<String> = answers.into_iter().map(|(id, _)| id).collect();
    answered.sort();
    let mut asked = ids;
    asked.sort();
    assert_eq!(answered, asked, "each request has exactly one answer");

    let (status, reason, revision) = next_status(&mut watcher).await;
    assert_eq!((status.as_str(), reason.as_str(), revision), ("reconnecting", "saturated", online + 1));
    caller.text(&request("too-late", "1")).await;
    assert_eq!(next_refusal(&mut caller).await, ("too-late".to_owned(), -32011));
    neighbours.round_trip().await;
    before.given_back(&rig.relay).await;
    expect_ended(&mut frozen).await;

    let mut back = rig.desktop().await;
    assert_eq!(next_status(&mut watcher).await.2, online + 2);
    round_trip(&mut caller, &mut back, "back").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_network_without_traffic_is_found_by_its_silence() {
    const SILENCE: Duration = Duration::from_secs(2);
    let rig = Rig::start(&["--silence-timeout", "2s", "--heartbeat-interval", "250ms"], 2).await;
    let proxy = StallProxy::start(rig.relay.ready().public).await;
    let through = |options: RawOptions| RawOptions { address: proxy.address(), ..options };
    let mut watcher = rig.phone(1).await;
    let mut desktop = registered(&through(rig.account.raw_desktop()), rig.account.desktops[0]).await;
    let mut phone = registered(&through(rig.account.raw_phone()), rig.account.phones[0]).await;
    assert_eq!(next_status(&mut watcher).await.0, "online");
    // Both live for longer than the limit, by their answers to pings; the watcher does so to the end.
    let alive_until = Instant::now() + SILENCE + SILENCE / 2;
    let mut trips = 0;
    while Instant::now() < alive_until {
        trips += 1;
        round_trip(&mut phone, &mut desktop, &format!("alive-{trips}")).await;
        assert!(matches!(watcher.read(SILENCE / 20).await, Received::Nothing | Received::Frame { opcode: opcode::PING, .. }));
        watcher.frame(&Frame::new(opcode::PONG, "")).await;
    }
    proxy.set(Network::Stalls);
    let stalled = Instant::now();
    let (status, reason, _) = next_status(&mut watcher).await;
    let after = stalled.elapsed();
    assert_eq!((status.as_str(), reason.as_str()), ("reconnecting", "silent"));
    assert!(after >= SILENCE - SILENCE / 4, "given up after {after:?}");
    // The limit, a second, and what a busy machine takes.
    assert!(after < SILENCE + Duration::from_secs(3), "given up only after {after:?}");
    watcher.text(&request("gone", "1")).await;
    assert_eq!(next_refusal(&mut watcher).await, ("gone".to_owned(), -32011));
    eventually("only the watcher is left", async || connections(&rig.relay, Some(rig.account.user)).await.len() == 1).await;

    // What was on its way comes when the network works again, and then the end.
    proxy.set(Network::Works);
    for mut socket in [desktop, phone] {
        let closed = socket.closed(PATIENCE).await;
        assert!(closed.is_none() || closed == Some((4004, "silent".to_owned())), "{closed:?}");
    }
    let mut back = registered(&through(rig.account.raw_desktop()), rig.account.desktops[0]).await;
    round_trip(&mut watcher, &mut back, "back").await;
}

/// A large result on its way to a phone that reads nothing for the moment.
async fn half_taken_result(rig: &Rig, desktop: &mut RawSocket, bytes: usize) -> (RawSocket, String) {
    let mut phone = registered(&freezing(rig.account.raw_phone()), rig.account.phones[0]).await;
    let result = stands_still(rig, desktop, &mut phone, bytes).await;
    (phone, result)
}

/// Has the first phone ask for a large result and take none of it until its transport stands still.
async fn stands_still(rig: &Rig, desktop: &mut RawSocket, phone: &mut RawSocket, bytes: usize) -> String {
    phone.text(&request("large", "1")).await;
    let received = next_of(desktop, "rpc.request").await;
    let result = result(bytes);
    desktop.text(&response(&received, &result)).await;
    // The transport takes what the kernel has room for; then the rest stands still.
    let mut queued = 0;
    eventually("the result stands still", async || {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let earlier = std::mem::replace(&mut queued, queued_bytes(rig, rig.account.user, rig.account.phones[0]).await);
        queued > 0 && queued == earlier
    })
    .await;
    assert!(queued < bytes, "nothing of it was taken");
    result
}

/// A result, and the flag that lets it pass. Twice as much may wait, so that the lane is not full.
fn large_result() -> (usize, [&'static str; 4]) {
    let flags = [["--max-message", "6MiB", "--outbound-limit", "12MiB"], ["--max-message", "32MiB", "--outbound-limit", "64MiB"]];
    (scaled(5 * MIB, 31 * MIB), flags[scaled(0, 1)])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_phone_that_reads_on_after_a_pause_gets_the_whole_result() {
    let (bytes, flags) = large_result();
    let rig = Rig::start(&flags, 2).await;
    let (mut desktop, mut other) = (rig.desktop().await, rig.phone(1).await);
    let (mut phone, result) = half_taken_result(&rig, &mut desktop, bytes).await;
    for trip in 0..20 {
        round_trip(&mut other, &mut desktop, &format!("meanwhile-{trip}")).await;
    }
    let received = next_of(&mut phone, "rpc.response").await;
    assert!(payload_field(&received, "result") == result, "the result was changed");
    round_trip(&mut phone, &mut desktop, "next").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_phone_that_stops_in_the_middle_of_a_result_is_cut_off_there() {
    let (bytes, flags) = large_result();
    let rig = Rig::start(&[&flags[..], &["--silence-timeout", "3s", "--heartbeat-interval", "500ms"]].concat(), 2).await;
    let (mut desktop, mut other) = (rig.desktop().await, rig.phone(1).await);
    let (mut phone, _) = half_taken_result(&rig, &mut desktop, bytes).await;
    let mut trips = 0;
    eventually("the stalled phone is gone", async || {
        trips += 1;
        round_trip(&mut other, &mut desktop, &format!("meanwhile-{trips}")).await;
        is_gone(&rig, rig.account.phones[0]).await
    })
    .await;
    assert_cut_off(&mut phone).await;
    let mut back = rig.phone(0).await;
    round_trip(&mut back, &mut desktop, "back").await;
}

/// A close that gets nowhere, because its peer stands still in the middle of a message, is ended from outside as well.
#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_phone_that_stops_in_the_middle_of_a_result_is_cut_off_too() {
    let (bytes, flags) = large_result();
    let rig = Rig::start(&flags, 1).await;
    let mut desktop = rig.desktop().await;
    let before = Before::of(&rig.relay).await;
    let (mut phone, _) = half_taken_result(&rig, &mut desktop, bytes).await;
    let mut next = rig.phone(0).await;
    round_trip(&mut next, &mut desktop, "next").await;
    drop(next);
    before.given_back(&rig.relay).await;
    assert_cut_off(&mut phone).await;
}

/// What the peer finds is the beginning of the one message and an end, never a frame that looks whole.
async fn assert_cut_off(phone: &mut RawSocket) {
    let ended = loop {
        let received = phone.read(PATIENCE).await;
        if !matches!(received, Received::Frame { opcode: opcode::PING | opcode::PONG, .. }) {
            break received;
        }
    };
    assert!(matches!(ended, Received::EndInsideFrame | Received::Reset), "{}", shown(&ended));
}

fn shown(received: &Received) -> String {
    let text = format!("{received:?}");
    text[..text.len().min(200)].to_owned()
}

/// An account of one desktop, one phone that reads, and phones that do not.
struct Household {
    account: Account,
    desktop: RawSocket,
    reader: RawSocket,
    frozen: Vec<RawSocket>,
    /// What each of the frozen ones has asked for and not been answered.
    open: Vec<Vec<String>>,
}

const FROZEN_PER_HOUSEHOLD: usize = 5;
/// Together they fit the bound of one desktop.
const ASKED_BY_EACH: usize = 24;

const WAVES: [&str; 6] = ["first", "second", "third", "fourth", "fifth", "sixth"];
/// Large replies that take a lane from half of its limit over it.
const TO_OVERFILL: usize = OUTBOUND_LIMIT / 2 / RESULT_BYTES + 1;

impl Household {
    async fn new(rig: &Rig) -> Self {
        let account = Account::new(&rig.relay, 1, FROZEN_PER_HOUSEHOLD + 1).await;
        let desktop = registered(&account.raw_desktop(), account.desktops[0]).await;
        let reader = registered(&account.raw_phone(), account.phones[FROZEN_PER_HOUSEHOLD]).await;
        Household { account, desktop, reader, frozen: Vec::new(), open: Vec::new() }
    }

    async fn open_phones(&mut self, wave: &str) {
        self.frozen.clear();
        for (index, device) in self.account.phones[..FROZEN_PER_HOUSEHOLD].iter().enumerate() {
            let mut phone = registered(&freezing(self.account.raw_phone()), *device).await;
            self.open.push(ask_many(&mut phone, &mut self.desktop, &format!("{wave}-{index}"), ASKED_BY_EACH).await);
            self.frozen.push(phone);
        }
    }

    /// Sends replies to each of them until at least this much waits for it in the relay.
    async fn fill(&mut self, rig: &Rig, wave: &str, bytes: usize) {
        for index in 0..self.frozen.len() {
            while queued_bytes(rig, self.account.user, self.account.phones[index]).await < bytes {
                let request = self.open[index].pop().expect("the kernel takes less than all replies");
                reply_at_length(&mut self.desktop, &request).await;
                // The reply has passed when a later one of the same desktop has.
                let trip = format!("{wave}-{index}-{}-passed", self.open[index].len());
                round_trip(&mut self.reader, &mut self.desktop, &trip).await;
            }
        }
    }

    /// Answers what is open: with more than the lanes may hold, and then briefly.
    async fn overfill(&mut self) {
        for requests in self.open.drain(..) {
            assert!(requests.len() >= TO_OVERFILL, "the kernel takes less than all replies");
            for (index, request) in requests.iter().enumerate() {
                match index {
                    0..TO_OVERFILL => reply_at_length(&mut self.desktop, request).await,
                    _ => self.desktop.text(&response(request, "1")).await,
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_many_frozen_peers_cost_what_waits_for_them_and_give_it_back() {
    let rig = Rig::start(&LIMITS, 0).await;
    let mut households = Vec::new();
    for _ in 0..scaled(50, 200) / FROZEN_PER_HOUSEHOLD {
        households.push(Household::new(&rig).await);
    }
    let frozen = households.len() * FROZEN_PER_HOUSEHOLD;
    let before = Before::of(&rig.relay).await;
    let held_kib = frozen * (OUTBOUND_LIMIT / 2 + RESULT_BYTES) / KIB;
    let start_kib = rig.relay.rss_kib();
    for wave in WAVES {
        for household in &mut households {
            household.open_phones(wave).await;
        }
        let idle_kib = rig.relay.rss_kib();
        for household in &mut households {
            household.fill(&rig, wave, OUTBOUND_LIMIT / 2).await;
        }
        // Nobody is over the limit, so all are there; what the kernel took for them is no longer the relay's.
        let there = connections(&rig.relay, None).await;
        assert_eq!(there.iter().filter(|connection| is_frozen(connection)).count(), frozen);
        let grown_kib = usize::try_from(rig.relay.rss_kib().saturating_sub(idle_kib)).unwrap();
        assert!(grown_kib < held_kib + 32 * KIB, "{frozen} frozen peers cost {grown_kib} KiB, {held_kib} wait for them");

        for household in &mut households {
            household.overfill().await;
        }
        before.given_back(&rig.relay).await;
        for household in &mut households {
            round_trip(&mut household.reader, &mut household.desktop, &format!("{wave}-after")).await;
        }
    }
    // The allocator keeps some of what it was given back, between half of a wave and three; what leaks is there once for each wave.
    let kept_kib = usize::try_from(rig.relay.rss_kib().saturating_sub(start_kib)).unwrap();
    assert!(kept_kib < (WAVES.len() - 1) * held_kib, "{kept_kib} KiB are kept of waves that held {held_kib} each");
}

fn is_frozen(connection: &Value) -> bool {
    connection["queuedBytes"].as_u64().unwrap() >= OUTBOUND_LIMIT as u64 / 2
}
