//! The coalescing buffer: events on their way to one phone (device-lane section 6). Pure: no lock, no clock, no waker.
//!
//! Frames wait until the first of them has waited for the flush interval, or until they are many; then all that wait are *due* and are
//! written in their order, as the transport has room. What comes later waits anew. A frame with a timeline key takes the place of the
//! pending one with that key, at the end of the order; whatever has no key is neither merged nor dropped while its lease lives.
//!
//! Timeline frames in the buffer are all of the current lease: a frame of another one is not taken, and another lease drops what waits
//! under the former. So at the final moment only the deadline is left to compare.

use super::{fates::Ended, frame::Frame};
use crate::user_router::message::{LeaseTerm, OutboundEvent};
use relay_protocol::limits;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

/// A node of the tree is at least five elevenths full.
const FRAME_OVERHEAD_BYTES: usize = size_of::<(Position, Pending)>() * 11 / 5;
/// A table of keys is at least seven sixteenths full, and the key's own text has two counters.
const KEY_OVERHEAD_BYTES: usize = size_of::<(Arc<str>, Position)>() * 16 / 7 + 2 * size_of::<usize>();

/// The capacity that a burst's end gives back begins here, in keys.
const KEPT_CAPACITY: usize = 64;

/// When the buffer is written, and from when on it is full.
#[derive(Clone, Copy, Debug)]
pub struct EventLimits {
    /// How long the first pending frame waits for others.
    pub flush_interval: Duration,
    /// From this many pending bytes on nothing waits for others.
    pub flush_bytes: usize,
    /// The standard lane is full when it holds this much. A larger frame is oversized, and one of those may wait.
    pub bytes_max: usize,
}

impl Default for EventLimits {
    fn default() -> Self {
        EventLimits {
            flush_interval: limits::EVENT_FLUSH_INTERVAL,
            flush_bytes: limits::EVENT_FLUSH_BYTES,
            bytes_max: limits::EVENT_LANE_BYTES_MAX,
        }
    }
}

/// When there is something to write; the earlier the less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Flush {
    /// As soon as the transport has room.
    Now,
    /// When the first pending frame has waited for long enough.
    At(Instant),
    /// Nothing is pending.
    Never,
}

/// Place in the order of writing.
type Position = u64;

#[derive(Debug)]
struct Pending {
    frame: Frame,
    /// Written under the current lease only; a regular event needs none.
    is_timeline: bool,
    key: Option<Arc<str>>,
}

/// The buffer of one connection.
#[derive(Debug)]
pub(super) struct Events {
    limits: EventLimits,
    lease: Option<LeaseTerm>,
    /// A map, so that an overlay that is replaced over and over leaves nothing behind.
    pending: BTreeMap<Position, Pending>,
    overlays: HashMap<Arc<str>, Position>,
    account: Account,
    /// What has left since [`Events::take_ended`].
    ended: Ended,
    next: Position,
    /// Frames before this one are due.
    due_before: Position,
    /// When the first frame that is not due came. A frame that takes its place does not wait anew.
    waiting_since: Option<Instant>,
}

/// What is pending.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// Bookkeeping counted, like the next one.
    standard_bytes: usize,
    oversized_bytes: usize,
    oversized_frames: usize,
    /// What will be written, without bookkeeping: what a flush is worth.
    wire_bytes: usize,
}

impl Events {
    pub(super) fn new(limits: EventLimits) -> Self {
        Events {
            limits,
            lease: None,
            pending: BTreeMap::new(),
            overlays: HashMap::new(),
            account: Account::default(),
            ended: Ended::default(),
            next: 0,
            due_before: 0,
            waiting_since: None,
        }
    }

    /// What the event costs, bookkeeping counted.
    pub(super) fn cost(event: &OutboundEvent) -> usize {
        cost(Frame::wire_bytes(&event.text), event.key())
    }

    /// Bytes that are held, bookkeeping counted.
    pub(super) fn bytes(&self) -> usize {
        self.account.standard_bytes + self.account.oversized_bytes
    }

    /// Whether more is pending than should be. It is still taken, while the transport moves: left out, it would be missing.
    pub(super) fn is_full(&self) -> bool {
        self.account.standard_bytes >= self.limits.bytes_max || self.account.oversized_frames > 1
    }

    /// When the buffer has something to write.
    pub(super) fn flush(&self) -> Flush {
        let has_due = self.pending.first_key_value().is_some_and(|(position, _)| *position < self.due_before);
        if has_due || self.is_enough() {
            return Flush::Now;
        }
        self.waiting_since.map_or(Flush::Never, |since| Flush::At(since + self.limits.flush_interval))
    }

    /// Whether an event may go into the buffer: a timeline frame under the current lease, or a regular event.
    pub(super) fn admits(&self, event: &OutboundEvent) -> bool {
        let current = self.lease.map(|lease| lease.epoch);
        event.timeline.as_ref().is_none_or(|timeline| Some(timeline.epoch) == current)
    }

