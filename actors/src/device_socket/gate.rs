//! The inbound gate: reads websocket frame headers before the codec sees a byte, and stops what the codec would buffer, accept or
//! report as something else.
//!
//! The codec behind it checks a frame's size only after buffering it, hands on fragments without a sum, and reports different
//! faults as one I/O error. So everything that decides a close code from a header is decided here, and what a close frame says is
//! too, since the codec cannot tell a bad code from a bad text; what is left for the codec is unmasking. Bytes are passed on as they
//! came, except that a header is held back until it is whole and has been judged, and so is the last byte of a
//! close frame.
//!
//! The codec also reserves what a header claims at once, in a buffer that it keeps for the life of the connection. So a large frame is
//! passed on in pieces, as they come, each under a header of its own: the codec sees a fragmented message, and never holds more than
//! a piece of it. What the client's own fragments are bounded by is judged before that.
//!
//! The rate limit is here too (device-lane section 4), because here a message is known by its first byte, before anything of it is
//! copied, checked or parsed: each message and each ping takes a token when its first frame begins. Without one, a desktop's frame is
//! left where it is, and nothing behind it is read until there is a token; the actor, its pongs and its timers go on. A phone's
//! message is swallowed frame by frame, under the same framing rules but for the UTF-8 of its text, and its first 4 KiB are kept for a
//! glance at whether it is answered. Behind the codec the same message would have been buffered whole.

use super::{
    bucket::{Bucket, Rate},
    link::MessageProgress,
};
use bytes::Bytes;
use relay_protocol::{close::CloseReason, device::Role, glance::refusable_id, limits};
use std::time::Instant;

/// Longest header of a client frame: two bytes, eight of length, four of mask.
const HEADER_BYTES_MAX: usize = 14;
/// Largest payload of a control frame (RFC 6455, section 5.5).
const CONTROL_BYTES_MAX: u64 = 125;
/// Most payload bytes of one piece of a large frame, and of a frame that is passed on whole. What the codec keeps for a connection that
/// has received one is this much, so it is small; the cost of another fragment is spread over as many bytes, so it is not smaller.
pub(super) const PIECE_BYTES_MAX: usize = 32 * 1024;

/// What the gate judges by.
#[derive(Clone, Copy, Debug)]
pub struct GateLimits {
    /// Largest message, fragments summed.
    pub message_bytes_max: usize,
    /// Largest message before a successful registration.
    pub unregistered_message_bytes_max: usize,
    /// Most fragments of one message.
    pub fragments_max: u32,
    /// Longest payload of a frame that is passed on whole; what is longer is passed on in pieces of at most this.
    pub piece_bytes_max: usize,
    /// Messages and pings.
    pub rate: Rate,
}

impl Default for GateLimits {
    fn default() -> Self {
        GateLimits {
            message_bytes_max: limits::MESSAGE_BYTES_MAX,
            unregistered_message_bytes_max: limits::UNREGISTERED_MESSAGE_BYTES_MAX,
            fragments_max: limits::FRAGMENTS_MAX,
            piece_bytes_max: PIECE_BYTES_MAX,
            rate: Rate::default(),
        }
    }
}

/// The header machine. Pure: bytes in, how far they may pass out.
#[derive(Debug)]
pub struct Gate {
    limits: GateLimits,
    header: Header,
    /// Payload bytes of the current frame.
    payload_length: u64,
    /// Those that have not come yet.
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
    /// What the headers in the chunk under judgement claim for messages that are not dropped.
    claimed: u64,
    /// What happens to a message without a token.
    over_limit: OverLimit,
    tokens: Bucket,
    /// What answers to dropped requests are paid from.
    answers: Bucket,
    /// The current frame is swallowed.
    dropping: bool,
    /// Messages and pings for which there was no token, and that nobody has counted yet.
    dropped: u64,
    /// Frames and pieces that have passed whole, and that nobody has counted yet.
    whole_frames: u64,
    /// The start of the message that is being dropped; none when it will not be answered.
    glance: Option<Glance>,
}

