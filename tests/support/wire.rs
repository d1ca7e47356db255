//! Raw devices that have registered, and what tests ask of them: requests and replies as text, the admin listener's view of the
//! sockets, and whether the relay is as well as it was before a case.

use super::{
    PATIENCE,
    account::Account,
    raw_socket::{RawOptions, RawSocket},
    relay_process::RelayProcess,
};
use relay_protocol::{
    device::Role,
    id::{DeviceId, UserId},
};
use serde_json::{Value, value::RawValue};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::{Instant, sleep};

pub const KIB: usize = 1024;
pub const MIB: usize = 1024 * KIB;

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A relay with one account on it.
pub struct Rig {
    pub relay: RelayProcess,
    pub account: Account,
}

impl Rig {
    /// One desktop and this many phones.
    pub async fn start(args: &[&str], phones: usize) -> Self {
        let relay = RelayProcess::start(args).await;
        let account = Account::new(&relay, 1, phones).await;
        Rig { relay, account }
    }

    pub async fn desktop(&self) -> RawSocket {
        registered(&self.account.raw_desktop(), self.account.desktops[0]).await
    }

    pub async fn phone(&self, index: usize) -> RawSocket {
        registered(&self.account.raw_phone(), self.account.phones[index]).await
    }
}

impl Account {
    /// Options of a raw socket of the first desktop.
    pub fn raw_desktop(&self) -> RawOptions {
        RawOptions::device_link(&self.address, &self.token, Role::Desktop, None)
    }

    /// Options of a raw socket of any phone, bound to the first desktop.
    pub fn raw_phone(&self) -> RawOptions {
        RawOptions::device_link(&self.address, &self.token, Role::Mobile, Some(self.desktops[0]))
    }
}

/// Opens a socket and registers a device on it.
pub async fn registered(options: &RawOptions, device: DeviceId) -> RawSocket {
    let mut socket = RawSocket::open(options).await;
    socket.register(device).await;
    socket
}

