//! The text of a message that comes in pieces: fragments of its sender's, or the pieces that the gate makes of a large frame.
//!
//! A large one is not the allocator's: its memory is mapped for it alone, so that all of it goes back to the system when the last
//! reader of the message has gone. An allocator keeps what large messages leave behind, several times their size, in case that more
//! come. Memory that is mapped costs nothing until it is written to, so a message is given room for all that its headers claim at
//! once, and neither moved nor held twice while it grows.

use bytes::{Bytes, BytesMut};
use memmap2::{Advice, MmapMut};

/// From this length on a message has memory of its own, in bytes. It costs a page fault per page, so it is for what an allocator would
/// not use again soon: with 128 KiB, messages of 200 KB took 40 % more CPU.
const MAPPED_BYTES_MIN: usize = 1024 * 1024;
/// When this much of a message has come, in bytes, the rest may come in huge pages (2 MiB): one fault instead of 512. Not before,
/// so that what is only claimed stays free.
const HUGE_PAGES_FROM: usize = 2 * 1024 * 1024;

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
            self.grow(length, claimed);
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

    /// Room for so many bytes, for what is claimed, and for twice what there was: fragments claim one by one.
    fn grow(&mut self, length: usize, claimed: usize) {
        let mut capacity = length.max(claimed).max(2 * self.capacity());
        if capacity >= MAPPED_BYTES_MIN {
            if let Ok(map) = MmapMut::map_anon(capacity) {
                let mut mapped = Mapped { map, length: 0 };
                mapped.push(self.as_slice());
                *self = MessageBuffer::Mapped(mapped);
                return;
            }
            // The allocator would have no more than the system has, and ends the process: it is asked for what has come, not for claims.
            capacity = length.max(2 * self.as_slice().len());
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
        if (self.length..end).contains(&HUGE_PAGES_FROM) {
            // Where there are none, the usual pages do.
            let _ = self.map.advise(Advice::HugePage);
        }
        self.map[self.length..end].copy_from_slice(piece);
        self.length = end;
    }
}

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        &self.map[..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    fn is_mapped(buffer: &MessageBuffer) -> bool {
        matches!(buffer, MessageBuffer::Mapped(_))
    }

    #[test]
    fn from_the_threshold_on_a_message_has_memory_of_its_own() {
        for (claimed, mapped) in [(MAPPED_BYTES_MIN - 1, false), (MAPPED_BYTES_MIN, true)] {
            let mut buffer = MessageBuffer::default();
            buffer.extend(b"{", claimed);
            assert_eq!(is_mapped(&buffer), mapped, "{claimed} bytes");
        }
        // The sum of fragments counts, since each claims for itself.
        let mut buffer = MessageBuffer::default();
        let half = vec![b'x'; MAPPED_BYTES_MIN / 2];
        buffer.extend(&half, half.len());
        assert!(!is_mapped(&buffer));
        buffer.extend(&half, 2 * half.len());
        assert!(is_mapped(&buffer));
        assert_eq!(buffer.take(), [half.clone(), half].concat());
        assert!(matches!(buffer, MessageBuffer::Empty));
    }

    #[test]
    fn what_was_claimed_is_there_at_once_and_nothing_moves() {
        let claimed = 8 * MAPPED_BYTES_MIN;
        let mut buffer = MessageBuffer::default();
        buffer.extend(b"{", claimed);
        let at = buffer.as_slice().as_ptr();
        buffer.extend(&vec![b'x'; claimed - 1], claimed);
        assert_eq!((buffer.as_slice().as_ptr(), buffer.capacity()), (at, claimed));
        // Nor does it when the message is whole.
        assert_eq!(buffer.take().as_ptr(), at);
    }

    proptest! {
        #[test]
        fn the_message_is_its_pieces_whatever_was_claimed(pieces in vec((any::<u8>(), 0..40_000_usize, 0..400_000_usize), 0..20)) {
            let (mut buffer, mut message) = (MessageBuffer::default(), Vec::new());
            for (byte, length, claimed) in pieces {
                let piece = vec![byte; length];
                buffer.extend(&piece, claimed);
                message.extend(piece);
            }
            prop_assert!(buffer.take() == message);
        }
    }
}
