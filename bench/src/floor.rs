//! The floor: a relay that reads nothing.
//!
//! The path `/ROOM/desktop` or `/ROOM/mobile` puts a socket into a room. Its first message, the registration, gets a fixed answer;
//! each later one goes whole to the other end of the room: a phone's to the desktop, the desktop's to every phone, and nowhere when
//! there is none. No tokens, no JSON, no pending
//! records, no limits, no heartbeat: what is left is sockets, framing and masking. Messages that were read together are written
//! together, which is the least that a relay can do for the kernel.

use crate::{
    error::Error,
    link::{push_headers, read_head},
    peer::Role,
    server,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::BytesMut;
use fastwebsockets::{Frame, OpCode, Payload, WebSocketRead, after_handshake_split};
use sha1::{Digest, Sha1};
use std::{
    collections::HashMap,
    convert::Infallible,
    future::poll_fn,
    io,
    net::SocketAddr,
    path::PathBuf,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
};
use tokio::{
    io::AsyncWriteExt,
    net::{
        TcpListener, TcpSocket, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::Mutex as AsyncMutex,
};

/// Storms open many connections at once.
const BACKLOG: u32 = 4096;
/// Messages above this size are written straight from the read buffer instead of being gathered.
const GATHER_BYTES: usize = 8 << 10;
/// What is gathered is written at the latest when it reaches this size.
const FLUSH_BYTES: usize = 4 * GATHER_BYTES;
/// As the relay: 32 MiB and what a relay may add.
const MAX_MESSAGE_BYTES: usize = (32 << 20) + (4 << 10);
const WEBSOCKET_GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Where the floor listens.
#[derive(clap::Args, Debug)]
#[group(skip)]
pub struct Options {
    /// Address to listen on; port 0 picks one
    #[arg(long, default_value = "127.0.0.1:9100")]
    pub listen: SocketAddr,
    /// Written when serving: JSON with the address and the process id
    #[arg(long, value_name = "PATH")]
    pub ready_file: Option<PathBuf>,
    /// Threads that serve
    #[arg(long, default_value_t = 2)]
    pub workers: usize,
}

/// Serves until the process ends.
pub async fn serve(options: &Options) -> Result<(), Error> {
    let listener = listen(options.listen).map_err(Error::io("listen"))?;
    let addr = listener.local_addr().map_err(Error::io("listen"))?;
    if let Some(path) = &options.ready_file {
        server::write_ready_file(path, addr).map_err(Error::io("write the ready file"))?;
    }
    eprintln!("floor listening on {addr}, pid {}", std::process::id());
    accept(listener).await
}

/// A listener with room for storms.
pub fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}

/// Serves a listener until it fails. A socket that breaks the protocol just ends.
pub async fn accept(listener: TcpListener) -> Result<(), Error> {
    let rooms = Arc::new(Rooms::default());
    loop {
        let (stream, _peer) = listener.accept().await.map_err(Error::io("accept"))?;
        let rooms = rooms.clone();
        tokio::spawn(async move {
            let _ended = serve_socket(stream, &rooms).await;
        });
    }
}

/// Rooms with sockets in them, registered or not, and how many those are.
#[derive(Default)]
struct Rooms(Mutex<HashMap<String, (usize, Arc<Room>)>>);

/// The two ends: a desktop, if there is one, and phones.
#[derive(Default)]
struct Room {
    desktop: Mutex<Outs>,
    phones: Mutex<Outs>,
}

/// Who is at one end, as whoever forwards holds it for the time of one message.
type Outs = Arc<[Out]>;

impl Room {
    fn end(&self, role: Role) -> MutexGuard<'_, Outs> {
        unpoisoned(match role {
            Role::Desktop => &self.desktop,
            Role::Phone => &self.phones,
        })
    }

    /// A newer desktop takes the room over, a phone joins the others.
    fn register(&self, role: Role, me: &Out) {
        let mut end = self.end(role);
        *end = match role {
            Role::Desktop => [me.clone()].into(),
            Role::Phone => end.iter().chain([me]).cloned().collect(),
        };
    }
}

impl Rooms {
    fn enter(&self, name: &str) -> Arc<Room> {
        let mut rooms = unpoisoned(&self.0);
        let (sockets, room) = rooms.entry(name.to_owned()).or_default();
        *sockets += 1;
        room.clone()
    }

    /// Leaves the end to whoever else is there, and forgets the room with the last socket that entered it.
    fn leave(&self, name: &str, room: &Room, role: Role, me: &Out) {
        let mut end = room.end(role);
        *end = end.iter().filter(|out| !Arc::ptr_eq(out, me)).cloned().collect();
        drop(end);
        let mut rooms = unpoisoned(&self.0);
        if let Some((sockets, _)) = rooms.get_mut(name) {
            *sockets -= 1;
            if *sockets == 0 {
                rooms.remove(name);
            }
        }
    }
}

type Out = Arc<AsyncMutex<Outbox>>;

/// A socket's writing half with what was gathered for it.
struct Outbox {
    socket: OwnedWriteHalf,
    gathered: Vec<u8>,
}

impl Outbox {
    async fn put(&mut self, fin: bool, opcode: OpCode, body: &[u8]) -> io::Result<()> {
        let mut frame = Frame::new(fin, opcode, None, Payload::Borrowed(body));
        if body.len() > GATHER_BYTES {
            self.flush().await?;
            return frame.writev(&mut self.socket).await;
        }
        let mut head = [0; 16];
        let length = frame.fmt_head(&mut head);
        self.gathered.extend_from_slice(&head[..length]);
        self.gathered.extend_from_slice(body);
        if self.gathered.len() >= FLUSH_BYTES { self.flush().await } else { Ok(()) }
    }

