//! One websocket to the relay's device lane: opened, registered, then frames as raw text in and out.
//!
//! A [`Link`] neither reconnects nor knows what a request is; [`crate::desktop`] and [`crate::phone`] do. Protocol pings are
//! answered while something waits in [`LinkReceiver::receive`].

use crate::{
    address::RelayAddress,
    compatibility::Incompatible,
    frame::{Envelope, ErrorFrame, Register, Registered, encode, kind},
    inbound::{LastInbound, Watched},
    tls,
};
use futures_util::{
    SinkExt, StreamExt,
    stream::{SplitSink, SplitStream},
};
use relay_protocol::{
    close::CloseReason,
    device::Role,
    id::DeviceId,
    limits::{ENVELOPE_BYTES_MAX, HEARTBEAT_INTERVAL, MESSAGE_BYTES_MAX, REGISTER_TIMEOUT},
};
use rustls::pki_types::ServerName;
use std::{collections::VecDeque, fmt, io, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::{timeout, timeout_at},
};
use tokio_rustls::TlsConnector;
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{
        self, Message, Utf8Bytes,
        client::IntoClientRequest,
        http::{HeaderValue, Uri, header},
        protocol::{CloseFrame, WebSocketConfig, frame::coding::CloseCode},
    },
};

/// TCP connection, TLS handshake and upgrade together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A link on which no byte arrived for this long is dead: the relay pings each [`HEARTBEAT_INTERVAL`].
pub const SILENCE_LIMIT: Duration = Duration::from_secs(3 * HEARTBEAT_INTERVAL.as_secs());
/// How long to wait for the other side's part of the closing handshake.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Most frames kept that arrived before the registration's answer; the relay sends a handful at most.
const EARLY_FRAMES_MAX: usize = 1_024;
/// Refusal of a resume (device-lane section 3): register again without the token.
const INVALID_RESUME: &str = "invalidResume";

/// What a socket needs to be opened.
#[derive(Clone)]
pub struct LinkOptions {
    /// Where the relay is.
    pub address: RelayAddress,
    /// JWT or API key of the account.
    pub token: String,
    /// `X-Client-Type`.
    pub role: Role,
    /// `X-Target-Desktop-Device-ID`, for phones.
    pub target: Option<DeviceId>,
    /// [`SILENCE_LIMIT`], unless a test is in a hurry.
    pub silence_limit: Duration,
}

impl LinkOptions {
    /// A desktop's socket.
    pub fn desktop(address: RelayAddress, token: String) -> Self {
        LinkOptions { address, token, role: Role::Desktop, target: None, silence_limit: SILENCE_LIMIT }
    }

    /// A phone's socket to one desktop.
    pub fn phone(address: RelayAddress, token: String, desktop: DeviceId) -> Self {
        LinkOptions { address, token, role: Role::Mobile, target: Some(desktop), silence_limit: SILENCE_LIMIT }
    }
}

/// Why no websocket came up.
#[derive(Debug)]
pub enum ConnectError {
    /// No TCP connection.
    Unreachable(io::Error),
    /// No TLS connection: the other side speaks none, or its certificate is not trusted.
    NotSecure(io::Error),
    /// The relay (or something in its place) answered the upgrade with another status than 101.
    Refused {
        /// The HTTP status.
        status: u16,
        /// The body's error object, if it had one.
        error: Option<ErrorFrame>,
    },
    /// The token cannot stand in a header.
    UnusableToken,
    /// Not within ten seconds.
    TimedOut,
    /// Connected, but not to a websocket.
    Handshake(String),
}

impl ConnectError {
    /// Whether a later attempt with the same options can succeed.
    pub fn retryable(&self) -> bool {
        match self {
            ConnectError::Unreachable(_) | ConnectError::NotSecure(_) | ConnectError::TimedOut | ConnectError::Handshake(_) => true,
            // 4xx says that this request is wrong; 408 and 429 say "later", 5xx says that the other side has a problem.
            ConnectError::Refused { status, .. } => !(400..500).contains(status) || matches!(status, 408 | 429),
            ConnectError::UnusableToken => false,
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::Unreachable(error) => write!(f, "no connection: {error}"),
            ConnectError::NotSecure(error) => write!(f, "no TLS connection: {error}"),
            ConnectError::Refused { status, error: Some(error) } => write!(f, "refused with status {status}: {error}"),
            ConnectError::Refused { status, error: None } => write!(f, "refused with status {status}"),
            ConnectError::UnusableToken => f.write_str("the token has characters that no token has"),
            ConnectError::TimedOut => write!(f, "no answer within {} s", CONNECT_TIMEOUT.as_secs()),
            ConnectError::Handshake(detail) => write!(f, "no websocket there: {detail}"),
        }
    }
}

