//! A collector of traces on loopback: an OTLP/HTTP server that reads each body by the schema, refuses what does not fit, and can be away,
//! fail and hang.

use super::PATIENCE;
use serde::Deserialize;
use serde_json::Value;
use socket2::{Domain, Socket, Type};
use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr, TcpListener as StdListener},
    sync::{Arc, Mutex},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufStream},
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::AbortHandle,
    time::{Instant, timeout},
};

/// How it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// It takes the batch.
    Take,
    /// It takes the batch, and says that it does not want one span.
    TakeButOne,
    /// This status line, with further headers if need be.
    Refuse(&'static str),
    /// It reads and says nothing.
    Hang,
}

/// A span as it came.
#[derive(Clone, Debug)]
pub struct Exported {
    pub trace: String,
    pub span: String,
    pub parent: String,
    pub flags: u32,
    pub name: String,
    pub kind: u32,
    pub began_ns: u128,
    pub ended_ns: u128,
    pub attributes: BTreeMap<String, Value>,
    pub status: (u32, String),
    /// Of who exports.
    pub resource: BTreeMap<String, Value>,
}

#[derive(Default)]
struct Seen {
    reaction: Option<Reaction>,
    /// Each body that was read, whatever was answered.
    bodies: Vec<String>,
    /// When it was.
    asked: Vec<Instant>,
    /// What was taken.
    spans: Vec<Exported>,
}

pub struct Collector {
    /// Keeps its port from the start; listens when told to.
    socket: Socket,
    seen: Arc<Mutex<Seen>>,
    news: Arc<Notify>,
    serving: Option<AbortHandle>,
}

impl Collector {
    /// One that listens and takes everything.
    pub fn start() -> Self {
        let mut collector = Self::away();
        collector.come_up();
        collector
    }

    /// One whose port is its own but refuses connections.
    pub fn away() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        socket.set_nonblocking(true).unwrap();
        Collector { socket, seen: Arc::default(), news: Arc::default(), serving: None }
    }

    /// Begins to listen.
    pub fn come_up(&mut self) {
        self.socket.listen(128).unwrap();
        let listener = TcpListener::from_std(StdListener::from(self.socket.try_clone().unwrap())).unwrap();
        let (seen, news) = (self.seen.clone(), self.news.clone());
        let serving = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (seen, news) = (seen.clone(), news.clone());
                tokio::spawn(async move {
                    let mut stream = BufStream::new(stream);
                    while serve(&mut stream, &seen, &news).await.is_some() {}
                });
            }
        });
        self.serving = Some(serving.abort_handle());
    }

    pub fn react(&self, reaction: Reaction) {
        self.seen.lock().unwrap().reaction = Some(reaction);
    }

    /// For `--otlp-endpoint`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.socket.local_addr().unwrap().as_socket().unwrap())
    }

    /// What it has taken.
    pub fn spans(&self) -> Vec<Exported> {
        self.seen.lock().unwrap().spans.clone()
    }

    /// All that it has read.
    pub fn bodies(&self) -> Vec<String> {
        self.seen.lock().unwrap().bodies.clone()
    }

    /// When it read each.
    pub fn asked(&self) -> Vec<Instant> {
        self.seen.lock().unwrap().asked.clone()
    }

    /// Waits until it has taken this many spans.
    pub async fn has_taken(&self, count: usize) -> Vec<Exported> {
        self.until(|seen| seen.spans.len() >= count).await;
        self.spans()
    }

    /// Waits until it has been asked this often.
    pub async fn has_been_asked(&self, count: usize) {
        self.until(|seen| seen.bodies.len() >= count).await;
    }

    async fn until(&self, done: impl Fn(&Seen) -> bool) {
        let waiting = async {
            loop {
                let news = self.news.notified();
                if done(&self.seen.lock().unwrap()) {
                    return;
                }
                news.await;
            }
        };
        if timeout(PATIENCE, waiting).await.is_err() {
            panic!("in vain; it has {:?}", self.spans());
        }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        if let Some(serving) = &self.serving {
            serving.abort();
        }
    }
}

