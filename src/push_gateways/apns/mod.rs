//! Apple Push Notification service: one HTTP/2 request for each push, with a provider token (Apple, "Sending notification requests to
//! APNs" and "Establishing a token-based connection to APNs").

mod key;
mod payload;
mod token;
mod verdict;

pub use key::{ApnsKey, ApnsKeyError, is_apple_id};

use super::transport::Transport;
use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request, Uri, header::HeaderValue};
use relay_actors::{
    clock::{self, EpochMs},
    push::{Gateway, Outgoing, Verdict},
};
use relay_protocol::push::{AppId, Environment};
use std::io;
use token::{ProviderToken, Token};
use verdict::Judgement;

const PRODUCTION: &str = "https://api.push.apple.com";
const SANDBOX: &str = "https://api.sandbox.push.apple.com";

/// A client of both of Apple's services.
pub struct Apns {
    token: ProviderToken,
    /// What apps this relay serves; the first is meant where a phone names none.
    topics: Vec<AppId>,
    production: Origin,
    sandbox: Origin,
}

struct Origin {
    base: Uri,
    transport: Transport,
}

impl Origin {
    fn new(base: Uri) -> io::Result<Self> {
        Ok(Origin { transport: Transport::new(&base)?, base })
    }
}

impl Apns {
    /// A client with this key, for these apps; nothing is sent yet. `url` stands for both services, as in tests.
    ///
    /// # Errors
    /// The system has no root certificates.
    pub fn new(key: ApnsKey, topics: Vec<AppId>, url: Option<Uri>) -> io::Result<Self> {
        let (production, sandbox) = url.map_or_else(|| (Uri::from_static(PRODUCTION), Uri::from_static(SANDBOX)), |url| (url.clone(), url));
        Ok(Apns { token: ProviderToken::new(key), topics, production: Origin::new(production)?, sandbox: Origin::new(sandbox)? })
    }

    fn topic<'a>(&'a self, push: &'a Outgoing) -> Option<&'a AppId> {
        match &push.address.app_id {
            Some(named) => self.topics.iter().find(|topic| *topic == named),
            None => self.topics.first(),
        }
    }

    /// Sends it under a token; what Apple makes of it.
    async fn send_under(&self, token: &Token, topic: &AppId, push: &Outgoing) -> Judgement {
        let origin = match push.address.environment {
            Environment::Production => &self.production,
            Environment::Sandbox => &self.sandbox,
        };
        let body = Bytes::from(payload::of(&push.content));
        let Some(request) = head(&origin.base, token, topic, push) else {
            return Judgement::Final(Verdict::Refused { reason: "notARequest".to_owned() });
        };
        match origin.transport.send(|| request.clone().map(|()| Full::new(body.clone()))).await {
            Ok(answer) => verdict::of(&answer),
            Err(verdict) => Judgement::Final(verdict),
        }
    }
}

fn head(base: &Uri, token: &Token, topic: &AppId, push: &Outgoing) -> Option<Request<()>> {
    let silent = push.content.is_silent();
    let uri = format!("{}/3/device/{}", base.to_string().trim_end_matches('/'), push.address.token.expose());
    let request = Request::builder()
        .method(Method::POST)
        .uri(uri)
        .header("apns-topic", topic.as_str())
        .header("apns-push-type", if silent { "background" } else { "alert" })
        .header("apns-priority", if silent { "5" } else { "10" })
        .header("apns-expiration", EpochMs::now().plus(push.keep_for).0 / 1_000)
        .header("apns-collapse-id", &*push.collapse_key)
        .header("authorization", token.header.clone());
    request.body(()).ok()
}

#[async_trait]
impl Gateway for Apns {
    async fn send(&self, push: &Outgoing) -> Verdict {
        let Some(topic) = self.topic(push) else { return Verdict::Refused { reason: "appIdNotConfigured".to_owned() } };
        let token = match self.token.current(clock::now(), EpochMs::now()) {
            Ok(token) => token,
            Err(reason) => return Verdict::Refused { reason },
        };
        match self.send_under(&token, topic, push).await {
            Judgement::Final(verdict) => verdict,
            Judgement::TokenExpired => match self.token.renewed(&token, clock::now(), EpochMs::now()) {
                Ok(Some(fresh)) => self.send_under(&fresh, topic, push).await.after_renewal(),
                Ok(None) => Judgement::TokenExpired.after_renewal(),
                Err(reason) => Verdict::Refused { reason },
            },
        }
    }
}

/// A header value that is never shown.
fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}
