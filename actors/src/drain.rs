//! How the process leaves: its phases, the routing work that they wait for, and whether it ends behind them.
//!
//! One-way. Whoever would take on something new asks [`Drain::has_begun`]; `Relay::drain` goes through the phases.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::{Duration, Instant},
};
use tokio::sync::{Notify, watch};

/// How far the process is with leaving, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It is not leaving.
    #[default]
    Serving,
    /// Nothing new is taken on; routing work in progress ends.
    Draining,
    /// Every socket is told to go; what they leave is handled and stored.
    Closing,
    /// Nothing is left but the listeners.
    Drained,
}

impl Phase {
    /// Every phase, in order.
    pub const ALL: [Phase; 4] = [Phase::Serving, Phase::Draining, Phase::Closing, Phase::Drained];

    /// The word of the admin listener and of the logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Serving => "serving",
            Phase::Draining => "draining",
            Phase::Closing => "closing",
            Phase::Drained => "drained",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    phase: Phase,
    begun: Option<Instant>,
    drained: Option<Instant>,
    ends_process: bool,
}

#[derive(Debug, Default)]
struct Shared {
    /// Whether `state` is past serving, for who asks with each message.
    begun: AtomicBool,
    /// Work that was taken on before that and has not ended.
    in_flight: AtomicUsize,
    work_ended: Notify,
    state: watch::Sender<State>,
}

/// The drain of one process; clones are handles on the same one. Cores get it with their configuration, so a test has its own.
#[derive(Clone, Debug, Default)]
pub struct Drain(Arc<Shared>);

impl Drain {
    /// Begins it; there is no way back, and nothing to do if it has begun.
    pub fn begin(&self, now: Instant) {
        self.0.begun.store(true, SeqCst);
        self.enter(Phase::Draining, now);
    }

    /// Whether it has begun.
    pub fn has_begun(&self) -> bool {
        self.0.begun.load(Relaxed)
    }

    /// Has the process end once it is drained.
    pub fn end_process(&self) {
        self.0.state.send_if_modified(|state| !std::mem::replace(&mut state.ends_process, true));
    }

    /// Passes on to a later phase. An earlier one changes nothing.
    pub(crate) fn enter(&self, phase: Phase, now: Instant) {
        self.0.state.send_if_modified(|state| {
            let is_later = phase > state.phase;
            if is_later {
                state.phase = phase;
                state.begun.get_or_insert(now);
                state.drained = (phase == Phase::Drained).then_some(now);
            }
            is_later
        });
    }

    /// The phase now.
    pub fn phase(&self) -> Phase {
        self.0.state.borrow().phase
    }

    /// Time since it began, until it was done.
    pub fn elapsed(&self, now: Instant) -> Duration {
        let state = *self.0.state.borrow();
        state.begun.map_or(Duration::ZERO, |begun| state.drained.unwrap_or(now).saturating_duration_since(begun))
    }

    /// Waits until this phase has come, or a later one.
    pub async fn reached(&self, phase: Phase) {
        self.until(|state| state.phase >= phase).await;
    }

    /// Waits until this phase is over.
    pub(crate) async fn left(&self, phase: Phase) {
        self.until(|state| state.phase > phase).await;
    }

    /// Waits until the process is drained and is to end.
    pub async fn process_may_end(&self) {
        self.until(|state| state.phase == Phase::Drained && state.ends_process).await;
    }

    async fn until(&self, is_so: impl FnMut(&State) -> bool) {
        // It cannot be closed: this handle owns the sender.
        let _ = self.0.state.subscribe().wait_for(is_so).await;
    }

    /// Something that must not be cut off begins: a registration, or a message on its way through a router. It is waited for if it
    /// began before the drain.
    pub fn begin_work(&self) -> Work {
        // Counted first and asked then: either this sees that the drain has begun, or the drain sees this.
        self.0.in_flight.fetch_add(1, SeqCst);
        let work = Work(Some(self.clone()));
        if self.0.begun.load(SeqCst) { Work(None) } else { work }
    }

    /// Work that has not ended; once the drain has begun, what was there by then.
    pub fn in_flight(&self) -> usize {
        self.0.in_flight.load(SeqCst)
    }

    /// Waits until no work is in flight. For one waiter.
    pub(crate) async fn work_has_ended(&self) {
        while self.in_flight() > 0 {
            self.0.work_ended.notified().await;
        }
    }
}

/// Work in progress, until it is dropped.
#[derive(Debug)]
pub struct Work(Option<Drain>);

impl Drop for Work {
    fn drop(&mut self) {
        let Some(Drain(shared)) = &self.0 else { return };
        if shared.in_flight.fetch_sub(1, SeqCst) == 1 && shared.begun.load(SeqCst) {
            shared.work_ended.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn phases_go_forward_only_and_each_once() {
        for (index, from) in Phase::ALL.into_iter().enumerate() {
            for (other, to) in Phase::ALL.into_iter().enumerate() {
                let drain = Drain::default();
                drain.enter(from, clock::now());
                drain.enter(to, clock::now());
                assert_eq!(drain.phase(), Phase::ALL[index.max(other)], "{from} to {to}");
            }
        }
    }

    #[test]
    fn the_time_is_counted_from_the_first_begin_to_the_end() {
        let (drain, start) = (Drain::default(), clock::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(drain.elapsed(at(1)), Duration::ZERO);
        drain.begin(at(10));
        drain.begin(at(12));
        assert_eq!((drain.has_begun(), drain.phase(), drain.elapsed(at(13))), (true, Phase::Draining, Duration::from_secs(3)));
        drain.enter(Phase::Closing, at(14));
        drain.begin(at(15));
        assert_eq!((drain.phase(), drain.elapsed(at(16))), (Phase::Closing, Duration::from_secs(6)));
        drain.enter(Phase::Drained, at(17));
        drain.enter(Phase::Drained, at(18));
        assert_eq!(drain.elapsed(at(100)), Duration::from_secs(7));
    }

    #[test]
    fn work_is_counted_if_it_began_before_the_drain() {
        let drain = Drain::default();
        let (first, second) = (drain.begin_work(), drain.begin_work());
        drop(first);
        assert_eq!(drain.in_flight(), 1);
        drain.begin(clock::now());
        let late = drain.begin_work();
        assert_eq!(drain.in_flight(), 1);
        drop(late);
        assert_eq!(drain.in_flight(), 1);
        drop(second);
        assert_eq!(drain.in_flight(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_is_told_when_the_last_work_ends() {
        let drain = Drain::default();
        let (first, second) = (drain.begin_work(), drain.begin_work());
        drain.begin(clock::now());
        let waiting = drain.clone();
        let waiting = tokio::spawn(async move { waiting.work_has_ended().await });
        for work in [first, second] {
            tokio::task::yield_now().await;
            assert!(!waiting.is_finished());
            drop(work);
        }
        waiting.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn the_process_may_end_when_it_is_drained_and_was_asked_to_in_either_order() {
        for asked_first in [true, false] {
            let drain = Drain::default();
            let waiting = drain.clone();
            let waiting = tokio::spawn(async move { waiting.process_may_end().await });
            let steps: [&dyn Fn(); 2] = [&|| drain.end_process(), &|| drain.enter(Phase::Drained, clock::now())];
            for index in [usize::from(!asked_first), usize::from(asked_first)] {
                tokio::task::yield_now().await;
                assert!(!waiting.is_finished());
                steps[index]();
            }
            waiting.await.unwrap();
        }
    }
}