/// What happens to a message or ping for which there is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OverLimit {
    /// It waits.
    Paced,
    /// It is swallowed.
    Dropped,
    /// Nothing: there is no limit any more.
    Passed,
}

/// What has come of a dropped message's text, as far as it is looked at.
#[derive(Debug, Default)]
struct Glance {
    text: Vec<u8>,
    /// There was more.
    cut: bool,
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
    /// There was no token for it.
    dropped: bool,
}

/// What became of a chunk, up to the first of: its end, a violation, a frame that has to wait, the end of a frame that was swallowed,
/// the header of a large frame, a piece of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Bytes to pass on first: a header that was held back, or that of a piece.
    pub held: Bytes,
    /// How many bytes of this chunk may pass.
    pub bytes: usize,
    /// They are a piece of a large frame: a frame of their own, with the header in `held`.
    pub piece: bool,
    /// How many bytes of this chunk have been judged: the rest must be judged next.
    pub judged: usize,
    /// Payload bytes of messages that the headers among them claim: what is buffered once they pass.
    pub claimed: u64,
    /// Why nothing after them may.
    pub violation: Option<CloseReason>,
    /// The next frame must not be judged before this time.
    pub paced_until: Option<Instant>,
    /// The id, as JSON text, of a request that was dropped and is to be answered.
    pub refused: Option<Box<str>>,
}

impl Gate {
    /// A gate at the start of a connection.
    pub fn new(limits: GateLimits, role: Role, now: Instant) -> Self {
        Gate {
            limits,
            header: Header::default(),
            payload_length: 0,
            payload_left: 0,
            in_control: false,
            message: None,
            close: Vec::new(),
            closing: false,
            grew: false,
            claimed: 0,
            over_limit: match role {
                Role::Desktop => OverLimit::Paced,
                Role::Mobile => OverLimit::Dropped,
            },
            tokens: Bucket::new(limits.rate, now),
            answers: Bucket::new(limits.rate, now),
            dropping: false,
            dropped: 0,
            whole_frames: 0,
            glance: None,
        }
    }

    /// Nothing is paced or dropped any more: what comes is discarded anyway.
    pub fn lift_rate_limit(&mut self) {
        self.over_limit = OverLimit::Passed;
    }

    /// Whether the peer's close frame has come; nothing after it counts.
    pub fn is_closed(&self) -> bool {
        self.closing
    }

    /// How many messages and pings have been dropped since this was last asked.
    pub fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// How many frames, as the codec sees them, have passed to their last byte since this was last asked.
    pub fn take_whole_frames(&mut self) -> u64 {
        std::mem::take(&mut self.whole_frames)
    }

    /// What the last chunk did to its message. A header that is not whole counts as one that has begun.
    pub fn progress(&self) -> MessageProgress {
        MessageProgress { unfinished: self.message.is_some() || (self.header.length > 0 && !self.closing), grew: self.grew }
    }

    /// Judges a chunk, or its start. After a violation the gate must not be asked again.
    pub fn judge(&mut self, chunk: &[u8], registered: bool, now: Instant) -> Passed {
        self.claimed = 0;
        let passed = self.judge_frames(chunk, registered, now);
        Passed { claimed: self.claimed, ..passed }
    }

