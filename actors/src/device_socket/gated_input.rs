//! The connection's input as the codec reads it: what the gate lets pass, at the pace that it sets.
//!
//! A desktop over its rate waits here. The stream is then pending, so the HTTP layer's buffer fills, the kernel's after it, and the peer
//! is slowed down; the actor behind the codec goes on. A phone's request over its rate is answered from here. Who claims more than all
//! sockets together may hold now waits too, until the supervisor has made room: the largest holder is given up, not whoever comes next.

use super::{
    input::{Judged, SharedInput},
    link::Link,
};
use crate::{clock, counters::Counters};
use actix_web::error::PayloadError;
use bytes::Bytes;
use futures_core::Stream;
use relay_protocol::{close::CloseReason, error::RpcRefusal};
use std::{
    cell::Cell,
    future::Future,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};
use tokio::time::Sleep;

/// How soon a claim that found no room is tried again; the supervisor looks for the largest holders as often.
const ROOM_RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// What the gate tells the actor behind the codec. Both run in one task.
#[derive(Debug, Default)]
pub(super) struct Intake {
    /// Why the gate ended the input, if it did.
    pub(super) violation: Cell<Option<CloseReason>>,
    /// Bytes that the link has taken for a message that the actor has not received whole.
    pub(super) unfinished_bytes: Cell<usize>,
    /// Whole frames, and pieces of large ones, that the codec has and the actor has not received.
    pub(super) unhandled_frames: Cell<u64>,
}

/// The gate on a connection's input, as the codec reads it. It ends at the first violation, which it leaves in the intake.
pub(super) struct GatedInput {
    input: SharedInput,
    link: Arc<Link>,
    counters: Arc<Counters>,
    intake: Rc<Intake>,
    pace: Pace,
    /// Judged, and more than all sockets together may hold now; nothing behind it is read.
    without_room: Option<Judged>,
    /// What follows the header that was passed on last.
    next: Option<Bytes>,
    /// The last piece of a large frame. While it is held, the HTTP layer cannot read into its memory again: it takes a buffer of the
    /// usual size instead of keeping the one that grew with the message.
    last_piece: Bytes,
    ended: bool,
}

/// The wait of a connection that is paced. The timer is made once and used again.
#[derive(Default)]
struct Pace {
    timer: Option<Pin<Box<Sleep>>>,
    waiting: bool,
}

impl Pace {
    fn wait_until(&mut self, until: Instant) {
        let until = until.into();
        match &mut self.timer {
            Some(timer) => timer.as_mut().reset(until),
            None => self.timer = Some(Box::pin(tokio::time::sleep_until(until))),
        }
        self.waiting = true;
    }

    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.waiting
            && let Some(timer) = &mut self.timer
            && timer.as_mut().poll(cx).is_pending()
        {
            return Poll::Pending;
        }
        self.waiting = false;
        Poll::Ready(())
    }
}

impl GatedInput {
    pub(super) fn new(input: SharedInput, link: Arc<Link>, counters: Arc<Counters>, intake: Rc<Intake>) -> Self {
        GatedInput {
            input,
            link,
            counters,
            intake,
            pace: Pace::default(),
            without_room: None,
            next: None,
            last_piece: Bytes::new(),
            ended: false,
        }
    }

    /// The next judged chunk. What the gate says of rates and signs of life is done with it.
    fn poll_judged(&mut self, cx: &mut Context<'_>) -> Poll<Option<Judged>> {
        let (registered, now) = (self.link.registration().is_some(), clock::now());
        let polled = self.input.poll_judged(registered, now, cx);
        if let Poll::Ready(Some(Judged { passed, progress, dropped, .. })) = &polled {
            self.link.activity.on_input(now, *progress);
            self.counters.rate_limited.add(*dropped);
            if let Some(until) = passed.paced_until {
                self.wait_until(until);
            }
            if let Some(id_json) = &passed.refused {
                // A closing connection takes nothing more, and needs nothing more.
                let _ = self.link.lane.push(RpcRefusal::RateLimited.to_text(id_json));
            }
        }
        polled
    }

    /// Reads nothing before this time.
    fn wait_until(&mut self, until: Instant) {
        self.link.activity.on_paced(until);
        self.pace.wait_until(until);
    }

