//! The open loop: calls are due at a fixed total rate.

use super::Run;
use crate::{
    error::Error,
    frame::{self, CallId, Kind},
    link::{Incoming, Receiver, Sender},
    target::Link,
};
use std::{
    num::NonZeroU64,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};
use tokio::{
    sync::{Mutex, mpsc},
    task::JoinSet,
};

/// Between connecting and the first call, so that all phones are listening.
const LEAD: Duration = Duration::from_millis(50);
/// How long answers may come in after the last call was due.
const LATE: Duration = Duration::from_secs(10);
/// How often it is looked whether all have come.
const LATE_CHECK: Duration = Duration::from_millis(100);
/// The kernel may otherwise oversleep by 50 µs, as long as a whole call takes.
const TIMER_SLACK_NANOS: NonZeroU64 = NonZeroU64::new(1_000).unwrap();

/// Where the pacer tells one phone that a call is due, in nanoseconds of the run's clock. A phone that cannot send must not hold
/// the pacer up; what is queued is bounded by the length of the run.
pub(super) type Pace = mpsc::UnboundedSender<u64>;

/// Starts one phone.
pub(super) fn spawn(tasks: &mut JoinSet<()>, run: &Arc<Run>, link: Link) -> Pace {
    let (pace, due) = mpsc::unbounded_channel();
    tasks.spawn(phone(run.clone(), link, due));
    pace
}

/// Starts the thread that says when calls are due: the i-th of all at start + i / rate. It ends with the measured span or with
/// the phones.
pub(super) fn spawn_pacer(run: Arc<Run>, paces: Vec<Pace>, rate: f64) {
    std::thread::spawn(move || {
        let _coarser_then = rustix::thread::set_current_timer_slack(Some(TIMER_SLACK_NANOS));
        let start = Duration::from_nanos(run.clock.nanos()) + LEAD;
        for (call, pace) in (0u64..).zip(paces.iter().cycle()) {
            let due = start + Duration::from_secs_f64(call as f64 / rate);
            sleep_until(&run, due);
            let due_nanos = u64::try_from(due.as_nanos()).unwrap_or(u64::MAX);
            if run.recorder.is_over(due_nanos) || pace.send(due_nanos).is_err() {
                return;
            }
            if run.recorder.covers(due_nanos) {
                run.due.fetch_add(1, Relaxed);
            }
        }
    });
}

#[expect(clippy::disallowed_methods, reason = "a thread of its own: the runtime's timer ticks in milliseconds, several calls long")]
fn sleep_until(run: &Run, due: Duration) {
    let wait = due.saturating_sub(Duration::from_nanos(run.clock.nanos()));
    if !wait.is_zero() {
        std::thread::sleep(wait);
    }
}

/// Waits until every call that was due in the measured span is answered, or for as long as is reasonable.
pub(super) async fn wait_for_late_answers(run: &Run) {
    let all_answered = async {
        while run.recorder.count() < run.due.load(Relaxed) {
            tokio::time::sleep(LATE_CHECK).await;
        }
    };
    let _what_is_missing_is_reported = tokio::time::timeout(LATE, all_answered).await;
}

async fn phone(run: Arc<Run>, link: Link, due: mpsc::UnboundedReceiver<u64>) {
    let Link { peer, sender, receiver } = link;
    let sender = Mutex::new(sender);
    let end = tokio::select! {
        end = call(&run, &sender, due) => end,
        end = listen(&run, &sender, receiver) => end,
    };
    if let Err(error) = end {
        run.recorder.fail(|| format!("phone {}: {error}", peer.pair));
    }
}

async fn call(run: &Run, sender: &Mutex<Sender>, mut due: mpsc::UnboundedReceiver<u64>) -> Result<(), Error> {
    let mut sequence = 0u32;
    while let Some(due_nanos) = due.recv().await {
        sequence = sequence.wrapping_add(1);
        let request = frame::request(CallId { sequence, slot: 0, due_nanos }, &run.bodies.params);
        sender.lock().await.send(request).await?;
    }
    // Nothing more is due, but answers may still come in.
    std::future::pending().await
}

async fn listen(run: &Run, sender: &Mutex<Sender>, mut receiver: Receiver) -> Result<(), Error> {
    loop {
        let text = match receiver.receive().await {
            Incoming::Message(text) => text,
            Incoming::Ping(body) => {
                sender.lock().await.pong(&body).await?;
                continue;
            }
            Incoming::Closed => return Err(Error::Closed { during: "the run" }),
        };
        match frame::kind(&text) {
            Kind::Response | Kind::Error => {}
            Kind::Request | Kind::Registered | Kind::Other => continue,
        }
        let due = CallId::of(&text).map(|id| id.due_nanos);
        if run.is_right(&text)
            && let Some(due) = due.filter(|due| run.recorder.covers(*due))
        {
            run.recorder.record(run.clock.nanos().saturating_sub(due));
        }
    }
}