/// A request with these params, as JSON.
pub fn request(id: &str, params: &str) -> String {
    let payload = format!(r#"{{"id":"{id}","method":"files.readContent","params":{params},"traceparent":"{TRACE}"}}"#);
    format!(r#"{{"type":"rpc.request","payload":{payload}}}"#)
}

/// A request that is exactly this long.
pub fn request_of(id: &str, bytes: usize) -> String {
    let filler = bytes - request(id, r#""""#).len();
    request(id, &format!(r#""{}""#, "x".repeat(filler)))
}

/// A final reply to a request that a desktop received.
pub fn response(request: &str, result: &str) -> String {
    let (client, id) = (payload_field(request, "clientId"), payload_field(request, "id"));
    format!(r#"{{"type":"rpc.response","payload":{{"clientId":{client},"id":{id},"result":{result}}}}}"#)
}

/// A field of a frame's payload, byte for byte.
pub fn payload_field<'a>(frame: &'a str, field: &str) -> &'a str {
    let frame: BTreeMap<&str, &RawValue> = serde_json::from_str(frame).unwrap();
    let payload: BTreeMap<&str, &RawValue> = serde_json::from_str(frame["payload"].get()).unwrap();
    payload.get(field).unwrap_or_else(|| panic!("no {field} in the payload")).get()
}

/// The next frame that is no event, which must be of this type.
pub async fn next_of(socket: &mut RawSocket, kind: &str) -> String {
    loop {
        let text = socket.next_text().await;
        if text.starts_with(&format!(r#"{{"type":"{kind}""#)) {
            return text;
        }
        assert!(text.starts_with(r#"{"type":"event""#), "no {kind}, but {}", &text[..text.len().min(300)]);
    }
}

/// The next status that a phone is told of its desktop: status, reason, revision.
pub async fn next_status(phone: &mut RawSocket) -> (String, String, u64) {
    let event: Value = serde_json::from_str(&next_of(phone, "event").await).unwrap();
    assert_eq!(event["payload"]["eventType"], "device-status");
    let status = &event["payload"]["payload"];
    let text = |key: &str| status[key].as_str().unwrap().to_owned();
    (text("status"), text("reason"), status["revision"].as_u64().unwrap())
}

/// The next refusal that a phone receives: id and error code.
pub async fn next_refusal(phone: &mut RawSocket) -> (String, i64) {
    let answer: Value = serde_json::from_str(&next_of(phone, "rpc.response").await).unwrap();
    let payload = &answer["payload"];
    let code = payload["error"]["code"].as_i64().unwrap_or_else(|| panic!("no refusal: {answer}"));
    (payload["id"].as_str().unwrap().to_owned(), code)
}

/// One request and its answer. What the desktop receives next must be this request.
pub async fn round_trip(phone: &mut RawSocket, desktop: &mut RawSocket, id: &str) {
    phone.text(&request(id, r#"{"n":1}"#)).await;
    let received = next_of(desktop, "rpc.request").await;
    assert_eq!(payload_field(&received, "id"), format!("\"{id}\""));
    desktop.text(&response(&received, r#"{"n":2}"#)).await;
    let answer = next_of(phone, "rpc.response").await;
    assert_eq!((payload_field(&answer, "id"), payload_field(&answer, "result")), (format!("\"{id}\"").as_str(), r#"{"n":2}"#));
}

/// The registered sockets, of one account or of all, as the admin listener shows them.
pub async fn connections(relay: &RelayProcess, user: Option<UserId>) -> Vec<Value> {
    let query = user.map(|user| format!("?user={user}")).unwrap_or_default();
    let url = format!("http://{}/admin/connections{query}", relay.ready().admin);
    let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().unwrap();
    let answer = client.get(url).bearer_auth(relay.admin_token()).send().await.unwrap();
    let body: Value = answer.error_for_status().unwrap().json().await.unwrap();
    body["connections"].as_array().unwrap().clone()
}

/// The registered socket of a phone's device, if there is one.
pub async fn connection_of(relay: &RelayProcess, user: UserId, device: DeviceId) -> Option<Value> {
    let route_of = |connection: &Value| connection["route"].as_str().unwrap().to_owned();
    connections(relay, Some(user)).await.into_iter().find(|connection| route_of(connection).starts_with(&device.to_string()))
}

/// Waits until something is so.
pub async fn eventually(what: &str, mut check: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !check().await {
        assert!(Instant::now() < deadline, "in vain: {what}");
        sleep(POLL_INTERVAL).await;
    }
}

/// What a relay holds before a hostile case.
pub struct Before {
    connections: usize,
    descriptors: usize,
    rss_kib: u64,
}

impl Before {
    /// Taken when everything that the case needs is there.
    pub async fn of(relay: &RelayProcess) -> Self {
        // A pair comes and goes, so that what a first one costs is there already.
        let connections = connections(relay, None).await.len();
        fresh_pair_works(relay).await;
        let mut descriptors = relay.descriptors();
        eventually("the relay comes to rest", async || {
            sleep(5 * POLL_INTERVAL).await;
            let earlier = std::mem::replace(&mut descriptors, relay.descriptors());
            earlier == descriptors
        })
        .await;
        Before { connections, descriptors, rss_kib: relay.rss_kib() }
    }

    /// The process lives and is healthy, a fresh pair makes a round trip, and what the case took is given back: sockets,
    /// descriptors, and memory down to `rss_margin_kib`. Panics and errors in the log are found when the process is dropped.
    pub async fn all_well(&self, relay: &mut RelayProcess, rss_margin_kib: u64) {
        assert!(relay.alive());
        let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().unwrap();
        let health = client.get(format!("http://{}/readyz", relay.ready().public)).send().await.unwrap();
        assert_eq!(health.status(), 200);
        fresh_pair_works(relay).await;
        self.given_back(relay).await;
        let grown_kib = relay.rss_kib().saturating_sub(self.rss_kib);
        assert!(grown_kib <= rss_margin_kib, "{grown_kib} KiB more than before");
    }

    /// Sockets and descriptors are as few as before.
    pub async fn given_back(&self, relay: &RelayProcess) {
        eventually("sockets go", async || connections(relay, None).await.len() == self.connections).await;
        eventually("descriptors go", async || relay.descriptors() <= self.descriptors).await;
    }
}

async fn fresh_pair_works(relay: &RelayProcess) {
    let account = Account::new(relay, 1, 1).await;
    let mut desktop = registered(&account.raw_desktop(), account.desktops[0]).await;
    let mut phone = registered(&account.raw_phone(), account.phones[0]).await;
    round_trip(&mut phone, &mut desktop, "fresh").await;
}
