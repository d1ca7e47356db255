//! The outbound lane of one connection: frames that are ready to be written, pulled by the transport in slices.
//!
//! The router puts frames in, from any thread; the response stream takes slices out, only when the transport asks for them. So
//! what is queued here is, to one slice, what the peer has not taken, and a peer that reads nothing costs what its lane holds.
//! Control frames go between messages, never into one.
//!
//! Urgent frames go in their order, before any event that has not begun. Events of desktops wait for each other in the coalescing buffer.

mod events;
mod fates;
mod frame;
mod queue;

#[cfg(test)]
mod events_test;
#[cfg(test)]
mod lane_test;
#[cfg(test)]
mod model_test;

pub use self::{events::EventLimits, fates::EventFates};

use self::{
    events::{Events, Flush},
    frame::Control,
    queue::Queue,
};
use super::budget::Share;
use crate::{
    clock,
    user_router::message::{LeaseTerm, OutboundEvent},
};
use bytes::Bytes;
use relay_protocol::{close::CloseReason, text::Text};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Waker},
    time::Instant,
};

/// Most bytes that leave in one slice. Few enough that a slow peer is seen to move, and to be copied while they are in the cache: with
/// 64 KiB a large result cost a third more CPU.
pub const SLICE_BYTES_MAX: usize = 16 * 1024;

/// Why a frame was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The lane holds as much as it may.
    Full,
    /// The connection is closing.
    Closing,
}

/// What one lane may hold, and when its events are written.
#[derive(Clone, Copy, Debug)]
pub struct LaneLimits {
    /// Bytes, bookkeeping counted.
    pub bytes_max: usize,
    /// The largest message that the relay sends: what urgent frames may take the lane over its bound.
    pub message_bytes_max: usize,
    /// Of the coalescing buffer.
    pub events: EventLimits,
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// The relay closes it.
    Closed(CloseReason),
    /// The peer closed it.
    ClosedByPeer,
    /// It broke, without a close frame.
    Lost,
}

impl EndReason {
    /// Every reason.
    pub fn all() -> impl Iterator<Item = Self> {
        CloseReason::ALL.into_iter().map(EndReason::Closed).chain([EndReason::ClosedByPeer, EndReason::Lost])
    }

    /// The word for logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            EndReason::Closed(reason) => reason.text(),
            EndReason::ClosedByPeer => "closedByPeer",
            EndReason::Lost => "connectionLost",
        }
    }
}

/// One connection's outbound lane.
#[derive(Debug)]
pub struct Lane {
    state: Mutex<State>,
    /// Whether `state.closing` is set, for who must not wait for the lock.
    closing: AtomicBool,
    /// As much of the process's budget as the queue holds.
    share: Share,
    /// What becomes of the events of all lanes.
    fates: Arc<EventFates>,
    bytes_max: usize,
    ceiling: usize,
}

/// What the lock is for.
#[derive(Debug)]
struct State {
    queue: Queue,
    closing: Option<Closing>,
    /// The transport has gone: nothing is taken any more.
    ended: bool,
    /// A message found no room since the last pull.
    refused: bool,
    /// When the lane became full, while it is.
    full_from: Option<Instant>,
    last_pull: Instant,
    waker: Option<Waker>,
}

#[derive(Debug)]
struct Closing {
    since: Instant,
    /// None when it answers the peer's own close frame.
    reason: Option<CloseReason>,
    lingers: bool,
}

/// What a pull gave.
#[derive(Debug, PartialEq, Eq)]
pub enum Pulled {
    /// Bytes to write.
    Slice(Bytes),
    /// Nothing now; the waker of the pull is called when there is.
    Nothing {
        /// When to pull again even if the waker is not called: events wait until then.
        flush_at: Option<Instant>,
    },
    /// The close frame has been pulled, or there is none to send: nothing will follow. When it lingers, input is read and discarded
    /// for a moment so that the peer sees the close frame.
    Finished {
        /// Whether to linger.
        lingers: bool,
    },
}

impl Lane {
    /// An empty lane.
    pub fn new(limits: LaneLimits, share: Share, fates: Arc<EventFates>, now: Instant) -> Self {
        let LaneLimits { bytes_max, message_bytes_max, events } = limits;
        let state =
            State { queue: Queue::new(events), closing: None, ended: false, refused: false, full_from: None, last_pull: now, waker: None };
        let ceiling = bytes_max.saturating_add(message_bytes_max);
        Lane { state: Mutex::new(state), closing: AtomicBool::new(false), share, fates, bytes_max, ceiling }
    }

