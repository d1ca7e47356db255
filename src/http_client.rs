//! The HTTP client for addresses that the configuration names: http, or https against the system's roots.

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response, Uri, body::Incoming, header::HeaderValue, http::uri::Scheme};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, Error as ClientError, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use rustls::crypto::ring;
use std::{error::Error, fmt, io, time::Duration};

/// Who asks, in each request.
pub const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("relay/", env!("CARGO_PKG_VERSION")));

/// How long a TCP connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How often an HTTP/2 connection is pinged on which somebody waits, and how long its answer may take.
const PING_INTERVAL: Duration = Duration::from_secs(5);
const PING_TIMEOUT: Duration = Duration::from_secs(3);

/// The text is no address that can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAnHttpAddress {
    /// Another scheme, no host, or malformed.
    Form,
    /// User and password, where they would be shown and logged.
    Credentials,
}

impl fmt::Display for NotAnHttpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotAnHttpAddress::Form => "a URL is https://HOST/PATH or http://HOST/PATH",
            NotAnHttpAddress::Credentials => "a URL with user and password is not taken: it is shown and logged",
        })
    }
}

impl Error for NotAnHttpAddress {}

/// Reads an address with the scheme http or https, a host, and no credentials.
///
/// # Errors
/// It is none.
pub fn address(text: &str) -> Result<Uri, NotAnHttpAddress> {
    let uri: Uri = text.parse().map_err(|_malformed| NotAnHttpAddress::Form)?;
    let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
    let authority = uri.authority().filter(|authority| is_http && !authority.host().is_empty()).ok_or(NotAnHttpAddress::Form)?;
    if authority.as_str().contains('@') {
        return Err(NotAnHttpAddress::Credentials);
    }
    Ok(uri)
}

/// An error and what caused it: the first alone says "client error".
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

/// Calls one server. Redirects are not followed. Cheap to clone.
#[derive(Clone)]
pub enum HttpClient {
    /// Without TLS.
    Plain(Client<HttpConnector, Full<Bytes>>),
    /// With TLS only.
    Secure(Client<HttpsConnector<HttpConnector>, Full<Bytes>>),
}

impl HttpClient {
    /// One for this address, which keeps at most so many idle connections. Certificates are verified against the system's roots, or those
    /// in `SSL_CERT_FILE`: the root of a server of one's own is there or can be put there, and no list of roots ages inside the program.
    ///
    /// # Errors
    /// The address is an https one and the system has no roots.
    pub fn new(address: &Uri, idle_max: usize) -> io::Result<Self> {
        let mut builder = Client::builder(TokioExecutor::new());
        builder.pool_max_idle_per_host(idle_max);
        if address.scheme() != Some(&Scheme::HTTPS) {
            return Ok(HttpClient::Plain(builder.build(HttpConnector::new())));
        }
        let roots = HttpsConnectorBuilder::new().with_provider_and_native_roots(ring::default_provider())?;
        Ok(HttpClient::Secure(builder.build(roots.https_only().enable_http1().build())))
    }

    /// One that speaks HTTP/2 from the first byte, over one connection to each origin. A connection on which somebody waits is pinged,
    /// so that a dead one is found and given up.
    ///
    /// # Errors
    /// As [`HttpClient::new`].
    pub fn http2(address: &Uri) -> io::Result<Self> {
        let mut builder = Client::builder(TokioExecutor::new());
        builder.timer(TokioTimer::new()).pool_timer(TokioTimer::new()).http2_only(true);
        builder.http2_keep_alive_interval(PING_INTERVAL).http2_keep_alive_timeout(PING_TIMEOUT);
        // The server says how many streams it takes at once; before it has, one is tried.
        builder.http2_initial_max_send_streams(1);
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_nodelay(true);
        if address.scheme() != Some(&Scheme::HTTPS) {
            return Ok(HttpClient::Plain(builder.build(connector)));
        }
        connector.enforce_http(false);
        let roots = HttpsConnectorBuilder::new().with_provider_and_native_roots(ring::default_provider())?;
        Ok(HttpClient::Secure(builder.build(roots.https_only().enable_http2().wrap_connector(connector))))
    }

    /// Sends a request; the answer's head.
    ///
    /// # Errors
    /// No connection, or it broke.
    pub async fn request(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, ClientError> {
        match self {
            HttpClient::Plain(client) => client.request(request).await,
            HttpClient::Secure(client) => client.request(request).await,
        }
    }
}
