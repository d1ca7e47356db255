//! The two ends of a timeline: phones that watch it, and the desktop that fills it at a fixed rate.

use crate::{
    clock::Clock,
    error::Error,
    event::{self, Stamp, Stream},
    frame::{self, CallId, Kind},
    link::{Batch, Incoming, Sender, Window},
    peer::Peer,
    stats::Recorder,
    target::{Link, Target},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    sync::OnceCell,
    time::{MissedTickBehavior, interval, timeout},
};

/// What is due is sent this often, in one write: far below what frames wait in a relay, and no system call for each.
const TICK: Duration = Duration::from_millis(1);
/// A desktop that is far behind its rate writes this much at once.
const BATCH_BYTES: usize = 256 << 10;
/// A healthy server on loopback answers at once.
const WATCH_LIMIT: Duration = Duration::from_secs(10);

/// Connects a phone and lets it watch the session. When this returns, the relay knows: it handles a phone's frames in their order, and
/// a call sent behind the interest has come back from the desktop, which must be listening.
pub async fn watch(target: &Target, peer: Peer, window: Window) -> Result<Link, Error> {
    let mut link = target.connect_with(peer, window).await?;
    link.sender.send(event::interest()).await?;
    // No two open calls to a desktop may have one id, whoever makes them.
    let id = CallId { sequence: 0, slot: peer.number, due_nanos: 0 };
    link.sender.send(frame::request(id, "{}")).await?;
    timeout(WATCH_LIMIT, wait_for_answer(&mut link)).await.map_err(|_elapsed| Error::TooSlow { step: "timeline interest" })??;
    Ok(link)
}

async fn wait_for_answer(link: &mut Link) -> Result<(), Error> {
    loop {
        let text = match link.receiver.receive().await {
            Incoming::Message(text) => text,
            Incoming::Ping(body) => {
                link.sender.pong(&body).await?;
                continue;
            }
            Incoming::Closed => return Err(Error::Closed { during: "timeline interest" }),
        };
        match frame::kind(&text) {
            Kind::Response if frame::has_result(&text, "{}") => return Ok(()),
            Kind::Response | Kind::Error => {
                return Err(Error::Refused { step: "timeline interest", answer: String::from_utf8_lossy(&text).into_owned() });
            }
            Kind::Request | Kind::Registered | Kind::Other => {}
        }
    }
}

/// When a desktop sends: its i-th frame is due at `start_nanos` + i / `per_second`, up to `end_nanos`.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// When the first one is due, in nanoseconds of the run's clock.
    pub start_nanos: u64,
    /// When none is due any more.
    pub end_nanos: u64,
    /// Frames a second.
    pub per_second: f64,
}

impl Plan {
    fn due_nanos(&self, number: u64) -> u64 {
        let after = Duration::from_secs_f64(number as f64 / self.per_second);
        self.start_nanos + u64::try_from(after.as_nanos()).unwrap_or(u64::MAX / 2)
    }
}

/// A desktop's progress, seen from outside.
#[derive(Debug, Default)]
pub struct Progress {
    plan: OnceCell<Plan>,
    sent: AtomicU64,
    done: AtomicBool,
}

impl Progress {
    /// Lets the desktop begin.
    pub fn begin(&self, plan: Plan) {
        let _only_the_first_counts = self.plan.set(plan);
    }

    /// Frames that were written so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(Relaxed)
    }

    /// Whether all frames of the plan were written.
    pub fn is_done(&self) -> bool {
        self.done.load(Relaxed)
    }
}

/// Answers calls, and sends by the plan once there is one, under the newest generation. Runs until the connection ends, which counts as
/// a failure.
pub async fn desktop(link: Link, stream: Stream, clock: Clock, progress: Arc<Progress>, recorder: Arc<Recorder>) {
    if let Err(error) = emit(link, stream, clock, &progress).await {
        recorder.fail(|| format!("desktop: {error}"));
    }
}

async fn emit(link: Link, mut stream: Stream, clock: Clock, progress: &Progress) -> Result<(), Error> {
    let Link { mut sender, mut receiver, .. } = link;
    let mut batch = Batch::default();
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            incoming = receiver.receive() => hear(incoming, &mut sender, &mut stream).await?,
            _ = tick.tick(), if !progress.is_done() => {
                while gather(&mut batch, &mut stream, clock.nanos(), progress) {
                    sender.send_batch(&mut batch).await?;
                }
            }
        }
    }
}

async fn hear(incoming: Incoming, sender: &mut Sender, stream: &mut Stream) -> Result<(), Error> {
    let text = match incoming {
        Incoming::Message(text) => text,
        Incoming::Ping(body) => return sender.pong(&body).await,
        Incoming::Closed => return Err(Error::Closed { during: "the run" }),
    };
    match frame::kind(&text) {
        Kind::Request => match frame::response(&text, "{}") {
            Some(response) => sender.send(response).await,
            None => Err(Error::Refused { step: "answer", answer: "a call without an id arrived".into() }),
        },
        Kind::Error => Err(Error::Refused { step: "event", answer: String::from_utf8_lossy(&text).into_owned() }),
        Kind::Response | Kind::Registered | Kind::Other => {
            if let Some(generation) = event::generation(&text) {
                stream.set_generation(generation);
            }
            Ok(())
        }
    }
}

/// Puts what is due into the batch, as far as one write goes; false when nothing is.
fn gather(batch: &mut Batch, stream: &mut Stream, now_nanos: u64, progress: &Progress) -> bool {
    let Some(plan) = progress.plan.get() else { return false };
    let mut number = progress.sent();
    while batch.bytes() < BATCH_BYTES {
        let due_nanos = plan.due_nanos(number);
        if due_nanos >= plan.end_nanos {
            progress.done.store(true, Relaxed);
            break;
        }
        if due_nanos > now_nanos {
            break;
        }
        batch.push(stream.stamped(Stamp { number, due_nanos }));
        number += 1;
    }
    number > progress.sent.swap(number, Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gathered(progress: &Progress, now_nanos: u64) -> (bool, u64, usize) {
        let mut batch = Batch::default();
        let any = gather(&mut batch, &mut Stream::new(0), now_nanos, progress);
        (any, progress.sent(), batch.bytes())
    }

    #[test]
    fn what_is_due_is_sent_once_and_nothing_behind_the_end() {
        let progress = Progress::default();
        assert_eq!(gathered(&progress, 1_000), (false, 0, 0), "there is no plan yet");
        progress.begin(Plan { start_nanos: 1_000_000, end_nanos: 4_000_000, per_second: 1_000.0 });
        assert_eq!(gathered(&progress, 999_999), (false, 0, 0));
        let (_, sent, frame_bytes) = gathered(&progress, 1_000_000);
        assert_eq!(sent, 1);
        assert_eq!(gathered(&progress, 1_999_999), (false, 1, 0));
        assert_eq!(gathered(&progress, 9_000_000), (true, 3, 2 * frame_bytes), "those due at 2 and 3 ms");
        assert!(progress.is_done());
        assert_eq!(gathered(&progress, 9_000_000), (false, 3, 0));
    }

    #[test]
    fn a_desktop_that_is_far_behind_writes_in_pieces() {
        let progress = Progress::default();
        progress.begin(Plan { start_nanos: 0, end_nanos: u64::MAX, per_second: 1e6 });
        let (any, sent, bytes) = gathered(&progress, 1_000_000_000);
        assert!(any && sent > 500 && (BATCH_BYTES..BATCH_BYTES + 1_000).contains(&bytes), "{sent} frames, {bytes} bytes");
    }
}
