//! What all sockets together hold, one account for each direction (device-lane section 3).
//!
//! A socket takes bytes out of the [`Budget`] through its own [`Share`], so that the sum is one atomic and the largest holder can be
//! named. Past the budget the supervisor is woken and gives up the largest holders; until it has, [`Share::take`] goes on up to a
//! ceiling, one maximal message above the budget, and no further. What is refused is never counted, not even for a moment, so a large
//! claim that fails makes no small one fail beside it. What is taken is given back exactly: the rest of a share goes with its socket.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};
use tokio::sync::Notify;

/// The account of one direction.
#[derive(Debug)]
pub struct Budget {
    held: AtomicUsize,
    bytes_max: usize,
    ceiling: usize,
    exceeded: Arc<Notify>,
}

impl Budget {
    /// An empty account of `bytes_max`, which may be passed by `overshoot_max` until somebody who waits for `exceeded` has made room.
    pub fn new(bytes_max: usize, overshoot_max: usize, exceeded: Arc<Notify>) -> Self {
        Budget { held: AtomicUsize::new(0), bytes_max, ceiling: bytes_max.saturating_add(overshoot_max), exceeded }
    }

    /// Bytes that are held now.
    pub fn held(&self) -> usize {
        self.held.load(Relaxed)
    }

    /// The bound.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Bytes that are held beyond the budget.
    pub fn excess(&self) -> usize {
        self.held().saturating_sub(self.bytes_max)
    }

    /// Takes bytes if that is right for what is held by then; whoever makes room is woken if it goes beyond the budget, or would have.
    fn take(&self, bytes: usize, is_right: impl Fn(usize) -> bool) -> bool {
        let taken = self.held.fetch_update(Relaxed, Relaxed, |held| is_right(held).then(|| held.saturating_add(bytes)));
        let (Ok(held) | Err(held)) = taken;
        if held.saturating_add(bytes) > self.bytes_max {
            self.exceeded.notify_one();
        }
        taken.is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Relaxed);
    }
}

/// What one socket holds of a budget.
#[derive(Debug)]
pub struct Share {
    held: AtomicUsize,
    budget: Arc<Budget>,
}

impl Share {
    /// Nothing of this budget.
    pub fn new(budget: Arc<Budget>) -> Self {
        Share { held: AtomicUsize::new(0), budget }
    }

    /// Bytes that this socket holds.
    pub fn held(&self) -> usize {
        self.held.load(Relaxed)
    }

    /// Takes bytes for what cannot be refused without ending its connection, or must wait; false when the ceiling would be passed.
    /// Within the budget any one claim goes through, so whoever is refused can count on the supervisor to make room.
    #[must_use]
    pub fn take(&self, bytes: usize) -> bool {
        let Budget { bytes_max, ceiling, .. } = *self.budget;
        self.take_if(bytes, |held| held <= bytes_max || held.saturating_add(bytes) <= ceiling)
    }

    /// Takes bytes for what may be refused; false when the budget has been reached.
    #[must_use]
    pub fn offer(&self, bytes: usize) -> bool {
        let bytes_max = self.budget.bytes_max;
        self.take_if(bytes, |held| held.saturating_add(bytes) <= bytes_max)
    }

    fn take_if(&self, bytes: usize, is_right: impl Fn(usize) -> bool) -> bool {
        // Before the sum, so that whoever sees the sum sees its holder too.
        self.held.fetch_add(bytes, Relaxed);
        let taken = self.budget.take(bytes, is_right);
        if !taken {
            self.held.fetch_sub(bytes, Relaxed);
        }
        taken
    }

    /// Gives back bytes that were taken.
    pub fn give_back(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Relaxed);
        self.budget.give_back(bytes);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.give_back(*self.held.get_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    const MAX: usize = 1_000;
    const OVERSHOOT: usize = 100;

    fn budget() -> (Arc<Budget>, Arc<Notify>) {
        let exceeded = Arc::new(Notify::new());
        (Arc::new(Budget::new(MAX, OVERSHOOT, exceeded.clone())), exceeded)
    }

    #[test]
    fn what_may_be_refused_stops_at_the_budget_and_the_rest_at_the_ceiling() {
        let (budget, _) = budget();
        let (one, other) = (Share::new(budget.clone()), Share::new(budget.clone()));
        assert!(one.offer(MAX - 1) && !other.offer(2) && other.offer(1));
        assert!(!other.offer(1) && other.take(OVERSHOOT) && !other.take(1));
        assert_eq!((one.held(), other.held(), budget.held(), budget.excess()), (MAX - 1, 1 + OVERSHOOT, MAX + OVERSHOOT, OVERSHOOT));
    }

    #[test]
    fn whoever_makes_room_is_woken_past_the_budget_and_not_before() {
        let (budget, exceeded) = budget();
        let share = Share::new(budget);
        assert!(share.take(MAX));
        assert!(exceeded.notified().now_or_never().is_none());
        assert!(share.take(1));
        assert!(exceeded.notified().now_or_never().is_some());
        assert!(!share.take(OVERSHOOT));
        assert!(exceeded.notified().now_or_never().is_some(), "a refusal wakes too");
    }

    #[test]
    fn everything_is_given_back_in_the_end() {
        let (budget, _) = budget();
        let (one, other) = (Share::new(budget.clone()), Share::new(budget.clone()));
        assert!(one.take(700) && other.take(300));
        one.give_back(200);
        assert_eq!(budget.held(), 800);
        drop(one);
        assert_eq!(budget.held(), 300);
        drop(other);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn within_the_budget_any_one_claim_goes_through() {
        let (budget, _) = budget();
        let share = Share::new(budget.clone());
        assert!(share.take(MAX) && share.take(OVERSHOOT + 50));
        assert!(!share.take(1) && budget.excess() > 0, "whoever is refused is made room for");
    }

    #[test]
    fn a_claim_that_is_refused_makes_no_other_one_fail() {
        let (budget, _) = budget();
        let (large, small) = (Share::new(budget.clone()), Share::new(budget));
        assert!(small.take(MAX + 1));
        std::thread::scope(|scope| {
            let claims = scope.spawn(|| (0..200_000).for_each(|_| assert!(!large.take(OVERSHOOT))));
            while !claims.is_finished() {
                assert!(small.take(1));
                small.give_back(1);
            }
        });
    }

    #[test]
    fn threads_that_take_at_once_never_pass_the_ceiling_and_leave_nothing() {
        let budget = Arc::new(Budget::new(150, 100, Arc::default()));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let share = Share::new(budget.clone());
                    for bytes in (1..=100).cycle().take(20_000) {
                        let taken = share.take(bytes);
                        assert!(budget.held() <= 150 + 100, "a refused claim is not counted either");
                        if taken {
                            share.give_back(bytes);
                        }
                    }
                });
            }
        });
        assert_eq!(budget.held(), 0);
    }
}
