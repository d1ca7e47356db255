//! What the process has counted since its start, for `GET /metrics`.
//!
//! Plain atomics behind names that the compiler knows: counting a frame or a response is one or two relaxed additions, without lock,
//! allocation or look-up. What is rare is found in a short [`Tally`] by its label. Every label value is there from the start, at zero,
//! and no text of a client becomes one.

mod push;
mod rpc;

pub use push::{Gauge, PushCounters, QueueGauges};
pub use rpc::{BUCKETS_MS, Histogram, HistogramReading, OpenPeaks, Reply, RpcCounters, Unanswered};

use crate::{device_socket::EndReason, spans::Fate, user_router::message::DropReason};
use relay_protocol::{
    close::CloseReason,
    error::{FrameError, RegisterError, RpcRefusal},
    version::Version,
};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// Process-wide counters.
#[derive(Debug)]
pub struct Counters {
    /// Registrations by what became of them: `registered`, `resumed`, or the code of the error frame.
    pub registrations: Tally,
    /// Error frames outside of registration and RPC, by code.
    pub frame_errors: Tally,
    /// Refusals of requests, by [`RpcRefusal::name`].
    pub refusals: Tally,
    /// Requests by the class of their method.
    pub rpc: RpcCounters,
    /// The most requests that were open at once, by bound.
    pub open_peaks: OpenPeaks,
    /// Frames that a router dropped.
    pub dropped: Tally,
    /// Connections that the relay gave up, by reason.
    pub retired: Tally,
    /// Sockets that have ended, registered or not, by reason.
    pub closed: Tally,
    /// Routers that ended by a panic.
    pub routers_failed: Counter,
    /// Persistence actors that ended by a panic and were started anew.
    pub persistence_restarted: Counter,
    /// Messages and pings of phones that were over their rate and were dropped, answered or not.
    pub rate_limited: Counter,
    /// Spans, by what became of them: [`Fate::name`].
    pub spans: Tally,
    /// Pushes.
    pub push: Arc<PushCounters>,
    /// TCP connections ended from outside of their actor.
    pub killed: Counter,
}

impl Default for Counters {
    fn default() -> Self {
        Counters {
            registrations: Tally::new(
                ["registered", "resumed"].into_iter().chain(RegisterError::all(Version::new(0, 0)).iter().map(RegisterError::code)),
            ),
            frame_errors: Tally::new(FrameError::ALL.iter().map(FrameError::code)),
            refusals: Tally::new(RpcRefusal::ALL.iter().map(RpcRefusal::name)),
            rpc: RpcCounters::default(),
            open_peaks: OpenPeaks::default(),
            dropped: Tally::new(DropReason::ALL.map(DropReason::name)),
            retired: Tally::new([CloseReason::Silent, CloseReason::Saturated].map(CloseReason::text)),
            closed: Tally::new(EndReason::all().map(EndReason::name)),
            routers_failed: Counter::default(),
            persistence_restarted: Counter::default(),
            rate_limited: Counter::default(),
            spans: Tally::new(Fate::ALL.map(Fate::name)),
            push: Arc::default(),
            killed: Counter::default(),
        }
    }
}

/// One counter.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn increment(&self) {
        self.add(1);
    }

    /// So many more. Nothing is written for none, so that threads do not take the counter from each other.
    pub fn add(&self, count: u64) {
        if count > 0 {
            self.0.fetch_add(count, Relaxed);
        }
    }

    /// The count.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// The count becomes this one, unless it is larger.
    fn raise_to(&self, count: u64) {
        if self.get() < count {
            self.0.fetch_max(count, Relaxed);
        }
    }
}

/// Counters of one kind, told apart by one label. A count looks the label up among a few, so this is for what is rare.
#[derive(Debug)]
pub struct Tally {
    counters: Vec<(&'static str, Counter)>,
}

impl Tally {
    /// All at zero; these are all that there will be.
    pub fn new(labels: impl IntoIterator<Item = &'static str>) -> Self {
        Tally { counters: labels.into_iter().map(|label| (label, Counter::default())).collect() }
    }

    /// One more of this label.
    pub fn count(&self, label: &str) {
        self.add(label, 1);
    }

    /// So many more of this label.
    pub fn add(&self, label: &str, count: u64) {
        let counter = self.counters.iter().find(|(own, _)| *own == label);
        debug_assert!(counter.is_some(), "{label} is no label of {:?}", self.counters);
        if let Some((_, counter)) = counter {
            counter.add(count);
        }
    }

    /// The count of this label; none for a label that is not there.
    pub fn get(&self, label: &str) -> u64 {
        self.read().find(|(own, _)| *own == label).map_or(0, |(_, count)| count)
    }

    /// Each label and its count.
    pub fn read(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.counters.iter().map(|(label, counter)| (*label, counter.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_label_is_there_once_at_zero() {
        let counters = Counters::default();
        let Counters { registrations, frame_errors, refusals, dropped, retired, closed, spans, .. } = &counters;
        let sizes = [
            (registrations, 15),
            (frame_errors, 6),
            (refusals, 14),
            (dropped, 5),
            (retired, 2),
            (closed, CloseReason::ALL.len() + 2),
            (spans, 4),
        ];
        for (tally, size) in sizes {
            let labels: BTreeSet<_> = tally.read().map(|(label, _)| label).collect();
            assert_eq!((labels.len(), tally.read().count()), (size, size), "{labels:?}");
            assert!(tally.read().all(|(_, count)| count == 0));
        }
    }

    #[test]
    fn a_count_goes_to_its_label_only() {
        let tally = Tally::new(["one", "other"]);
        tally.count("other");
        tally.count("other");
        assert_eq!(tally.read().collect::<Vec<_>>(), [("one", 0), ("other", 2)]);
        assert_eq!((tally.get("other"), tally.get("none")), (2, 0));
    }
}
