//! A text message on its way out, kept in pieces so that a large part of an inbound message is never copied.

use bytes::Bytes;
use serde::Serialize;
use std::{fmt, ops::Range};

/// From this size on a value is shared with the message that it came in; below, copying it is cheaper than another piece.
const SHARE_FROM_BYTES: usize = 4 * 1024;

/// A part of an inbound message, as a range of its text.
pub(crate) type Span = Range<usize>;

/// Where `part` lies in `whole`. Both come from the same text: `part` was borrowed from it by the parser.
pub(crate) fn span(whole: &str, part: &str) -> Span {
    let start = part.as_ptr() as usize - whole.as_ptr() as usize;
    debug_assert!(start + part.len() <= whole.len());
    start..start + part.len()
}

/// The UTF-8 text of one outgoing message. Cheap to clone: a fan-out shares the bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Text {
    first: Bytes,
    rest: Vec<Bytes>,
}

impl Text {
    /// A text that is known beforehand.
    pub const fn from_static(text: &'static str) -> Self {
        Text { first: Bytes::from_static(text.as_bytes()), rest: Vec::new() }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.first.len() + self.rest.iter().map(Bytes::len).sum::<usize>()
    }

    /// Whether there is no text at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pieces in order: the first, and the rest. Only a text that is empty has an empty piece.
    pub fn into_pieces(self) -> (Bytes, Vec<Bytes>) {
        (self.first, self.rest)
    }

    /// The whole text in one place; for tests and logs of lengths, not for the way out.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut whole = Vec::with_capacity(self.len());
        whole.extend_from_slice(&self.first);
        for piece in &self.rest {
            whole.extend_from_slice(piece);
        }
        whole
    }

    /// The frame `{"type": kind, "payload": payload}`.
    pub fn envelope<P: Serialize>(kind: &str, payload: &P) -> Self {
        #[derive(Serialize)]
        struct Envelope<'a, P> {
            r#type: &'a str,
            payload: &'a P,
        }
        let mut whole = Vec::with_capacity(256);
        if let Err(error) = serde_json::to_writer(&mut whole, &Envelope { r#type: kind, payload }) {
            // Only a map with keys that are not strings could fail, and no payload of ours has one.
            unreachable!("a payload of {kind} does not serialise: {error}");
        }
        Text { first: whole.into(), rest: Vec::new() }
    }
}

/// Only the length: the text holds payloads, and at a registration a secret.
impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Text").field("len", &self.len()).finish()
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Text { first: text.into(), rest: Vec::new() }
    }
}

/// Puts a [`Text`] together.
#[derive(Debug)]
pub(crate) struct TextWriter {
    /// Length of the inbound message whose parts are put in, about.
    message_bytes: usize,
    open: Vec<u8>,
    pieces: Vec<Bytes>,
}

impl TextWriter {
    /// A writer of a text that is made of parts of an inbound message, and about as long.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        TextWriter { message_bytes: capacity, open: Vec::with_capacity(capacity.min(2 * SHARE_FROM_BYTES)), pieces: Vec::new() }
    }

    /// Appends text of our own.
    pub(crate) fn put(&mut self, text: &str) {
        self.open.extend_from_slice(text.as_bytes());
    }

    /// Appends something that prints.
    pub(crate) fn put_display(&mut self, value: impl fmt::Display) {
        use std::io::Write;
        // Writing to a Vec cannot fail.
        let _ = write!(self.open, "{value}");
    }

    /// Appends bytes of an inbound message, shared with it where that pays: not where a small part, whose bytes alone are counted for
    /// whoever waits for it, would keep much whitespace alive.
    pub(crate) fn put_shared(&mut self, bytes: Bytes) {
        if bytes.len() < SHARE_FROM_BYTES || bytes.len() < self.message_bytes / 2 {
            self.open.extend_from_slice(&bytes);
            return;
        }
        if !self.open.is_empty() {
            self.pieces.push(std::mem::take(&mut self.open).into());
        }
        self.pieces.push(bytes);
    }

    pub(crate) fn finish(mut self) -> Text {
        if !self.open.is_empty() || self.pieces.is_empty() {
            self.pieces.push(self.open.into());
        }
        let first = self.pieces.remove(0);
        Text { first, rest: self.pieces }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_values_are_copied_and_large_ones_shared() {
        let large = Bytes::from(vec![b'x'; SHARE_FROM_BYTES]);
        let mut writer = TextWriter::with_capacity(64);
        writer.put("a");
        writer.put_shared(Bytes::from_static(b"b"));
        writer.put_shared(large.clone());
        writer.put("c");
        let text = writer.finish();
        assert_eq!(text.len(), SHARE_FROM_BYTES + 3);
        let (first, rest) = text.into_pieces();
        assert_eq!(first, "ab");
        assert_eq!(rest[0].as_ptr(), large.as_ptr());
        assert_eq!(rest[1], "c");
    }

    #[test]
    fn a_small_part_of_a_large_message_does_not_keep_it_alive() {
        let message = Bytes::from(vec![b'x'; 10 * SHARE_FROM_BYTES]);
        for (part_bytes, is_shared) in [(SHARE_FROM_BYTES, false), (5 * SHARE_FROM_BYTES - 1, false), (5 * SHARE_FROM_BYTES, true)] {
            let mut writer = TextWriter::with_capacity(message.len());
            writer.put_shared(message.slice(..part_bytes));
            let (first, _) = writer.finish().into_pieces();
            assert_eq!((first.len(), first.as_ptr() == message.as_ptr()), (part_bytes, is_shared));
        }
    }

    #[test]
    fn an_empty_writer_gives_an_empty_text() {
        assert!(TextWriter::with_capacity(0).finish().is_empty());
    }
}