impl std::error::Error for ConnectError {}

/// How a link ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The relay sent a close frame.
    Closed {
        /// Its code; 1005 if it had none.
        code: u16,
        /// Its reason text.
        reason: String,
    },
    /// The connection went away without one (1006).
    Lost(String),
    /// No byte arrived for the silence limit.
    Silent(Duration),
}

impl Ended {
    /// The websocket close code; 1006 where none came.
    pub fn code(&self) -> u16 {
        match self {
            Ended::Closed { code, .. } => *code,
            Ended::Lost(_) | Ended::Silent(_) => 1006,
        }
    }

    /// Whether the client may come back by itself: not after a policy close (logged out, forgotten, revoked), and not after
    /// another socket took its route, or the two would replace each other for ever.
    pub fn may_return(&self) -> bool {
        self.code() != CloseReason::LoggedOut.code() && self.code() != CloseReason::Replaced.code()
    }

    fn from_error(error: tungstenite::Error) -> Self {
        Ended::Lost(error.to_string())
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Closed { code, reason } => write!(f, "the relay closed the socket: {code} {reason}"),
            Ended::Lost(detail) => write!(f, "the connection was lost: {detail}"),
            Ended::Silent(limit) => write!(f, "nothing arrived for {} s", limit.as_secs()),
        }
    }
}

impl std::error::Error for Ended {}

/// Why a socket is not registered.
#[derive(Debug)]
pub enum RegisterError {
    /// The relay said no.
    Refused(ErrorFrame),
    /// The socket ended first.
    Ended(Ended),
    /// The answer could not be read.
    Malformed(String),
    /// No answer within [`REGISTER_TIMEOUT`].
    TimedOut,
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegisterError::Refused(error) => error.fmt(f),
            RegisterError::Ended(ended) => ended.fmt(f),
            RegisterError::Malformed(detail) => write!(f, "the registration answer could not be read: {detail}"),
            RegisterError::TimedOut => write!(f, "no registration answer within {} s", REGISTER_TIMEOUT.as_secs()),
        }
    }
}

impl std::error::Error for RegisterError {}

/// Why there is no registered link.
#[derive(Debug)]
pub enum OpenError {
    /// No websocket.
    Connect(ConnectError),
    /// A websocket, but no registration.
    Register(RegisterError),
}

