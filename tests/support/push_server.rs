//! Apple and Google, as far as pushes go: an HTTP/2 server on loopback that keeps what it is sent and answers as it is told.

use super::issuer;
use bytes::Bytes;
use h2::{SendStream, server};
use hyper::{HeaderMap, Response};
use serde_json::{Value, json};
use std::{
    collections::VecDeque,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
    sync::Notify,
    task::AbortHandle,
};

use super::{
    PATIENCE,
    signing_keys::{P256_A, RSA_A},
};

pub const KEY_ID: &str = "KEY0000001";
pub const TEAM_ID: &str = "TEAM000001";
pub const TOPIC: &str = "org.example.app";
/// What Google grants here.
pub const ACCESS_TOKEN: &str = "ya29.granted";

/// One push as it came.
#[derive(Clone, Debug)]
pub struct Seen {
    pub path: String,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Seen {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no {name}: {self:?}")).to_str().unwrap()
    }
}

/// What a push is answered.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: String,
}

impl Reply {
    pub fn new(status: u16, body: &Value) -> Self {
        Reply { status, headers: Vec::new(), body: body.to_string() }
    }

    /// As Apple says it.
    pub fn reason(status: u16, reason: &str) -> Self {
        Self::new(status, &json!({ "reason": reason }))
    }
}

#[derive(Default)]
struct State {
    seen: Mutex<Vec<Seen>>,
    replies: Mutex<VecDeque<Reply>>,
    connections: AtomicUsize,
    came: Notify,
}

pub struct PushServer {
    scheme: &'static str,
    address: SocketAddr,
    state: Arc<State>,
    serving: AbortHandle,
}

impl Drop for PushServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl PushServer {
    /// One without TLS.
    pub async fn start() -> Self {
        Self::serve(false).await
    }

    /// One with a certificate of the tests' authority.
    pub async fn start_tls() -> Self {
        Self::serve(true).await
    }

    async fn serve(is_secure: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::<State>::default();
        let shared = state.clone();
        let tls = is_secure.then(issuer::acceptor_http2);
        let serving = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (state, tls) = (shared.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, &state).await,
                        Some(tls) => {
                            // A client that does not trust this server leaves.
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, &state).await;
                            }
                        }
                    }
                });
            }
        });
        let scheme = if is_secure { "https" } else { "http" };
        PushServer { scheme, address, state, serving: serving.abort_handle() }
    }

    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// Answers the next push so; those behind it are taken.
    pub fn will_say(&self, reply: Reply) {
        self.state.replies.lock().unwrap().push_back(reply);
    }

    /// Pushes that came, once there are so many.
    pub async fn seen(&self, count: usize) -> Vec<Seen> {
        let there = async {
            loop {
                let came = self.state.came.notified();
                let seen = self.state.seen.lock().unwrap().clone();
                if seen.len() >= count {
                    return seen;
                }
                came.await;
            }
        };
        let seen = tokio::time::timeout(PATIENCE, there).await.expect("as many pushes come");
        assert_eq!(seen.len(), count, "{seen:?}");
        seen
    }

    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, state: &Arc<State>) {
    let Ok(mut connection) = server::handshake(stream).await else { return };
    state.connections.fetch_add(1, Ordering::SeqCst);
    // The client ends the connection when it wants, and how it wants.
    while let Some(Ok((request, respond))) = connection.accept().await {
        let state = state.clone();
        tokio::spawn(async move { answer(request, respond, &state).await });
    }
}

