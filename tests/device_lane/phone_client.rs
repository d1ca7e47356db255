//! The phone client that comes back, through a real relay: what becomes of its calls and its lease when either end, or the relay, is
//! lost, and that it neither asks nor connects more than it may.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod calls;
mod desktops;
mod links;

use crate::support::{
    PATIENCE,
    account::Account,
    raw_socket::RawSocket,
    relay_process::RelayProcess,
    stall_proxy::{Network, StallProxy},
    wire::{connections, eventually, next_of, registered, response},
};
use relay_endpoints::{
    backoff::Policy,
    phone::{
        Client, ClientOptions, Request,
        client::{MemoryStore, Retries, Status},
    },
};
use serde_json::Value;
use std::time::Duration;
use tokio::{sync::watch, time::timeout};

/// Waits that no test has to sit through.
const SOON: Policy = Policy { first: Duration::from_millis(10), max: Duration::from_millis(50) };

const SESSION: &str = "s-1";

/// One phone behind a network of its own, and one desktop.
struct Rig {
    relay: RelayProcess,
    proxy: StallProxy,
    account: Account,
}

impl Rig {
    async fn start(args: &[&str]) -> Self {
        let relay = RelayProcess::start(args).await;
        let proxy = StallProxy::start(relay.ready().public).await;
        let account = Account::new(&relay, 1, 1).await;
        Rig { relay, proxy, account }
    }

    /// Options of the phone, whose connection goes through the proxy.
    fn options(&self) -> ClientOptions {
        let mut phone = self.account.phone(0, 0);
        phone.link.address = format!("http://{}", self.proxy.address()).parse().unwrap();
        let retries = Retries { backoff: SOON, ..Retries::default() };
        ClientOptions { reconnect: SOON, retries, ..ClientOptions::new(phone) }
    }

    fn client(&self) -> Client {
        Client::start(self.options(), MemoryStore::default())
    }

    /// A phone that asks nothing by itself, registered.
    async fn quiet_client(&self) -> Client {
        Client::connect(ClientOptions { verifies: false, ..self.options() }, MemoryStore::default()).await.unwrap()
    }

    async fn desktop(&self) -> RawSocket {
        registered(&self.account.raw_desktop(), self.account.desktops[0]).await
    }

    /// Takes the phone's connection away until [`Rig::let_back`], and waits until the relay knows.
    async fn lose_phone(&self, status: &mut watch::Receiver<Status>) {
        self.proxy.set(Network::Refuses);
        self.proxy.cut();
        until(status, |status| matches!(status, Status::Reconnecting { .. })).await;
        eventually("the desktop alone is there", async || connections(&self.relay, Some(self.account.user)).await.len() == 1).await;
    }

    async fn let_back(&self, status: &mut watch::Receiver<Status>) {
        self.proxy.set(Network::Works);
        until(status, Status::is_connected).await;
    }
}

async fn until(status: &mut watch::Receiver<Status>, is: impl FnMut(&Status) -> bool) -> Status {
    timeout(PATIENCE, status.wait_for(is)).await.expect("the status comes").expect("the client is there").clone()
}

async fn until_ready(status: &mut watch::Receiver<Status>) {
    until(status, |status| matches!(status, Status::Ready)).await;
}

/// The next request that a desktop gets, which is for this method.
async fn request(desktop: &mut RawSocket, method: &str) -> (String, Value) {
    let text = next_of(desktop, "rpc.request").await;
    let payload = serde_json::from_str::<Value>(&text).unwrap()["payload"].take();
    assert_eq!(payload["method"], method);
    (text, payload)
}

async fn answer(desktop: &mut RawSocket, request: &str, result: &str) {
    desktop.text(&response(request, result)).await;
}

/// Returns once the relay has taken everything that was sent before: it answers a ping in order.
async fn fence(desktop: &mut RawSocket) {
    desktop.text(r#"{"type":"ping","payload":{}}"#).await;
    next_of(desktop, "pong").await;
}

/// The next thing that a desktop hears, in a word: `watched` and `unwatched`, or a request's method, which is answered.
async fn hear(desktop: &mut RawSocket) -> String {
    let text = desktop.next_text().await;
    let frame: Value = serde_json::from_str(&text).unwrap();
    let payload = &frame["payload"];
    if frame["type"] == "event" {
        assert_eq!(
            (&payload["eventType"], &payload["payload"]["appSessionId"]),
            (&"chat:timeline-interest-updated".into(), &SESSION.into())
        );
        return if payload["payload"]["active"] == true { "watched" } else { "unwatched" }.to_owned();
    }
    answer(desktop, &text, r#"{"entries":[]}"#).await;
    payload["method"].as_str().unwrap().to_owned()
}

fn create() -> Request {
    Request::new("session.create")
}
