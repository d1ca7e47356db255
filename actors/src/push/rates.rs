//! How often an account may cause pushes: so many at once, and one in every so long.

use relay_protocol::id::UserId;
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// How often accounts that have become idle are let go.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// Rates of all accounts. One that has its whole burst left takes no room.
#[derive(Debug)]
pub(super) struct Rates {
    interval: Duration,
    /// By how far an account may be ahead of its rate.
    tolerance: Duration,
    /// When an account that had kept to the interval would have caused as many.
    paid_until: BTreeMap<UserId, Instant>,
    next_sweep: Option<Instant>,
}

impl Rates {
    pub(super) fn new(burst: u32, interval: Duration) -> Self {
        Rates { interval, tolerance: interval * burst.saturating_sub(1), paid_until: BTreeMap::new(), next_sweep: None }
    }

    /// Whether the account may cause one more now; then it has.
    pub(super) fn take(&mut self, user: UserId, now: Instant) -> bool {
        if self.next_sweep.is_none_or(|at| at <= now) {
            self.next_sweep = Some(now + SWEEP_INTERVAL);
            self.paid_until.retain(|_, until| *until > now);
        }
        let until = self.paid_until.get(&user).copied().filter(|until| *until > now).unwrap_or(now);
        let may = until <= now + self.tolerance;
        if may {
            self.paid_until.insert(user, until + self.interval);
        }
        may
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.paid_until.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use uuid::Uuid;

    const SECOND: Duration = Duration::from_secs(1);

    fn user(number: u128) -> UserId {
        UserId(Uuid::from_u128(number))
    }

    #[test]
    fn an_account_has_its_burst_and_then_one_in_each_interval() {
        let (mut rates, now) = (Rates::new(3, 6 * SECOND), clock::now());
        let mut taken = |at: Duration| (0..10).filter(|_| rates.take(user(1), now + at)).count();
        assert_eq!([taken(Duration::ZERO), taken(5 * SECOND), taken(6 * SECOND), taken(7 * SECOND)], [3, 0, 1, 0]);
        assert_eq!([taken(18 * SECOND), taken(600 * SECOND)], [2, 3], "what is not used is kept, up to the burst");
    }

    #[test]
    fn one_account_takes_nothing_from_another_and_idle_ones_take_no_room() {
        let (mut rates, now) = (Rates::new(1, SECOND), clock::now());
        assert!((0..1_000).all(|number| rates.take(user(number), now)));
        assert!(!rates.take(user(0), now));
        assert_eq!(rates.len(), 1_000);
        assert!(rates.take(user(0), now + SWEEP_INTERVAL));
        assert_eq!(rates.len(), 1);
    }
}
