//! A websocket client that writes its frames by hand, so that a test can break every rule: reserved bits, unmasked frames, headers
//! that lie, half frames, resets. It reads only when asked to, and says exactly how the other side ended.

use super::PATIENCE;
use relay_endpoints::address::RelayAddress;
use relay_protocol::{device::Role, id::DeviceId};
use serde_json::{Value, json};
use socket2::SockRef;
use std::{io::ErrorKind, net::SocketAddr, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::timeout,
};

/// The example key of RFC 6455, and the answer that it demands.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
/// Any mask will do; this one changes every byte.
pub const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// The opcodes of RFC 6455 section 5.2.
pub mod opcode {
    pub const CONTINUATION: u8 = 0x0;
    pub const TEXT: u8 = 0x1;
    pub const BINARY: u8 = 0x2;
    pub const CLOSE: u8 = 0x8;
    pub const PING: u8 = 0x9;
    pub const PONG: u8 = 0xa;
}

/// One frame as it is written. Start from [`Frame::text`] and friends and break what the test is about.
#[derive(Clone, Debug)]
pub struct Frame {
    pub fin: bool,
    /// The three reserved bits, as a number from 0 to 7.
    pub rsv: u8,
    pub opcode: u8,
    pub mask: Option<[u8; 4]>,
    /// Said in the header instead of the payload's length, in the shortest form that holds it.
    pub claimed_length: Option<u64>,
    pub payload: Vec<u8>,
}

impl Frame {
    pub fn new(opcode: u8, payload: impl Into<Vec<u8>>) -> Self {
        Frame { fin: true, rsv: 0, opcode, mask: Some(MASK), claimed_length: None, payload: payload.into() }
    }

    pub fn text(text: &str) -> Self {
        Frame::new(opcode::TEXT, text)
    }

    pub fn close(code: u16, reason: &str) -> Self {
        Frame::new(opcode::CLOSE, [&code.to_be_bytes(), reason.as_bytes()].concat())
    }

    /// Only the header, claiming a payload of `length` bytes that never comes.
    pub fn header_only(opcode: u8, length: u64) -> Self {
        Frame { claimed_length: Some(length), ..Frame::new(opcode, "") }
    }

    /// The bytes on the wire.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![u8::from(self.fin) << 7 | (self.rsv & 7) << 4 | self.opcode & 0xf];
        let mask_bit = u8::from(self.mask.is_some()) << 7;
        let length = self.claimed_length.unwrap_or(self.payload.len() as u64);
        match (u8::try_from(length), u16::try_from(length)) {
            (Ok(short @ 0..=125), _) => bytes.push(mask_bit | short),
            (_, Ok(medium)) => {
                bytes.push(mask_bit | 126);
                bytes.extend(medium.to_be_bytes());
            }
            (_, Err(_)) => {
                bytes.push(mask_bit | 127);
                bytes.extend(length.to_be_bytes());
            }
        }
        match self.mask {
            Some(mask) => {
                bytes.extend(mask);
                bytes.extend(self.payload.iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key));
            }
            None => bytes.extend(&self.payload),
        }
        bytes
    }
}

/// What one read found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    Frame {
        fin: bool,
        opcode: u8,
        payload: Vec<u8>,
    },
    /// A FIN, between two frames.
    End,
    /// A FIN in the middle of a frame.
    EndInsideFrame,
    /// A RST.
    Reset,
    /// Nothing within the time given.
    Nothing,
}

impl Received {
    /// The text of a whole text frame.
    pub fn text(&self) -> Option<&str> {
        match self {
            Received::Frame { fin: true, opcode: opcode::TEXT, payload } => std::str::from_utf8(payload).ok(),
            Received::Frame { .. } | Received::End | Received::EndInsideFrame | Received::Reset | Received::Nothing => None,
        }
    }

    /// Code and reason of a close frame; 1005 if it is empty.
    pub fn close(&self) -> Option<(u16, String)> {
        match self {
            Received::Frame { opcode: opcode::CLOSE, payload, .. } => match payload.split_first_chunk::<2>() {
                Some((code, reason)) => Some((u16::from_be_bytes(*code), String::from_utf8(reason.to_vec()).unwrap())),
                None => Some((1005, String::new())),
            },
            Received::Frame { .. } | Received::End | Received::EndInsideFrame | Received::Reset | Received::Nothing => None,
        }
    }
}

/// How to open one.
#[derive(Clone, Debug)]
pub struct RawOptions {
    pub address: SocketAddr,
    pub path: String,
    pub headers: Vec<(String, String)>,
    /// `SO_RCVBUF`, set before connecting, so that a peer that does not read fills up early. The kernel has a lower limit.
    pub receive_buffer_bytes: Option<u32>,
}