    /// Puts in a text message if there is room: a request, which may be refused.
    ///
    /// # Errors
    /// [`Refused::Full`] when it does not fit, unless the lane is empty: one message always fits. Or when all lanes together hold as
    /// much as they may.
    pub fn offer(&self, text: Text) -> Result<(), Refused> {
        let (mut state, cost) = (self.lock(), Queue::cost(&text));
        if state.takes_nothing() {
            return Err(Refused::Closing);
        }
        if state.queue.would_pass(self.bytes_max, cost) {
            state.refused = true;
            state.full_from.get_or_insert_with(clock::now);
            return Err(Refused::Full);
        }
        if !self.share.offer(cost) {
            // That is not this lane's doing, so it does not count as full.
            return Err(Refused::Full);
        }
        self.put(state, text);
        Ok(())
    }

    /// Puts in a text message that must not be dropped: a reply, presence, an error. It may take the lane over its bound by one
    /// maximal message; what would go further ends the connection as `saturated`, whether its peer reads or not.
    ///
    /// # Errors
    /// [`Refused::Full`] when it has just done so, or when all lanes together are as far over theirs; from then on
    /// [`Refused::Closing`].
    pub fn push(&self, text: Text) -> Result<(), Refused> {
        let (state, cost) = (self.lock(), Queue::cost(&text));
        if state.takes_nothing() {
            return Err(Refused::Closing);
        }
        if state.queue.would_pass(self.ceiling, cost) || !self.share.take(cost) {
            drop(state);
            self.close(CloseReason::Saturated, clock::now());
            return Err(Refused::Full);
        }
        self.put(state, text);
        Ok(())
    }

    /// Puts in an event of a desktop, which waits for others, see [`EventLimits`]. A timeline frame whose lease is not the current one
    /// is dropped. Nothing else is: what would take the lane over its bound ends the connection as `saturated`, since a stream with a
    /// hole is worse than none.
    ///
    /// # Errors
    /// As [`Lane::push`], without going over the bound: that room is for urgent frames.
    pub fn push_event(&self, event: OutboundEvent, now: Instant) -> Result<(), Refused> {
        let mut state = self.lock();
        if state.takes_nothing() {
            self.fates.closed.increment();
            return Err(Refused::Closing);
        }
        if !state.queue.events.admits(&event) {
            self.fates.lease_ended.increment();
            return Ok(());
        }
        let (told, full_from) = (state.queue.events.flush(), state.full_from);
        self.giving_back(&mut state, |queue| queue.events.make_way(&event));
        let cost = Events::cost(&event);
        if state.queue.would_pass(self.bytes_max, cost) || !self.share.take(cost) {
            drop(state);
            self.fates.closed.increment();
            self.close(CloseReason::Saturated, now);
            return Err(Refused::Full);
        }
        state.queue.events.push(event, now);
        if self.is_full(&state) {
            // A full buffer does not become full anew because one frame takes the place of another.
            state.full_from = full_from.or(Some(now));
        }
        if state.queue.events.flush() < told {
            // Whoever pulls expects that later. It is not woken for every frame.
            self.wake(state);
        }
        Ok(())
    }

    /// The phone's lease from now on. A renewal also prolongs what waits; another lease, or none, drops it, except a frame that has
    /// begun.
    pub fn set_lease(&self, lease: Option<LeaseTerm>) {
        let mut state = self.lock();
        self.giving_back(&mut state, |queue| queue.events.set_lease(lease));
    }

    /// Whether the phone has a lease of a timeline.
    pub fn has_lease(&self, now: Instant) -> bool {
        self.lock().queue.events.has_lease(now)
    }

    /// Owes the peer a ping; several unsent ones are one, and a closing connection owes none.
    pub fn ping(&self) {
        let mut state = self.lock();
        state.queue.ping = state.closing.is_none();
        self.wake(state);
    }

    /// Owes the peer this pong, instead of an earlier one that has not left.
    pub fn pong(&self, payload: &[u8]) {
        let mut state = self.lock();
        state.queue.pong = Some(Control::Pong.frame(payload));
        self.wake(state);
    }

    /// Ends the connection with a close frame behind what is urgent; the first reason stays. Events are dropped, down to the rest of a
    /// message that has begun, and of a retired connection urgent frames too.
    pub fn close(&self, reason: CloseReason, now: Instant) {
        let mut payload = reason.code().to_be_bytes().to_vec();
        payload.extend_from_slice(reason.text().as_bytes());
        let drops_queue = matches!(reason, CloseReason::Saturated | CloseReason::Silent);
        self.begin_close(Closing { since: now, reason: Some(reason), lingers: true }, &payload, drops_queue);
    }

