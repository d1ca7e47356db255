//! The outbound lane of one connection: frames that are ready to be written, pulled by the transport in slices.
//!
//! The router puts frames in, from any thread; the response stream takes slices out, only when the transport asks for them. So
//! what is queued here is, to one slice, what the peer has not taken, and a peer that reads nothing costs what its lane holds.
//! Control frames go between messages, never into one.

use super::budget::Share;
use crate::{
    clock,
    user_router::message::{LeaseTerm, OutboundEvent},
};
use bytes::{Bytes, BytesMut};
use relay_protocol::{close::CloseReason, text::Text};
use std::{
    collections::VecDeque,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Waker},
    time::Instant,
};

/// Most bytes that leave in one slice.
pub const SLICE_BYTES_MAX: usize = 64 * 1024;
/// What a frame's bookkeeping costs beside its text; counted, so that a flood of tiny frames is bounded too.
const FRAME_OVERHEAD_BYTES: usize = 96;

/// A ping and the largest pong, or the largest close frame, fit in what is kept free for them.
const CONTROL_FRAMES_BYTES_MAX: usize = 2 + (2 + 125) + (2 + 125);

const FIN: u8 = 0x80;
const OPCODE_TEXT: u8 = 0x1;
const OPCODE_CLOSE: u8 = 0x8;
const OPCODE_PING: u8 = 0x9;
const OPCODE_PONG: u8 = 0xa;

/// Why a frame was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The lane holds as much as it may.
    Full,
    /// The connection is closing.
    Closing,
}

/// One connection's outbound lane.
#[derive(Debug)]
pub struct Lane {
    queue: Mutex<Queue>,
    /// Whether `queue.closing` is set, for who must not wait for the lock.
    closing: AtomicBool,
    /// As much of the process's budget as `queue.bytes`.
    share: Share,
    bytes_max: usize,
    ceiling: usize,
}

#[derive(Debug)]
struct Queue {
    frames: VecDeque<Frame>,
    /// Only the latest pong is owed: the peer matches it with its newest ping.
    pong: Option<Bytes>,
    ping: bool,
    closing: Option<Closing>,
    /// The front frame has been pulled in part.
    mid_frame: bool,
    bytes: usize,
    /// The transport has gone: nothing is taken any more.
    ended: bool,
    /// A message found no room since the last pull.
    refused: bool,
    last_pull: Instant,
    waker: Option<Waker>,
}

#[derive(Debug)]
struct Closing {
    since: Instant,
    /// None when it answers the peer's own close frame.
    reason: Option<CloseReason>,
    frame: Option<Bytes>,
    lingers: bool,
}

/// A text frame, partly pulled or not: what is left of it. A small one costs no allocation beside its text.
#[derive(Debug)]
struct Frame {
    header: Header,
    piece: Bytes,
    pieces: std::vec::IntoIter<Bytes>,
}

/// A server's frame header: never masked.
#[derive(Clone, Copy, Debug)]
struct Header {
    bytes: [u8; 10],
    length: usize,
}

/// What a pull gave.
#[derive(Debug, PartialEq, Eq)]
pub enum Pulled {
    /// Bytes to write.
    Slice(Bytes),
    /// Nothing now; the waker of the pull is called when there is.
    Nothing,
    /// The close frame has been pulled, or there is none to send: nothing will follow. When it lingers, input is read and discarded
    /// for a moment so that the peer sees the close frame.
    Finished {
        /// Whether to linger.
        lingers: bool,
    },
}

impl Lane {
    /// An empty lane that holds at most `bytes_max`, and what must not be dropped up to one message of `message_bytes_max` more.
    pub fn new(bytes_max: usize, message_bytes_max: usize, share: Share, now: Instant) -> Self {
        let queue = Queue {
            frames: VecDeque::new(),
            pong: None,
            ping: false,
            closing: None,
            mid_frame: false,
            bytes: 0,
            ended: false,
            refused: false,
            last_pull: now,
            waker: None,
        };
        let ceiling = bytes_max.saturating_add(message_bytes_max);
        Lane { queue: Mutex::new(queue), closing: AtomicBool::new(false), share, bytes_max, ceiling }
    }

    /// Puts in a text message if there is room: a request, which may be refused.
    ///
    /// # Errors
    /// [`Refused::Full`] when it does not fit, unless the lane is empty: one message always fits. Or when all lanes together hold as
    /// much as they may.
    pub fn offer(&self, text: Text) -> Result<(), Refused> {
        let (mut queue, frame) = (self.lock(), Frame::new(text));
        if queue.takes_nothing() {
            return Err(Refused::Closing);
        }
        let cost = frame.cost() + FRAME_OVERHEAD_BYTES;
        if queue.bytes > 0 && queue.bytes + cost > self.bytes_max {
            queue.refused = true;
            return Err(Refused::Full);
        }
        if !self.share.offer(cost) {
            // That is not this lane's doing, so it does not count as full.
            return Err(Refused::Full);
        }
        self.put(queue, frame, cost);
        Ok(())
    }