impl RawOptions {
    /// The device lane's socket.
    pub fn device_link(address: &RelayAddress, token: &str, role: Role, target: Option<DeviceId>) -> Self {
        let mut headers =
            vec![("Authorization".to_owned(), format!("Bearer {token}")), ("X-Client-Type".to_owned(), role.as_str().to_owned())];
        headers.extend(target.map(|target| ("X-Target-Desktop-Device-ID".to_owned(), target.to_string())));
        let address = address.authority().parse().expect("tests use numeric addresses");
        RawOptions { address, path: "/ws/device-link".to_owned(), headers, receive_buffer_bytes: None }
    }
}

/// A connection after its upgrade.
pub struct RawSocket {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl RawSocket {
    /// Connects and upgrades.
    pub async fn open(options: &RawOptions) -> Self {
        Self::try_open(options).await.unwrap_or_else(|answer| panic!("no upgrade: {answer}"))
    }

    /// Connects and upgrades, or gives what came instead of a 101: the head, and as much of the body as came with it.
    pub async fn try_open(options: &RawOptions) -> Result<Self, String> {
        let headers: String = options.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: \
             {KEY}\r\n{headers}\r\n",
            options.path, options.address
        );
        let mut socket = Self::connect(options.address, options.receive_buffer_bytes).await;
        socket.write(request.as_bytes()).await;
        let head = socket.head().await;
        if !head.starts_with("HTTP/1.1 101 ") {
            return Err(head + &String::from_utf8_lossy(&socket.unread));
        }
        assert!(head.contains(ACCEPT), "a websocket server proves that it read the key: {head}");
        Ok(socket)
    }

