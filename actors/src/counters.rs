//! Counters of what goes wrong or is dropped; each exists from the start, at zero.

use crate::user_router::message::DropReason;
use relay_protocol::close::CloseReason;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Process-wide counters.
#[derive(Debug, Default)]
pub struct Counters {
    no_pending_record: AtomicU64,
    phone_gone: AtomicU64,
    wrong_generation: AtomicU64,
    stale_socket: AtomicU64,
    /// Routers that ended by a panic.
    pub routers_failed: Counter,
    /// Persistence actors that ended by a panic and were started anew.
    pub persistence_restarted: Counter,
    /// Connections retired because they were silent.
    pub retired_silent: Counter,
    /// Connections retired because they could not take their traffic.
    pub retired_saturated: Counter,
    /// Messages and pings of phones that were over their rate and were dropped, answered or not.
    pub rate_limited: Counter,
    /// TCP connections ended from outside of their actor.
    pub killed: Counter,
}

/// One counter.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn increment(&self) {
        self.add(1);
    }

    /// So many more.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }

    /// The count.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Counters {
    /// Counts a drop.
    pub fn dropped(&self, reason: DropReason) {
        self.of(reason).fetch_add(1, Relaxed);
    }

    /// Drops for this reason.
    pub fn dropped_for(&self, reason: DropReason) -> u64 {
        self.of(reason).load(Relaxed)
    }

    /// Counts a retirement.
    pub fn retired(&self, reason: CloseReason) {
        if reason == CloseReason::Saturated {
            self.retired_saturated.increment();
        } else {
            self.retired_silent.increment();
        }
    }

    fn of(&self, reason: DropReason) -> &AtomicU64 {
        match reason {
            DropReason::NoPendingRecord => &self.no_pending_record,
            DropReason::PhoneGone => &self.phone_gone,
            DropReason::WrongGeneration => &self.wrong_generation,
            DropReason::StaleSocket => &self.stale_socket,
        }
    }
}
