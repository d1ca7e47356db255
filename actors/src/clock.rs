//! The only place that reads a clock.
//!
//! Monotonic time is tokio's, so that a paused test drives cores, sockets and sweeps alike. Wall time is for what people
//! and rows see; nothing is ever judged by it.

use std::time::{Duration, Instant};

/// Monotonic now.
pub fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// A point of wall time, in milliseconds since the Unix epoch: the unit of times inside frames and rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EpochMs(pub i64);

impl EpochMs {
    /// Wall time now.
    pub fn now() -> Self {
        EpochMs(i64::try_from(since_epoch().as_millis()).unwrap_or(i64::MAX))
    }

    /// This time plus a duration, for an `expiresAt` beside its `expiresInMs`.
    pub fn plus(self, duration: Duration) -> Self {
        EpochMs(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    /// This time less a duration, for what is known by its age.
    pub fn minus(self, duration: Duration) -> Self {
        EpochMs(self.0.saturating_sub(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that may")]
fn since_epoch() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}

/// Both clocks in one moment: tells the wall time of instants near it, finer than [`EpochMs`].
#[derive(Clone, Copy, Debug)]
pub struct Anchor {
    monotonic: Instant,
    since_epoch: Duration,
}

impl Anchor {
    /// This moment.
    pub fn now() -> Self {
        Anchor { monotonic: now(), since_epoch: since_epoch() }
    }

    /// The wall time of an instant, as time since the Unix epoch.
    pub fn since_epoch(&self, at: Instant) -> Duration {
        let later = at.saturating_duration_since(self.monotonic);
        let earlier = self.monotonic.saturating_duration_since(at);
        self.since_epoch.saturating_add(later).saturating_sub(earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix::{Actor, AsyncContext, Context};
    use std::{cell::Cell, rc::Rc};

    #[test]
    fn an_anchor_tells_the_wall_time_before_and_behind_it() {
        let monotonic = now();
        let anchor = Anchor { monotonic, since_epoch: Duration::from_secs(100) };
        let step = Duration::from_nanos(7);
        for (at, expected) in [(monotonic - step, 99_999_999_993), (monotonic, 100_000_000_000), (monotonic + step, 100_000_000_007)] {
            assert_eq!(anchor.since_epoch(at).as_nanos(), expected);
        }
    }

    const LATER: Duration = Duration::from_secs(90);

    struct Waits(Rc<Cell<bool>>);

    impl Actor for Waits {
        type Context = Context<Self>;

        fn started(&mut self, ctx: &mut Context<Self>) {
            ctx.run_later(LATER, |this, _| this.0.set(true));
        }
    }

    /// Paused time moves this clock and the timers of actors on the same arbiter together. `std`'s clock it does not move, so
    /// nothing else may be asked for the time. What it drives is tested in `tests/paused_time.rs`.
    #[actix::test]
    #[expect(clippy::disallowed_methods, reason = "the clock that nobody may ask is what this is about")]
    async fn trap_6_paused_time_moves_this_clock_and_the_timers_of_actors() {
        tokio::time::pause();
        let (start, std_start) = (now(), Instant::now());
        let fired = Rc::new(Cell::new(false));
        let _waits = Waits(fired.clone()).start();
        tokio::task::yield_now().await;
        tokio::time::advance(LATER - Duration::from_millis(1)).await;
        tokio::task::yield_now().await;
        assert!(!fired.get());
        tokio::time::advance(Duration::from_millis(2)).await;
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(fired.get());
        assert_eq!(now() - start, LATER + Duration::from_millis(1));
        assert!(std_start.elapsed() < LATER);
    }
}
