//! The HTTP client for addresses that the configuration names: http, or https against the system's roots.

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response, Uri, body::Incoming, header::HeaderValue, http::uri::Scheme};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, Error as ClientError, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::crypto::ring;
use std::{error::Error, fmt, io};

/// Who asks, in each request.
pub const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("relay/", env!("CARGO_PKG_VERSION")));

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
