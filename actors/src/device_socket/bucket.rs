//! A token bucket: so many at once, so many a second (device-lane section 4).
//!
//! Pure, in whole numbers. Credit is counted in billionths of a token, and a nanosecond at `per_second` tokens a second is worth exactly
//! `per_second` of them: nothing is rounded, so nothing drifts, however often it is asked.

use relay_protocol::limits;
use std::time::{Duration, Instant};

const TOKEN: u64 = 1_000_000_000;

/// How much one connection may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Tokens of a full bucket; at least one.
    pub burst: u32,
    /// Tokens that come back in a second; at least one.
    pub per_second: u32,
}

impl Default for Rate {
    fn default() -> Self {
        Rate { burst: limits::RATE_BURST, per_second: limits::RATE_PER_SECOND }
    }
}

/// A bucket; full when it is made.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    rate: Rate,
    /// In billionths of a token, as of `counted`.
    credit: u64,
    counted: Instant,
}

impl Bucket {
    /// A full bucket.
    pub fn new(rate: Rate, now: Instant) -> Self {
        Bucket { rate, credit: u64::from(rate.burst) * TOKEN, counted: now }
    }

    /// Takes one token.
    ///
    /// # Errors
    /// There is none: when there will be one.
    pub fn take(&mut self, now: Instant) -> Result<(), Instant> {
        self.refill(now);
        match self.credit.checked_sub(TOKEN) {
            Some(left) => {
                self.credit = left;
                Ok(())
            }
            None => Err(self.counted + Duration::from_nanos((TOKEN - self.credit).div_ceil(u64::from(self.rate.per_second)))),
        }
    }

    /// Whether there is a token to take.
    pub fn has_token(&mut self, now: Instant) -> bool {
        self.refill(now);
        self.credit >= TOKEN
    }

    /// Whether nothing is missing: a bucket like a new one.
    pub fn is_full(&mut self, now: Instant) -> bool {
        self.refill(now);
        self.credit == u64::from(self.rate.burst) * TOKEN
    }

    /// A clock that stands still, or is asked late, gives nothing and takes nothing away.
    fn refill(&mut self, now: Instant) {
        let passed = u64::try_from(now.saturating_duration_since(self.counted).as_nanos()).unwrap_or(u64::MAX);
        let earned = passed.saturating_mul(u64::from(self.rate.per_second));
        self.credit = self.credit.saturating_add(earned).min(u64::from(self.rate.burst) * TOKEN);
        self.counted = self.counted.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const MILLISECOND: Duration = Duration::from_millis(1);

    /// A bucket that is exactly empty, and when.
    fn empty(burst: u32, per_second: u32) -> (Bucket, Instant) {
        let now = clock::now();
        let mut bucket = Bucket::new(Rate { burst, per_second }, now);
        assert_eq!(taken(&mut bucket, now), burst);
        (bucket, now)
    }

    fn taken(bucket: &mut Bucket, now: Instant) -> u32 {
        let mut count = 0;
        while bucket.take(now).is_ok() {
            count += 1;
        }
        count
    }

    #[test]
    fn a_new_bucket_holds_its_burst_and_then_nothing() {
        for burst in [1, 2, 300, 100_000] {
            let (mut bucket, now) = empty(burst, 10);
            assert!(!bucket.has_token(now));
            assert_eq!(bucket.take(now), Err(now + Duration::from_millis(100)));
        }
    }

    #[test]
    fn a_bucket_is_full_again_when_its_last_token_is_back() {
        let now = clock::now();
        let mut bucket = Bucket::new(Rate { burst: 5, per_second: 10 }, now);
        assert!(bucket.is_full(now));
        assert!(bucket.take(now).is_ok() && bucket.take(now).is_ok());
        assert!(!bucket.is_full(now + Duration::from_millis(199)) && bucket.is_full(now + Duration::from_millis(200)));
    }

    #[test]
    fn a_token_comes_back_at_its_millisecond() {
        for (per_second, wait_ms) in [(1, 1_000), (10, 100), (250, 4), (1_000, 1)] {
            let wait = Duration::from_millis(wait_ms);
            for (at, there) in [(wait - MILLISECOND, false), (wait, true), (wait + MILLISECOND, true)] {
                let (mut bucket, now) = empty(5, per_second);
                assert_eq!(bucket.has_token(now + at), there, "{per_second} a second, after {at:?}");
                assert_eq!(bucket.take(now + at).is_ok(), there, "{per_second} a second, after {at:?}");
            }
        }
    }

    /// A third of a second is no whole number of nanoseconds: what is told is the first one at which the token is there.
    #[test]
    fn the_time_that_is_told_is_the_first_at_which_it_is_so() {
        for per_second in [1, 3, 7, 150, 999_999_937, u32::MAX] {
            let (mut bucket, now) = empty(3, per_second);
            let until = bucket.take(now).unwrap_err();
            assert!(bucket.take(until - Duration::from_nanos(1)).is_err(), "{per_second}");
            assert!(bucket.take(until).is_ok(), "{per_second}");
        }
    }

    #[test]
    fn idleness_fills_it_to_its_burst_and_no_further() {
        for idle in [Duration::from_secs(2), Duration::from_secs(2) + MILLISECOND, Duration::from_secs(86_400 * 365 * 30)] {
            let (mut bucket, now) = empty(300, 150);
            assert_eq!(taken(&mut bucket, now + idle), 300, "{idle:?}");
        }
        let (mut bucket, now) = empty(300, 150);
        assert_eq!(taken(&mut bucket, now + Duration::from_secs(2) - MILLISECOND), 299);
    }

    #[test]
    fn a_clock_that_stands_still_or_is_asked_late_changes_nothing() {
        let (mut bucket, now) = empty(2, 10);
        assert!(bucket.take(now).is_err());
        assert!(bucket.take(now + 100 * MILLISECOND).is_ok());
        assert!(bucket.take(now).is_err(), "an earlier time");
        assert!(bucket.take(now + 199 * MILLISECOND).is_err(), "nothing was earned twice");
        assert!(bucket.take(now + 200 * MILLISECOND).is_ok());
    }

    #[test]
    fn asking_often_earns_neither_more_nor_less() {
        let (mut bucket, start) = empty(300, 150);
        let (mut count, step, end) = (0, Duration::from_nanos(333_333), Duration::from_secs(60));
        let mut at = Duration::ZERO;
        while at < end {
            at = end.min(at + step);
            count += taken(&mut bucket, start + at);
        }
        assert_eq!(count, 60 * 150);
    }
}
