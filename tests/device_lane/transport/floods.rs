//! C32: floods of control frames, by peers that read what they get for them and by peers that do not.

use super::{Rig, round_trip};
use crate::support::{
    PATIENCE,
    neighbours::{Neighbours, Runner},
    raw_socket::{Frame, RawOptions, RawSocket, Received, opcode},
    scale::scaled,
    wire::{Before, MIB, connection_of, eventually, next_of, next_status, registered},
};
use relay_protocol::limits::{RATE_BURST, RATE_PER_SECOND};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// The longest control frame, masked: the number first, so that its pong says which it was.
const CONTROL_BYTES: usize = 6 + 125;
/// What a flood may cost the relay: the HTTP layer's buffers, and a slice.
const MARGIN_KIB: u64 = 8 * 1024;
/// What comes within this time was on its way.
const AT_HAND: Duration = Duration::from_millis(1);
/// A peer that has not taken anything for this long has stopped taking.
const STANDS_STILL: Duration = Duration::from_millis(500);

/// Masked with zeros: a flood is made faster than it is read.
fn numbered(opcode: u8, number: u32) -> Vec<u8> {
    let header = Frame { mask: Some([0; 4]), ..Frame::header_only(opcode, 125) };
    [&header.encode(), &number.to_be_bytes()[..], &[b'.'; 121]].concat()
}

fn flood(opcode: u8, numbers: std::ops::Range<u32>) -> Vec<u8> {
    numbers.flat_map(|number| numbered(opcode, number)).collect()
}

/// The number of the next pong; the relay's own pings are passed over.
async fn next_pong(socket: &mut RawSocket) -> u32 {
    loop {
        match socket.read(PATIENCE).await {
            Received::Frame { opcode: opcode::PONG, payload, .. } => {
                assert_eq!(payload.len(), 125, "a pong has its ping's payload");
                return u32::from_be_bytes(*payload.first_chunk().unwrap());
            }
            Received::Frame { opcode: opcode::PING, .. } => {}
            other @ (Received::Frame { .. } | Received::End | Received::EndInsideFrame | Received::Reset | Received::Nothing) => {
                panic!("no pong, but {other:?}")
            }
        }
    }
}

/// Reads pongs up to the one for this ping, each newer than the one before; how many there were.
async fn pongs_up_to(socket: &mut RawSocket, last: u32) -> u32 {
    let (mut pongs, mut newest) = (0, None);
    while newest != Some(last) {
        let number = next_pong(socket).await;
        assert!(newest.is_none_or(|newest| newest < number) && number <= last, "{number} after {newest:?}");
        newest = Some(number);
        pongs += 1;
    }
    pongs
}

/// Reads until nothing comes for this long; how many pongs there were.
async fn pongs_at_hand(socket: &mut RawSocket, silence: Duration) -> u32 {
    let mut pongs = 0;
    while let Received::Frame { opcode, .. } = socket.read(silence).await {
        pongs += u32::from(opcode == opcode::PONG);
    }
    pongs
}

/// Sends pings until they are not taken any more; how many were, the last in part.
async fn ping_until_it_stands_still(socket: &mut RawSocket) -> (u32, usize) {
    const AT_ONCE: u32 = 500;
    let mut bytes = 0;
    for batch in 0.. {
        let pings = flood(opcode::PING, batch * AT_ONCE..(batch + 1) * AT_ONCE);
        let taken = socket.write_some(&pings, STANDS_STILL).await;
        bytes += taken;
        if taken < pings.len() {
            break;
        }
    }
    (u32::try_from(bytes / CONTROL_BYTES).unwrap(), bytes % CONTROL_BYTES)
}

/// Options of a peer for which the kernel keeps as little as possible.
fn small(options: RawOptions) -> RawOptions {
    RawOptions { receive_buffer_bytes: Some(4_096), ..options }
}