async fn answer(request: hyper::Request<h2::RecvStream>, mut respond: server::SendResponse<Bytes>, state: &State) {
    let (head, mut stream) = request.into_parts();
    let mut body = Vec::new();
    while let Some(Ok(data)) = stream.data().await {
        let _ = stream.flow_control().release_capacity(data.len());
        body.extend_from_slice(&data);
    }
    let body = serde_json::from_slice(&body).unwrap();
    let path = head.uri.path().to_owned();
    let taken = if path.starts_with("/3/device/") {
        Reply { status: 200, headers: vec![("apns-id", "EC1BF194".to_owned())], body: String::new() }
    } else {
        Reply::new(200, &json!({"name": "projects/relay-test/messages/0:1"}))
    };
    let reply = state.replies.lock().unwrap().pop_front().unwrap_or(taken);
    state.seen.lock().unwrap().push(Seen { path, headers: head.headers, body });
    state.came.notify_waiters();
    let mut response = Response::builder().status(reply.status);
    for (name, value) in reply.headers {
        response = response.header(name, value);
    }
    let is_empty = reply.body.is_empty();
    // A client that has left needs no answer.
    let Ok(mut stream): Result<SendStream<Bytes>, _> = respond.send_response(response.body(()).unwrap(), is_empty) else { return };
    if !is_empty {
        let _ = stream.send_data(reply.body.into(), true);
    }
}

/// Google's token endpoint: answers each assertion so, and counts them.
pub struct TokenEndpoint {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    answer: Arc<Mutex<(u16, Value)>>,
    serving: AbortHandle,
}

impl Drop for TokenEndpoint {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl TokenEndpoint {
    /// One that grants.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let granted = json!({"access_token": ACCESS_TOKEN, "expires_in": 3_600, "token_type": "Bearer"});
        let (asked, answer) = (Arc::<Mutex<Vec<String>>>::default(), Arc::new(Mutex::new((200, granted))));
        let (bodies, answers) = (asked.clone(), answer.clone());
        let serving = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let (mut text, mut wanted) = (Vec::new(), usize::MAX);
                while text.len() < wanted && stream.read_buf(&mut text).await.unwrap() > 0 {
                    if let Some(end) = text.windows(4).position(|four| four == b"\r\n\r\n") {
                        let head = String::from_utf8_lossy(&text[..end]).to_lowercase();
                        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
                        wanted = end + 4 + length.parse::<usize>().unwrap();
                    }
                }
                let text = String::from_utf8(text).unwrap();
                bodies.lock().unwrap().push(text.split_once("\r\n\r\n").unwrap().1.to_owned());
                let (status, body) = answers.lock().unwrap().clone();
                let body = body.to_string();
                let answer = format!("HTTP/1.1 {status} Said\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        TokenEndpoint { address, asked, answer, serving: serving.abort_handle() }
    }

    pub fn url(&self) -> String {
        format!("http://{}/token", self.address)
    }

    pub fn set(&self, status: u16, body: Value) {
        *self.answer.lock().unwrap() = (status, body);
    }

    /// The body of each exchange so far.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// The text of a service account's file.
pub fn service_account(token_uri: &str) -> String {
    let account = json!({
        "type": "service_account", "project_id": "relay-test", "private_key_id": "k1", "private_key": RSA_A.pem(),
        "client_email": "push@relay-test.example", "token_uri": token_uri
    });
    account.to_string()
}

/// Key files for `relay serve`.
pub struct KeyFiles {
    directory: TempDir,
}

impl KeyFiles {
    pub fn new() -> Self {
        KeyFiles { directory: tempfile::tempdir().unwrap() }
    }

    pub fn apns(&self) -> PathBuf {
        self.write("key.p8", &P256_A.pem())
    }

    pub fn fcm(&self, token_uri: &str) -> PathBuf {
        self.write("account.json", &service_account(token_uri))
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        use std::{fs::OpenOptions, io::Write, os::unix::fs::OpenOptionsExt};
        let path = self.directory.path().join(name);
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path).unwrap().write_all(text.as_bytes()).unwrap();
        path
    }
}

/// The flags that set a relay up for both providers.
pub fn push_flags(keys: &KeyFiles, apple_url: &str, google_url: &str, token_url: &str) -> Vec<String> {
    let (key, account) = (keys.apns().display().to_string(), keys.fcm(token_url).display().to_string());
    let flags = [
        ("--apns-key", key.as_str()),
        ("--apns-key-id", KEY_ID),
        ("--apns-team-id", TEAM_ID),
        ("--apns-topic", TOPIC),
        ("--apns-url", apple_url),
        ("--fcm-service-account", account.as_str()),
        ("--fcm-url", google_url),
    ];
    flags.iter().flat_map(|(flag, value)| [(*flag).to_owned(), (*value).to_owned()]).collect()
}
