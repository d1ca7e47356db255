//! The collector, as an address that takes batches.

use super::delivery::Answer;
use crate::{
    http_client::{self, HttpClient, NotAnHttpAddress, with_causes},
    limits::{OTLP_ANSWER_BYTES_MAX, OTLP_CALL_TIMEOUT},
};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Method, Request, Uri,
    header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, USER_AGENT},
};
use std::{fmt, io, str::FromStr};
use tokio::time::timeout;

/// Where traces go below an endpoint (OTLP specification, section OTLP/HTTP Request).
const TRACES_PATH: &str = "/v1/traces";

/// `--otlp-endpoint`: the base of a collector's addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    traces: Uri,
}

/// The text is no such base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAnEndpoint {
    /// It is no address of HTTP.
    Address(NotAnHttpAddress),
    /// It has a query, or names what the relay adds.
    NotABase,
}

impl fmt::Display for NotAnEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotAnEndpoint::Address(problem) => problem.fmt(f),
            NotAnEndpoint::NotABase => write!(f, "give the base without a query, as http://HOST:4318: {TRACES_PATH} is added"),
        }
    }
}

impl std::error::Error for NotAnEndpoint {}

impl FromStr for Endpoint {
    type Err = NotAnEndpoint;

    fn from_str(text: &str) -> Result<Self, NotAnEndpoint> {
        let base = text.trim_end_matches('/');
        let is_base = !text.contains(['?', '#']) && !base.ends_with(TRACES_PATH);
        http_client::address(text).map_err(NotAnEndpoint::Address)?;
        let traces = is_base.then(|| http_client::address(&format!("{base}{TRACES_PATH}"))).ok_or(NotAnEndpoint::NotABase)?;
        Ok(Endpoint { traces: traces.map_err(NotAnEndpoint::Address)? })
    }
}

/// A client of it.
#[derive(Clone)]
pub struct Collector {
    traces: Uri,
    client: HttpClient,
}

impl Collector {
    /// A client; nothing is sent yet.
    ///
    /// # Errors
    /// The address is an https one and the system has no roots.
    pub fn new(endpoint: &Endpoint) -> io::Result<Self> {
        let traces = endpoint.traces.clone();
        Ok(Collector { client: HttpClient::new(&traces, 1)?, traces })
    }

    /// Sends a batch, in at most [`OTLP_CALL_TIMEOUT`].
    pub(super) async fn send(&self, body: Bytes) -> Answer {
        let answer = timeout(OTLP_CALL_TIMEOUT, self.call(body)).await;
        answer
            .unwrap_or_else(|_elapsed| Answer::NotNow { after: None, error: format!("no answer within {} s", OTLP_CALL_TIMEOUT.as_secs()) })
    }

    async fn call(&self, body: Bytes) -> Answer {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.traces.clone();
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        request.headers_mut().insert(USER_AGENT, http_client::USER_AGENT);
        let (head, body) = match self.client.request(request).await {
            Ok(response) => response.into_parts(),
            Err(error) => return Answer::NotNow { after: None, error: with_causes(&error) },
        };
        if !head.status.is_success() {
            return Answer::of_failure(head.status, head.headers.get(RETRY_AFTER));
        }
        // What it took it has, whether its answer can be read or not.
        let body = Limited::new(body, OTLP_ANSWER_BYTES_MAX).collect().await;
        Answer::of_success(&body.map(|body| body.to_bytes()).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_go_below_the_base() {
        for (text, expected) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://collector:4318/", "http://collector:4318/v1/traces"),
            ("https://traces.example/otlp", "https://traces.example/otlp/v1/traces"),
            ("https://[::1]:4318/otlp//", "https://[::1]:4318/otlp/v1/traces"),
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().traces.to_string(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_base_is_refused() {
        use NotAnHttpAddress::{Credentials, Form};
        for (text, expected) in [
            ("", NotAnEndpoint::Address(Form)),
            ("collector:4318", NotAnEndpoint::Address(Form)),
            ("grpc://collector:4317", NotAnEndpoint::Address(Form)),
            ("http://", NotAnEndpoint::Address(Form)),
            ("http://user:word@collector:4318", NotAnEndpoint::Address(Credentials)),
            ("http://collector:4318/v1/traces", NotAnEndpoint::NotABase),
            ("http://collector:4318/v1/traces/", NotAnEndpoint::NotABase),
            ("http://collector:4318/?key=word", NotAnEndpoint::NotABase),
        ] {
            assert_eq!(text.parse::<Endpoint>(), Err(expected), "{text}");
        }
    }
}
