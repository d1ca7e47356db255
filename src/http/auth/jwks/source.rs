//! Where a key set is read from: a file, or an http(s) URL.

use super::key_set::{KeySet, NotAKeySet};
use crate::limits::{JWKS_BYTES_MAX, JWKS_READ_TIMEOUT};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::{
    Request, StatusCode, Uri,
    header::{ACCEPT, HeaderValue, USER_AGENT},
    http::uri::Scheme,
};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{
        Client,
        connect::{Connect, HttpConnector},
    },
    rt::TokioExecutor,
};
use rustls::crypto::ring;
use std::{
    error::Error,
    fmt, fs,
    io::{self, Read},
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};
use tokio::time::timeout;

/// What `--jwks` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A file.
    File(PathBuf),
    /// An address with the scheme http or https.
    Url(Uri),
}

/// The text is neither a path nor an address that can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotALocation {
    /// Nothing stands there.
    Empty,
    /// An address with another scheme, without a host, or malformed.
    Url,
    /// User and password in an address, where they would be shown and logged.
    Credentials,
}

impl fmt::Display for NotALocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotALocation::Empty => "give a file or an http(s) URL",
            NotALocation::Url => "a URL is https://HOST/PATH or http://HOST/PATH",
            NotALocation::Credentials => "a URL with user and password is not taken: a key set is public",
        })
    }
}

impl Error for NotALocation {}

impl FromStr for Location {
    type Err = NotALocation;

    fn from_str(text: &str) -> Result<Self, NotALocation> {
        if text.is_empty() {
            return Err(NotALocation::Empty);
        }
        if !text.contains("://") {
            return Ok(Location::File(text.into()));
        }
        let uri: Uri = text.parse().map_err(|_malformed| NotALocation::Url)?;
        let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
        let authority = uri.authority().filter(|authority| is_http && !authority.host().is_empty()).ok_or(NotALocation::Url)?;
        if authority.as_str().contains('@') {
            return Err(NotALocation::Credentials);
        }
        Ok(Location::Url(uri))
    }
}

/// Why no set was read.
#[derive(Debug)]
pub enum ReadError {
    /// The system refused the file.
    File(io::Error),
    /// No connection, or it broke.
    Http(hyper_util::client::legacy::Error),
    /// The answer broke off.
    Body(Box<dyn Error + Send + Sync>),
    /// An answer other than 200. Redirects are not followed: they would let whoever answers choose where keys come from.
    Status(StatusCode),
    /// It is over [`JWKS_BYTES_MAX`].
    TooLarge,
    /// It did not come within this time.
    TimedOut(Duration),
    /// It is no key set.
    Content(NotAKeySet),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::File(error) => error.fmt(f),
            ReadError::Http(error) => f.write_str(&with_causes(error)),
            ReadError::Body(error) => f.write_str(&with_causes(&**error)),
            ReadError::Status(status) => write!(f, "answered {status}"),
            ReadError::TooLarge => write!(f, "larger than {JWKS_BYTES_MAX} bytes"),
            ReadError::TimedOut(time) => write!(f, "no answer within {} s", time.as_secs()),
            ReadError::Content(error) => error.fmt(f),
        }
    }
}

impl Error for ReadError {}

/// An error and what caused it: the first alone says "client error".
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

type HttpClient<C> = Client<C, Empty<Bytes>>;

/// Reads a key set, as often as wanted.
#[derive(Clone)]
pub enum Source {
    /// From a file.
    File(PathBuf),
    /// From an http address.
    Http(Uri, HttpClient<HttpConnector>),
    /// From an https address.
    Https(Uri, HttpClient<HttpsConnector<HttpConnector>>),
}

impl Source {
    /// One that reads there. Certificates are verified against the system's roots, or those in `SSL_CERT_FILE`: the root of an issuer
    /// of one's own is there or can be put there, and no list of roots ages inside the program.
    ///
    /// # Errors
    /// The address is an https one and the system has no roots.
    pub fn new(location: &Location) -> io::Result<Self> {
        let uri = match location {
            Location::File(path) => return Ok(Source::File(path.clone())),
            Location::Url(uri) => uri.clone(),
        };
        // A call every few minutes does not need a connection that is kept.
        let mut builder = Client::builder(TokioExecutor::new());
        builder.pool_max_idle_per_host(0);
        if uri.scheme() != Some(&Scheme::HTTPS) {
            return Ok(Source::Http(uri, builder.build(HttpConnector::new())));
        }
        let roots = HttpsConnectorBuilder::new().with_provider_and_native_roots(ring::default_provider())?;
        Ok(Source::Https(uri, builder.build(roots.https_only().enable_http1().build())))
    }

    /// Reads the set, in at most [`JWKS_READ_TIMEOUT`].
    ///
    /// # Errors
    /// Why there is none.
    pub async fn read(&self) -> Result<KeySet, ReadError> {
        let bytes = async {
            match self {
                Source::File(path) => {
                    let path = path.clone();
                    let read = tokio::task::spawn_blocking(move || read_file(&path)).await;
                    read.unwrap_or_else(|ended| Err(ReadError::File(io::Error::other(ended))))
                }
                Source::Http(uri, client) => fetch(client, uri).await,
                Source::Https(uri, client) => fetch(client, uri).await,
            }
        };
        let bytes = timeout(JWKS_READ_TIMEOUT, bytes).await.map_err(|_elapsed| ReadError::TimedOut(JWKS_READ_TIMEOUT))??;
        KeySet::parse(&bytes).map_err(ReadError::Content)
    }
}

/// Reads a set from a file, at once.
///
/// # Errors
/// Why there is none.
pub fn read_file_set(path: &Path) -> Result<KeySet, ReadError> {
    KeySet::parse(&read_file(path)?).map_err(ReadError::Content)
}

fn read_file(path: &Path) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(ReadError::File)?;
    // One byte more than is taken tells a file at the limit from one above it.
    file.take(JWKS_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(ReadError::File)?;
    if bytes.len() > JWKS_BYTES_MAX { Err(ReadError::TooLarge) } else { Ok(bytes) }
}

async fn fetch<C>(client: &HttpClient<C>, uri: &Uri) -> Result<Vec<u8>, ReadError>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = uri.clone();
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/jwk-set+json, application/json"));
    request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(concat!("relay/", env!("CARGO_PKG_VERSION"))));
    let response = client.request(request).await.map_err(ReadError::Http)?;
    if response.status() != StatusCode::OK {
        return Err(ReadError::Status(response.status()));
    }
    let body = Limited::new(response.into_body(), JWKS_BYTES_MAX).collect().await;
    let body = body.map_err(|error| if error.is::<LengthLimitError>() { ReadError::TooLarge } else { ReadError::Body(error) })?;
    Ok(body.to_bytes().into())
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