    /// Takes what the headers claim before anything is reserved for it.
    fn take(&self, claimed: u64) -> bool {
        // The gate lets in no message that is larger than its cap, which is a size in memory.
        let bytes = usize::try_from(claimed).unwrap_or(usize::MAX);
        let taken = bytes == 0 || self.link.inbound.take(bytes);
        if taken {
            self.intake.unfinished_bytes.update(|held| held + bytes);
        }
        taken
    }
}

impl Stream for GatedInput {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(next) = self.next.take() {
            return Poll::Ready(Some(Ok(next)));
        }
        loop {
            if self.intake.unhandled_frames.get() > 0 {
                // The codec would take all that comes before it hands on one frame, however slowly they are handled. It has a whole
                // one now, so the actor polls again by itself when it has handled it. That keeps its buffer to one piece, too.
                return Poll::Pending;
            }
            if self.ended {
                return Poll::Ready(None);
            }
            if self.pace.poll_over(cx).is_pending() {
                return Poll::Pending;
            }
            let judged = match self.without_room.take() {
                Some(judged) => judged,
                None => match self.poll_judged(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(None) => {
                        self.ended = true;
                        continue;
                    }
                    Poll::Ready(Some(judged)) => judged,
                },
            };
            if !self.take(judged.passed.claimed) {
                self.wait_until(clock::now() + ROOM_RETRY_INTERVAL);
                self.without_room = Some(judged);
                continue;
            }
            let Judged { mut chunk, passed, whole_frames, .. } = judged;
            self.intake.unhandled_frames.set(whole_frames);
            if let Some(violation) = passed.violation {
                self.intake.violation.set(Some(violation));
                self.ended = true;
            }
            if passed.bytes == 0 {
                continue;
            }
            chunk.truncate(passed.bytes);
            self.last_piece = if passed.piece { chunk.clone() } else { Bytes::new() };
            if passed.held.is_empty() {
                return Poll::Ready(Some(Ok(chunk)));
            }
            self.next = Some(chunk);
            return Poll::Ready(Some(Ok(passed.held)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device_socket::{
        bucket::Rate,
        gate::{GateLimits, PIECE_BYTES_MAX},
        gate_testing::frame_claiming,
        table::{SocketTable, TableLimits},
    };
    use actix_http::ws::{Codec, Frame, Item};
    use actix_web::{FromRequest, test::TestRequest, web::Payload};
    use bytes::BytesMut;
    use futures_util::{FutureExt, StreamExt};
    use relay_protocol::{device::Role, id::UserId, identity::Identity};
    use tokio_util::codec::Decoder;

    #[actix::test]
    async fn each_message_and_ping_that_is_dropped_is_counted_once() {
        let text = |payload: &[u8]| frame_claiming(0x81, payload.len() as u64, payload);
        let fragments = [frame_claiming(0x01, 1, b"{"), frame_claiming(0x00, 0, b""), frame_claiming(0x80, 1, b"}")].concat();
        let bytes = [text(b"{}"), fragments, frame_claiming(0x89, 1, b"p"), frame_claiming(0x8a, 0, b""), text(b"")].concat();
        let (request, mut payload) = TestRequest::default().set_payload(bytes).to_http_parts();
        let payload = Payload::from_request(&request, &mut payload).await.unwrap();
        let limits = GateLimits { rate: Rate { burst: 1, per_second: 1 }, ..GateLimits::default() };
        let (table, counters) = (Arc::new(SocketTable::default()), Arc::new(Counters::default()));
        let socket = table.open(Identity::of_jwt(UserId(uuid::Uuid::nil())), Role::Mobile, 1 << 20, None);
        let input = SharedInput::new(payload, limits, Role::Mobile, clock::now());
        let intake = Rc::<Intake>::default();
        let gated = GatedInput::new(input, socket.link().clone(), counters.clone(), intake.clone());
        let handled = gated.inspect(|_| intake.unhandled_frames.set(0));
        let passed: Vec<u8> = handled.map(|chunk| chunk.unwrap().to_vec()).concat().await;
        assert_eq!(passed, [text(b"{}"), frame_claiming(0x8a, 0, b"")].concat());
        assert_eq!(counters.rate_limited.get(), 3, "a message in fragments, a ping, a message");
    }

    /// The codec never has the frame that breaks a rule, so nobody will take it out.
    #[actix::test]
    async fn a_close_frame_that_breaks_a_rule_ends_the_input() {
        for (said, violation) in [(&b"\x03\xed"[..], CloseReason::ProtocolViolation), (b"\x03\xe8\xff", CloseReason::NotUtf8)] {
            let bytes = frame_claiming(0x88, said.len() as u64, said);
            let (request, mut payload) = TestRequest::default().set_payload(bytes.clone()).to_http_parts();
            let payload = Payload::from_request(&request, &mut payload).await.unwrap();
            let socket = Arc::new(SocketTable::default()).open(Identity::of_jwt(UserId(uuid::Uuid::nil())), Role::Mobile, 1 << 20, None);
            let input = SharedInput::new(payload, GateLimits::default(), Role::Mobile, clock::now());
            let intake = Rc::<Intake>::default();
            let mut gated = GatedInput::new(input, socket.link().clone(), Arc::default(), intake.clone());
            let passed = gated.next().now_or_never().expect("there is input").expect("the start of the frame").unwrap();
            assert_eq!(passed, bytes[..bytes.len() - 1]);
            assert!(gated.next().now_or_never().expect("the end is there").is_none());
            assert_eq!(intake.violation.get(), Some(violation));
        }
    }

    /// The codec appends all there is to its buffer before it looks for a frame, and keeps the buffer.
    #[actix::test]
    async fn the_codec_holds_one_piece_of_a_large_message() {
        let text = "x".repeat(10 * PIECE_BYTES_MAX + 1);
        let bytes = frame_claiming(0x81, text.len() as u64, text.as_bytes());
        let (request, mut payload) = TestRequest::default().set_payload(bytes).to_http_parts();
        let payload = Payload::from_request(&request, &mut payload).await.unwrap();
        let socket = Arc::new(SocketTable::default()).open(Identity::of_jwt(UserId(uuid::Uuid::nil())), Role::Desktop, 1 << 20, None);
        let limits = GateLimits { unregistered_message_bytes_max: text.len(), ..GateLimits::default() };
        let input = SharedInput::new(payload, limits, Role::Desktop, clock::now());
        let intake = Rc::<Intake>::default();
        let mut gated = GatedInput::new(input, socket.link().clone(), Arc::default(), intake.clone());
        let (mut codec, mut buffer, mut received, mut ended) = (Codec::new(), BytesMut::new(), Vec::new(), false);
        while !ended {
            while let Some(next) = gated.next().now_or_never() {
                match next {
                    Some(chunk) => buffer.extend_from_slice(&chunk.unwrap()),
                    None => {
                        ended = true;
                        break;
                    }
                }
            }
            assert!(buffer.len() <= PIECE_BYTES_MAX + 14, "{} bytes in the codec's buffer", buffer.len());
            while let Some(frame) = codec.decode(&mut buffer).unwrap() {
                let Frame::Continuation(Item::FirstText(piece) | Item::Continue(piece) | Item::Last(piece)) = frame else {
                    panic!("{frame:?}");
                };
                received.extend_from_slice(&piece);
                intake.unhandled_frames.update(|frames| frames.saturating_sub(1));
            }
        }
        assert!(received == text.as_bytes());
    }

    /// A stranger that claims all there is must not close whoever sends next.
    #[actix::test]
    async fn who_finds_no_room_waits_for_it_and_is_not_closed() {
        let message = frame_claiming(0x81, 2, b"{}");
        let (request, mut payload) = TestRequest::default().set_payload(message.clone()).to_http_parts();
        let payload = Payload::from_request(&request, &mut payload).await.unwrap();
        let limits = TableLimits { inbound_bytes_max: 100, message_bytes_max: 50, ..TableLimits::default() };
        let table = Arc::new(SocketTable::new(limits));
        let open = || table.open(Identity::of_jwt(UserId(uuid::Uuid::nil())), Role::Mobile, 1 << 20, None);
        let (stranger, socket) = (open(), open());
        assert!(stranger.link().inbound.take(100) && stranger.link().inbound.take(50));
        let input = SharedInput::new(payload, GateLimits::default(), Role::Mobile, clock::now());
        let intake = Rc::<Intake>::default();
        let mut gated = GatedInput::new(input, socket.link().clone(), Arc::default(), intake.clone());
        assert!(gated.next().now_or_never().is_none());
        assert_eq!((intake.violation.get(), socket.link().inbound.held()), (None, 0));
        stranger.link().inbound.give_back(50);
        assert_eq!(gated.next().await.unwrap().unwrap(), message);
        assert_eq!((intake.violation.get(), socket.link().inbound.held()), (None, 2));
        assert!(gated.next().now_or_never().is_none(), "the message is not handled");
        intake.unhandled_frames.set(0);
        assert!(gated.next().await.is_none());
    }
}
