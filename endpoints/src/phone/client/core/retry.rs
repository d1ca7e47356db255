//! How often the calls of a client are tried again: each by itself, and all of them together. Pure: time is an argument.

use crate::backoff::Policy;
use std::time::Duration;
use tokio::time::Instant;

/// The bounds of what a client tries again. Only what is marked retryable is, and nothing past its call's deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// Most retries of one call. Five waits that double from half a second last eight seconds on average: a desktop that comes back
    /// from a restart is met, and a person is told soon that it is away.
    pub per_call: u32,
    /// Most retries of all calls together at once. Half of the calls that a phone may have open: a desktop that is away while all of
    /// them are open is asked less than once more for each.
    pub burst: u32,
    /// How long it takes until another retry may be made beyond the burst.
    pub every: Duration,
    /// The waits of one call, with full jitter.
    pub backoff: Policy,
}

impl Retries {
    /// Nothing is tried again.
    pub const NONE: Retries =
        Retries { per_call: 0, burst: 0, every: Duration::MAX, backoff: Policy { first: Duration::ZERO, max: Duration::ZERO } };
}

impl Default for Retries {
    fn default() -> Self {
        let backoff = Policy { first: Duration::from_millis(500), max: Duration::from_secs(8) };
        Retries { per_call: 5, burst: 32, every: Duration::from_secs(2), backoff }
    }
}

/// What is left of the retries of all calls together: a token bucket.
#[derive(Debug)]
pub(super) struct Budget {
    burst: u32,
    every: Duration,
    left: u32,
    /// Up to when tokens were added.
    filled: Instant,
}

impl Budget {
    pub(super) fn new(now: Instant, retries: Retries) -> Self {
        Budget { burst: retries.burst, every: retries.every, left: retries.burst, filled: now }
    }

    /// Takes one retry, if there is one.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        while self.left < self.burst {
            match self.filled.checked_add(self.every) {
                Some(next) if next <= now => {
                    self.left += 1;
                    self.filled = next;
                }
                Some(_) | None => break,
            }
        }
        if self.left == self.burst {
            // A full bucket earns nothing.
            self.filled = now;
        }
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn retries(burst: u32) -> Retries {
        Retries { burst, ..Retries::default() }
    }

    #[test]
    fn a_burst_is_there_at_once_and_then_one_each_interval() {
        let start = Instant::now();
        let every = retries(2).every;
        let mut budget = Budget::new(start, retries(2));
        let taken = |budget: &mut Budget, after: Duration| budget.take(start + after);
        assert_eq!([Duration::ZERO; 3].map(|after| taken(&mut budget, after)), [true, true, false]);
        assert_eq!([every - MS, every, every + MS].map(|after| taken(&mut budget, after)), [false, true, false]);
        assert_eq!([2 * every - MS, 2 * every].map(|after| taken(&mut budget, after)), [false, true], "the interval runs on");
    }

    #[test]
    fn what_is_not_used_is_kept_up_to_the_burst() {
        let start = Instant::now();
        let mut budget = Budget::new(start, retries(3));
        let long = start + 1_000 * retries(3).every;
        assert_eq!([long; 4].map(|now| budget.take(now)), [true, true, true, false]);
        assert!(!budget.take(long + retries(3).every - MS), "a full bucket has not earned beforehand");
    }

    #[test]
    fn none_is_none() {
        let start = Instant::now();
        assert!(!Budget::new(start, Retries::NONE).take(start + Duration::from_secs(1 << 20)));
    }
}
