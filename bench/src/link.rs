//! One connection of a peer: a sending half and a receiving half.

use crate::error::Error;
use bytes::{Bytes, BytesMut};
use fastwebsockets::{Frame, OpCode, Payload, Role, WebSocketRead, WebSocketWrite, after_handshake_split};
use memchr::memmem;
use std::{
    convert::Infallible,
    fmt::Write as _,
    io,
    net::{Ipv4Addr, SocketAddr},
    pin::Pin,
    task::{Context, Poll},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf},
    net::{
        TcpSocket, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

/// The largest frame taken from a server: the device lane's 32 MiB plus the 4 KiB that the relay may add.
const MAX_FRAME_BYTES: usize = (32 << 20) + (4 << 10);
/// The longest answer to an upgrade request.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// Source addresses that connections are spread over. One address has some 28,000 ports to give.
const SOURCE_ADDRESSES: u8 = 8;

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
pub struct Sender(WebSocketWrite<OwnedWriteHalf>);

impl Sender {
    /// Sends one text message.
    pub async fn send(&mut self, text: Vec<u8>) -> Result<(), Error> {
        Ok(self.0.write_frame(Frame::text(Payload::Owned(text))).await?)
    }

    /// Answers a protocol ping.
    pub async fn pong(&mut self, body: &[u8]) -> Result<(), Error> {
        Ok(self.0.write_frame(Frame::pong(Payload::Owned(body.to_vec()))).await?)
    }

    /// Says goodbye; a connection that is already over needs none.
    pub async fn close(&mut self) {
        let _already_over = self.0.write_frame(Frame::close(1000, b"")).await;
    }
}

/// The receiving half.
pub struct Receiver(WebSocketRead<Rewound>);

impl Receiver {
    /// The next message or ping. Not cancel-safe: a future dropped half-way loses the bytes it has read.
    pub async fn receive(&mut self) -> Incoming {
        let mut unfinished = BytesMut::new();
        loop {
            let Ok(frame) = self.0.read_frame(&mut |_frame| async { Ok::<(), Infallible>(()) }).await else {
                return Incoming::Closed;
            };
            let body = match frame.payload {
                Payload::Bytes(bytes) => bytes,
                other @ (Payload::BorrowedMut(_) | Payload::Borrowed(_) | Payload::Owned(_)) => BytesMut::from(&other[..]),
            };
            match frame.opcode {
                OpCode::Ping => return Incoming::Ping(body.freeze()),
                OpCode::Pong => {}
                OpCode::Close => return Incoming::Closed,
                OpCode::Text | OpCode::Binary | OpCode::Continuation if frame.fin && unfinished.is_empty() => {
                    return Incoming::Message(body.freeze());
                }
                OpCode::Text | OpCode::Binary | OpCode::Continuation => {
                    unfinished.extend_from_slice(&body);
                    if frame.fin {
                        return Incoming::Message(unfinished.freeze());
                    }
                }
            }
        }
    }
}

/// Opens a websocket. Equal `spread` values share a source address when the server is on loopback.
pub async fn open(addr: SocketAddr, path: &str, headers: &[(&str, String)], spread: u32) -> Result<(Sender, Receiver), Error> {
    let mut stream = connect(addr, spread).await.map_err(Error::io("connect"))?;
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
    let rewound = Rewound { first: buffer.freeze(), rest: read };
    let (mut receiver, sender) = after_handshake_split(rewound, write, Role::Client);
    receiver.set_auto_pong(false);
    receiver.set_auto_close(false);
    receiver.set_max_message_size(MAX_FRAME_BYTES);
    Ok((Sender(sender), Receiver(receiver)))
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
pub(crate) async fn connect(addr: SocketAddr, spread: u32) -> io::Result<TcpStream> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if addr.is_ipv4() && addr.ip().is_loopback() {
        let last = 2 + u8::try_from(spread % u32::from(SOURCE_ADDRESSES)).unwrap_or_default();
        socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0)))?;
    }
    let stream = socket.connect(addr).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A reading half that first gives back what arrived behind the upgrade's answer.
struct Rewound {
    first: Bytes,
    rest: OwnedReadHalf,
}

impl AsyncRead for Rewound {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.rest).poll_read(context, into);
        }
        let length = self.first.len().min(into.remaining());
        into.put_slice(&self.first.split_to(length));
        Poll::Ready(Ok(()))
    }
}