/// Pings cost tokens like messages: a phone's are dropped over its rate, and a desktop is slowed down to it.
#[tokio::test(flavor = "multi_thread")]
async fn a_ping_flood_gets_no_more_pongs_than_tokens_and_costs_nothing() {
    let length = Duration::from_secs(scaled(4, 60) as u64);
    let mut rig = Rig::start(&["--rate-burst=300", "--rate-per-second=150"], 1).await;
    let mut neighbours = Neighbours::start(&rig.relay).await;
    let before = Before::of(&rig.relay).await;
    let peak_kib = rig.relay.rss_peak_kib();
    let mut desktop = registered(&small(rig.account.raw_desktop()), rig.account.desktops[0]).await;
    let start = Instant::now();
    let mut phone = rig.phone(0).await;
    let by_the_phone = async {
        let (mut sent, mut pongs) = (0, 0);
        while start.elapsed() < length {
            phone.write(&flood(opcode::PING, sent..sent + 500)).await;
            sent += 500;
            // What it did not take would keep the relay from hearing it.
            pongs += pongs_at_hand(&mut phone, AT_HAND).await;
        }
        (sent, pongs + pongs_at_hand(&mut phone, STANDS_STILL).await)
    };
    let by_the_desktop = timeout(PATIENCE, ping_until_it_stands_still(&mut desktop));
    let beside = tokio::spawn(async move {
        let mut slowest = Duration::ZERO;
        while start.elapsed() < length {
            let begun = Instant::now();
            neighbours.round_trip().await;
            slowest = slowest.max(begun.elapsed());
            // They keep within their own rates.
            sleep(Duration::from_millis(20)).await;
        }
        (neighbours, slowest)
    });
    let ((sent, pongs), slowed, beside) = tokio::join!(by_the_phone, by_the_desktop, beside);
    let (_neighbours, slowest) = beside.unwrap();
    let grown_kib = rig.relay.rss_peak_kib() - peak_kib;
    assert!(grown_kib < MARGIN_KIB, "the floods cost {grown_kib} KiB");
    assert!(slowest < length, "somebody else waited {slowest:?}: until the flood was over");

    // Registering took a token of each.
    let tokens = |elapsed: Duration| RATE_BURST - 1 + RATE_PER_SECOND * (u32::try_from(elapsed.as_secs()).unwrap() + 1);
    let tokens_max = tokens(start.elapsed());
    assert!(sent > 4 * tokens_max, "{sent} pings are no flood");
    slowed.expect("a desktop's flood comes to a stand");
    assert!((1..=tokens_max).contains(&pongs), "{pongs} pongs for {tokens_max} tokens");
    // It has tokens again, and is served.
    phone.text(r#"{"type":"ping","payload":{}}"#).await;
    next_of(&mut phone, "pong").await;
    drop((desktop, phone));
    before.all_well(&mut rig.relay, MARGIN_KIB).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_floods_with_pings_and_reads_gets_the_pong_of_the_latest() {
    let mut rig = Rig::start(&[], 1).await;
    let before = Before::of(&rig.relay).await;
    let (mut desktop, mut phone) = (rig.desktop().await, rig.phone(0).await);
    let peak_kib = rig.relay.rss_peak_kib();
    for round in 0..u32::try_from(scaled(200, 5_000)).unwrap() {
        for socket in [&mut phone, &mut desktop] {
            socket.write(&flood(opcode::PING, round * 500..(round + 1) * 500)).await;
            assert!(pongs_up_to(socket, (round + 1) * 500 - 1).await <= 500);
        }
    }
    round_trip(&mut phone, &mut desktop, "after").await;
    let grown_kib = rig.relay.rss_peak_kib() - peak_kib;
    assert!(grown_kib < MARGIN_KIB, "the floods cost {grown_kib} KiB");
    drop((phone, desktop));
    before.all_well(&mut rig.relay, MARGIN_KIB).await;
}

/// Without a rate limit a client can fill its own way out with pongs. Then it is read no more, and its flood stands still.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_pings_whose_pongs_are_not_read_stands_still_and_loses_no_frame() {
    let mut rig = Rig::start(&[], 1).await;
    let before = Before::of(&rig.relay).await;
    let mut desktop = rig.desktop().await;
    let mut phone = registered(&small(rig.account.raw_phone()), rig.account.phones[0]).await;
    let peak_kib = rig.relay.rss_peak_kib();
    let (whole, rest) = ping_until_it_stands_still(&mut phone).await;
    let grown_kib = rig.relay.rss_peak_kib() - peak_kib;
    assert!(grown_kib < MARGIN_KIB, "the flood cost {grown_kib} KiB");

    let pongs = pongs_up_to(&mut phone, whole - 1).await;
    assert!(pongs < whole, "only the latest of several is owed");
    phone.write(&numbered(opcode::PING, whole)[rest..]).await;
    assert_eq!(next_pong(&mut phone).await, whole);
    round_trip(&mut phone, &mut desktop, "after").await;
    drop((phone, desktop));
    before.all_well(&mut rig.relay, MARGIN_KIB).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_floods_and_never_reads_is_gone_by_the_silence_limit() {
    const SILENCE: Duration = Duration::from_secs(5);
    let rig = Rig::start(&["--silence-timeout=5s", "--heartbeat-interval=500ms"], 2).await;
    let neighbours = Neighbours::start(&rig.relay).await;
    let before = Before::of(&rig.relay).await;
    let mut watcher = rig.phone(1).await;
    let beside = Runner::start(neighbours);
    let mut desktop = registered(&small(rig.account.raw_desktop()), rig.account.desktops[0]).await;
    let mut phone = registered(&small(rig.account.raw_phone()), rig.account.phones[0]).await;
    assert_eq!(next_status(&mut watcher).await.0, "online");
    // In a task of its own: who watches must answer pings whatever is being sent here.
    let told = tokio::spawn(async move {
        let (status, reason, _) = next_status(&mut watcher).await;
        // The relay counts from the last byte that it read, the kernel from when the peer's buffer was full: either may be first.
        assert!(status == "reconnecting" && ["silent", "socketClosed"].contains(&reason.as_str()), "{status} {reason}");
        Instant::now()
    });
    let flood = async |socket: &mut RawSocket| {
        ping_until_it_stands_still(socket).await;
        Instant::now() - STANDS_STILL
    };
    let (stood_still, _, told) = tokio::join!(flood(&mut desktop), flood(&mut phone), told);
    let after = told.unwrap().saturating_duration_since(stood_still);
    // The limit, a second, and what a busy machine takes.
    assert!(after < SILENCE + Duration::from_secs(3), "given up only after {after:?}");
    eventually("the phone is gone too", async || connection_of(&rig.relay, rig.account.user, rig.account.phones[0]).await.is_none()).await;
    before.given_back(&rig.relay).await;
    let (_pair, slowest) = beside.stop().await;
    assert!(slowest < SILENCE, "somebody else waited {slowest:?}: until the flood was over");
}

#[tokio::test(flavor = "multi_thread")]
async fn pongs_that_nobody_asked_for_take_no_token_and_get_no_answer() {
    // Registering takes one token and the request behind the flood the other.
    let rig = Rig::start(&["--rate-burst=2", "--rate-per-second=1"], 1).await;
    let (mut desktop, mut phone) = (rig.desktop().await, rig.phone(0).await);
    for socket in [&mut phone, &mut desktop] {
        socket.write(&flood(opcode::PONG, 0..8_000)).await;
    }
    round_trip(&mut phone, &mut desktop, "after").await;
    for socket in [&mut phone, &mut desktop] {
        assert_eq!(socket.read(STANDS_STILL / 10).await, Received::Nothing);
    }
}

/// Nothing limits how many pongs a client sends, so they must be handled as fast as they are read.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_pongs_is_read_no_faster_than_it_is_handled() {
    let mut rig = Rig::start(&[], 1).await;
    let before = Before::of(&rig.relay).await;
    let (mut desktop, mut phone) = (rig.desktop().await, rig.phone(0).await);
    let mut unregistered = RawSocket::open(&rig.account.raw_phone()).await;
    let peak_kib = rig.relay.rss_peak_kib();
    let pongs = Frame::new(opcode::PONG, "").encode().repeat(MIB / 6);
    for socket in [&mut phone, &mut desktop, &mut unregistered] {
        for _ in 0..scaled(8, 200) {
            socket.write(&pongs).await;
        }
    }
    let grown_kib = rig.relay.rss_peak_kib() - peak_kib;
    assert!(grown_kib < MARGIN_KIB, "the floods cost {grown_kib} KiB");
    round_trip(&mut phone, &mut desktop, "after").await;
    drop((phone, desktop, unregistered));
    before.all_well(&mut rig.relay, MARGIN_KIB).await;
}