impl OpenError {
    /// Whether a later attempt with the same options can succeed.
    pub fn retryable(&self) -> bool {
        match self {
            OpenError::Connect(error) => error.retryable(),
            OpenError::Register(RegisterError::Refused(error)) => error.retryable,
            OpenError::Register(RegisterError::Ended(ended)) => ended.may_return(),
            OpenError::Register(RegisterError::Malformed(_) | RegisterError::TimedOut) => true,
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Connect(error) => error.fmt(f),
            OpenError::Register(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OpenError {}

/// Why a client is without a registered link.
#[derive(Debug)]
pub enum Cause {
    /// It got none.
    Open(OpenError),
    /// It had one.
    Ended(Ended),
    /// The relay said beforehand that this version of the application may not connect.
    Incompatible(Incompatible),
}

impl Cause {
    /// Whether trying again can help.
    pub fn retryable(&self) -> bool {
        match self {
            Cause::Open(error) => error.retryable(),
            Cause::Ended(ended) => ended.may_return(),
            Cause::Incompatible(_) => false,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Open(error) => error.fmt(f),
            Cause::Ended(ended) => ended.fmt(f),
            Cause::Incompatible(incompatible) => incompatible.fmt(f),
        }
    }
}

impl std::error::Error for Cause {}

/// An open websocket.
pub struct Link {
    sender: LinkSender,
    receiver: LinkReceiver,
}

impl Link {
    /// Connects and upgrades.
    pub async fn connect(options: &LinkOptions) -> Result<Self, ConnectError> {
        match timeout(CONNECT_TIMEOUT, upgrade(options)).await {
            Ok(Ok((socket, last_inbound))) => {
                let (sink, stream) = socket.split();
                let receiver =
                    LinkReceiver { stream, early: VecDeque::new(), last_inbound, silence_limit: options.silence_limit, ended: None };
                Ok(Link { sender: LinkSender { sink }, receiver })
            }
            Ok(Err(error)) => Err(error),
            Err(_elapsed) => Err(ConnectError::TimedOut),
        }
    }

    /// Sends `register` and waits for its answer. May be called again after a refusal. Frames that arrive before the answer are
    /// kept for [`LinkReceiver::receive`]: a registration is visible to routing before its answer is sent.
    pub async fn register(&mut self, register: &Register) -> Result<Registered, RegisterError> {
        self.send(encode(kind::REGISTER, register)).await.map_err(RegisterError::Ended)?;
        match timeout(REGISTER_TIMEOUT, self.receiver.registration()).await {
            Ok(answer) => answer,
            Err(_elapsed) => Err(RegisterError::TimedOut),
        }
    }

    /// Connects and registers. A resume that the relay does not know is given up: the registration is repeated without it.
    pub async fn open(options: &LinkOptions, mut register: Register) -> Result<(Self, Registered), OpenError> {
        let mut link = Link::connect(options).await.map_err(OpenError::Connect)?;
        let registered = match link.register(&register).await {
            Err(RegisterError::Refused(error)) if error.code == INVALID_RESUME && register.resume.is_some() => {
                register.resume = None;
                link.register(&register).await
            }
            answer => answer,
        };
        Ok((link, registered.map_err(OpenError::Register)?))
    }

    /// Sends one frame's text.
    pub async fn send(&mut self, text: String) -> Result<(), Ended> {
        self.sender.send(text).await
    }

    /// The next frame's text. Cancelling loses nothing.
    pub async fn receive(&mut self) -> Result<Utf8Bytes, Ended> {
        self.receiver.receive().await
    }

    /// The two directions apart, for one task each.
    pub fn split(self) -> (LinkSender, LinkReceiver) {
        (self.sender, self.receiver)
    }

    /// Says goodbye (1000) and waits a moment for the answer.
    pub async fn close(mut self) {
        self.sender.close().await;
        // Whatever the outcome, the socket is dropped next.
        let _ = self.receiver.ending(CLOSE_TIMEOUT).await;
    }
}

type Socket = WebSocketStream<Box<dyn Transport>>;

/// A TCP connection, or TLS over one.
trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Transport for S {}

/// The sending direction of a [`Link`].
pub struct LinkSender {
    sink: SplitSink<Socket, Message>,
}

impl LinkSender {
    /// Sends one frame's text; waits while the connection has no room. A refusal's close code is seen by the receiving
    /// direction only.
    pub async fn send(&mut self, text: String) -> Result<(), Ended> {
        self.sink.send(Message::text(text)).await.map_err(Ended::from_error)
    }

    /// Starts the closing handshake with code 1000.
    pub async fn close(&mut self) {
        let goodbye = CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::default() };
        // A socket that is already gone needs no goodbye; one that takes nothing does not get to delay us.
        let _ = timeout(CLOSE_TIMEOUT, self.sink.send(Message::Close(Some(goodbye)))).await;
    }
}

/// The receiving direction of a [`Link`].
pub struct LinkReceiver {
    stream: SplitStream<Socket>,
    early: VecDeque<Utf8Bytes>,
    last_inbound: LastInbound,
    silence_limit: Duration,
    ended: Option<Ended>,
}

impl LinkReceiver {
    /// The next frame's text. Cancelling loses nothing. After the end it answers the same end again.
    pub async fn receive(&mut self) -> Result<Utf8Bytes, Ended> {
        if let Some(text) = self.early.pop_front() {
            return Ok(text);
        }
        self.next_text().await
    }

    /// Skips frames until the end; [`Ended::Lost`] if it does not come within `grace`.
    pub async fn ending(&mut self, grace: Duration) -> Ended {
        let drained = timeout(grace, async {
            loop {
                if let Err(ended) = self.next_text().await {
                    return ended;
                }
            }
        });
        drained.await.unwrap_or_else(|_elapsed| Ended::Lost("no close frame in time".to_owned()))
    }

    async fn next_text(&mut self) -> Result<Utf8Bytes, Ended> {
        if let Some(ended) = &self.ended {
            return Err(ended.clone());
        }
        loop {
            let deadline = self.last_inbound.get() + self.silence_limit;
            let ended = match timeout_at(deadline, self.stream.next()).await {
                Ok(Some(Ok(Message::Text(text)))) => return Ok(text),
                Ok(Some(Ok(Message::Ping(_) | Message::Pong(_)))) => continue,
                Ok(Some(Ok(Message::Close(frame)))) => match frame {
                    Some(frame) => Ended::Closed { code: frame.code.into(), reason: frame.reason.to_string() },
                    None => Ended::Closed { code: CloseCode::Status.into(), reason: String::new() },
                },
                Ok(Some(Ok(Message::Binary(_) | Message::Frame(_)))) => Ended::Lost("the relay sent a frame that is not text".to_owned()),
                Ok(Some(Err(error))) => Ended::from_error(error),
                Ok(None) => Ended::Lost("end of stream".to_owned()),
                // Part of a message came meanwhile.
                Err(_elapsed) if self.last_inbound.get() + self.silence_limit > deadline => continue,
                Err(_elapsed) => Ended::Silent(self.silence_limit),
            };
            self.ended = Some(ended.clone());
            if matches!(ended, Ended::Closed { .. }) {
                // One more poll sends our half of the closing handshake.
                let _ = timeout(CLOSE_TIMEOUT, self.stream.next()).await;
            }
            return Err(ended);
        }
    }

    async fn registration(&mut self) -> Result<Registered, RegisterError> {
        loop {
            let text = self.next_text().await.map_err(RegisterError::Ended)?;
            let malformed = |error: serde_json::Error| RegisterError::Malformed(error.to_string());
            let envelope = Envelope::parse(&text).map_err(malformed)?;
            if let Some(registered) = Registered::read(&envelope) {
                return registered.map_err(malformed);
            }
            if envelope.kind == kind::ERROR {
                return Err(RegisterError::Refused(envelope.read().map_err(malformed)?));
            }
            if self.early.len() == EARLY_FRAMES_MAX {
                return Err(RegisterError::Malformed(format!("{EARLY_FRAMES_MAX} frames came instead")));
            }
            self.early.push_back(text);
        }
    }
}

async fn upgrade(options: &LinkOptions) -> Result<(Socket, LastInbound), ConnectError> {
    let url: Uri = options.address.device_link().parse().map_err(|error| ConnectError::Handshake(format!("{error}")))?;
    let host = url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = url.port_u16().unwrap_or(if options.address.is_secure() { 443 } else { 80 });
    let mut request = url.into_client_request().map_err(|error| ConnectError::Handshake(error.to_string()))?;
    let mut bearer = HeaderValue::try_from(format!("Bearer {}", options.token)).map_err(|_invalid| ConnectError::UnusableToken)?;
    bearer.set_sensitive(true);
    let headers = request.headers_mut();
    headers.insert(header::AUTHORIZATION, bearer);
    headers.insert("x-client-type", HeaderValue::from_static(options.role.as_str()));
    if let Some(target) = options.target {
        let target = HeaderValue::try_from(target.to_string()).map_err(|error| ConnectError::Handshake(error.to_string()))?;
        headers.insert("x-target-desktop-device-id", target);
    }

    let stream = TcpStream::connect((host.as_str(), port)).await.map_err(ConnectError::Unreachable)?;
    // Small frames must not wait for the peer's delayed acknowledgement.
    stream.set_nodelay(true).map_err(ConnectError::Unreachable)?;
    let receivable = Some(MESSAGE_BYTES_MAX + ENVELOPE_BYTES_MAX);
    let config = WebSocketConfig::default().read_buffer_size(16 * 1024).max_message_size(receivable).max_frame_size(receivable);
    let (stream, last_inbound) = Watched::new(stream);
    let stream: Box<dyn Transport> = if options.address.is_secure() {
        let name = ServerName::try_from(host).map_err(|error| ConnectError::Handshake(error.to_string()))?;
        let connector = TlsConnector::from(tls::trusting().map_err(ConnectError::NotSecure)?);
        Box::new(connector.connect(name, stream).await.map_err(ConnectError::NotSecure)?)
    } else {
        Box::new(stream)
    };
    match client_async_with_config(request, stream, Some(config)).await {
        Ok((socket, _response)) => Ok((socket, last_inbound)),
        Err(error) => Err(upgrade_error(error)),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum: everything but an HTTP answer is one case")]
fn upgrade_error(error: tungstenite::Error) -> ConnectError {
    #[derive(serde::Deserialize)]
    struct Body {
        error: ErrorFrame,
    }
    match error {
        tungstenite::Error::Http(response) => {
            let body = response.body().as_deref().unwrap_or_default();
            let error = serde_json::from_slice::<Body>(body).ok().map(|body| body.error);
            ConnectError::Refused { status: response.status().as_u16(), error }
        }
        other => ConnectError::Handshake(other.to_string()),
    }
}
