//! Push from end to end: phones claim tokens over HTTP, desktops come and ask over their sockets, and what reaches Apple's and Google's
//! servers, which are the tests' own, is what the account's phones should see.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod alerts;
mod owners;
mod registrations;

use crate::support::{
    account::Account,
    data_dir::DataDir,
    issuer::tls_file,
    push_server::{KeyFiles, PushServer, Seen, TokenEndpoint, push_flags},
    raw_socket::RawSocket,
    relay_process::RelayProcess,
    wire::next_of,
};
use relay_protocol::{
    id::DeviceId,
    push::{Environment, Provider, PushAddress},
};
use serde_json::{Value, json};
use std::{path::Path, sync::Arc};

/// Apple and Google, and a relay that is set up for both.
struct Providers {
    apple: PushServer,
    google: PushServer,
    _tokens: TokenEndpoint,
    _keys: KeyFiles,
    args: Vec<String>,
}

impl Providers {
    /// Over TLS, with certificates of the tests' authority.
    async fn start() -> Self {
        let (apple, google, tokens) = (PushServer::start_tls().await, PushServer::start_tls().await, TokenEndpoint::start().await);
        let url = apple.url();
        Self::with_apple_at(&url, apple, google, tokens)
    }

    fn with_apple_at(apple_url: &str, apple: PushServer, google: PushServer, tokens: TokenEndpoint) -> Self {
        let keys = KeyFiles::new();
        let args = push_flags(&keys, apple_url, &google.url(), &tokens.url());
        Providers { apple, google, _tokens: tokens, _keys: keys, args }
    }

    /// These, before others.
    fn flags<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        self.args.iter().map(String::as_str).chain(more.iter().copied()).collect()
    }

    async fn relay(&self, more: &[&str]) -> RelayProcess {
        let authority = tls_file("issuer-ca.pem");
        RelayProcess::start_in(&trusting(&authority), &self.flags(more)).await
    }

    /// One that takes over the data of another that has ended.
    async fn relay_on(&self, data_dir: Arc<DataDir>) -> RelayProcess {
        let authority = tls_file("issuer-ca.pem");
        RelayProcess::start_on_in(data_dir, &trusting(&authority), &self.flags(&[])).await
    }
}

fn trusting(authority: &Path) -> [(&str, &str); 1] {
    [("SSL_CERT_FILE", authority.to_str().unwrap())]
}

fn token(provider: Provider, text: &str) -> PushAddress {
    PushAddress { provider, token: text.parse().unwrap(), environment: Environment::Production, app_id: None }
}

impl Account {
    /// The phone's app claims this token with Apple.
    async fn claim(&self, phone: DeviceId, text: &str) {
        self.devices().claim_push_token(phone, &token(Provider::Apns, text)).await.unwrap();
    }
}

fn notification(id: &str) -> String {
    let payload = json!({"notificationId": id, "title": "Title", "body": "Body"});
    json!({"type": "event", "payload": {"eventType": "agent:notification", "payload": payload}}).to_string()
}

/// What the desktop is told of its next alert.
async fn told(desktop: &mut RawSocket) -> Value {
    let frame: Value = serde_json::from_str(&next_of(desktop, "event").await).unwrap();
    assert_eq!(frame["payload"]["eventType"], "agent:notification-result", "{frame}");
    frame["payload"]["payload"].clone()
}

/// Has the desktop ask for an alert; the reason that it is told, or `accepted`.
async fn ask(desktop: &mut RawSocket, id: &str) -> String {
    desktop.text(&notification(id)).await;
    let told = told(desktop).await;
    assert_eq!(told["notificationId"], id);
    told["reason"].as_str().unwrap_or("accepted").to_owned()
}

/// Token and type of what Apple was sent, in any order: an alert overtakes what is silent.
fn apple_saw(seen: &[Seen]) -> Vec<(String, String)> {
    let of = |push: &Seen| (push.path.trim_start_matches("/3/device/").to_owned(), push.body["type"].as_str().unwrap().to_owned());
    let mut saw: Vec<_> = seen.iter().map(of).collect();
    saw.sort();
    saw
}

fn pair(token: &str, kind: &str) -> (String, String) {
    (token.to_owned(), kind.to_owned())
}
