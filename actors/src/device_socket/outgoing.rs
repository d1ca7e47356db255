//! The response body of a device socket: polls the actor, then pulls the lane.
//!
//! The transport polls a body only while it has room, so a pull here is room there. When the connection closes, from whichever
//! side, the actor is dropped first; what the lane still owes follows, then the close frame, then a moment in which input is read
//! and discarded, because closing a TCP connection with unread input would take the close frame away from the peer.

use super::{input::SharedInput, lane::Pulled, table::OpenSocket};
use crate::clock;
use bytes::Bytes;
use futures_core::Stream;
use relay_protocol::limits::CLOSE_LINGER;
use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Instant,
};
use tokio::time::Sleep;

type ActorStream = Pin<Box<dyn Stream<Item = Result<Bytes, actix_web::Error>>>>;

pub(super) struct Outgoing {
    /// The websocket context, with the actor in it; none once the connection is closing or the actor has ended.
    actor: Option<ActorStream>,
    socket: OpenSocket,
    input: SharedInput,
    linger: Option<Pin<Box<Sleep>>>,
    /// Wakes this when events that wait in the lane are due. Made for the first of them: most sockets never have any.
    flush: Option<Pin<Box<Sleep>>>,
}

impl Outgoing {
    pub(super) fn new(
        actor: impl Stream<Item = Result<Bytes, actix_web::Error>> + 'static,
        socket: OpenSocket,
        input: SharedInput,
    ) -> Self {
        Outgoing { actor: Some(Box::pin(actor)), socket, input, linger: None, flush: None }
    }

    /// Runs the actor as far as it goes now.
    fn poll_actor(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, actix_web::Error>>> {
        let polled = match &mut self.actor {
            Some(actor) if !self.socket.link().lane.is_closing() => actor.as_mut().poll_next(cx),
            Some(_) => Poll::Ready(None),
            None => return Poll::Pending,
        };
        if matches!(polled, Poll::Ready(None)) || self.socket.link().lane.is_closing() {
            self.actor = None;
        }
        polled
    }

    /// Waits until then.
    fn poll_flush(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let at = at.into();
        let flush = self.flush.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
        if flush.deadline() != at {
            flush.as_mut().reset(at);
        }
        flush.as_mut().poll(cx)
    }

    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let linger = self.linger.get_or_insert_with(|| Box::pin(tokio::time::sleep(CLOSE_LINGER)));
        let over = linger.as_mut().poll(cx).is_ready();
        if self.input.poll_discard(clock::now(), cx) || over { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Stream for Outgoing {
    type Item = Result<Bytes, actix_web::Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Poll::Ready(Some(own)) = this.poll_actor(cx) {
            // The actor writes through the lane; if it ever wrote by itself, that must not get lost.
            return Poll::Ready(Some(own));
        }
        loop {
            let flush_at = match this.socket.link().lane.pull(clock::now(), cx) {
                Pulled::Slice(slice) => return Poll::Ready(Some(Ok(slice))),
                Pulled::Finished { lingers: true } => {
                    // It may have begun to close since the actor was polled; the rest of the input is read here now.
                    this.actor = None;
                    return this.poll_linger(cx).map(|()| None);
                }
                Pulled::Finished { lingers: false } => return Poll::Ready(None),
                // Without an actor and without a close to send, the peer has gone.
                Pulled::Nothing { .. } if this.actor.is_none() => return Poll::Ready(None),
                Pulled::Nothing { flush_at: None } => return Poll::Pending,
                Pulled::Nothing { flush_at: Some(flush_at) } => flush_at,
            };
            if this.poll_flush(flush_at, cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}
