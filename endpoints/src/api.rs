//! Calls of the relay's HTTP API, for one account.

use crate::{address::RelayAddress, frame::ErrorFrame, tls};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Method, Request, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, USER_AGENT},
};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{error::Error, fmt, io, time::Duration};
use tokio::time::timeout;

/// One HTTP call, from connecting to the last byte.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// Largest answer. An account's 1,000 devices with their longest names are about 4 MiB.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Why a call failed.
#[derive(Debug)]
pub enum ApiError {
    /// No answer: nothing listens there, or it took too long.
    Unreachable(String),
    /// Something answers there, and its certificate is not trusted, or it does not speak TLS.
    NotSecure(String),
    /// The relay said no.
    Refused {
        /// The HTTP status.
        status: u16,
        /// The body's error object.
        error: ErrorFrame,
    },
    /// An answer that no relay gives.
    Unexpected {
        /// The HTTP status.
        status: u16,
        /// What was wrong with it.
        detail: String,
    },
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ApiError::Unreachable(detail) => write!(f, "no answer: {detail}"),
            ApiError::NotSecure(detail) => write!(f, "no TLS connection: {detail}"),
            ApiError::Refused { status, error } => write!(f, "{error} (status {status})"),
            ApiError::Unexpected { status, detail } => write!(f, "an answer that no relay gives (status {status}): {detail}"),
        }
    }
}

impl Error for ApiError {}

/// Where, and as whom.
#[derive(Clone)]
pub(crate) struct Api {
    http: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    address: RelayAddress,
    bearer: HeaderValue,
}

impl Api {
    /// A client; nothing is sent yet.
    pub(crate) fn new(address: RelayAddress, token: String) -> Result<Self, ApiError> {
        let tls = if address.is_secure() { tls::trusting().map_err(|error| no_answer(&error))? } else { tls::trusting_nobody() };
        let mut bearer = HeaderValue::try_from(format!("Bearer {token}")).map_err(|error| no_answer(&error))?;
        bearer.set_sensitive(true);
        let https = HttpsConnectorBuilder::new().with_tls_config((*tls).clone()).https_or_http().enable_http1().build();
        Ok(Api { http: Client::builder(TokioExecutor::new()).build(https), address, bearer })
    }

    /// A call that is answered without a body.
    pub(crate) async fn done(&self, method: Method, path: &str, body: Option<&impl Serialize>) -> Result<(), ApiError> {
        let (status, body) = self.send(method, path, body).await?;
        succeeded(status, &body)
    }

    /// A call that is answered with JSON.
    pub(crate) async fn json<T: DeserializeOwned>(&self, method: Method, path: &str, body: Option<&impl Serialize>) -> Result<T, ApiError> {
        let (status, body) = self.send(method, path, body).await?;
        succeeded(status, &body)?;
        serde_json::from_slice(&body).map_err(|error| ApiError::Unexpected { status: status.as_u16(), detail: error.to_string() })
    }

    async fn send(&self, method: Method, path: &str, body: Option<&impl Serialize>) -> Result<(StatusCode, Vec<u8>), ApiError> {
        let mut request = Request::builder().method(method).uri(self.address.http(path)).header(AUTHORIZATION, self.bearer.clone());
        request = request.header(USER_AGENT, concat!("relay/", env!("CARGO_PKG_VERSION")));
        let body = match body {
            Some(body) => {
                request = request.header(CONTENT_TYPE, "application/json");
                serde_json::to_vec(body).map_err(|error| no_answer(&error))?
            }
            None => Vec::new(),
        };
        let request = request.body(Full::from(body)).map_err(|error| no_answer(&error))?;
        let answered = timeout(CALL_TIMEOUT, async {
            let answer = self.http.request(request).await.map_err(|error| no_answer(&error))?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await.map_err(|error| no_answer(&*error))?;
            Ok((status, body.to_bytes().into()))
        });
        answered.await.unwrap_or_else(|_elapsed| Err(ApiError::Unreachable(format!("not within {} s", CALL_TIMEOUT.as_secs()))))
    }
}

fn succeeded(status: StatusCode, body: &[u8]) -> Result<(), ApiError> {
    #[derive(Deserialize)]
    struct Refusal {
        error: ErrorFrame,
    }
    if status.is_success() {
        return Ok(());
    }
    let status = status.as_u16();
    match serde_json::from_slice::<Refusal>(body) {
        Ok(refusal) => Err(ApiError::Refused { status, error: refusal.error }),
        Err(error) => Err(ApiError::Unexpected { status, detail: error.to_string() }),
    }
}

/// The innermost cause: the client's own texts say little.
fn no_answer(error: &(dyn Error + 'static)) -> ApiError {
    let mut innermost = error;
    let mut is_tls = is_tls_error(error);
    while let Some(source) = innermost.source() {
        innermost = source;
        is_tls |= is_tls_error(source);
    }
    let detail = innermost.to_string();
    if is_tls { ApiError::NotSecure(detail) } else { ApiError::Unreachable(detail) }
}

/// Whether the TLS library itself failed. An I/O error does not give what it wraps as its source, and may wrap another one.
fn is_tls_error(error: &(dyn Error + 'static)) -> bool {
    let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    error.is::<rustls::Error>() || wrapped.is_some_and(|wrapped| is_tls_error(wrapped))
}
