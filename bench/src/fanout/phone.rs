//! One phone of a fan-out. It shares the machine with the server, so it takes all that has come at once and parses nothing.

use crate::{
    clock::Clock,
    error::Error,
    event::{self, Stamp},
    frame::{self, Kind},
    stats::Recorder,
    target::Link,
};
use fastwebsockets::OpCode;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::time::{Instant, interval_at};

/// How often a phone says that it goes on watching (device lane, section 6).
const RENEWAL: Duration = Duration::from_secs(20);
/// Characters of an unexpected frame that are shown.
const SHOWN: usize = 300;

/// What the phones of a run share.
pub(super) struct Run {
    pub(super) recorder: Arc<Recorder>,
    pub(super) clock: Clock,
    /// What each frame has before its number.
    pub(super) body_and_number_key: Vec<u8>,
    /// Frames that arrived where they were expected, over all phones.
    pub(super) arrived: AtomicU64,
}

/// Receives until the connection ends, which counts as a failure.
pub(super) async fn receive(run: Arc<Run>, link: Link) {
    let number = link.peer.number;
    if let Err(error) = watch(&run, link).await {
        run.recorder.fail(|| format!("phone {number}: {error}"));
    }
}

async fn watch(run: &Run, link: Link) -> Result<(), Error> {
    let Link { peer, mut sender, mut receiver } = link;
    let mut renewal = interval_at(Instant::now() + RENEWAL, RENEWAL);
    let mut expected = 0;
    loop {
        let (mut now_nanos, mut arrived, mut ping) = (None, 0, None);
        let each = |opcode, body: &[u8]| match opcode {
            OpCode::Ping => ping = Some(body.to_vec()),
            OpCode::Pong | OpCode::Close => {}
            OpCode::Text | OpCode::Binary | OpCode::Continuation => {
                let Some(stamp) = event::stamp(body, &run.body_and_number_key) else {
                    run.other(peer.number, body);
                    return;
                };
                arrived += u64::from(run.is_next(peer.number, stamp, &mut expected));
                if run.recorder.covers(stamp.due_nanos) {
                    // One look at the clock for all that was read together.
                    let now_nanos = *now_nanos.get_or_insert_with(|| run.clock.nanos());
                    run.recorder.record(now_nanos.saturating_sub(stamp.due_nanos));
                }
            }
        };
        tokio::select! {
            received = receiver.receive_each(each) => received?,
            _ = renewal.tick() => sender.send(event::interest()).await?,
        }
        run.arrived.fetch_add(arrived, Relaxed);
        if let Some(body) = ping {
            sender.pong(&body).await?;
        }
    }
}

impl Run {
    /// Whether this is the frame that comes next. One that is not is a failure, and the count goes on behind it.
    fn is_next(&self, phone: u16, stamp: Stamp, expected: &mut u64) -> bool {
        let next = *expected;
        *expected = stamp.number + 1;
        if stamp.number != next {
            self.recorder.fail(|| format!("phone {phone} got frame {} where frame {next} was due", stamp.number));
        }
        stamp.number == next
    }

    /// A frame that is none of the timeline's. Presence is no failure.
    fn other(&self, phone: u16, body: &[u8]) {
        let wrong = match frame::kind(body) {
            Kind::Error | Kind::Request => true,
            Kind::Other => memchr::memmem::find(body, b"chat:stream").is_some(),
            Kind::Response | Kind::Registered => false,
        };
        if wrong {
            self.recorder.fail(|| format!("phone {phone} got {}", String::from_utf8_lossy(body).chars().take(SHOWN).collect::<String>()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_and_a_repetition_spoil_the_run() {
        for (numbers, right, expected) in [(&[0, 1, 2][..], 3, 3), (&[0, 2, 3], 2, 4), (&[0, 1, 1], 2, 2), (&[1], 0, 2)] {
            let recorder = Arc::new(Recorder::new());
            let run = Run { recorder, clock: Clock::start(), body_and_number_key: Vec::new(), arrived: AtomicU64::new(0) };
            let mut next = 0;
            let counted = numbers.iter().filter(|number| run.is_next(0, Stamp { number: **number, due_nanos: 0 }, &mut next)).count();
            assert_eq!((counted, next, run.recorder.errors() == 0), (right, expected, right == numbers.len()), "{numbers:?}");
        }
    }
}
