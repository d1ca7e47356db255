//! The desktop's mirror of the relay's coalescing buffer: events that wait for the socket (seed: device routing). Pure: no lock, no
//! clock, no waker.
//!
//! An overlay takes the place of the pending one with its key, at the end of the order. Nothing is left out for want of room:
//! [`EventBuffer::has_room`] says that a publisher must wait. What was queued under an interest that is no longer live is dropped on
//! its way out, so that nobody's timeline is written.

use std::collections::BTreeMap;

/// Bytes of pending events; a larger one waits until it is alone. Seed.
pub(super) const PENDING_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Pending events that nothing replaces: those without a timeline key. Seed.
pub(super) const REGULAR_EVENTS_MAX: usize = 64;
/// Timeline keys with a pending overlay; one name counts in each session. Seed.
pub(super) const TIMELINE_KEYS_MAX: usize = 64;

/// The bounds of one connection's buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct BufferLimits {
    pub(super) bytes: usize,
    pub(super) regular: usize,
    pub(super) keys: usize,
}

impl Default for BufferLimits {
    fn default() -> Self {
        BufferLimits { bytes: PENDING_BYTES_MAX, regular: REGULAR_EVENTS_MAX, keys: TIMELINE_KEYS_MAX }
    }
}

/// A base session, and the name of an overlay in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OverlayKey {
    pub(super) session: String,
    pub(super) key: String,
}

/// The interest that a timeline frame was made under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MadeUnder {
    /// The base session.
    pub(super) session: String,
    pub(super) generation: String,
}

/// What waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// No timeline frame: it waits whoever watches.
    Other,
    /// A piece of a timeline that nothing replaces.
    Entry(MadeUnder),
    /// A piece of a timeline that a newer one of the key replaces.
    Overlay(MadeUnder, OverlayKey),
}

impl Kind {
    pub(super) fn made_under(&self) -> Option<&MadeUnder> {
        match self {
            Kind::Other => None,
            Kind::Entry(made_under) | Kind::Overlay(made_under, _) => Some(made_under),
        }
    }

    fn key(&self) -> Option<&OverlayKey> {
        match self {
            Kind::Overlay(_, key) => Some(key),
            Kind::Other | Kind::Entry(_) => None,
        }
    }
}

/// An event as it will be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pending {
    pub(super) kind: Kind,
    pub(super) text: String,
}

/// What has become of the events that went in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fates {
    /// Handed to the socket.
    pub(super) written: u64,
    /// A newer overlay took their place.
    pub(super) replaced: u64,
    /// Their interest ended first.
    pub(super) interest_ended: u64,
}

/// The buffer of one connection.
#[derive(Debug, Default)]
pub(super) struct EventBuffer {
    limits: BufferLimits,
    /// By place in the order of writing.
    pending: BTreeMap<u64, Pending>,
    overlays: BTreeMap<OverlayKey, u64>,
    bytes: usize,
    next: u64,
    fates: Fates,
}

impl EventBuffer {
    /// Whether one more event of this key, or of none, stays within its number, whatever its size.
    pub(super) fn has_place(&self, key: Option<&OverlayKey>) -> bool {
        match key {
            Some(key) => self.overlays.contains_key(key) || self.overlays.len() < self.limits.keys,
            None => self.pending.len() - self.overlays.len() < self.limits.regular,
        }
    }

    /// Whether the event stays within all bounds. Alone it does, whatever its size.
    pub(super) fn has_room(&self, event: &Pending) -> bool {
        let key = event.kind.key();
        let replaced = key.and_then(|key| self.overlays.get(key)).and_then(|place| self.pending.get(place));
        let others = self.bytes - replaced.map_or(0, |replaced| replaced.text.len());
        self.has_place(key) && (others == 0 || others + event.text.len() <= self.limits.bytes)
    }

    /// Puts an event that has room at the end, in the place of the pending one of its key.
    pub(super) fn push(&mut self, event: Pending) {
        debug_assert!(self.has_room(&event), "the publisher waits for room");
        let place = self.next;
        self.next += 1;
        let replaced = event.kind.key().and_then(|key| self.overlays.insert(key.clone(), place));
        if let Some(replaced) = replaced.and_then(|replaced| self.pending.remove(&replaced)) {
            self.bytes -= replaced.text.len();
            self.fates.replaced += 1;
        }
        self.bytes += event.text.len();
        self.pending.insert(place, event);
    }

    /// Takes the text that is to be written now. Those whose interest is not live any more are dropped on the way.
    pub(super) fn pop(&mut self, is_live: impl Fn(&MadeUnder) -> bool) -> Option<String> {
        while let Some((_place, event)) = self.pending.pop_first() {
            self.bytes -= event.text.len();
            if let Some(key) = event.kind.key() {
                self.overlays.remove(key);
            }
            if event.kind.made_under().is_none_or(&is_live) {
                self.fates.written += 1;
                return Some(event.text);
            }
            self.fates.interest_ended += 1;
        }
        None
    }

    /// Drops those whose interest is not live any more, and so makes room.
    pub(super) fn drop_ended(&mut self, is_live: impl Fn(&MadeUnder) -> bool) {
        let EventBuffer { pending, overlays, bytes, fates, .. } = self;
        pending.retain(|_place, event| {
            let stays = event.kind.made_under().is_none_or(&is_live);
            if !stays {
                *bytes -= event.text.len();
                fates.interest_ended += 1;
                if let Some(key) = event.kind.key() {
                    overlays.remove(key);
                }
            }
            stays
        });
    }

    /// Drops everything, with the connection. How many there were, and what became of those before them.
    pub(super) fn clear(&mut self) -> (usize, Fates) {
        let cleared = (self.pending.len(), self.fates);
        *self = EventBuffer { limits: self.limits, ..EventBuffer::default() };
        cleared
    }
}

#[cfg(test)]
#[path = "event_buffer_tests.rs"]
mod tests;
