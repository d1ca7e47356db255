//! How connections end: resets, half-closes, closes that cross, and violations by a client that keeps sending.

use crate::support::{
    PATIENCE,
    raw_socket::{Frame, RawOptions, RawSocket, Received, opcode},
    scale::scaled,
    wire::{Before, KIB, MIB, Rig, next_of, next_refusal, next_status, registered, request, request_of, response, round_trip},
};
use relay_protocol::device::Role;
use std::{collections::BTreeMap, time::Duration};

const MARGIN_KIB: u64 = 16 * 1024;

/// A desktop that dies again and again, a phone that calls it, and a phone that only watches.
struct Watched {
    rig: Rig,
    caller: RawSocket,
    watcher: RawSocket,
    revision: u64,
    rounds: usize,
}

impl Watched {
    async fn start() -> (Self, Before) {
        let rig = Rig::start(&[], 2).await;
        let (caller, watcher) = (rig.phone(0).await, rig.phone(1).await);
        let before = Before::of(&rig.relay).await;
        (Watched { rig, caller, watcher, revision: 0, rounds: scaled(50, 250) }, before)
    }

    async fn desktop(&self) -> RawSocket {
        self.rig.desktop().await
    }

    /// The next change of the desktop's presence. One that is told twice, or not at all, is found by its revision.
    async fn status(&mut self) -> (String, String) {
        let (status, reason, revision) = next_status(&mut self.watcher).await;
        assert!(self.revision == 0 || revision == self.revision + 1, "revision {revision} follows {}", self.revision);
        self.revision = revision;
        (status, reason)
    }

    async fn expect(&mut self, status: &str, reason: &str) {
        assert_eq!(self.status().await, (status.to_owned(), reason.to_owned()));
    }

    /// Nothing was told late, and everything is given back.
    async fn all_well(mut self, before: &Before) {
        let mut desktop = self.desktop().await;
        self.expect("online", "registered").await;
        round_trip(&mut self.caller, &mut desktop, "at-last").await;
        desktop.reset();
        self.expect("reconnecting", "socketClosed").await;
        before.all_well(&mut self.rig.relay, MARGIN_KIB).await;
        self.each_connection_ended_once();
    }