    async fn flush(&mut self) -> io::Result<()> {
        if !self.gathered.is_empty() {
            self.socket.write_all(&self.gathered).await?;
            self.gathered.clear();
        }
        Ok(())
    }
}

async fn serve_socket(mut stream: TcpStream, rooms: &Rooms) -> Result<(), Error> {
    stream.set_nodelay(true).map_err(Error::io("set TCP_NODELAY"))?;
    let (name, role) = upgrade(&mut stream).await?;
    let room = rooms.enter(&name);
    let (read, socket) = stream.into_split();
    let me = Arc::new(AsyncMutex::new(Outbox { socket, gathered: Vec::new() }));
    let mut unsent = Outs::default();
    let end = forward(reader(read), &me, &room, role, &mut unsent).await;
    flush(&mut unsent).await;
    rooms.leave(&name, &room, role, &me);
    end
}

/// Answers the upgrade and says who came.
async fn upgrade(stream: &mut TcpStream) -> Result<(String, Role), Error> {
    let refused = || Error::Refused { step: "upgrade", answer: "not a websocket request for a room".into() };
    let head = read_head(stream, &mut BytesMut::with_capacity(1024), "upgrade").await?;
    let head = std::str::from_utf8(&head).map_err(|_not_text| refused())?;
    let path = head.split_whitespace().nth(1).ok_or_else(refused)?;
    let (room, end) = path.strip_prefix('/').and_then(|path| path.split_once('/')).ok_or_else(refused)?;
    let role = [Role::Desktop, Role::Phone].into_iter().find(|role| role.wire_name() == end).ok_or_else(refused)?;
    let key = head
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("sec-websocket-key"))
        .map(|(_, value)| value.trim())
        .ok_or_else(refused)?;
    let mut answer = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n".to_owned();
    push_headers(&mut answer, &[("Sec-WebSocket-Accept", accept_value(key))]);
    stream.write_all(answer.as_bytes()).await.map_err(Error::io("answer an upgrade"))?;
    Ok((room.to_owned(), role))
}

/// RFC 6455, section 4.2.2.
fn accept_value(key: &str) -> String {
    let mut hash = Sha1::new();
    hash.update(key.as_bytes());
    hash.update(WEBSOCKET_GUID);
    STANDARD.encode(hash.finalize())
}

/// The reading half alone. The library wants a writing half too and gets one that leads nowhere: writes go through [`Outbox`].
fn reader(read: OwnedReadHalf) -> WebSocketRead<OwnedReadHalf> {
    let (mut reader, _leads_nowhere) = after_handshake_split(read, tokio::io::sink(), fastwebsockets::Role::Server);
    reader.set_auto_pong(false);
    reader.set_auto_close(false);
    reader.set_max_message_size(MAX_MESSAGE_BYTES);
    reader
}

/// Forwards until the socket ends. `unsent` is who is at the other end while something gathered for them has yet to be written.
async fn forward(mut reader: WebSocketRead<OwnedReadHalf>, me: &Out, room: &Room, role: Role, unsent: &mut Outs) -> Result<(), Error> {
    let other = match role {
        Role::Desktop => Role::Phone,
        Role::Phone => Role::Desktop,
    };
    let mut registered = false;
    loop {
        let mut nothing_to_send = |_frame| async { Ok::<(), Infallible>(()) };
        let mut next = pin!(reader.read_frame(&mut nothing_to_send));
        // Only when no further message is at hand is it time to write.
        let frame = match poll_fn(|context| Poll::Ready(next.as_mut().poll(context))).await {
            Poll::Ready(frame) => frame?,
            Poll::Pending => {
                flush(unsent).await;
                next.await?
            }
        };
        match frame.opcode {
            OpCode::Close => return Ok(()),
            OpCode::Ping => say(me, OpCode::Pong, &frame.payload).await?,
            OpCode::Pong => {}
            OpCode::Text | OpCode::Binary | OpCode::Continuation if !registered => {
                registered = true;
                room.register(role, me);
                say(me, OpCode::Text, br#"{"type":"registered","payload":{}}"#).await?;
            }
            opcode @ (OpCode::Text | OpCode::Binary | OpCode::Continuation) => {
                let to = room.end(other).clone();
                for out in &*to {
                    let _other_end_gone = out.lock().await.put(frame.fin, opcode, &frame.payload).await;
                }
                *unsent = to;
            }
        }
    }
}

/// Writes what was gathered. For whom the other end is gone, it is lost, as the connection is.
async fn flush(unsent: &mut Outs) {
    for out in &*std::mem::take(unsent) {
        let _other_end_gone = out.lock().await.flush().await;
    }
}

/// A message of the floor itself, at once.
async fn say(me: &Out, opcode: OpCode, body: &[u8]) -> Result<(), Error> {
    let mut me = me.lock().await;
    me.put(true, opcode, body).await.map_err(Error::io("write"))?;
    me.flush().await.map_err(Error::io("write"))
}

/// Each change under these locks is a single step, so a panic elsewhere leaves nothing half done.
fn unpoisoned<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accept_value_is_that_of_the_rfc_example() {
        assert_eq!(accept_value("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
