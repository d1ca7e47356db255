//! A server whose every move the test makes: it accepts one websocket at a time and sends what it is told.

use futures_util::{SinkExt, StreamExt};
use relay_endpoints::address::RelayAddress;
use relay_protocol::id::{DeviceId, SessionId};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream, accept_hdr_async,
    tungstenite::{
        Message,
        handshake::server::{ErrorResponse, Request, Response},
        http::HeaderMap,
        protocol::{CloseFrame, frame::coding::CloseCode},
    },
};
use uuid::Uuid;

/// Longer than anything here takes; a test that waits this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn device(number: u128) -> DeviceId {
    DeviceId(Uuid::from_u128(number))
}

pub(crate) struct FakeRelay {
    listener: TcpListener,
    pub(crate) address: RelayAddress,
}

impl FakeRelay {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        FakeRelay { listener, address }
    }

    async fn tcp(&self) -> TcpStream {
        timeout(PATIENCE, self.listener.accept()).await.expect("a client connects").unwrap().0
    }

    /// The next client's websocket.
    pub(crate) async fn accept(&self) -> Peer {
        let stream = self.tcp().await;
        let mut headers = HeaderMap::new();
        let mut path = String::new();
        // The error type is the library's.
        #[expect(clippy::result_large_err)]
        let remember = |request: &Request, response: Response| -> Result<Response, ErrorResponse> {
            headers = request.headers().clone();
            path = request.uri().path().to_owned();
            Ok(response)
        };
        let socket = accept_hdr_async(stream, remember).await.unwrap();
        Peer { socket, headers, path }
    }

    /// The next client's websocket, registered.
    pub(crate) async fn accept_registered(&self) -> (Peer, Value) {
        let mut peer = self.accept().await;
        let register = peer.expect("register").await;
        peer.answer_register("registered", 1).await;
        (peer, register)
    }

    /// Takes the next connection and ends it.
    pub(crate) async fn hang_up(&self) {
        drop(self.tcp().await);
    }

    /// Answers the next HTTP request with fixed text; returns what was asked.
    pub(crate) async fn answer_http(&self, status: &str, body: &str) -> String {
        let mut stream = self.tcp().await;
        let mut asked = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            let read = timeout(PATIENCE, stream.read(&mut buffer)).await.expect("a request comes").unwrap();
            asked.extend_from_slice(&buffer[..read]);
            if read == 0 || is_whole(&asked) {
                break;
            }
        }
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8(asked).unwrap()
    }
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length =
        head.to_ascii_lowercase().lines().find_map(|line| line.strip_prefix("content-length: ").map(|n| n.parse::<usize>().unwrap()));
    body.len() >= length.unwrap_or(0)
}

pub(crate) struct Peer {
    socket: WebSocketStream<TcpStream>,
    pub(crate) headers: HeaderMap,
    pub(crate) path: String,
}

impl Peer {
    /// The next text frame; `None` when the client has closed.
    pub(crate) async fn text(&mut self) -> Option<String> {
        loop {
            let message = timeout(PATIENCE, self.socket.next()).await.expect("a frame comes");
            match message {
                Some(Ok(Message::Text(text))) => return Some(text.to_string()),
                Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Binary(_) | Message::Frame(_))) => {}
            }
        }
    }

    /// The next frame's payload, which must be of this type.
    pub(crate) async fn expect(&mut self, kind: &str) -> Value {
        let text = self.text().await.expect("the client is there");
        let frame: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(frame["type"], kind, "{text}");
        frame["payload"].clone()
    }

    pub(crate) async fn send(&mut self, text: impl Into<String>) {
        self.socket.send(Message::text(text.into())).await.unwrap();
    }

    /// Like [`Peer::send`], for a message that the client hangs up on.
    pub(crate) async fn send_to_a_peer_that_may_leave(&mut self, text: String) {
        let _ = timeout(PATIENCE, self.socket.send(Message::text(text))).await.expect("the client reads or leaves");
    }

    pub(crate) async fn send_frame(&mut self, kind: &str, payload: Value) {
        self.send(json!({"type": kind, "payload": payload}).to_string()).await;
    }

    pub(crate) async fn answer_register(&mut self, kind: &str, session: u128) {
        let payload = json!({
            "sessionId": SessionId(Uuid::from_u128(session)), "resumeToken": format!("token-{session}"), "expiresAt": 1, "expiresInMs": 86_400_000,
            "connectionId": Uuid::from_u128(100), "relayInstanceId": Uuid::from_u128(200), "relayProtocolVersion": "1.7"
        });
        self.send_frame(kind, payload).await;
    }

    pub(crate) async fn refuse(&mut self, code: &str, retryable: bool) {
        self.send_frame("error", json!({"code": code, "message": "m", "retryable": retryable})).await;
    }

    /// Pings and waits for the pong.
    pub(crate) async fn ping(&mut self) {
        self.socket.send(Message::Ping(vec![1, 2, 3].into())).await.unwrap();
        loop {
            let message = timeout(PATIENCE, self.socket.next()).await.expect("a pong comes");
            if let Message::Pong(payload) = message.unwrap().unwrap() {
                return assert_eq!(payload.as_ref(), [1, 2, 3]);
            }
        }
    }

    /// Writes bytes past the websocket: parts of a frame.
    pub(crate) async fn raw(&mut self, bytes: &[u8]) {
        self.socket.get_mut().write_all(bytes).await.unwrap();
    }

    pub(crate) async fn close(&mut self, code: u16, reason: &str) {
        let frame = CloseFrame { code: CloseCode::from(code), reason: reason.to_owned().into() };
        self.socket.send(Message::Close(Some(frame))).await.unwrap();
    }

    /// The code of the client's close frame.
    pub(crate) async fn closed_with(&mut self) -> Option<u16> {
        loop {
            match timeout(PATIENCE, self.socket.next()).await.expect("the client closes") {
                Some(Ok(Message::Close(frame))) => return frame.map(|frame| frame.code.into()),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return None,
            }
        }
    }
}