    /// Answers the peer's close frame with the same code, or without one.
    pub fn answer_close(&self, code: Option<u16>, now: Instant) {
        let payload = code.map(u16::to_be_bytes);
        let payload = payload.as_ref().map_or(&[][..], |code| code.as_slice());
        self.begin_close(Closing { since: now, reason: None, lingers: false }, payload, true);
    }

    fn begin_close(&self, closing: Closing, payload: &[u8], drops_queue: bool) {
        let mut state = self.lock();
        if state.closing.is_some() {
            return;
        }
        state.closing = Some(closing);
        self.closing.store(true, Relaxed);
        state.queue.ping = false;
        state.queue.close = Some(Control::Close.frame(payload));
        if drops_queue {
            self.giving_back(&mut state, Queue::drop_waiting);
        } else {
            self.giving_back(&mut state, |queue| queue.events.clear());
        }
        self.wake(state);
    }

    /// Gives back everything at once, a message that has begun included, and ends the connection as `saturated`. False when there is
    /// no place for a close frame, because a message has begun: then only ending the TCP connection is left.
    #[must_use]
    pub fn shed(&self, now: Instant) -> bool {
        self.close(CloseReason::Saturated, now);
        let mut state = self.lock();
        let cut = self.giving_back(&mut state, Queue::drop_all);
        if cut {
            // Nothing may follow a piece of a frame.
            (state.queue.pong, state.queue.close) = (None, None);
            if let Some(closing) = &mut state.closing {
                closing.lingers = false;
            }
        }
        self.wake(state);
        !cut
    }

    /// The transport has gone: what is left can reach nobody, and nothing more is taken.
    pub fn end(&self) {
        let mut state = self.lock();
        state.ended = true;
        self.giving_back(&mut state, Queue::drop_all);
    }

    fn put(&self, mut state: MutexGuard<'_, State>, text: Text) {
        state.queue.push(text);
        if self.is_full(&state) {
            state.full_from.get_or_insert_with(clock::now);
        }
        self.wake(state);
    }

    /// Does what takes bytes out of the queue, gives them back, and counts the events among them.
    fn giving_back<R>(&self, state: &mut State, take_out: impl FnOnce(&mut Queue) -> R) -> R {
        let before = state.queue.bytes();
        let result = take_out(&mut state.queue);
        self.share.give_back(before - state.queue.bytes());
        self.fates.add(state.queue.events.take_ended());
        if !self.is_full(state) {
            state.full_from = None;
        }
        result
    }

    /// Whether the connection is closing.
    pub fn is_closing(&self) -> bool {
        self.closing.load(Relaxed)
    }

    /// When the close began.
    pub fn closing_since(&self) -> Option<Instant> {
        self.lock().closing.as_ref().map(|closing| closing.since)
    }

    /// Why the connection ends.
    pub fn end_reason(&self) -> EndReason {
        match &self.lock().closing {
            Some(Closing { reason: Some(reason), .. }) => EndReason::Closed(*reason),
            Some(Closing { reason: None, .. }) => EndReason::ClosedByPeer,
            None => EndReason::Lost,
        }
    }

    /// Bytes that the transport has not taken, bookkeeping counted.
    pub fn queued_bytes(&self) -> usize {
        self.share.held()
    }

    /// When the lane holds as much as it may, or a message found no room, or its coalescing buffer is full: since when that is so and
    /// the transport has taken nothing.
    pub fn full_since(&self) -> Option<Instant> {
        let state = self.lock();
        state.full_from.map(|from| from.max(state.last_pull))
    }

    fn is_full(&self, state: &State) -> bool {
        state.refused || state.queue.bytes() >= self.bytes_max || state.queue.events.is_full()
    }

    /// Takes the next slice. Called only when the transport has room.
    pub fn pull(&self, now: Instant, cx: &Context<'_>) -> Pulled {
        let mut state = self.lock();
        state.last_pull = now;
        state.refused = false;
        let slice = self.giving_back(&mut state, |queue| queue.next_slice(now));
        if !slice.is_empty() {
            return Pulled::Slice(slice);
        }
        match &state.closing {
            Some(closing) => Pulled::Finished { lingers: closing.lingers },
            None => {
                match &mut state.waker {
                    Some(waker) => waker.clone_from(cx.waker()),
                    None => state.waker = Some(cx.waker().clone()),
                }
                let flush_at = match state.queue.events.flush() {
                    Flush::Now => Some(now),
                    Flush::At(at) => Some(at),
                    Flush::Never => None,
                };
                Pulled::Nothing { flush_at }
            }
        }
    }

    /// A poisoned lane belongs to a thread that panicked while it held nothing but plain data; the data is still good.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, state: MutexGuard<'_, State>) {
        let waker = state.waker.clone();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl State {
    fn takes_nothing(&self) -> bool {
        self.ended || self.closing.is_some()
    }
}