    /// By the log: who has registered has ended, and once, but for the two that are still there.
    fn each_connection_ended_once(&self) {
        let log = self.rig.relay.log();
        let count = |line: &str| {
            let mut connections = BTreeMap::<&str, usize>::new();
            for line in log.lines().filter(|text| text.contains(line)) {
                let connection = line.split(" connection=").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
                *connections.entry(connection).or_default() += 1;
            }
            connections
        };
        let (mut open, ended) = (count(" registered user="), count(" closed user="));
        for (connection, times) in ended {
            assert_eq!((open.remove(connection), times), (Some(1), 1), "{connection}");
        }
        assert_eq!(open.len(), 2, "the caller and the watcher are there: {open:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_in_the_middle_of_a_message_ends_the_connection_once() {
    let (mut watched, before) = Watched::start().await;
    let small_buffer = RawOptions { receive_buffer_bytes: Some(4_096), ..watched.rig.account.raw_desktop() };
    for round in 0..watched.rounds {
        let mut desktop = registered(&small_buffer, watched.rig.account.desktops[0]).await;
        watched.expect("online", "registered").await;
        let id = format!("reset-{round}");
        watched.caller.text(&request_of(&id, 256 * KIB)).await;
        assert_eq!(desktop.discard(1_000, PATIENCE).await, 1_000);
        desktop.reset();
        assert_eq!(next_refusal(&mut watched.caller).await, (id, -32011));
        watched.expect("reconnecting", "socketClosed").await;
    }
    watched.all_well(&before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_follows_a_close_frame_is_ignored_and_the_close_answered_once() {
    let (mut watched, before) = Watched::start().await;
    let mut closed = Vec::new();
    for round in 0..watched.rounds {
        let mut desktop = watched.desktop().await;
        watched.expect("online", "registered").await;
        let id = format!("close-{round}");
        watched.caller.text(&request(&id, "1")).await;
        let received = next_of(&mut desktop, "rpc.request").await;
        let late = [Frame::text(&response(&received, "1")), Frame::close(1001, ""), Frame::new(opcode::PING, "late"), Frame::text("{")];
        let bytes = [vec![Frame::close(3_456, "bye")], late.to_vec()].concat().iter().flat_map(Frame::encode).collect::<Vec<_>>();
        desktop.write(&bytes).await;
        assert_eq!(desktop.closed(PATIENCE).await, Some((3_456, String::new())));
        assert_eq!(next_refusal(&mut watched.caller).await, (id, -32011));
        watched.expect("reconnecting", "socketClosed").await;
        closed.push(desktop);
    }
    for mut desktop in closed {
        let end = desktop.read(PATIENCE).await;
        assert!(matches!(end, Received::End | Received::Reset), "{end:?}");
    }
    watched.all_well(&before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_half_closed_connection_ends_once_and_soon() {
    let (mut watched, before) = Watched::start().await;
    for round in 0..watched.rounds {
        let mut desktop = watched.desktop().await;
        watched.expect("online", "registered").await;
        let id = format!("half-{round}");
        watched.caller.text(&request_of(&id, 256 * KIB)).await;
        assert_eq!(desktop.discard(1_000, PATIENCE).await, 1_000);
        desktop.finish_writing().await;
        assert!(desktop.discard(MIB, PATIENCE).await <= 257 * KIB);
        assert_eq!(next_refusal(&mut watched.caller).await, (id, -32011));
        watched.expect("reconnecting", "socketClosed").await;
        // The relay has closed its side too, although this one still reads.
        let end = desktop.read(PATIENCE).await;
        assert!(matches!(end, Received::End | Received::EndInsideFrame | Received::Reset), "{end:?}");
    }
    watched.all_well(&before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn closes_that_cross_end_the_connection_once() {
    let (mut watched, before) = Watched::start().await;
    for round in 0..watched.rounds {
        let mut old = watched.desktop().await;
        watched.expect("online", "registered").await;
        // The relay closes the old socket because of the new one, while its peer closes it or vanishes.
        let (new, ()) = tokio::join!(watched.desktop(), async {
            match round % 3 {
                0 => old.frame(&Frame::close(1000, "")).await,
                1 => old.finish_writing().await,
                _ => old.reset(),
            }
        });
        if watched.status().await.0 == "reconnecting" {
            watched.expect("online", "registered").await;
        }
        let mut new = new;
        round_trip(&mut watched.caller, &mut new, &format!("cross-{round}")).await;
        new.reset();
        watched.expect("reconnecting", "socketClosed").await;
    }
    watched.all_well(&before).await;
}

/// Each way to end, by a phone to which a reply is being written.
#[tokio::test(flavor = "multi_thread")]
async fn a_phone_that_ends_while_a_reply_is_on_its_way_ends_once() {
    let (mut watched, before) = Watched::start().await;
    let mut desktop = watched.desktop().await;
    watched.expect("online", "registered").await;
    let small_buffer = RawOptions { receive_buffer_bytes: Some(4_096), ..watched.rig.account.raw_phone() };
    let device = watched.rig.account.add(Role::Mobile).await;
    let result = format!("\"{}\"", "r".repeat(256 * KIB));
    for round in 0..watched.rounds {
        let mut phone = registered(&small_buffer, device).await;
        phone.text(&request(&format!("open-{round}"), "1")).await;
        let open = next_of(&mut desktop, "rpc.request").await;
        desktop.text(&response(&open, &result)).await;
        assert_eq!(phone.discard(1_000, PATIENCE).await, 1_000);
        match round % 4 {
            0 => phone.reset(),
            1 => {
                phone.write(&[Frame::close(1000, "").encode(), Frame::text(&request("late", "1")).encode()].concat()).await;
                assert!(phone.discard(MIB, PATIENCE).await <= 257 * KIB);
            }
            2 => {
                phone.finish_writing().await;
                assert!(phone.discard(MIB, PATIENCE).await <= 257 * KIB);
            }
            // Its next connection replaces it.
            _ => drop((registered(&small_buffer, device).await, phone)),
        }
        // Whatever it was, its desktop goes on, and nothing that came late has reached it.
        round_trip(&mut watched.caller, &mut desktop, &format!("after-{round}")).await;
    }
    desktop.reset();
    watched.expect("reconnecting", "socketClosed").await;
    watched.all_well(&before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_violation_ends_a_desktop_once_whatever_it_was() {
    let (mut watched, before) = Watched::start().await;
    let violations = [
        (Frame { rsv: 1, ..Frame::text("x") }, 1002),
        (Frame { mask: None, ..Frame::text("x") }, 1002),
        (Frame::new(opcode::PING, [0; 126]), 1002),
        (Frame { fin: false, ..Frame::new(opcode::PING, "x") }, 1002),
        (Frame::new(opcode::CLOSE, "x"), 1002),
        (Frame::close(999, ""), 1002),
        (Frame::new(opcode::BINARY, "x"), 1003),
        (Frame::new(opcode::TEXT, [0xff]), 1007),
        (Frame::header_only(opcode::TEXT, 1 << 40), 1009),
    ];
    for (round, (violation, code)) in violations.into_iter().enumerate() {
        let mut desktop = watched.desktop().await;
        watched.expect("online", "registered").await;
        let id = format!("open-{round}");
        watched.caller.text(&request(&id, "1")).await;
        next_of(&mut desktop, "rpc.request").await;
        desktop.frame(&violation).await;
        assert_eq!(desktop.closed(PATIENCE).await.map(|(code, _)| code), Some(code), "{violation:?}");
        assert_eq!(next_refusal(&mut watched.caller).await, (id, -32011));
        watched.expect("reconnecting", "socketClosed").await;
    }
    watched.all_well(&before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_violation_is_told_to_a_client_that_keeps_sending() {
    let mut rig = Rig::start(&[], 1).await;
    let before = Before::of(&rig.relay).await;
    let oversized = Frame::header_only(opcode::TEXT, 1 << 40);
    let violations = [
        (Frame { rsv: 1, ..Frame::text("x") }, 1002, "protocolViolation"),
        (Frame::new(opcode::BINARY, "x"), 1003, "binary"),
        (Frame::new(opcode::TEXT, [0xff]), 1007, "notUtf8"),
        (oversized, 1009, "messageTooLarge"),
    ];
    for (violation, code, reason) in violations {
        let mut phone = rig.phone(0).await;
        // More than the kernel hands over in one read; it stays unread in the relay's socket unless the relay swallows it.
        let following = vec![b'x'; 2 * MIB];
        phone.frame(&violation).await;
        assert!(phone.try_write(&following, PATIENCE).await, "{code}: what follows is taken");
        assert_eq!(phone.closed(PATIENCE).await, Some((code, reason.to_owned())));
        let end = phone.read(PATIENCE).await;
        assert!(matches!(end, Received::End | Received::Reset), "{code}: {end:?}");
    }
    before.all_well(&mut rig.relay, MARGIN_KIB).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_sends_for_ever_after_its_violation_is_cut_off() {
    let mut rig = Rig::start(&[], 1).await;
    let before = Before::of(&rig.relay).await;
    let mut phone = rig.phone(0).await;
    phone.frame(&Frame::new(opcode::BINARY, "x")).await;
    let piece = vec![b'x'; 16 * KIB];
    let endless = async {
        while phone.try_write(&piece, PATIENCE).await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, endless).await.expect("the connection ends while its client is sending");
    before.all_well(&mut rig.relay, MARGIN_KIB).await;
}
