//! A token issuer on loopback: a server with a JWK set that can be away, rotate its keys, and answer badly, and counts who asks.

use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};
use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener as StdListener},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
    task::AbortHandle,
};
use tokio_rustls::TlsAcceptor;

/// What it answers.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A set of these keys.
    Keys(Vec<Value>),
    /// This status line and headers, and this body.
    Other { head: String, body: String },
    /// A body that never ends.
    Endless,
    /// Nothing, on a connection that stays open.
    Silence,
}

impl Answer {
    pub fn other(head: &str, body: &str) -> Self {
        Answer::Other { head: head.to_owned(), body: body.to_owned() }
    }
}

pub struct Issuer {
    scheme: &'static str,
    /// Keeps its port from the start; listens when told to.
    socket: Socket,
    answer: Arc<Mutex<Answer>>,
    requests: Arc<AtomicUsize>,
    serving: Vec<AbortHandle>,
}

impl Issuer {
    /// One that listens and answers so.
    pub fn start(answer: Answer) -> Self {
        let mut issuer = Self::away();
        issuer.set(answer);
        issuer.come_up();
        issuer
    }

    /// One whose port is its own but refuses connections.
    pub fn away() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        socket.set_nonblocking(true).unwrap();
        let answer = Arc::new(Mutex::new(Answer::Keys(Vec::new())));
        Issuer { scheme: "http", socket, answer, requests: Arc::default(), serving: Vec::new() }
    }

    /// One that speaks https, with a certificate of the tests' authority.
    pub fn start_tls(answer: Answer) -> Self {
        let mut issuer = Self::away();
        issuer.scheme = "https";
        issuer.set(answer);
        issuer.come_up();
        issuer
    }

    /// Begins to listen.
    pub fn come_up(&mut self) {
        self.socket.listen(128).unwrap();
        let listener = TcpListener::from_std(StdListener::from(self.socket.try_clone().unwrap())).unwrap();
        let tls = (self.scheme == "https").then(acceptor);
        let (answer, requests) = (self.answer.clone(), self.requests.clone());
        let serving = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (answer, requests, tls) = (answer.clone(), requests.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        // A client that does not trust the certificate ends the handshake.
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => serve(stream, &answer, &requests).await,
                            Err(_) => return,
                        },
                        None => serve(stream, &answer, &requests).await,
                    };
                });
            }
        });
        self.serving.push(serving.abort_handle());
    }

    pub fn set(&self, answer: Answer) {
        *self.answer.lock().unwrap() = answer;
    }

    pub fn publish(&self, keys: &[Value]) {
        self.set(Answer::Keys(keys.to_vec()));
    }

    /// How often it was asked.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    /// Where its keys are.
    pub fn url(&self) -> String {
        let address = self.socket.local_addr().unwrap().as_socket().unwrap();
        format!("{}://{address}/keys.json", self.scheme)
    }
}

impl Drop for Issuer {
    fn drop(&mut self) {
        self.serving.iter().for_each(AbortHandle::abort);
    }
}

/// A file beside this one with a certificate.
pub fn tls_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/tls").join(name)
}

fn acceptor() -> TlsAcceptor {
    TlsAcceptor::from(Arc::new(tls()))
}

/// The same for a server that speaks HTTP/2.
pub fn acceptor_http2() -> TlsAcceptor {
    let mut tls = tls();
    tls.alpn_protocols = vec![b"h2".to_vec()];
    TlsAcceptor::from(Arc::new(tls))
}

fn tls() -> ServerConfig {
    let chain = CertificateDer::pem_file_iter(tls_file("issuer.pem")).unwrap().map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(tls_file("issuer.key")).unwrap();
    let versions = ServerConfig::builder_with_provider(Arc::new(ring::default_provider())).with_safe_default_protocol_versions();
    versions.unwrap().with_no_client_auth().with_single_cert(chain, key).unwrap()
}

/// One request, one answer. A client that has gone meanwhile is no fault.
async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &Mutex<Answer>, requests: &AtomicUsize) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    assert!(head.starts_with(b"GET /keys.json HTTP/1.1\r\n"), "{}", String::from_utf8_lossy(&head));
    requests.fetch_add(1, Ordering::SeqCst);
    let answer = answer.lock().unwrap().clone();
    let (head, body) = match answer {
        Answer::Keys(keys) => ("200 OK\r\nContent-Type: application/json".to_owned(), json!({"keys": keys}).to_string()),
        Answer::Other { head, body } => (head, body),
        Answer::Endless => {
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.ok()?;
            loop {
                stream.write_all(&[b' '; 4096]).await.ok()?;
            }
        }
        Answer::Silence => std::future::pending().await,
    };
    let answer = format!("HTTP/1.1 {head}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(answer.as_bytes()).await.ok()?;
    stream.shutdown().await.ok()
}