    /// Puts in a text message that must not be dropped: a reply, presence, an error. It may take the lane over its bound by one
    /// maximal message; what would go further ends the connection as `saturated`, whether its peer reads or not.
    ///
    /// # Errors
    /// [`Refused::Full`] when it has just done so, or when all lanes together are as far over theirs; from then on
    /// [`Refused::Closing`].
    pub fn push(&self, text: Text) -> Result<(), Refused> {
        let (queue, frame) = (self.lock(), Frame::new(text));
        if queue.takes_nothing() {
            return Err(Refused::Closing);
        }
        let cost = frame.cost() + FRAME_OVERHEAD_BYTES;
        if (queue.bytes > 0 && queue.bytes + cost > self.ceiling) || !self.share.take(cost) {
            drop(queue);
            self.close(CloseReason::Saturated, clock::now());
            return Err(Refused::Full);
        }
        self.put(queue, frame, cost);
        Ok(())
    }

    fn put(&self, mut queue: MutexGuard<'_, Queue>, frame: Frame, cost: usize) {
        queue.bytes += cost;
        queue.frames.push_back(frame);
        self.wake(queue);
    }

    /// Puts in an event for a phone.
    ///
    /// # Errors
    /// As [`Lane::push`].
    pub fn push_event(&self, event: OutboundEvent, _now: Instant) -> Result<(), Refused> {
        self.push(event.text)
    }

    /// The lease under which timeline frames are written from now on.
    pub fn set_lease(&self, _lease: Option<LeaseTerm>) {}

    /// Owes the peer a ping; several unsent ones are one.
    pub fn ping(&self) {
        let mut queue = self.lock();
        queue.ping = true;
        self.wake(queue);
    }

    /// Owes the peer this pong, instead of an earlier one that has not left.
    pub fn pong(&self, payload: &[u8]) {
        let mut queue = self.lock();
        queue.pong = Some(control(OPCODE_PONG, payload));
        self.wake(queue);
    }

    /// Ends the connection with a close frame behind what is queued; the first reason stays. A retired connection's queue is dropped
    /// instead, down to the rest of a message that has begun.
    pub fn close(&self, reason: CloseReason, now: Instant) {
        let mut payload = reason.code().to_be_bytes().to_vec();
        payload.extend_from_slice(reason.text().as_bytes());
        let drops_queue = matches!(reason, CloseReason::Saturated | CloseReason::Silent);
        self.begin_close(
            Closing { since: now, reason: Some(reason), frame: Some(control(OPCODE_CLOSE, &payload)), lingers: true },
            drops_queue,
        );
    }

    /// Answers the peer's close frame with the same code, or without one.
    pub fn answer_close(&self, code: Option<u16>, now: Instant) {
        let payload = code.map(u16::to_be_bytes);
        let frame = control(OPCODE_CLOSE, payload.as_ref().map_or(&[], |code| code.as_slice()));
        self.begin_close(Closing { since: now, reason: None, frame: Some(frame), lingers: false }, true);
    }

    fn begin_close(&self, closing: Closing, drops_queue: bool) {
        let mut queue = self.lock();
        if queue.closing.is_some() {
            return;
        }
        queue.closing = Some(closing);
        self.closing.store(true, Relaxed);
        if drops_queue {
            let begun = usize::from(queue.mid_frame);
            self.keep(&mut queue, begun);
        }
        self.wake(queue);
    }

    /// Gives back everything at once, a message that has begun included, and ends the connection as `saturated`. False when there is
    /// no place for a close frame, because a message has begun: then only ending the TCP connection is left.
    #[must_use]
    pub fn shed(&self, now: Instant) -> bool {
        self.close(CloseReason::Saturated, now);
        let mut queue = self.lock();
        let cut = queue.mid_frame;
        queue.mid_frame = false;
        self.keep(&mut queue, 0);
        if cut {
            // Nothing may follow a piece of a frame.
            (queue.ping, queue.pong) = (false, None);
            if let Some(closing) = &mut queue.closing {
                (closing.frame, closing.lingers) = (None, false);
            }
        }
        self.wake(queue);
        !cut
    }

    /// The transport has gone: what is left can reach nobody, and nothing more is taken.
    pub fn end(&self) {
        let mut queue = self.lock();
        queue.ended = true;
        self.keep(&mut queue, 0);
    }

    /// Drops all frames but the first few.
    fn keep(&self, queue: &mut Queue, frames: usize) {
        queue.frames.truncate(frames);
        let left = queue.frames.iter().map(Frame::cost).sum();
        self.share.give_back(queue.bytes - left);
        queue.bytes = left;
    }

    /// Whether the connection is closing.
    pub fn is_closing(&self) -> bool {
        self.closing.load(Relaxed)
    }

    /// When the close began.
    pub fn closing_since(&self) -> Option<Instant> {
        self.lock().closing.as_ref().map(|closing| closing.since)
    }

