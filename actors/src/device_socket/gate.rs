//! The inbound gate: reads websocket frame headers before the codec sees a byte, and stops what the codec would buffer, accept or
//! report as something else.
//!
//! The codec behind it checks a frame's size only after buffering it, hands on fragments without a sum, and reports different
//! faults as one I/O error. So everything that decides a close code from a header is decided here, and what a close frame says is
//! too, since the codec cannot tell a bad code from a bad text; what is left for the codec is unmasking. Bytes are passed on as they
//! came, except that a header is held back until it is whole and has been judged, and so is the last byte of a
//! close frame.

use super::{
    input::{Judged, SharedInput},
    link::{Link, MessageProgress},
};
use crate::clock;
use actix_web::error::PayloadError;
use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use relay_protocol::{close::CloseReason, limits};
use std::{
    cell::Cell,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
};

/// Longest header of a client frame: two bytes, eight of length, four of mask.
const HEADER_BYTES_MAX: usize = 14;
/// Largest payload of a control frame (RFC 6455, section 5.5).
const CONTROL_BYTES_MAX: u64 = 125;

/// What the gate judges by.
#[derive(Clone, Copy, Debug)]
pub struct GateLimits {
    /// Largest message, fragments summed.
    pub message_bytes_max: usize,
    /// Largest message before a successful registration.
    pub unregistered_message_bytes_max: usize,
    /// Most fragments of one message.
    pub fragments_max: u32,
}

impl Default for GateLimits {
    fn default() -> Self {
        GateLimits {
            message_bytes_max: limits::MESSAGE_BYTES_MAX,
            unregistered_message_bytes_max: limits::UNREGISTERED_MESSAGE_BYTES_MAX,
            fragments_max: limits::FRAGMENTS_MAX,
        }
    }
}

/// The header machine. Pure: bytes in, how far they may pass out.
#[derive(Debug)]
pub struct Gate {
    limits: GateLimits,
    header: Header,
    /// Payload bytes of the current frame that have not come yet.
    payload_left: u64,
    /// Whether the current frame is a control frame, which does not count as growth of a message.
    in_control: bool,
    message: Option<Message>,
    /// The payload of a close frame, as far as it has come; still masked.
    close: Vec<u8>,
    /// A close frame has been seen; nothing after it counts.
    closing: bool,
    /// The chunk under judgement held bytes of a message.
    grew: bool,
}

/// A header that may arrive in pieces.
#[derive(Debug, Default)]
struct Header {
    bytes: [u8; HEADER_BYTES_MAX],
    length: usize,
}

/// A message that is not whole yet.
#[derive(Clone, Copy, Debug, Default)]
struct Message {
    bytes: u64,
    fragments: u32,
    /// The last fragment's header has come: the message is whole with that frame's payload.
    last: bool,
}

/// What became of a chunk.
#[derive(Debug, PartialEq, Eq)]
pub struct Passed {
    /// Bytes of earlier chunks to pass on first: a header that was held back.
    pub held: Bytes,
    /// How many bytes of this chunk may pass.
    pub bytes: usize,
    /// Why nothing after them may.
    pub violation: Option<CloseReason>,
}

impl Gate {
    /// A gate at the start of a connection.
    pub fn new(limits: GateLimits) -> Self {
        Gate {
            limits,
            header: Header::default(),
            payload_left: 0,
            in_control: false,
            message: None,
            close: Vec::new(),
            closing: false,
            grew: false,
        }
    }

    /// Whether the peer's close frame has come; nothing after it counts.
    pub fn is_closed(&self) -> bool {
        self.closing
    }

    /// What the last chunk did to its message. A header that is not whole counts as one that has begun.
    pub fn progress(&self) -> MessageProgress {
        MessageProgress { unfinished: self.message.is_some() || (self.header.length > 0 && !self.closing), grew: self.grew }
    }

    /// Judges a chunk. After a violation the gate must not be asked again.
    pub fn judge(&mut self, chunk: &[u8], registered: bool) -> Passed {
        let mut held = Bytes::copy_from_slice(&self.header.bytes[..self.header.length]);
        self.grew = false;
        let mut passed = 0;
        let mut at = 0;
        while at < chunk.len() && !self.closing {
            if self.payload_left > 0 {
                let taken = usize::try_from(self.payload_left).unwrap_or(usize::MAX).min(chunk.len() - at);
                if self.in_close() {
                    self.close.extend_from_slice(&chunk[at..at + taken]);
                }
                at += taken;
                self.grew |= !self.in_control;
                self.payload_left -= taken as u64;
                if let Err(violation) = self.end_frame_if_whole() {
                    // Without its last byte the codec cannot find the frame either.
                    passed = at - 1;
                    return Passed { held: held_if_passed(&mut held, passed), bytes: passed, violation: Some(violation) };
                }
                passed = at;
                continue;
            }
            self.header.bytes[self.header.length] = chunk[at];
            self.header.length += 1;
            at += 1;
            match self.judge_header(registered) {
                Ok(false) => {}
                Ok(true) => {
                    self.header.length = 0;
                    passed = at;
                    // A close frame without a payload says nothing wrong.
                    if let Err(violation) = self.end_frame_if_whole() {
                        return Passed { held: held_if_passed(&mut held, passed), bytes: passed, violation: Some(violation) };
                    }
                }
                Err(violation) => return Passed { held: held_if_passed(&mut held, passed), bytes: passed, violation: Some(violation) },
            }
        }
        Passed { held: held_if_passed(&mut held, passed), bytes: passed, violation: None }
    }

