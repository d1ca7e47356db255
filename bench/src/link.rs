//! One connection of a peer: a sending half and a receiving half.

use crate::error::Error;
use bytes::{Buf, Bytes, BytesMut};
use fastwebsockets::{Frame, OpCode, Payload};
use memchr::memmem;
use socket2::SockRef;
use std::{
    fmt::Write as _,
    io,
    net::{Ipv4Addr, SocketAddr},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpSocket, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

/// The largest message taken from a server: the device lane's 32 MiB plus the 4 KiB that the relay may add.
const MAX_MESSAGE_BYTES: usize = (32 << 20) + (4 << 10);
/// The longest answer to an upgrade request.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// Source addresses that connections are spread over. One address has some 28,000 ports to give.
const SOURCE_ADDRESSES: u8 = 8;
/// What the kernel holds for a peer with a narrow window; it doubles this. As little as registration needs.
const NARROW_RECEIVE_BUFFER: u32 = 2 << 10;
/// A segment on an ordinary network. A sender's buffer begins as a multiple of it, and those of loopback are 64 KiB.
const NARROW_SEGMENT_BYTES: u32 = 1_400;
/// Room for one read where messages are taken one by one; thousands of connections have it.
const READ_BYTES: usize = 8 << 10;
/// Room for one read where all that has come is taken at once: a system call for hundreds of small messages.
const BULK_READ_BYTES: usize = 256 << 10;
/// Frames above this size are written from where they are, smaller ones are copied behind their header.
const COPY_BYTES: usize = 1 << 10;
/// Masks keep what browsers send from looking like HTTP to something in between. Nothing is, and each key costs a server the same.
const BATCH_MASK: [u8; 4] = [0x5a, 0xc3, 0x96, 0x0f];

/// What arrived.
#[derive(Debug, PartialEq, Eq)]
pub enum Incoming {
    /// A whole text or binary message.
    Message(Bytes),
    /// A protocol ping, to be answered with the same bytes.
    Ping(Bytes),
    /// The connection is over, in whatever way.
    Closed,
}

/// The sending half.
pub struct Sender {
    socket: OwnedWriteHalf,
    scratch: Vec<u8>,
}

impl Sender {
    /// Sends one text message.
    pub async fn send(&mut self, text: Vec<u8>) -> Result<(), Error> {
        self.write(Frame::text(Payload::Owned(text))).await
    }

    /// Sends what a batch holds, which is empty then.
    pub async fn send_batch(&mut self, batch: &mut Batch) -> Result<(), Error> {
        self.socket.write_all(&batch.0).await.map_err(Error::io("write"))?;
        batch.0.clear();
        Ok(())
    }

    /// Sends a protocol pong: the answer to a ping, or a sign of life that needs no answer.
    pub async fn pong(&mut self, body: &[u8]) -> Result<(), Error> {
        self.write(Frame::pong(Payload::Owned(body.to_vec()))).await
    }

    /// Says goodbye; a connection that is already over needs none.
    pub async fn close(&mut self) {
        let _already_over = self.write(Frame::close(1000, b"")).await;
    }

    async fn write(&mut self, mut frame: Frame<'_>) -> Result<(), Error> {
        frame.mask();
        let written = match frame.payload.len() {
            ..=COPY_BYTES => self.socket.write_all(frame.write(&mut self.scratch)).await,
            _ => frame.writev(&mut self.socket).await,
        };
        written.map_err(Error::io("write"))
    }
}

/// Text messages that are ready to be written with one system call.
#[derive(Debug, Default)]
pub struct Batch(Vec<u8>);

impl Batch {
    /// Adds one message.
    pub fn push(&mut self, text: &[u8]) {
        let mut head = [0; 16];
        let length = Frame::new(true, OpCode::Text, Some(BATCH_MASK), Payload::Borrowed(text)).fmt_head(&mut head);
        self.0.extend_from_slice(&head[..length]);
        let start = self.0.len();
        self.0.extend_from_slice(text);
        Frame::new(true, OpCode::Text, Some(BATCH_MASK), Payload::BorrowedMut(&mut self.0[start..])).mask();
    }

    /// Bytes on the wire so far.
    pub fn bytes(&self) -> usize {
        self.0.len()
    }
}

/// The receiving half.
pub struct Receiver {
    socket: OwnedReadHalf,
    buffer: BytesMut,
    /// What has come of a message in fragments.
    unfinished: BytesMut,
}

impl Receiver {
    /// The next message or ping. A future dropped half-way loses nothing.
    pub async fn receive(&mut self) -> Incoming {
        loop {
            let header = match Header::of(&self.buffer) {
                Ok(Some(header)) if self.buffer.len() >= header.frame_bytes() => header,
                Ok(header) => {
                    let missing = header.map_or(0, |header| header.frame_bytes() - self.buffer.len());
                    if self.fill(missing.max(READ_BYTES)).await.is_err() {
                        return Incoming::Closed;
                    }
                    continue;
                }
                Err(Broken) => return Incoming::Closed,
            };
            self.buffer.advance(header.length);
            let body = self.buffer.split_to(header.body_bytes);
            match header.opcode {
                OpCode::Ping => return Incoming::Ping(body.freeze()),
                OpCode::Pong => {}
                OpCode::Close => return Incoming::Closed,
                OpCode::Text | OpCode::Binary | OpCode::Continuation if header.fin && self.unfinished.is_empty() => {
                    return Incoming::Message(body.freeze());
                }
                OpCode::Text | OpCode::Binary | OpCode::Continuation => {
                    if self.unfinished.len() + body.len() > MAX_MESSAGE_BYTES {
                        return Incoming::Closed;
                    }
                    self.unfinished.extend_from_slice(&body);
                    if header.fin {
                        return Incoming::Message(std::mem::take(&mut self.unfinished).freeze());
                    }
                }
            }
        }
    }

    /// Waits for something and hands over all whole frames that have come, where they lie: nothing is copied or allocated for each.
    /// A future dropped half-way loses nothing.
    ///
    /// # Errors
    /// The connection is over.
    pub async fn receive_each(&mut self, mut each: impl FnMut(OpCode, &[u8])) -> Result<(), Error> {
        loop {
            let mut rest = &self.buffer[..];
            while let Some(header) = Header::of(rest).map_err(|Broken| CLOSED)?
                && let Some((frame, behind)) = rest.split_at_checked(header.frame_bytes())
            {
                if !header.fin || matches!(header.opcode, OpCode::Continuation | OpCode::Close) {
                    return Err(CLOSED);
                }
                each(header.opcode, &frame[header.length..]);
                rest = behind;
            }
            let taken = self.buffer.len() - rest.len();
            if taken > 0 {
                self.buffer.advance(taken);
                return Ok(());
            }
            self.fill(BULK_READ_BYTES).await?;
        }
    }

    async fn fill(&mut self, room: usize) -> Result<(), Error> {
        self.buffer.reserve(room);
        match self.socket.read_buf(&mut self.buffer).await {
            Ok(0) | Err(_) => Err(CLOSED),
            Ok(_) => Ok(()),
        }
    }
}

const CLOSED: Error = Error::Closed { during: "the run" };

/// A frame's header, as a server writes it: never masked.
struct Header {
    fin: bool,
    opcode: OpCode,
    length: usize,
    body_bytes: usize,
}

/// What came is no websocket frame of a server, or larger than any may be.
#[derive(Debug)]
struct Broken;

impl Header {
    /// Reads the header that `bytes` begin with; none when it is not whole.
    fn of(bytes: &[u8]) -> Result<Option<Self>, Broken> {
        let &[first, second, ref rest @ ..] = bytes else { return Ok(None) };
        let extended = match second {
            0..=125 => 0,
            126 => 2,
            127 => 8,
            128.. => return Err(Broken),
        };
        let Some(extended_length) = rest.get(..extended) else { return Ok(None) };
        let body_bytes = match extended {
            0 => usize::from(second),
            _ => extended_length.iter().fold(0, |sum: usize, byte| sum.wrapping_shl(8) | usize::from(*byte)),
        };
        if first & 0x70 != 0 || body_bytes > MAX_MESSAGE_BYTES {
            return Err(Broken);
        }
        let opcode = OpCode::try_from(first & 0x0f).map_err(|_unknown| Broken)?;
        Ok(Some(Self { fin: first & 0x80 != 0, opcode, length: 2 + extended, body_bytes }))
    }

    fn frame_bytes(&self) -> usize {
        self.length + self.body_bytes
    }
}

/// How much the two kernels hold of what a peer has not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// As much as they like, which is megabytes on loopback.
    Wide,
    /// Little, as for a phone far away.
    Narrow,
}

