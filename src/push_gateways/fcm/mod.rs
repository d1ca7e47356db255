//! Firebase Cloud Messaging, HTTP v1: one HTTP/2 request for each push, with an access token of a service account (Firebase, "Send a
//! Message using FCM HTTP v1 API").

mod access;
mod account;
mod payload;
mod verdict;

pub use account::{AccountError, ServiceAccount};

use super::transport::Transport;
use crate::http_client;
use access::{Access, AccessToken};
use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Method, Request, StatusCode, Uri,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, USER_AGENT},
};
use relay_actors::push::{Gateway, Outgoing, Scope, Verdict};
use std::{io, time::Duration};
use tokio::time::timeout;

const BASE: &str = "https://fcm.googleapis.com";

/// A push with everything that it may need before: an access token, twice if the first is refused.
const PUSH_TIMEOUT: Duration = Duration::from_secs(30);

/// A client of one Firebase project.
pub struct Fcm {
    access: Access,
    transport: Transport,
    send: Uri,
}

impl Fcm {
    /// A client for the account's project; nothing is sent yet. `url` stands for Google's service, as in tests.
    ///
    /// # Errors
    /// The system has no root certificates, or the project's name makes no address.
    pub fn new(account: ServiceAccount, url: Option<Uri>) -> io::Result<Self> {
        let base = url.unwrap_or_else(|| Uri::from_static(BASE));
        let send = format!("{}/v1/projects/{}/messages:send", base.to_string().trim_end_matches('/'), account.project_id());
        let send: Uri = send.parse().map_err(io::Error::other)?;
        Ok(Fcm { transport: Transport::new(&send)?, send, access: Access::new(account)? })
    }

    async fn send_under(&self, token: &AccessToken, body: &Bytes) -> Result<(StatusCode, Verdict), Verdict> {
        let request = || {
            let mut request = Request::new(Full::new(body.clone()));
            *request.method_mut() = Method::POST;
            *request.uri_mut() = self.send.clone();
            let headers = request.headers_mut();
            headers.insert(AUTHORIZATION, token.header.clone());
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            headers.insert(USER_AGENT, http_client::USER_AGENT);
            request
        };
        let answer = self.transport.send(request).await?;
        Ok((answer.status, verdict::of(&answer)))
    }

    async fn push(&self, push: &Outgoing) -> Result<Verdict, Verdict> {
        let body = Bytes::from(payload::of(push));
        let token = self.access.token().await?;
        let (status, verdict) = self.send_under(&token, &body).await?;
        if status != StatusCode::UNAUTHORIZED {
            return Ok(verdict);
        }
        // It may have been revoked before its time.
        self.access.forget(&token).await;
        let token = self.access.token().await?;
        Ok(self.send_under(&token, &body).await?.1)
    }
}

#[async_trait]
impl Gateway for Fcm {
    async fn send(&self, push: &Outgoing) -> Verdict {
        let late = |_elapsed| Err(Verdict::Retry { reason: "noAnswer".to_owned(), wait: None, scope: Scope::Provider });
        timeout(PUSH_TIMEOUT, self.push(push)).await.unwrap_or_else(late).unwrap_or_else(|verdict| verdict)
    }
}
