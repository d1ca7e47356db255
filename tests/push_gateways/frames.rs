//! HTTP/2 by hand, as a server: each frame is the test's own, so that a connection can end in ways in which a library's does not.
//! Requests are told apart by the `notificationId` of their body; their headers are not read.

use crate::support::PATIENCE;
use serde_json::Value;
use std::collections::BTreeMap;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

mod kind {
    pub(super) const DATA: u8 = 0;
    pub(super) const HEADERS: u8 = 1;
    pub(super) const RST_STREAM: u8 = 3;
    pub(super) const SETTINGS: u8 = 4;
    pub(super) const PING: u8 = 6;
    pub(super) const GOAWAY: u8 = 7;
    pub(super) const WINDOW_UPDATE: u8 = 8;
}

const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const MAX_CONCURRENT_STREAMS: u16 = 3;
pub(super) const NO_ERROR: u32 = 0;
pub(super) const INTERNAL_ERROR: u32 = 2;
pub(super) const REFUSED_STREAM: u32 = 7;

pub(super) struct FrameServer {
    listener: TcpListener,
}

impl FrameServer {
    pub(super) async fn start() -> Self {
        FrameServer { listener: TcpListener::bind("127.0.0.1:0").await.unwrap() }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.listener.local_addr().unwrap())
    }

    /// The next connection, on which so many streams may be open.
    pub(super) async fn accept(&self, streams_max: u32) -> Connection {
        let (stream, _) = timeout(PATIENCE, self.listener.accept()).await.expect("a client connects").unwrap();
        stream.set_nodelay(true).unwrap();
        let mut connection = Connection { stream, bodies: BTreeMap::new(), silent: false };
        let mut preface = [0; PREFACE.len()];
        connection.stream.read_exact(&mut preface).await.unwrap();
        assert_eq!(preface, PREFACE);
        connection.allow(streams_max).await;
        connection
    }
}

/// A request that has come whole.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Request {
    pub(super) stream: u32,
    pub(super) id: String,
}

pub(super) struct Connection {
    stream: TcpStream,
    bodies: BTreeMap<u32, Vec<u8>>,
    /// Pings are not answered.
    pub(super) silent: bool,
}

impl Connection {
    async fn write(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags];
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        // A client that has left meanwhile needs nothing.
        let _ = self.stream.write_all(&frame).await;
    }

    pub(super) async fn allow(&mut self, streams_max: u32) {
        let mut setting = MAX_CONCURRENT_STREAMS.to_be_bytes().to_vec();
        setting.extend(streams_max.to_be_bytes());
        self.write(kind::SETTINGS, 0, 0, &setting).await;
    }

    /// Taken: status 200, which is entry 8 of the static table.
    pub(super) async fn take(&mut self, stream: u32) {
        self.write(kind::HEADERS, END_HEADERS | END_STREAM, stream, &[0x88]).await;
    }

    pub(super) async fn reset(&mut self, stream: u32, code: u32) {
        self.write(kind::RST_STREAM, 0, stream, &code.to_be_bytes()).await;
    }

    /// No stream above this one is or will be looked at.
    pub(super) async fn go_away(&mut self, last: u32) {
        let mut payload = last.to_be_bytes().to_vec();
        payload.extend(NO_ERROR.to_be_bytes());
        self.write(kind::GOAWAY, 0, 0, &payload).await;
    }

    /// The next request, or none when the client ends the connection. What the connection needs is done on the way.
    pub(super) async fn next(&mut self) -> Option<Request> {
        timeout(PATIENCE, self.next_of_any_time()).await.expect("a request comes, or the connection ends")
    }

    async fn next_of_any_time(&mut self) -> Option<Request> {
        loop {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head).await.ok()?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let (kind, flags, stream) = (head[3], head[4], u32::from_be_bytes([head[5], head[6], head[7], head[8]]));
            let mut payload = vec![0; length as usize];
            self.stream.read_exact(&mut payload).await.ok()?;
            match kind {
                kind::SETTINGS if flags & ACK == 0 => self.write(kind::SETTINGS, ACK, 0, &[]).await,
                kind::PING if flags & ACK == 0 && !self.silent => self.write(kind::PING, ACK, 0, &payload).await,
                kind::HEADERS => {
                    assert_eq!(flags & (END_HEADERS | END_STREAM), END_HEADERS, "headers in one frame, and a body");
                    self.bodies.insert(stream, Vec::new());
                }
                kind::DATA => {
                    let body = self.bodies.get_mut(&stream).unwrap();
                    body.extend(&payload);
                    let body = (flags & END_STREAM != 0).then(|| body.clone());
                    if length > 0 {
                        self.write(kind::WINDOW_UPDATE, 0, 0, &length.to_be_bytes()).await;
                    }
                    if let Some(body) = body {
                        let body: Value = serde_json::from_slice(&body).unwrap();
                        return Some(Request { stream, id: body["notificationId"].as_str().unwrap().to_owned() });
                    }
                }
                _ => {}
            }
        }
    }

    /// So many requests.
    pub(super) async fn requests(&mut self, count: usize) -> Vec<Request> {
        let mut requests = Vec::new();
        while requests.len() < count {
            requests.push(self.next().await.expect("the client goes on"));
        }
        requests
    }
}
