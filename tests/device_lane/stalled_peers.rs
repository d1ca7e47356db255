//! A peer that stops reading, with and without traffic: it is retired, its TCP connection ends although its actor stands still, it
//! costs a bounded amount of memory meanwhile, and nobody else notices.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use crate::support::{
    PATIENCE,
    account::Account,
    raw_socket::{RawOptions, RawSocket, Received},
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
const RESULT_BYTES: usize = 200 * KIB;
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

/// Sends this many large replies to a phone that reads none. It asks first: once they fill its lane it may be gone any moment.
async fn answer_many(phone: &mut RawSocket, desktop: &mut RawSocket, id: &str, count: usize) {
    let mut requests = Vec::new();
    for index in 0..count {
        phone.text(&request(&format!("{id}-{index}"), "1")).await;
        requests.push(next_of(desktop, "rpc.request").await);
    }
    for request in requests {
        desktop.text(&response(&request, &result(RESULT_BYTES))).await;
    }
}

/// What was left for it comes, or is lost; then the connection is found to have ended.
async fn expect_ended(socket: &mut RawSocket) -> usize {
    let taken = socket.discard(usize::MAX, PATIENCE).await;
    let end = socket.read(PATIENCE).await;
    assert!(matches!(end, Received::End | Received::EndInsideFrame | Received::Reset), "{end:?}");
    taken
}

/// A desktop and a phone of an account that has nothing to do with the stalled one.
struct Neighbours {
    desktop: RawSocket,
    phone: RawSocket,
    trips: usize,
}

impl Neighbours {
    async fn start(rig: &Rig) -> Self {
        let account = Account::new(&rig.relay, 1, 1).await;
        let desktop = registered(&account.raw_desktop(), account.desktops[0]).await;
        let phone = registered(&account.raw_phone(), account.phones[0]).await;
        Neighbours { desktop, phone, trips: 0 }
    }

    async fn round_trip(&mut self) {
        self.trips += 1;
        round_trip(&mut self.phone, &mut self.desktop, &format!("neighbour-{}", self.trips)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_phone_that_does_not_take_its_replies_is_retired_and_its_connection_ended() {
    let rig = Rig::start(&LIMITS, 2).await;
    let (mut desktop, mut phone, mut neighbours) = (rig.desktop().await, rig.phone(1).await, Neighbours::start(&rig).await);
    let before = Before::of(&rig.relay).await;
    let peak_kib = rig.relay.rss_peak_kib();
    let mut frozen = registered(&freezing(rig.account.raw_phone()), rig.account.phones[0]).await;
    answer_many(&mut frozen, &mut desktop, "frozen", REPLIES).await;
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
    let mut neighbours = Neighbours::start(&rig).await;
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
        assert!(matches!(watcher.read(SILENCE / 20).await, Received::Nothing | Received::Frame { opcode: 0x9, .. }));
        watcher.frame(&crate::support::raw_socket::Frame::new(0xa, "")).await;
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
    (phone, result)
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
    // What it finds is the beginning of the one message and an end, never a frame that looks whole.
    let ended = loop {
        match phone.read(PATIENCE).await {
            Received::Frame { opcode: 0x9 | 0xa, .. } => {}
            ended => break ended,
        }
    };
    assert!(matches!(ended, Received::EndInsideFrame | Received::Reset), "{}", shown(&ended));
    let mut back = rig.phone(0).await;
    round_trip(&mut back, &mut desktop, "back").await;
}

fn shown(received: &Received) -> String {
    let text = format!("{received:?}");
    text[..text.len().min(200)].to_owned()
}

/// Accounts of one desktop, one phone that reads, and phones that do not.
struct Household {
    account: Account,
    desktop: RawSocket,
    reader: RawSocket,
    frozen: Vec<RawSocket>,
}

const FROZEN_PER_HOUSEHOLD: usize = 5;

impl Household {
    async fn new(rig: &Rig) -> Self {
        let account = Account::new(&rig.relay, 1, FROZEN_PER_HOUSEHOLD + 1).await;
        let desktop = registered(&account.raw_desktop(), account.desktops[0]).await;
        let reader = registered(&account.raw_phone(), account.phones[FROZEN_PER_HOUSEHOLD]).await;
        Household { account, desktop, reader, frozen: Vec::new() }
    }

    async fn open_phones(&mut self) {
        self.frozen.clear();
        for device in &self.account.phones[..FROZEN_PER_HOUSEHOLD] {
            self.frozen.push(registered(&freezing(self.account.raw_phone()), *device).await);
        }
    }

    /// Sends replies to each of them until at least this much waits for it in the relay.
    async fn fill(&mut self, rig: &Rig, wave: &str, bytes: usize) {
        for (index, phone) in self.frozen.iter_mut().enumerate() {
            let mut sent = 0;
            while queued_bytes(rig, self.account.user, self.account.phones[index]).await < bytes {
                phone.text(&request(&format!("{wave}-{index}-{sent}"), "1")).await;
                let received = next_of(&mut self.desktop, "rpc.request").await;
                self.desktop.text(&response(&received, &result(RESULT_BYTES))).await;
                sent += 1;
                // The reply has passed when a later one of the same desktop has.
                round_trip(&mut self.reader, &mut self.desktop, &format!("{wave}-{index}-{sent}-passed")).await;
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
    let mut after_wave_kib = Vec::new();
    for wave in ["first", "second", "third"] {
        for household in &mut households {
            household.open_phones().await;
        }
        let idle_kib = rig.relay.rss_kib();
        for household in &mut households {
            household.fill(&rig, wave, OUTBOUND_LIMIT / 2).await;
        }
        // Nobody is over the limit, so all are there; what the kernel took for them is no longer the relay's.
        let there = connections(&rig.relay, None).await;
        assert_eq!(there.iter().filter(|connection| is_frozen(connection)).count(), frozen);
        let grown_kib = usize::try_from(rig.relay.rss_kib().saturating_sub(idle_kib)).unwrap();
        let held_kib = frozen * (OUTBOUND_LIMIT / 2 + RESULT_BYTES) / KIB;
        assert!(grown_kib < held_kib + 32 * KIB, "{frozen} frozen peers cost {grown_kib} KiB, {held_kib} wait for them");

        for household in &mut households {
            household.frozen_get_the_rest(wave).await;
        }
        before.given_back(&rig.relay).await;
        for household in &mut households {
            round_trip(&mut household.reader, &mut household.desktop, &format!("{wave}-after")).await;
        }
        after_wave_kib.push(rig.relay.rss_kib());
    }
    assert!(after_wave_kib[2] < after_wave_kib[0] + 16 * 1024, "memory is not given back: {after_wave_kib:?}");
}

fn is_frozen(connection: &Value) -> bool {
    connection["queuedBytes"].as_u64().unwrap() >= OUTBOUND_LIMIT as u64 / 2
}

impl Household {
    /// Enough replies for each lane to be over its limit, whatever it holds.
    async fn frozen_get_the_rest(&mut self, wave: &str) {
        for (index, phone) in self.frozen.iter_mut().enumerate() {
            answer_many(phone, &mut self.desktop, &format!("{wave}-{index}-rest"), 4).await;
        }
    }
}
