//! The text of a message that comes in pieces: fragments of its sender's, or the pieces that the gate makes of a large frame.
//!
//! A large one is not the allocator's: its memory is mapped for it alone, so that all of it goes back to the system when the last
//! reader of the message has gone. An allocator keeps what large messages leave behind, several times their size, in case that more
//! come. Memory that is mapped costs nothing until it is written to, so a message is given room for all that its headers claim at
//! once, and neither moved nor held twice while it grows.

use bytes::{Bytes, BytesMut};
use memmap2::MmapMut;

/// From this length on a message has memory of its own, in bytes. Mapping costs two calls of the system and a page fault per page,
/// which is little beside what else is done with so many bytes; what is smaller, the allocator uses again.
const MAPPED_BYTES_MIN: usize = 128 * 1024;

/// What has come of a message.
#[derive(Debug, Default)]
pub(super) enum MessageBuffer {
    /// Nothing.
    #[default]
    Empty,
    /// A small message, or one for which the system had no mapping left.
    Allocated(BytesMut),
    /// A large one.
    Mapped(Mapped),
}

/// The used part of a mapping.
#[derive(Debug)]
pub(super) struct Mapped {
    map: MmapMut,
    length: usize,
}

impl MessageBuffer {
    /// Appends a piece. `claimed` is how long the message will be, as far as its headers have said so.
    pub(super) fn extend(&mut self, piece: &[u8], claimed: usize) {
        let length = self.as_slice().len() + piece.len();
        if length > self.capacity() {
            self.grow(length.max(claimed));
        }
        match self {
            MessageBuffer::Empty => {}
            MessageBuffer::Allocated(bytes) => bytes.extend_from_slice(piece),
            MessageBuffer::Mapped(mapped) => mapped.push(piece),
        }
    }

    /// The whole message; the buffer is empty afterwards.
    pub(super) fn take(&mut self) -> Bytes {
        match std::mem::take(self) {
            MessageBuffer::Empty => Bytes::new(),
            MessageBuffer::Allocated(bytes) => bytes.freeze(),
            MessageBuffer::Mapped(mapped) => Bytes::from_owner(mapped),
        }
    }

    fn as_slice(&self) -> &[u8] {
        match self {
            MessageBuffer::Empty => &[],
            MessageBuffer::Allocated(bytes) => bytes,
            MessageBuffer::Mapped(mapped) => mapped.as_ref(),
        }
    }

    fn capacity(&self) -> usize {
        match self {
            MessageBuffer::Empty => 0,
            MessageBuffer::Allocated(bytes) => bytes.capacity(),
            MessageBuffer::Mapped(mapped) => mapped.map.len(),
        }
    }

    /// Room for so many bytes, and for twice what there was: fragments claim one by one.
    fn grow(&mut self, needed: usize) {
        let capacity = needed.max(2 * self.capacity());
        if capacity >= MAPPED_BYTES_MIN
            && let Ok(map) = MmapMut::map_anon(capacity)
        {
            let mut mapped = Mapped { map, length: 0 };
            mapped.push(self.as_slice());
            *self = MessageBuffer::Mapped(mapped);
            return;
        }
        let mut bytes = BytesMut::with_capacity(capacity);
        bytes.extend_from_slice(self.as_slice());
        *self = MessageBuffer::Allocated(bytes);
    }
}

impl Mapped {
    /// There must be room.
    fn push(&mut self, piece: &[u8]) {
        let end = self.length + piece.len();
        self.map[self.length..end].copy_from_slice(piece);
        self.length = end;
    }
}

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        &self.map[..self.length]
    }
}
