//! What waits in a lane, in which order it is written, and how it is cut into slices. Pure: no lock, no clock, no waker.

use super::{
    SLICE_BYTES_MAX,
    events::{EventLimits, Events},
    frame::{Control, Frame, Written},
};
use bytes::{Bytes, BytesMut};
use relay_protocol::text::Text;
use std::{collections::VecDeque, time::Instant};

/// What a frame's bookkeeping costs beside its text; counted, so that a flood of tiny frames is bounded too.
const FRAME_OVERHEAD_BYTES: usize = 96;

/// A ping and the largest pong, or the largest close frame, fit in what is kept free for them.
const CONTROL_FRAMES_BYTES_MAX: usize = 2 + (2 + 125) + (2 + 125);

/// The capacity that a burst's end gives back begins here, in frames.
const KEPT_CAPACITY: usize = 64;

/// Everything that one connection is owed.
#[derive(Debug)]
pub(super) struct Queue {
    /// The frame that has begun, from either lane. It is finished before anything else is written.
    writing: Option<Frame>,
    /// Replies, presence, errors, requests. They never wait for events.
    urgent: VecDeque<Frame>,
    pub(super) events: Events,
    /// Only the latest pong is owed: the peer matches it with its newest ping.
    pub(super) pong: Option<Bytes>,
    pub(super) ping: bool,
    /// Goes last.
    pub(super) close: Option<Bytes>,
    /// Of `writing` and `urgent`, bookkeeping counted.
    bytes: usize,
}

impl Queue {
    pub(super) fn new(events: EventLimits) -> Self {
        Queue { writing: None, urgent: VecDeque::new(), events: Events::new(events), pong: None, ping: false, close: None, bytes: 0 }
    }

    /// What an urgent text costs, bookkeeping counted.
    pub(super) fn cost(text: &Text) -> usize {
        Frame::wire_bytes(text) + FRAME_OVERHEAD_BYTES
    }

    pub(super) fn push(&mut self, text: Text) {
        self.bytes += Queue::cost(&text);
        self.urgent.push_back(Frame::new(text));
    }

    /// Bytes that are held, bookkeeping counted.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.events.bytes()
    }

    /// Whether this much more would be too much. One message always fits an empty queue.
    pub(super) fn would_pass(&self, bytes_max: usize, cost: usize) -> bool {
        self.bytes() > 0 && self.bytes().saturating_add(cost) > bytes_max
    }

    /// Drops what has not begun.
    pub(super) fn drop_waiting(&mut self) {
        self.urgent = VecDeque::new();
        self.events.clear();
        self.bytes = self.writing.as_ref().map_or(0, Frame::len);
    }

    /// Drops everything. True when a frame has begun: nothing may follow a piece of it.
    pub(super) fn drop_all(&mut self) -> bool {
        let cut = self.writing.take().is_some();
        self.drop_waiting();
        cut
    }

    /// The next slice; empty when there is nothing to write.
    pub(super) fn next_slice(&mut self, now: Instant) -> Bytes {
        self.events.begin_flush(now);
        let mut slice = BytesMut::new();
        loop {
            if self.writing.is_none() {
                if slice.len() + CONTROL_FRAMES_BYTES_MAX > SLICE_BYTES_MAX {
                    return slice.freeze();
                }
                self.take_control(&mut slice);
                self.writing = self.next_frame(now);
            }
            let Some(frame) = &mut self.writing else { break };
            let before = slice.len();
            match frame.write(&mut slice, SLICE_BYTES_MAX) {
                Written::Whole => self.writing = None,
                Written::InPart => {
                    self.bytes -= slice.len() - before;
                    return slice.freeze();
                }
                Written::Split(part) => {
                    self.bytes -= part.len();
                    return part;
                }
            }
            self.bytes -= slice.len() - before;
        }
        // The loop has left room for it.
        if let Some(close) = self.close.take() {
            slice.extend_from_slice(&close);
        }
        slice.freeze()
    }

    fn next_frame(&mut self, now: Instant) -> Option<Frame> {
        if let Some(frame) = self.urgent.pop_front() {
            self.bytes -= FRAME_OVERHEAD_BYTES;
            return Some(frame);
        }
        if self.urgent.capacity() > KEPT_CAPACITY {
            self.urgent = VecDeque::new();
        }
        let frame = self.events.next_due(now)?;
        self.bytes += frame.len();
        Some(frame)
    }

    fn take_control(&mut self, slice: &mut BytesMut) {
        if std::mem::take(&mut self.ping) {
            slice.extend_from_slice(&Control::Ping.frame(&[]));
        }
        if let Some(pong) = self.pong.take() {
            slice.extend_from_slice(&pong);
        }
    }
}