/// Where a websocket leads, and how it gets there.
pub struct Opening<'a> {
    /// The server.
    pub addr: SocketAddr,
    /// The path of the upgrade request.
    pub path: &'a str,
    /// Its further headers.
    pub headers: &'a [(&'static str, String)],
    /// Equal values share a source address when the server is on loopback.
    pub spread: u32,
    /// What may be on its way.
    pub window: Window,
}

/// Opens a websocket.
pub async fn open(opening: Opening<'_>) -> Result<(Sender, Receiver), Error> {
    let Opening { addr, path, headers, spread, window } = opening;
    let mut stream = connect(addr, spread, window).await.map_err(Error::io("connect"))?;
    let mut request = format!(
        "GET {path} HTTP/1.1\r\nHost: {addr}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: cmVsYXktYmVuY2gta2V5IQ==\r\nSec-WebSocket-Version: 13\r\n"
    );
    push_headers(&mut request, headers);
    stream.write_all(request.as_bytes()).await.map_err(Error::io("send the upgrade request"))?;

    let mut buffer = BytesMut::with_capacity(1024);
    let head = read_head(&mut stream, &mut buffer, "websocket upgrade").await?;
    if !head.starts_with(b"HTTP/1.1 101 ") {
        let answer = String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned();
        return Err(Error::Refused { step: "websocket upgrade", answer });
    }
    let (read, write) = stream.into_split();
    Ok((Sender { socket: write, scratch: Vec::new() }, Receiver { socket: read, buffer, unfinished: BytesMut::new() }))
}

