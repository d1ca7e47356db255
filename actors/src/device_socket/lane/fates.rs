//! What became of events in the coalescing buffers of all connections.

use crate::counters::Counter;

/// Events by their fate; one for each phone that an event was for.
#[derive(Debug, Default)]
pub struct EventFates {
    /// Its writing began.
    pub delivered: Counter,
    /// A newer frame with its key took its place.
    pub coalesced: Counter,
    /// Its lease had ended when it came, or ended while it waited.
    pub lease_ended: Counter,
    /// Its connection closed first.
    pub closed: Counter,
}

/// Events that left one buffer since it was last asked: counted under the lane's lock, and added to those of all lanes at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) delivered: u64,
    pub(super) coalesced: u64,
    pub(super) lease_ended: u64,
    pub(super) closed: u64,
}

impl EventFates {
    pub(super) fn add(&self, ended: Ended) {
        let Ended { delivered, coalesced, lease_ended, closed } = ended;
        self.delivered.add(delivered);
        self.coalesced.add(coalesced);
        self.lease_ended.add(lease_ended);
        self.closed.add(closed);
    }
}
