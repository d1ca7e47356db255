//! What a router counts, for the application that runs it.

use super::permits::Permits;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Since the router was made.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) busy: Counter,
    pub(super) timed_out: Counter,
    pub(super) forbidden: Counter,
    pub(super) snake_case: Counter,
    pub(super) over_limit: Counter,
    pub(super) panicked: Counter,
    pub(super) unqueued: Counter,
}

#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Reads a router's figures, also while a desktop owns the router.
#[derive(Clone)]
pub struct Meter {
    pub(super) permits: Arc<Permits>,
    pub(super) counters: Arc<Counters>,
}

/// A router's figures at one moment; counts are since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Light permits that are taken now.
    pub light_in_use: usize,
    /// Heavy permits that are taken now.
    pub heavy_in_use: usize,
    /// Requests that got no permit in time.
    pub busy: u64,
    /// Requests whose handler, or the copy that they waited for, took too long.
    pub timed_out: u64,
    /// Requests of another account.
    pub forbidden: u64,
    /// Results and progress that had a field in snake_case.
    pub snake_case: u64,
    /// Results over a limit of the contract.
    pub over_limit: u64,
    /// Handlers and detached work that panicked.
    pub panicked: u64,
    /// Replies that found no room in the socket's queue in time.
    pub unqueued: u64,
}

impl Meter {
    /// The figures of now.
    pub fn read(&self) -> Figures {
        let Counters { busy, timed_out, forbidden, snake_case, over_limit, panicked, unqueued } = &*self.counters;
        Figures {
            light_in_use: self.permits.light_in_use(),
            heavy_in_use: self.permits.heavy_in_use(),
            busy: busy.get(),
            timed_out: timed_out.get(),
            forbidden: forbidden.get(),
            snake_case: snake_case.get(),
            over_limit: over_limit.get(),
            panicked: panicked.get(),
            unqueued: unqueued.get(),
        }
    }
}
