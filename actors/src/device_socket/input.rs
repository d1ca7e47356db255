//! The connection's input behind its gate, shared by the actor's codec that reads it and, once the actor has ended, by the linger
//! that discards it until the peer has closed its side.

use super::gate::{Gate, GateLimits, Passed};
use super::link::MessageProgress;
use actix_web::web::Payload;
use bytes::Bytes;
use futures_core::Stream;
use relay_protocol::device::Role;
use std::{
    cell::RefCell,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Instant,
};

#[derive(Clone)]
pub(super) struct SharedInput(Rc<RefCell<Input>>);

struct Input {
    payload: Payload,
    gate: Gate,
    /// What the gate has not judged yet of the last chunk.
    rest: Bytes,
    /// After a violation nothing is known of what follows.
    violated: bool,
}

/// A chunk, and what the gate says of it.
pub(super) struct Judged {
    pub(super) chunk: Bytes,
    pub(super) passed: Passed,
    pub(super) progress: MessageProgress,
    /// Messages and pings that the rate limit swallowed.
    pub(super) dropped: u64,
    /// Frames that the chunk completes for the codec, pieces of large ones among them.
    pub(super) whole_frames: u64,
}

impl SharedInput {
    pub(super) fn new(payload: Payload, limits: GateLimits, role: Role, now: Instant) -> Self {
        let gate = Gate::new(limits, role, now);
        SharedInput(Rc::new(RefCell::new(Input { payload, gate, rest: Bytes::new(), violated: false })))
    }

    /// The next bytes; `None` at the end, however it came. Not to be called after a violation.
    pub(super) fn poll_judged(&self, registered: bool, now: Instant, cx: &mut Context<'_>) -> Poll<Option<Judged>> {
        let input = &mut *self.0.borrow_mut();
        match input.poll_chunk(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Ready(Some(mut chunk)) => {
                let passed = input.gate.judge(&chunk, registered, now);
                if passed.judged < chunk.len() {
                    input.rest = chunk.split_off(passed.judged);
                }
                input.violated = passed.violation.is_some();
                let (dropped, whole_frames) = (input.gate.take_dropped(), input.gate.take_whole_frames());
                Poll::Ready(Some(Judged { chunk, passed, progress: input.gate.progress(), dropped, whole_frames }))
            }
        }
    }

    /// Reads and discards what there is. True once the peer has closed its side: by a close frame, or by ending the connection.
    pub(super) fn poll_discard(&self, now: Instant, cx: &mut Context<'_>) -> bool {
        let input = &mut *self.0.borrow_mut();
        input.gate.lift_rate_limit();
        while !input.gate.is_closed() {
            match input.poll_chunk(cx) {
                Poll::Pending => return false,
                Poll::Ready(None) => return true,
                Poll::Ready(Some(mut chunk)) if !input.violated => {
                    let passed = input.gate.judge(&chunk, true, now);
                    input.rest = chunk.split_off(passed.judged);
                    input.violated = passed.violation.is_some();
                }
                Poll::Ready(Some(_)) => {}
            }
        }
        true
    }
}

impl Input {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if !self.rest.is_empty() {
            return Poll::Ready(Some(std::mem::take(&mut self.rest)));
        }
        match Pin::new(&mut self.payload).poll_next(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Ok(chunk))) => Poll::Ready(Some(chunk)),
            // A broken connection is an ended one: whoever reads has nobody to tell.
            Poll::Ready(Some(Err(_)) | None) => Poll::Ready(None),
        }
    }
}
