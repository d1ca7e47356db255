//! A websocket frame on its way out: a server's header, never masked, and what it is about.

use bytes::{Bytes, BytesMut};
use relay_protocol::text::Text;

const FIN: u8 = 0x80;
const OPCODE_TEXT: u8 = 0x1;

/// The frames that go between messages.
#[derive(Clone, Copy, Debug)]
pub(super) enum Control {
    Close = 0x8,
    Ping = 0x9,
    Pong = 0xa,
}

impl Control {
    /// A control frame; payloads come from peers' control frames or from constants, so they fit in 125 bytes.
    pub(super) fn frame(self, payload: &[u8]) -> Bytes {
        let header = Header::new(FIN | self as u8, payload.len());
        let mut frame = BytesMut::with_capacity(header.length + payload.len());
        frame.extend_from_slice(header.as_slice());
        frame.extend_from_slice(payload);
        frame.freeze()
    }
}

/// A text frame, partly written or not: what is left of it. A small one costs no allocation beside its text.
#[derive(Debug)]
pub(super) struct Frame {
    header: Header,
    piece: Bytes,
    pieces: std::vec::IntoIter<Bytes>,
}

/// What became of a frame in a slice.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// All that was left is in the slice.
    Whole,
    /// The slice has no room for the rest.
    InPart,
    /// The slice was empty and the frame's next piece is longer than a slice: this part of the piece is the slice, uncopied.
    Split(Bytes),
}

impl Frame {
    pub(super) fn new(text: Text) -> Self {
        let header = Header::new(FIN | OPCODE_TEXT, text.len());
        let (piece, pieces) = text.into_pieces();
        Frame { header, piece, pieces: pieces.into_iter() }
    }

    /// Bytes of the whole frame, before a part of it is written.
    pub(super) fn wire_bytes(text: &Text) -> usize {
        let length = text.len();
        Header::new(FIN | OPCODE_TEXT, length).length + length
    }

    /// Bytes that are left of it.
    pub(super) fn len(&self) -> usize {
        self.header.length + self.piece.len() + self.pieces.as_slice().iter().map(Bytes::len).sum::<usize>()
    }

    /// Writes on into a slice of at most `bytes_max`, which has room for the header of a frame that has not begun.
    pub(super) fn write(&mut self, slice: &mut BytesMut, bytes_max: usize) -> Written {
        if self.header.length > 0 {
            slice.reserve(self.len().min(bytes_max - slice.len()));
            slice.extend_from_slice(self.header.as_slice());
            self.header.length = 0;
        }
        while !self.piece.is_empty() {
            if self.piece.len() <= bytes_max - slice.len() {
                slice.extend_from_slice(&self.piece);
                self.piece = self.pieces.next().unwrap_or_default();
            } else if slice.is_empty() {
                return Written::Split(self.piece.split_to(bytes_max));
            } else {
                return Written::InPart;
            }
        }
        Written::Whole
    }
}

/// A server's frame header: never masked.
#[derive(Clone, Copy, Debug)]
struct Header {
    bytes: [u8; 10],
    /// Zero once it is written.
    length: usize,
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