    fn judge_frames(&mut self, chunk: &[u8], registered: bool, now: Instant) -> Passed {
        let mut held = Bytes::copy_from_slice(&self.header.bytes[..self.header.length]);
        self.grew = false;
        let mut passed = 0;
        let mut at = 0;
        while at < chunk.len() && !self.closing {
            if self.payload_left > 0 && self.in_pieces() {
                return self.pass_piece(chunk);
            }
            if self.payload_left > 0 {
                let taken = usize::try_from(self.payload_left).unwrap_or(usize::MAX).min(chunk.len() - at);
                if self.in_close() {
                    self.close.extend_from_slice(&chunk[at..at + taken]);
                } else if self.dropping {
                    self.glance_at(&chunk[at..at + taken]);
                }
                at += taken;
                self.grew |= !self.in_control;
                self.payload_left -= taken as u64;
                if let Err(violation) = self.end_frame_if_whole() {
                    // Without its last byte the codec cannot find the frame either.
                    passed = at - 1;
                    return Passed::up_to(&mut held, passed, at).violating(violation);
                }
                if !self.dropping {
                    passed = at;
                } else if self.payload_left == 0 {
                    let refused = self.refusal(registered, now);
                    return Passed { refused, ..Passed::up_to(&mut held, passed, at) };
                }
                continue;
            }
            if self.header.length == 0
                && let Some(until) = self.begin_frame(chunk[at], now)
            {
                return Passed { paced_until: Some(until), ..Passed::up_to(&mut held, passed, at) };
            }
            self.header.bytes[self.header.length] = chunk[at];
            self.header.length += 1;
            at += 1;
            match self.judge_header(registered) {
                Ok(false) => {}
                Ok(true) => {
                    self.header.length = 0;
                    if self.in_pieces() {
                        // Each piece gets a header of its own instead.
                        return Passed::up_to(&mut held, passed, at);
                    }
                    if !self.dropping {
                        passed = at;
                    }
                    // A close frame without a payload says nothing wrong.
                    if let Err(violation) = self.end_frame_if_whole() {
                        return Passed::up_to(&mut held, passed, at).violating(violation);
                    }
                    if self.dropping && self.payload_left == 0 {
                        let refused = self.refusal(registered, now);
                        return Passed { refused, ..Passed::up_to(&mut held, passed, at) };
                    }
                }
                Err(violation) => return Passed::up_to(&mut held, passed, at).violating(violation),
            }
        }
        Passed::up_to(&mut held, passed, chunk.len())
    }

    /// Whether the current frame, whose header is whole, is passed on in pieces.
    fn in_pieces(&self) -> bool {
        !self.in_control && !self.dropping && self.payload_length > self.limits.piece_bytes_max as u64
    }

    /// Passes on what the start of the chunk, the payload of a large frame, has of it: a piece of the largest size at most.
    fn pass_piece(&mut self, chunk: &[u8]) -> Passed {
        let begun = self.payload_left == self.payload_length;
        let mut mask = self.mask();
        // A remainder of four fits any integer.
        mask.rotate_left(((self.payload_length - self.payload_left) % 4) as usize);
        let left = usize::try_from(self.payload_left).unwrap_or(usize::MAX);
        let taken = chunk.len().min(left).min(self.limits.piece_bytes_max);
        self.payload_left -= taken as u64;
        self.grew = true;
        let opcode = if begun { self.header.bytes[0] & 0x0f } else { 0x0 };
        let fin = if self.payload_left == 0 { self.header.bytes[0] & 0x80 } else { 0 };
        // For the codec each piece is a whole frame; the last one is counted with the frame that it ends.
        self.whole_frames += u64::from(self.payload_left > 0);
        let violation = self.end_frame_if_whole().err();
        Passed { held: piece_header(fin | opcode, taken, mask), bytes: taken, piece: true, judged: taken, violation, ..Passed::default() }
    }

    /// Takes a token for what this first byte of a header begins, if it takes one. The time until which it has to wait, if it has to.
    fn begin_frame(&mut self, first: u8, now: Instant) -> Option<Instant> {
        let opcode = first & 0x0f;
        self.dropping = opcode == 0x0 && self.message.is_some_and(|message| message.dropped);
        if !matches!(opcode, 0x1 | 0x9) || self.over_limit == OverLimit::Passed {
            return None;
        }
        let Err(until) = self.tokens.take(now) else { return None };
        if self.over_limit == OverLimit::Paced {
            return Some(until);
        }
        self.dropping = true;
        self.dropped += 1;
        if opcode == 0x1 {
            self.glance = self.answers.has_token(now).then(Glance::default);
        }
        None
    }