    /// Connects only; the test writes the upgrade itself, or half of it.
    pub async fn connect(address: SocketAddr, receive_buffer_bytes: Option<u32>) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        if let Some(bytes) = receive_buffer_bytes {
            socket.set_recv_buffer_size(bytes).unwrap();
        }
        let stream = timeout(PATIENCE, socket.connect(address)).await.expect("a connection comes up").unwrap();
        stream.set_nodelay(true).unwrap();
        RawSocket { stream, unread: Vec::new() }
    }

    /// Registers this socket's device and returns the answer's payload.
    pub async fn register(&mut self, device: DeviceId) -> Value {
        let register = json!({"type": "register", "payload": {"deviceId": device, "relayProtocolVersion": "1.7"}});
        self.text(&register.to_string()).await;
        loop {
            let text = self.next_text().await;
            let frame: Value = serde_json::from_str(&text).unwrap();
            match frame["type"].as_str() {
                Some("registered" | "resumed") => return frame["payload"].clone(),
                Some("error") => panic!("not registered: {text}"),
                Some(_) | None => {}
            }
        }
    }

    /// Writes any bytes. Fails the test if they are not taken in time.
    pub async fn write(&mut self, bytes: &[u8]) {
        timeout(PATIENCE, self.stream.write_all(bytes)).await.expect("the peer reads").unwrap();
    }

    /// Writes any bytes to a peer that may close meanwhile, or stop reading; whether all were taken within `patience`.
    pub async fn try_write(&mut self, bytes: &[u8], patience: Duration) -> bool {
        matches!(timeout(patience, self.stream.write_all(bytes)).await, Ok(Ok(())))
    }

    /// Writes bytes until they are not taken any more for `patience`; how many were.
    pub async fn write_some(&mut self, bytes: &[u8], patience: Duration) -> usize {
        let mut written = 0;
        while written < bytes.len() {
            match timeout(patience, self.stream.write(&bytes[written..])).await {
                Ok(Ok(count)) => written += count,
                Ok(Err(_)) | Err(_) => break,
            }
        }
        written
    }

    pub async fn frame(&mut self, frame: &Frame) {
        self.write(&frame.encode()).await;
    }

    pub async fn text(&mut self, text: &str) {
        self.frame(&Frame::text(text)).await;
    }

    /// One text message in frames of at most `piece_bytes`, which need not end at characters.
    pub async fn fragmented_text(&mut self, text: &str, piece_bytes: usize) {
        let pieces: Vec<&[u8]> = text.as_bytes().chunks(piece_bytes).collect();
        for (index, piece) in pieces.iter().enumerate() {
            let opcode = if index == 0 { opcode::TEXT } else { opcode::CONTINUATION };
            self.frame(&Frame { fin: index + 1 == pieces.len(), ..Frame::new(opcode, *piece) }).await;
        }
    }

    /// The first `bytes` bytes of a frame, and no more.
    pub async fn half_frame(&mut self, frame: &Frame, bytes: usize) {
        self.write(&frame.encode()[..bytes]).await;
    }

    /// Sends a FIN and keeps reading.
    pub async fn finish_writing(&mut self) {
        self.stream.shutdown().await.unwrap();
    }

    /// Ends the connection with a RST.
    pub fn reset(self) {
        SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).unwrap();
    }

    /// The next frame, control frames included, or how the connection ended.
    pub async fn read(&mut self, patience: Duration) -> Received {
        timeout(patience, self.read_frame()).await.unwrap_or(Received::Nothing)
    }

    /// The next whole text frame; pings in between are answered.
    pub async fn next_text(&mut self) -> String {
        loop {
            let received = self.read(PATIENCE).await;
            if let Some(text) = received.text() {
                return text.to_owned();
            }
            match &received {
                Received::Frame { opcode: opcode::PING, payload, .. } => self.frame(&Frame::new(opcode::PONG, payload.clone())).await,
                Received::Frame { opcode: opcode::PONG, .. } => {}
                Received::Frame { .. } | Received::End | Received::EndInsideFrame | Received::Reset | Received::Nothing => {
                    panic!("no text, but {received:?}")
                }
            }
        }
    }

    /// Code and reason of the close frame that comes, whatever comes before it; `None` if the connection ends without one.
    pub async fn closed(&mut self, patience: Duration) -> Option<(u16, String)> {
        let close = timeout(patience, async {
            loop {
                match self.read_frame().await {
                    Received::End | Received::EndInsideFrame | Received::Reset | Received::Nothing => return None,
                    frame @ Received::Frame { .. } => {
                        if let Some(close) = frame.close() {
                            return Some(close);
                        }
                    }
                }
            }
        });
        close.await.expect("the connection ends in time")
    }

    /// Takes up to `bytes` bytes off the connection without looking at them; how many came before the end or the time.
    pub async fn discard(&mut self, bytes: usize, patience: Duration) -> usize {
        let mut taken = self.unread.len().min(bytes);
        self.unread.drain(..taken);
        let mut buffer = vec![0; 64 * 1024];
        let reading = async {
            while taken < bytes {
                let room = buffer.len().min(bytes - taken);
                match self.stream.read(&mut buffer[..room]).await {
                    Ok(0) | Err(_) => break,
                    Ok(read) => taken += read,
                }
            }
        };
        // Running out of time is an outcome like any other here.
        let _ = timeout(patience, reading).await;
        taken
    }

    async fn read_frame(&mut self) -> Received {
        loop {
            if let Some((frame, length)) = parse(&self.unread) {
                self.unread.drain(..length);
                return frame;
            }
            match self.fill().await {
                Ok(0) if self.unread.is_empty() => return Received::End,
                Ok(0) => return Received::EndInsideFrame,
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => return Received::Reset,
                Err(error) => panic!("reading failed: {error}"),
            }
        }
    }

    async fn head(&mut self) -> String {
        let read = async {
            loop {
                if let Some(end) = self.unread.windows(4).position(|window| window == b"\r\n\r\n") {
                    return String::from_utf8(self.unread.drain(..end + 4).collect()).unwrap();
                }
                assert_ne!(self.fill().await.unwrap(), 0, "an answer comes");
            }
        };
        timeout(PATIENCE, read).await.expect("an answer comes")
    }

    async fn fill(&mut self) -> std::io::Result<usize> {
        self.stream.read_buf(&mut self.unread).await
    }
}

/// The frame at the start of `bytes` and its whole length; `None` while it is incomplete.
fn parse(bytes: &[u8]) -> Option<(Received, usize)> {
    let (&[first, second], rest) = bytes.split_first_chunk()?;
    assert_eq!(first & 0x70, 0, "no extension is agreed on");
    assert_eq!(second & 0x80, 0, "a server does not mask");
    let (length, rest) = match second {
        126 => rest.split_first_chunk().map(|(length, rest)| (usize::from(u16::from_be_bytes(*length)), rest))?,
        127 => rest.split_first_chunk().map(|(length, rest)| (usize::try_from(u64::from_be_bytes(*length)).unwrap(), rest))?,
        short => (usize::from(short), rest),
    };
    let payload = rest.get(..length)?.to_vec();
    let whole = bytes.len() - rest.len() + length;
    Some((Received::Frame { fin: first & 0x80 != 0, opcode: first & 0xf, payload }, whole))
}