    /// Why the connection ends, as a word for logs.
    pub fn end_reason(&self) -> &'static str {
        match &self.lock().closing {
            Some(Closing { reason: Some(reason), .. }) => reason.text(),
            Some(Closing { reason: None, .. }) => "closedByPeer",
            None => "connectionLost",
        }
    }

    /// Bytes that the transport has not taken, bookkeeping counted.
    pub fn queued_bytes(&self) -> usize {
        self.share.held()
    }

    /// When the lane holds as much as it may, or so much that a message found no room: when the transport last took something.
    pub fn full_since(&self) -> Option<Instant> {
        let queue = self.lock();
        (queue.bytes >= self.bytes_max || queue.refused).then_some(queue.last_pull)
    }

    /// Takes the next slice. Called only when the transport has room.
    pub fn pull(&self, now: Instant, cx: &Context<'_>) -> Pulled {
        let mut queue = self.lock();
        queue.last_pull = now;
        queue.refused = false;
        let before = queue.bytes;
        let slice = queue.next_slice();
        if !slice.is_empty() {
            self.share.give_back(before - queue.bytes);
            return Pulled::Slice(slice);
        }
        match &queue.closing {
            Some(closing) => Pulled::Finished { lingers: closing.lingers },
            None => {
                match &mut queue.waker {
                    Some(waker) => waker.clone_from(cx.waker()),
                    None => queue.waker = Some(cx.waker().clone()),
                }
                Pulled::Nothing
            }
        }
    }

    /// A poisoned lane belongs to a thread that panicked while it held nothing but plain data; the data is still good.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, queue: MutexGuard<'_, Queue>) {
        let waker = queue.waker.clone();
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Queue {
    fn takes_nothing(&self) -> bool {
        self.ended || self.closing.is_some()
    }

    fn next_slice(&mut self) -> Bytes {
        let mut slice = BytesMut::new();
        loop {
            if !self.mid_frame {
                if slice.len() + CONTROL_FRAMES_BYTES_MAX > SLICE_BYTES_MAX {
                    return slice.freeze();
                }
                self.take_control(&mut slice);
            }
            let Some(frame) = self.frames.front_mut() else { break };
            if !self.mid_frame {
                slice.reserve(frame.cost().min(SLICE_BYTES_MAX - slice.len()));
                slice.extend_from_slice(frame.header.as_slice());
                self.bytes -= frame.header.length + FRAME_OVERHEAD_BYTES;
                frame.header.length = 0;
                self.mid_frame = true;
            }
            while !frame.piece.is_empty() {
                let room = SLICE_BYTES_MAX - slice.len();
                if frame.piece.len() <= room {
                    self.bytes -= frame.piece.len();
                    slice.extend_from_slice(&frame.piece);
                    frame.piece = frame.pieces.next().unwrap_or_default();
                } else if slice.is_empty() {
                    self.bytes -= SLICE_BYTES_MAX;
                    return frame.piece.split_to(SLICE_BYTES_MAX);
                } else {
                    return slice.freeze();
                }
            }
            self.frames.pop_front();
            self.mid_frame = false;
        }
        if self.frames.is_empty() {
            // A burst's capacity is given back with its end.
            if self.frames.capacity() > 64 {
                self.frames = VecDeque::new();
            }
            // The loop has left room for it.
            if let Some(close) = self.closing.as_mut().and_then(|closing| closing.frame.take()) {
                slice.extend_from_slice(&close);
            }
        }
        slice.freeze()
    }

    fn take_control(&mut self, slice: &mut BytesMut) {
        if std::mem::take(&mut self.ping) && self.closing.is_none() {
            slice.extend_from_slice(&control(OPCODE_PING, &[]));
        }
        if let Some(pong) = self.pong.take() {
            slice.extend_from_slice(&pong);
        }
    }
}

impl Frame {
    fn new(text: Text) -> Self {
        let header = Header::new(FIN | OPCODE_TEXT, text.len());
        let (piece, pieces) = text.into_pieces();
        Frame { header, piece, pieces: pieces.into_iter() }
    }

    fn cost(&self) -> usize {
        self.header.length + self.piece.len() + self.pieces.as_slice().iter().map(Bytes::len).sum::<usize>()
    }
}

impl Header {
    fn new(first: u8, length: usize) -> Self {
        let mut header = Header { bytes: [0; 10], length: 2 };
        header.bytes[0] = first;
        match u16::try_from(length) {
            Ok(short @ 0..=125) => header.bytes[1] = short.to_be_bytes()[1],
            Ok(medium) => {
                header.bytes[1] = 126;
                header.bytes[2..4].copy_from_slice(&medium.to_be_bytes());
                header.length = 4;
            }
            Err(_) => {
                header.bytes[1] = 127;
                header.bytes[2..10].copy_from_slice(&(length as u64).to_be_bytes());
                header.length = 10;
            }
        }
        header
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// A control frame; payloads come from peers' control frames or from constants, so they fit in 125 bytes.
fn control(opcode: u8, payload: &[u8]) -> Bytes {
    let header = Header::new(FIN | opcode, payload.len());
    let mut frame = BytesMut::with_capacity(header.length + payload.len());
    frame.extend_from_slice(header.as_slice());
    frame.extend_from_slice(payload);
    frame.freeze()
}
