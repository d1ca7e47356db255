//! What a proxy does that knows websockets and keeps pings and pongs to itself.

/// Opcodes of RFC 6455, section 5.2.
const PING: u8 = 0x9;
const PONG: u8 = 0xa;

/// Follows one direction of a connection from its first byte: the HTTP head passes, then all frames but pings and pongs.
#[derive(Default)]
pub struct PingFilter {
    at: Position,
    /// Seen and not decided on: a part of a head, or of a frame's header.
    undecided: Vec<u8>,
}

#[derive(Clone, Copy, Default)]
enum Position {
    #[default]
    Head,
    FrameHeader,
    Payload {
        left: usize,
        passes: bool,
    },
}

impl PingFilter {
    /// What passes now that these bytes have come.
    pub fn filter(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.undecided.extend(bytes);
        let mut passed = Vec::new();
        loop {
            let (length, passes, next) = match self.at {
                Position::Head => {
                    let Some(end) = self.undecided.windows(4).position(|window| window == b"\r\n\r\n") else { return passed };
                    (end + 4, true, Position::FrameHeader)
                }
                Position::FrameHeader => {
                    let Some((opcode, length, left)) = header(&self.undecided) else { return passed };
                    let passes = ![PING, PONG].contains(&opcode);
                    (length, passes, Position::Payload { left, passes })
                }
                Position::Payload { left: 0, .. } => (0, false, Position::FrameHeader),
                Position::Payload { .. } if self.undecided.is_empty() => return passed,
                Position::Payload { left, passes } => {
                    let length = left.min(self.undecided.len());
                    (length, passes, Position::Payload { left: left - length, passes })
                }
            };
            let decided = self.undecided.drain(..length);
            passed.extend(decided.filter(|_| passes));
            self.at = next;
        }
    }
}

/// Opcode, length of the header, mask included, and length of the payload; `None` while the header is incomplete.
fn header(bytes: &[u8]) -> Option<(u8, usize, usize)> {
    let &[first, second] = bytes.first_chunk()?;
    let (short, masked) = (second & 0x7f, second & 0x80 != 0);
    let (length, payload) = match short {
        126 => (4, usize::from(u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?))),
        127 => (10, usize::try_from(u64::from_be_bytes(*bytes.get(2..)?.first_chunk()?)).unwrap()),
        short => (2, usize::from(short)),
    };
    let length = if masked { length + 4 } else { length };
    (bytes.len() >= length).then_some((first & 0xf, length, payload))
}
