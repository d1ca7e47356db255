//! Where a key set is read from: a file, or an http(s) URL.

use super::key_set::{KeySet, NotAKeySet};
use crate::{
    http_client::{self, HttpClient, NotAnHttpAddress, with_causes},
    limits::{JWKS_BYTES_MAX, JWKS_READ_TIMEOUT},
};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::{
    Request, StatusCode, Uri,
    header::{ACCEPT, HeaderValue, USER_AGENT},
};
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
    /// What has a scheme is no address of HTTP.
    Address(NotAnHttpAddress),
}

impl fmt::Display for NotALocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotALocation::Empty => f.write_str("give a file or an http(s) URL"),
            NotALocation::Address(problem) => problem.fmt(f),
        }
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
        http_client::address(text).map(Location::Url).map_err(NotALocation::Address)
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

/// Reads a key set, as often as wanted.
#[derive(Clone)]
pub enum Source {
    /// From a file.
    File(PathBuf),
    /// From an address.
    Url(Uri, Box<HttpClient>),
}

impl Source {
    /// One that reads there.
    ///
    /// # Errors
    /// The address is an https one and the system has no roots.
    pub fn new(location: &Location) -> io::Result<Self> {
        Ok(match location {
            Location::File(path) => Source::File(path.clone()),
            // A call every few minutes does not need a connection that is kept.
            Location::Url(uri) => Source::Url(uri.clone(), Box::new(HttpClient::new(uri, 0)?)),
        })
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
                Source::Url(uri, client) => fetch(client, uri).await,
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

async fn fetch(client: &HttpClient, uri: &Uri) -> Result<Vec<u8>, ReadError> {
    let mut request = Request::new(Full::default());
    *request.uri_mut() = uri.clone();
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/jwk-set+json, application/json"));
    request.headers_mut().insert(USER_AGENT, http_client::USER_AGENT);
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