    /// Keeps the start of a dropped message, unmasked.
    fn glance_at(&mut self, payload: &[u8]) {
        let (at, mask) = (self.payload_length - self.payload_left, self.mask());
        let Some(glance) = self.glance.as_mut().filter(|_| !self.in_control) else { return };
        let taken = payload.len().min(limits::GLANCE_BYTES_MAX - glance.text.len());
        // A remainder of four fits any integer.
        let keys = mask.into_iter().cycle().skip((at % 4) as usize);
        glance.text.extend(payload[..taken].iter().zip(keys).map(|(byte, key)| byte ^ key));
        glance.cut |= taken < payload.len();
    }

    /// At the end of a dropped frame: the id to answer, if it was the last of its message and the message is one that is answered.
    fn refusal(&mut self, registered: bool, now: Instant) -> Option<Box<str>> {
        if self.in_control || self.message.is_some() {
            return None;
        }
        let glance = self.glance.take()?;
        let id = refusable_id(&glance.text, glance.cut).filter(|_| registered)?;
        self.answers.take(now).ok().map(|()| id.into())
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
        (self.payload_length, self.payload_left) = (length, length);
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
            (0x1, None) => Message { dropped: self.dropping, ..Message::default() },
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
        if !message.dropped {
            self.claimed = self.claimed.saturating_add(length);
        }
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
            self.judge_close()?;
        }
        // One that breaks a rule does not pass whole.
        self.whole_frames += u64::from(!self.dropping);
        Ok(())
    }

    /// Whether the current frame is a close frame: its opcode is still in the header's first byte.
    fn in_close(&self) -> bool {
        self.in_control && self.header.bytes[0] & 0x0f == 0x8
    }

    /// Judges what a close frame says: a code that a peer may send (RFC 6455, section 7.4), and a reason in UTF-8 (section 8.1).
    fn judge_close(&mut self) -> Result<(), CloseReason> {
        let mask = self.mask();
        self.close.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, key)| *byte ^= key);
        let Some((code, reason)) = self.close.split_first_chunk::<2>() else { return Ok(()) };
        match u16::from_be_bytes(*code) {
            1000..=1003 | 1007..=1014 | 3000..=4999 => {}
            _not_to_be_sent => return Err(CloseReason::ProtocolViolation),
        }
        if std::str::from_utf8(reason).is_ok() { Ok(()) } else { Err(CloseReason::NotUtf8) }
    }

    /// The mask of the current frame, whose header is whole: the last four bytes of it.
    fn mask(&self) -> [u8; 4] {
        let length_bytes = match self.header.bytes[1] & 0x7f {
            126 => 2,
            127 => 8,
            _short => 0,
        };
        std::array::from_fn(|index| self.header.bytes[2 + length_bytes + index])
    }
}

impl Passed {
    /// What was held goes with the first bytes that pass.
    fn up_to(held: &mut Bytes, bytes: usize, judged: usize) -> Self {
        let held = if bytes > 0 { std::mem::take(held) } else { Bytes::new() };
        Passed { held, bytes, judged, ..Passed::default() }
    }

    fn violating(self, violation: CloseReason) -> Self {
        Passed { violation: Some(violation), ..self }
    }
}

/// The header of a masked frame of this many bytes.
fn piece_header(first: u8, length: usize, mask: [u8; 4]) -> Bytes {
    let mut header = Vec::with_capacity(HEADER_BYTES_MAX);
    header.push(first);
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short @ 0..=125), _) => header.push(0x80 | short),
        (_, Ok(medium)) => {
            header.push(0x80 | 126);
            header.extend(medium.to_be_bytes());
        }
        (_, Err(_)) => {
            header.push(0x80 | 127);
            header.extend((length as u64).to_be_bytes());
        }
    }
    header.extend(mask);
    header.into()
}
