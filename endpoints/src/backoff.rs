//! How long to wait before the next attempt: exponential back-off with full jitter. Pure: no clock, the RNG is an argument.
//!
//! Full jitter (uniform from zero to the cap) spreads the devices of a relay that has just come back; a fixed wait would bring
//! them all in the same instant.

use rand::{Rng, RngExt};
use std::time::Duration;

/// The caps that waits grow between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Cap of the first wait.
    pub first: Duration,
    /// No cap grows above this. A link that lived at least this long starts again at `first`.
    pub max: Duration,
}

impl Default for Policy {
    /// 0.5 s doubling to 30 s.
    fn default() -> Self {
        Policy { first: Duration::from_millis(500), max: Duration::from_secs(30) }
    }
}

/// The state between attempts.
#[derive(Clone, Debug)]
pub struct Backoff {
    policy: Policy,
    cap: Duration,
}

impl Backoff {
    /// Before the first attempt.
    pub fn new(policy: Policy) -> Self {
        Backoff { policy, cap: policy.first.min(policy.max) }
    }

    /// The wait before the next attempt, from zero up to and including the cap, which doubles each time.
    pub fn next_wait(&mut self, rng: &mut impl Rng) -> Duration {
        let cap = self.cap;
        self.cap = cap.saturating_mul(2).min(self.policy.max);
        let cap_nanos = u64::try_from(cap.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(rng.random_range(0..=cap_nanos))
    }

    /// A link ended after it had been registered for `lived`. One that ends at once does not start the caps again: a relay that
    /// accepts and drops its clients must not be hammered.
    pub fn on_link_ended(&mut self, lived: Duration) {
        if lived >= self.policy.max {
            *self = Backoff::new(self.policy);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{SeedableRng, rand_core::TryRng, rngs::StdRng};
    use std::convert::Infallible;

    /// An RNG that always answers the same bits: all ones draw the top of a range, zeros its bottom.
    struct Constant(u64);

    impl TryRng for Constant {
        type Error = Infallible;

        fn try_next_u32(&mut self) -> Result<u32, Infallible> {
            Ok(u32::try_from(self.0 >> 32).unwrap())
        }

        fn try_next_u64(&mut self) -> Result<u64, Infallible> {
            Ok(self.0)
        }

        fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
            bytes.fill(self.0.to_le_bytes()[0]);
            Ok(())
        }
    }

    fn top(backoff: &mut Backoff) -> Duration {
        backoff.next_wait(&mut Constant(u64::MAX))
    }

    #[test]
    fn caps_double_from_half_a_second_to_thirty() {
        let mut backoff = Backoff::new(Policy::default());
        let caps: Vec<u128> = (0..9).map(|_attempt| top(&mut backoff).as_millis()).collect();
        assert_eq!(caps, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]);
    }

    #[test]
    fn the_lower_end_is_zero() {
        let mut backoff = Backoff::new(Policy::default());
        assert_eq!(backoff.next_wait(&mut Constant(0)), Duration::ZERO);
    }

    #[test]
    fn waits_are_spread_over_the_whole_range() {
        let mut rng = StdRng::seed_from_u64(1);
        let waits: Vec<Duration> = (0..200).map(|_device| Backoff::new(Policy::default()).next_wait(&mut rng)).collect();
        assert!(waits.iter().all(|wait| *wait <= Duration::from_millis(500)));
        assert!(waits.iter().any(|wait| *wait < Duration::from_millis(50)));
        assert!(waits.iter().any(|wait| *wait > Duration::from_millis(450)));
    }

    #[test]
    fn only_a_link_that_lasted_starts_the_caps_again() {
        let policy = Policy::default();
        let mut backoff = Backoff::new(policy);
        top(&mut backoff);
        backoff.on_link_ended(policy.max - Duration::from_millis(1));
        assert_eq!(top(&mut backoff).as_millis(), 1_000);
        backoff.on_link_ended(policy.max);
        assert_eq!(top(&mut backoff).as_millis(), 500);
    }

    #[test]
    fn extreme_policies_neither_overflow_nor_exceed_their_maximum() {
        let mut inverted = Backoff::new(Policy { first: Duration::from_secs(9), max: Duration::from_secs(1) });
        assert_eq!(top(&mut inverted), Duration::from_secs(1));
        let mut endless = Backoff::new(Policy { first: Duration::MAX, max: Duration::MAX });
        top(&mut endless);
        assert_eq!(top(&mut endless), Duration::from_nanos(u64::MAX));
        let mut none = Backoff::new(Policy { first: Duration::ZERO, max: Duration::ZERO });
        assert_eq!(top(&mut none), Duration::ZERO);
    }
}