    /// Whether the header is whole; its frame has then been let in.
    fn judge_header(&mut self, registered: bool) -> Result<bool, CloseReason> {
        let bytes = self.header.bytes;
        let header = &bytes[..self.header.length];
        let [first, second, extended @ ..] = header else {
            let reserved_bits_or_opcode = header[0] & 0x70 != 0 || matches!(header[0] & 0x0f, 0x3..=0x7 | 0xb..=0xf);
            return if reserved_bits_or_opcode { Err(CloseReason::ProtocolViolation) } else { Ok(false) };
        };
        if second & 0x80 == 0 {
            return Err(CloseReason::ProtocolViolation);
        }
        let (length_bytes, short_length) = match second & 0x7f {
            126 => (2, 0),
            127 => (8, 0),
            short => (0, u64::from(short)),
        };
        if extended.len() < length_bytes {
            return Ok(false);
        }
        let length = extended[..length_bytes].iter().fold(short_length, |length, byte| length << 8 | u64::from(*byte));
        if extended.len() == length_bytes {
            // Judged before the mask has come: a length that is too large ends the connection at once.
            self.let_in(*first & 0x80 != 0, *first & 0x0f, length, registered)?;
        }
        if extended.len() < length_bytes + 4 {
            return Ok(false);
        }
        self.payload_left = length;
        Ok(true)
    }

    /// Judges one frame by its header, and counts it.
    fn let_in(&mut self, last: bool, opcode: u8, length: u64, registered: bool) -> Result<(), CloseReason> {
        self.in_control = opcode >= 0x8;
        if self.in_control {
            if !last || length > CONTROL_BYTES_MAX || (opcode == 0x8 && length == 1) {
                return Err(CloseReason::ProtocolViolation);
            }
            return Ok(());
        }
        let mut message = match (opcode, self.message) {
            (0x0, Some(message)) => message,
            (0x1, None) => Message::default(),
            (0x2, None) => return Err(CloseReason::Binary),
            _out_of_sequence => return Err(CloseReason::ProtocolViolation),
        };
        let cap = if registered { self.limits.message_bytes_max } else { self.limits.unregistered_message_bytes_max };
        message.bytes = message.bytes.saturating_add(length);
        message.fragments += 1;
        message.last = last;
        if message.bytes > cap as u64 || message.fragments > self.limits.fragments_max {
            return Err(CloseReason::TooLarge);
        }
        self.message = Some(message);
        self.grew = true;
        Ok(())
    }

    fn end_frame_if_whole(&mut self) -> Result<(), CloseReason> {
        if self.payload_left > 0 {
            return Ok(());
        }
        if !self.in_control && self.message.is_some_and(|message| message.last) {
            self.message = None;
        }
        if self.in_close() {
            // A close frame that has come whole ends what counts.
            self.closing = true;
            return self.judge_close();
        }
        Ok(())
    }

    /// Whether the current frame is a close frame: its opcode is still in the header's first byte.
    fn in_close(&self) -> bool {
        self.in_control && self.header.bytes[0] & 0x0f == 0x8
    }

    /// Judges what a close frame says: a code that a peer may send (RFC 6455, section 7.4), and a reason in UTF-8 (section 8.1).
    fn judge_close(&mut self) -> Result<(), CloseReason> {
        // A control frame is short, so its mask follows the two bytes of the shortest header, or the longer form that was not needed.
        let length_bytes = match self.header.bytes[1] & 0x7f {
            126 => 2,
            127 => 8,
            _short => 0,
        };
        let mask = &self.header.bytes[2 + length_bytes..][..4];
        self.close.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, key)| *byte ^= key);
        let Some((code, reason)) = self.close.split_first_chunk::<2>() else { return Ok(()) };
        match u16::from_be_bytes(*code) {
            1000..=1003 | 1007..=1014 | 3000..=4999 => {}
            _not_to_be_sent => return Err(CloseReason::ProtocolViolation),
        }
        if std::str::from_utf8(reason).is_ok() { Ok(()) } else { Err(CloseReason::NotUtf8) }
    }
}

fn held_if_passed(held: &mut Bytes, passed: usize) -> Bytes {
    if passed > 0 { std::mem::take(held) } else { Bytes::new() }
}

/// The gate on a connection's input, as the codec reads it. It ends at the first violation, which it leaves in `violation`.
pub(super) struct GatedInput {
    input: SharedInput,
    link: Arc<Link>,
    violation: Rc<Cell<Option<CloseReason>>>,
    ended: bool,
}

impl GatedInput {
    pub(super) fn new(input: SharedInput, link: Arc<Link>, violation: Rc<Cell<Option<CloseReason>>>) -> Self {
        GatedInput { input, link, violation, ended: false }
    }
}

impl Stream for GatedInput {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if self.ended {
                return Poll::Ready(None);
            }
            let registered = self.link.registration().is_some();
            let Judged { mut chunk, passed, progress } = match self.input.poll_judged(registered, cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => {
                    self.ended = true;
                    continue;
                }
                Poll::Ready(Some(judged)) => judged,
            };
            self.link.activity.on_input(clock::now(), progress);
            if let Some(violation) = passed.violation {
                self.violation.set(Some(violation));
                self.ended = true;
            }
            if passed.bytes == 0 {
                continue;
            }
            chunk.truncate(passed.bytes);
            if passed.held.is_empty() {
                return Poll::Ready(Some(Ok(chunk)));
            }
            let mut whole = BytesMut::with_capacity(passed.held.len() + chunk.len());
            whole.extend_from_slice(&passed.held);
            whole.extend_from_slice(&chunk);
            return Poll::Ready(Some(Ok(whole.freeze())));
        }
    }
}