/// One request and its answer; none at the connection's end.
async fn serve(stream: &mut BufStream<TcpStream>, seen: &Mutex<Seen>, news: &Notify) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    assert!(head.starts_with("post /v1/traces http/1.1\r\n"), "{head}");
    assert!(head.contains("\r\ncontent-type: application/json\r\n"), "{head}");
    let length = head.split_once("\r\ncontent-length: ").unwrap().1.split_once('\r').unwrap().0;
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).await.ok()?;
    let body = String::from_utf8(body).unwrap();
    let reaction = {
        let mut seen = seen.lock().unwrap();
        let reaction = seen.reaction.unwrap_or(Reaction::Take);
        let spans = read(&body);
        if matches!(reaction, Reaction::Take | Reaction::TakeButOne) {
            seen.spans.extend(spans);
        }
        seen.bodies.push(body);
        seen.asked.push(Instant::now());
        reaction
    };
    news.notify_one();
    let (status, answer) = match reaction {
        Reaction::Take => ("200 OK", r#"{"partialSuccess":{}}"#),
        Reaction::TakeButOne => ("200 OK", r#"{"partialSuccess":{"rejectedSpans":"1","errorMessage":"not this one"}}"#),
        Reaction::Refuse(status) => (status, r#"{"code":3,"message":"no"}"#),
        Reaction::Hang => std::future::pending().await,
    };
    let answer = format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{answer}", answer.len());
    stream.write_all(answer.as_bytes()).await.ok()?;
    stream.flush().await.ok()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ExportTraceServiceRequest {
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ResourceSpans {
    resource: Resource,
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Resource {
    attributes: Vec<KeyValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScopeSpans {
    scope: BTreeMap<String, String>,
    spans: Vec<Span>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Span {
    trace_id: String,
    span_id: String,
    parent_span_id: String,
    flags: u32,
    name: String,
    kind: u32,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    attributes: Vec<KeyValue>,
    status: Status,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Status {
    #[serde(default)]
    code: u32,
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyValue {
    key: String,
    value: BTreeMap<String, Value>,
}

fn read(body: &str) -> Vec<Exported> {
    let request: ExportTraceServiceRequest = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"));
    let mut exported = Vec::new();
    for ResourceSpans { resource, scope_spans } in request.resource_spans {
        let resource = attributes(resource.attributes);
        for ScopeSpans { scope, spans } in scope_spans {
            assert_eq!(scope.keys().collect::<Vec<_>>(), ["name", "version"]);
            exported.extend(spans.into_iter().map(|span| Exported {
                trace: hex(span.trace_id, 32),
                span: hex(span.span_id, 16),
                parent: hex(span.parent_span_id, 16),
                flags: span.flags,
                name: span.name,
                kind: span.kind,
                began_ns: span.start_time_unix_nano.parse().unwrap(),
                ended_ns: span.end_time_unix_nano.parse().unwrap(),
                attributes: attributes(span.attributes),
                status: (span.status.code, span.status.message),
                resource: resource.clone(),
            }));
        }
    }
    exported
}

fn hex(id: String, digits: usize) -> String {
    assert!(id.len() == digits && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')), "{id}");
    assert!(id.bytes().any(|byte| byte != b'0'));
    id
}

fn attributes(list: Vec<KeyValue>) -> BTreeMap<String, Value> {
    let count = list.len();
    let read = list.into_iter().map(|KeyValue { key, value }| {
        let [(kind, value)] = value.into_iter().collect::<Vec<_>>().try_into().unwrap();
        assert!(matches!((kind.as_str(), &value), ("stringValue", Value::String(_)) | ("boolValue", Value::Bool(_))), "{key}: {kind}");
        (key, value)
    });
    let read: BTreeMap<_, _> = read.collect();
    assert_eq!(read.len(), count, "each key once");
    read
}
