//! HTTP/2 to one provider.
//!
//! The client keeps one connection to each origin and makes a new one when that takes no more streams: after GOAWAY, or when it broke. A
//! dead connection is found by pings while somebody waits for an answer. What this adds: a request that its connection certainly did
//! not carry out is sent once more, at once, and every request has a deadline.

use crate::http_client::{HttpClient, with_causes};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{HeaderMap, Request, Response, StatusCode, Uri, body::Incoming, header::RETRY_AFTER};
use hyper_util::client::legacy::Error as ClientError;
use relay_actors::push::{Scope, Verdict};
use std::{error::Error, io, time::Duration};
use tokio::time::timeout;

/// A push, its connection and its answer, all together.
const SEND_TIMEOUT: Duration = Duration::from_secs(15);
/// Answers are some hundred bytes.
const ANSWER_BYTES_MAX: usize = 16 * 1024;
/// Longest reason that goes into logs and answers.
const REASON_BYTES_MAX: usize = 200;

/// What a provider answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// Empty when it could not be read: the status is there.
    pub(super) body: Bytes,
}

impl Answer {
    /// How long the provider asks to wait. A date is not read: neither provider sends one.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        self.headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
    }
}

/// Connections to one provider.
#[derive(Clone)]
pub(super) struct Transport {
    client: HttpClient,
}

impl Transport {
    /// For this origin.
    pub(super) fn new(origin: &Uri) -> io::Result<Self> {
        Ok(Transport { client: HttpClient::http2(origin)? })
    }

    /// Sends a request, which `make` makes anew where it has to be sent twice.
    ///
    /// # Errors
    /// The verdict on a push that has no answer.
    pub(super) async fn send(&self, make: impl Fn() -> Request<Full<Bytes>>) -> Result<Answer, Verdict> {
        let sending = async {
            let mut answer = self.client.request(make()).await;
            if answer.as_ref().is_err_and(was_not_processed) {
                answer = self.client.request(make()).await;
            }
            match answer {
                Ok(answer) => Ok(read(answer).await),
                Err(error) => Err(lost(&error)),
            }
        };
        timeout(SEND_TIMEOUT, sending).await.unwrap_or_else(|_elapsed| Err(retry("noAnswer", Scope::Provider)))
    }
}

async fn read(answer: Response<Incoming>) -> Answer {
    let (head, body) = answer.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    Answer { status: head.status, headers: head.headers, body }
}

/// Without a connection the provider is away. A connection that broke may have carried the push: it is tried again later, and the
/// provider folds the two by their collapse key.
fn lost(error: &ClientError) -> Verdict {
    let scope = if error.is_connect() || was_not_processed(error) { Scope::Provider } else { Scope::Push };
    retry(&with_causes(error), scope)
}

pub(super) fn retry(reason: &str, scope: Scope) -> Verdict {
    Verdict::Retry { reason: word(reason), wait: None, scope }
}

/// Whether the server says that it did not look at the request (RFC 9113 sections 6.8 and 8.7): it was refused, or is above the last
/// stream of a GOAWAY.
fn was_not_processed(error: &ClientError) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = error.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            return error.is_remote() && (error.is_go_away() || error.reason() == Some(h2::Reason::REFUSED_STREAM));
        }
        cause = error.source();
    }
    false
}

/// A provider's text for logs and answers: printable, and short.
pub(super) fn word(text: &str) -> String {
    let mut word: String = text.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect();
    word.truncate(REASON_BYTES_MAX);
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_short_and_printable() {
        assert_eq!(word("Bad\u{1b}[2J\u{e9} one"), "Bad?[2J? one");
        assert_eq!(word(&"é".repeat(1_000)).len(), REASON_BYTES_MAX);
    }
}
