//! Access tokens: got with an assertion of the service account, used until shortly before their end (RFC 7523 section 2.1).

use super::{super::transport::word, ServiceAccount};
use crate::http_client::{self, HttpClient, with_causes};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Method, Request, StatusCode,
    header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, USER_AGENT},
};
use relay_actors::{
    clock::{self, EpochMs},
    push::{Scope, Verdict},
};
use serde::Deserialize;
use std::{
    io,
    time::{Duration, Instant},
};
use tokio::{sync::Mutex, time::timeout};

/// How long before its end a token is replaced: longer than a push takes.
const MARGIN: Duration = Duration::from_secs(5 * 60);
/// How long the exchange may take.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(10);
/// An answer has about a kilobyte.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// What stands before the assertion in the body.
const GRANT: &str = "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=";

/// A token in use.
#[derive(Clone)]
pub(super) struct AccessToken {
    /// `Authorization`.
    pub(super) header: HeaderValue,
    until: Instant,
}

/// The tokens of one account. Whoever needs a new one waits for the one exchange that is under way.
pub(super) struct Access {
    account: ServiceAccount,
    client: HttpClient,
    current: Mutex<Option<AccessToken>>,
}

#[derive(Deserialize)]
struct Granted {
    access_token: String,
    expires_in: u64,
}

/// RFC 6749 section 5.2.
#[derive(Deserialize)]
struct NotGranted {
    error: String,
}

impl Access {
    /// Of this account; nothing is sent yet.
    pub(super) fn new(account: ServiceAccount) -> io::Result<Self> {
        Ok(Access { client: HttpClient::new(account.token_uri(), 1)?, account, current: Mutex::default() })
    }

    /// A token that is good for a while.
    ///
    /// # Errors
    /// The verdict on the push that needs it: it is tried again, since accounts and Google come back, and the log says why.
    pub(super) async fn token(&self) -> Result<AccessToken, Verdict> {
        let mut current = self.current.lock().await;
        if let Some(token) = current.as_ref().filter(|token| clock::now() < token.until) {
            return Ok(token.clone());
        }
        let late = |_elapsed| Err(no_token("noAnswer", None));
        let token = timeout(EXCHANGE_TIMEOUT, self.exchange()).await.unwrap_or_else(late)?;
        *current = Some(token.clone());
        Ok(token)
    }

    /// Google refuses this token: the next push gets another, unless somebody has got one already.
    pub(super) async fn forget(&self, refused: &AccessToken) {
        let mut current = self.current.lock().await;
        if current.as_ref().is_some_and(|token| token.header == refused.header) {
            *current = None;
        }
    }

    async fn exchange(&self) -> Result<AccessToken, Verdict> {
        let asked = clock::now();
        let assertion = self.account.assertion(EpochMs::now().0 / 1_000).map_err(|error| no_token(&error.to_string(), None))?;
        let mut request = Request::new(Full::new(Bytes::from(format!("{GRANT}{assertion}"))));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.account.token_uri().clone();
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        request.headers_mut().insert(USER_AGENT, http_client::USER_AGENT);
        let answer = self.client.request(request).await.map_err(|error| no_token(&with_causes(&error), None))?;
        let (head, body) = answer.into_parts();
        let body =
            Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(|_broken| no_token("the answer broke off", None))?.to_bytes();
        if head.status != StatusCode::OK {
            let told = serde_json::from_slice::<NotGranted>(&body).map(|told| told.error).unwrap_or_default();
            let wait = head.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok()).map(Duration::from_secs);
            return Err(no_token(&format!("{} {told}", head.status.as_u16()), wait));
        }
        let granted: Granted = serde_json::from_slice(&body).map_err(|_other| no_token("an answer without a token", None))?;
        let mut header = HeaderValue::try_from(format!("Bearer {}", granted.access_token))
            .map_err(|_not_a_header| no_token("a token that is none", None))?;
        header.set_sensitive(true);
        let life = Duration::from_secs(granted.expires_in);
        // One that is shorter than the margin is used for half of its life.
        Ok(AccessToken { header, until: asked + life.saturating_sub(MARGIN).max(life / 2) })
    }
}

fn no_token(why: &str, wait: Option<Duration>) -> Verdict {
    Verdict::Retry { reason: word(&format!("no access token: {why}")), wait, scope: Scope::Provider }
}
