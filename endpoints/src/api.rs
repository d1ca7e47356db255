//! Calls of the relay's HTTP API, for one account.

use crate::{address::RelayAddress, frame::ErrorFrame};
use reqwest::{Method, StatusCode};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{fmt, time::Duration};

/// One HTTP call, from connecting to the last byte.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);

/// Why a call failed.
#[derive(Debug)]
pub enum ApiError {
    /// No answer: nothing listens there, or it took too long.
    Unreachable(String),
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
            ApiError::Refused { status, error } => write!(f, "{error} (status {status})"),
            ApiError::Unexpected { status, detail } => write!(f, "an answer that no relay gives (status {status}): {detail}"),
        }
    }
}

impl std::error::Error for ApiError {}

/// Where, and as whom.
#[derive(Clone)]
pub(crate) struct Api {
    http: reqwest::Client,
    address: RelayAddress,
    token: String,
}

impl Api {
    /// A client; nothing is sent yet.
    pub(crate) fn new(address: RelayAddress, token: String) -> Result<Self, ApiError> {
        // A relay is an address of the user's own choice: no proxy from the environment comes in between.
        let http = reqwest::Client::builder().timeout(CALL_TIMEOUT).no_proxy().build().map_err(unreachable_error)?;
        Ok(Api { http, address, token })
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
        let mut request = self.http.request(method, self.address.http(path)).bearer_auth(&self.token);
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send().await.map_err(unreachable_error)?;
        let status = answer.status();
        let body = answer.bytes().await.map_err(unreachable_error)?;
        Ok((status, body.to_vec()))
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

/// The innermost cause: reqwest's own texts repeat the address and say little.
fn unreachable_error(error: reqwest::Error) -> ApiError {
    let mut innermost: &dyn std::error::Error = &error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    ApiError::Unreachable(innermost.to_string())
}