/// Ends a request's head with these headers and the empty line.
pub(crate) fn push_headers(head: &mut String, headers: &[(&str, String)]) {
    for (name, value) in headers {
        let _strings_take_everything = write!(head, "{name}: {value}\r\n");
    }
    head.push_str("\r\n");
}

/// Reads up to the empty line and returns the head with it; what came behind stays in `buffer`.
pub(crate) async fn read_head(stream: &mut TcpStream, buffer: &mut BytesMut, during: &'static str) -> Result<Bytes, Error> {
    loop {
        if let Some(at) = memmem::find(buffer, b"\r\n\r\n") {
            return Ok(buffer.split_to(at + 4).freeze());
        }
        if buffer.len() > MAX_HEAD_BYTES {
            return Err(Error::Refused { step: during, answer: format!("a head of more than {MAX_HEAD_BYTES} bytes") });
        }
        if stream.read_buf(buffer).await.map_err(Error::io("read a head"))? == 0 {
            return Err(Error::Closed { during });
        }
    }
}

/// A TCP connection without Nagle's delay.
pub(crate) async fn connect(addr: SocketAddr, spread: u32, window: Window) -> io::Result<TcpStream> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    match window {
        Window::Wide => {}
        Window::Narrow => {
            socket.set_recv_buffer_size(NARROW_RECEIVE_BUFFER)?;
            SockRef::from(&socket).set_tcp_mss(NARROW_SEGMENT_BYTES)?;
        }
    }
    if addr.is_ipv4() && addr.ip().is_loopback() {
        let last = 2 + u8::try_from(spread % u32::from(SOURCE_ADDRESSES)).unwrap_or_default();
        socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0)))?;
    }
    let stream = socket.connect(addr).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    /// A receiver of what `bytes` say, written in pieces of this size, and then nothing more.
    async fn receiver_of(bytes: Vec<u8>, piece: usize) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let addr = listener.local_addr().expect("an address");
        let (connected, accepted) = tokio::join!(connect(addr, 0, Window::Wide), listener.accept());
        let mut server = accepted.expect("a connection").0;
        tokio::spawn(async move {
            for piece in bytes.chunks(piece) {
                server.write_all(piece).await.expect("written");
                tokio::task::yield_now().await;
            }
        });
        let (socket, _write) = connected.expect("connected").into_split();
        Receiver { socket, buffer: BytesMut::new(), unfinished: BytesMut::new() }
    }

    fn frame(fin: bool, opcode: OpCode, body: &[u8]) -> Vec<u8> {
        let mut buffer = Vec::new();
        Frame::new(fin, opcode, None, Payload::Borrowed(body)).write(&mut buffer).to_vec()
    }

    #[tokio::test]
    async fn messages_of_every_length_arrive_whole_however_they_are_cut() {
        let bodies: Vec<Vec<u8>> = [0, 1, 125, 126, 65_535, 65_536, 300_000].map(|length| vec![b'x'; length]).into();
        let bytes: Vec<u8> = bodies.iter().flat_map(|body| frame(true, OpCode::Text, body)).collect();
        for piece in [7_919, 65_536, bytes.len()] {
            let mut receiver = receiver_of(bytes.clone(), piece).await;
            for body in &bodies {
                assert_eq!(receiver.receive().await, Incoming::Message(body.clone().into()));
            }
            assert_eq!(receiver.receive().await, Incoming::Closed);

            let (mut receiver, mut received) = (receiver_of(bytes.clone(), piece).await, Vec::new());
            while receiver.receive_each(|opcode, body| received.push((opcode, body.to_vec()))).await.is_ok() {}
            assert_eq!(received, bodies.iter().map(|body| (OpCode::Text, body.clone())).collect::<Vec<_>>());
        }
    }

    #[tokio::test]
    async fn fragments_are_joined_and_pings_between_them_told() {
        let frames =
            [frame(false, OpCode::Text, b"one "), frame(true, OpCode::Ping, b"?"), frame(true, OpCode::Continuation, b"two")].concat();
        let mut receiver = receiver_of(frames, 3).await;
        assert_eq!(receiver.receive().await, Incoming::Ping("?".into()));
        assert_eq!(receiver.receive().await, Incoming::Message("one two".into()));
    }

    #[tokio::test]
    async fn what_no_server_may_send_ends_the_connection() {
        let mut too_long = vec![0x81, 127];
        too_long.extend_from_slice(&(MAX_MESSAGE_BYTES as u64 + 1).to_be_bytes());
        let masked = [&[0x81, 0x81][..], &[0; 200]].concat();
        for bytes in [masked, vec![0xc1, 0], vec![0x83, 0], too_long] {
            assert_eq!(receiver_of(bytes, 64).await.receive().await, Incoming::Closed);
        }
    }

    #[test]
    fn a_batch_holds_masked_frames_one_behind_the_other() {
        let mut batch = Batch::default();
        batch.push(b"a");
        batch.push(&[b'b'; 200]);
        assert_eq!(batch.bytes(), 2 + 4 + 1 + 4 + 4 + 200);
        let [p, q, r, s] = BATCH_MASK;
        assert_eq!(batch.0[..7], [0x81, 0x81, p, q, r, s, b'a' ^ p]);
        assert_eq!(batch.0[7..16], [0x81, 0xfe, 0, 200, p, q, r, s, b'b' ^ p]);
    }
}
