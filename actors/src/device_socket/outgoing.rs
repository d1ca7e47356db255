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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        device_socket::{GateLimits, SocketTable},
        user_router::message::OutboundEvent,
    };
    use actix_web::{FromRequest, test::TestRequest, web::Payload};
    use futures_util::{FutureExt, StreamExt, stream};
    use relay_protocol::{device::Role, id::UserId, identity::Identity, limits::EVENT_FLUSH_INTERVAL, text::Text};
    use std::{sync::Arc, time::Duration};

    const MS: Duration = Duration::from_millis(1);

    /// An open connection whose actor does nothing, and its table.
    async fn outgoing() -> Outgoing {
        let (request, mut payload) = TestRequest::default().to_http_parts();
        let payload = Payload::from_request(&request, &mut payload).await.unwrap();
        let table = Arc::new(SocketTable::default());
        let socket = table.open(Identity::of_jwt(UserId(uuid::Uuid::nil())), Role::Mobile, 1 << 20, None);
        Outgoing::new(stream::pending(), socket, SharedInput::new(payload, GateLimits::default(), Role::Mobile, clock::now()))
    }

    fn push(outgoing: &Outgoing, text: &str) {
        let event = OutboundEvent { text: Text::from(text.to_owned()), timeline: None };
        outgoing.socket.link().lane.push_event(event, clock::now()).unwrap();
    }

    /// The next slice without its frame header, and when it came.
    async fn next(outgoing: &mut Outgoing, start: Instant) -> (Bytes, Duration) {
        let slice = outgoing.next().await.unwrap().unwrap();
        (slice.slice(2..), clock::now() - start)
    }

    #[tokio::test(start_paused = true)]
    async fn events_leave_when_they_have_waited_for_the_interval_whether_or_not_somebody_wakes() {
        let (mut outgoing, start) = (outgoing().await, clock::now());
        assert!(outgoing.next().now_or_never().is_none());
        for round in 1..=3 {
            push(&outgoing, "event");
            // Woken by nothing but the timer of the first poll.
            assert_eq!(next(&mut outgoing, start).await, (Bytes::from_static(b"event"), EVENT_FLUSH_INTERVAL * round));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_nothing_is_woken_by_an_event_and_waits_for_the_interval_from_then_on() {
        let (mut outgoing, start) = (outgoing().await, clock::now());
        let link = outgoing.socket.link().clone();
        let push = async {
            tokio::time::sleep(100 * MS).await;
            link.lane.push_event(OutboundEvent { text: Text::from_static("first"), timeline: None }, clock::now()).unwrap();
            tokio::time::sleep(100 * MS).await;
            link.lane.push(Text::from_static("urgent")).unwrap();
        };
        let pull = async { [next(&mut outgoing, start).await, next(&mut outgoing, start).await] };
        let ((), pulled) = tokio::join!(push, pull);
        let expected = [(Bytes::from_static(b"urgent"), 200 * MS), (Bytes::from_static(b"first"), 100 * MS + EVENT_FLUSH_INTERVAL)];
        assert_eq!(pulled, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_events_has_no_timer() {
        let mut outgoing = outgoing().await;
        outgoing.socket.link().lane.push(Text::from_static("urgent")).unwrap();
        assert!(outgoing.next().now_or_never().is_some() && outgoing.next().now_or_never().is_none());
        assert!(outgoing.flush.is_none());
    }
}