    /// Drops the pending frame that this one replaces.
    pub(super) fn make_way(&mut self, event: &OutboundEvent) {
        let Some(position) = event.key().and_then(|key| self.overlays.remove(key)) else { return };
        if let Some(replaced) = self.pending.remove(&position) {
            self.account.remove(&replaced, &self.limits);
            self.ended.coalesced += 1;
        }
    }

    /// Puts an event that is admitted, and has its way made, at the end.
    pub(super) fn push(&mut self, event: OutboundEvent, now: Instant) {
        let is_timeline = event.timeline.is_some();
        let key = event.timeline.and_then(|timeline| timeline.key);
        if let Some(key) = &key {
            self.overlays.insert(key.clone(), self.next);
        }
        let pending = Pending { frame: Frame::new(event.text), is_timeline, key };
        self.account.add(&pending, &self.limits);
        self.pending.insert(self.next, pending);
        self.next += 1;
        self.waiting_since.get_or_insert(now);
        debug_assert!(self.overlays.len() <= self.pending.len(), "a key is forgotten with its frame");
    }

    /// The phone's lease from now on. With another one than before, what waits under the former is dropped.
    pub(super) fn set_lease(&mut self, lease: Option<LeaseTerm>) {
        let epoch = |lease: Option<LeaseTerm>| lease.map(|lease| lease.epoch);
        if epoch(self.lease) != epoch(lease) {
            let Events { pending, account, ended, limits, .. } = self;
            pending.retain(|_, pending| {
                if pending.is_timeline {
                    account.remove(pending, limits);
                    ended.lease_ended += 1;
                }
                !pending.is_timeline
            });
            self.overlays = HashMap::new();
            if self.pending.last_key_value().is_none_or(|(position, _)| *position < self.due_before) {
                self.waiting_since = None;
            }
        }
        self.lease = lease;
    }

    /// Makes what waits due, if it has waited for long enough or is enough.
    pub(super) fn begin_flush(&mut self, now: Instant) {
        let Some(since) = self.waiting_since else { return };
        if self.is_enough() || now >= since + self.limits.flush_interval {
            self.due_before = self.next;
            self.waiting_since = None;
        }
    }

    /// Whether the phone has a lease.
    pub(super) fn has_lease(&self, now: Instant) -> bool {
        self.lease.is_some_and(|lease| now < lease.deadline)
    }

    /// Takes the next frame that is due, to be written at once. Timeline frames whose lease has ended are dropped on the way.
    pub(super) fn next_due(&mut self, now: Instant) -> Option<Frame> {
        let has_lease = self.has_lease(now);
        while let Some(first) = self.pending.first_entry().filter(|first| *first.key() < self.due_before) {
            let pending = first.remove();
            self.account.remove(&pending, &self.limits);
            if let Some(key) = &pending.key {
                self.overlays.remove(key);
            }
            if has_lease || !pending.is_timeline {
                self.ended.delivered += 1;
                return Some(pending.frame);
            }
            self.ended.lease_ended += 1;
        }
        if self.overlays.is_empty() && self.overlays.capacity() > KEPT_CAPACITY {
            self.overlays = HashMap::new();
        }
        None
    }

    /// Drops everything that is pending.
    pub(super) fn clear(&mut self) {
        let closed = self.ended.closed + self.pending.len() as u64;
        *self = Events { lease: self.lease, ended: Ended { closed, ..self.ended }, ..Events::new(self.limits) };
    }

    /// What has left the buffer since the last call.
    pub(super) fn take_ended(&mut self) -> Ended {
        std::mem::take(&mut self.ended)
    }

    fn is_enough(&self) -> bool {
        // Full counts too: many tiny frames fill the lane with bookkeeping before they are many bytes.
        self.account.wire_bytes >= self.limits.flush_bytes || self.is_full()
    }
}

impl Account {
    fn add(&mut self, pending: &Pending, limits: &EventLimits) {
        let cost = pending.cost();
        self.wire_bytes += pending.frame.len();
        if cost > limits.bytes_max {
            self.oversized_bytes += cost;
            self.oversized_frames += 1;
        } else {
            self.standard_bytes += cost;
        }
    }

    fn remove(&mut self, pending: &Pending, limits: &EventLimits) {
        let cost = pending.cost();
        self.wire_bytes -= pending.frame.len();
        if cost > limits.bytes_max {
            self.oversized_bytes -= cost;
            self.oversized_frames -= 1;
        } else {
            self.standard_bytes -= cost;
        }
    }
}

impl Pending {
    fn cost(&self) -> usize {
        cost(self.frame.len(), self.key.as_ref())
    }
}

impl OutboundEvent {
    fn key(&self) -> Option<&Arc<str>> {
        self.timeline.as_ref()?.key.as_ref()
    }
}

fn cost(wire_bytes: usize, key: Option<&Arc<str>>) -> usize {
    wire_bytes + FRAME_OVERHEAD_BYTES + key.map_or(0, |key| key.len() + KEY_OVERHEAD_BYTES)
}
