//! A phone that watches its account's presence, the same as HTTP shows it, and sockets that end in every way.

use crate::support::{
    PATIENCE,
    account::Account,
    raw_socket::{Frame, RawOptions, RawSocket},
    relay_process::RelayProcess,
    stall_proxy::StallProxy,
    wire::registered,
};
use relay_endpoints::{
    frame::{DeviceStatus, Event},
    phone::{CallError, Events, Phone},
};
use relay_protocol::{
    device::{Presence, Role},
    id::{DeviceId, RelayInstanceId, UserId},
};
use serde_json::Value;
use std::{collections::BTreeMap, time::Duration};
use tokio::time::{Instant, sleep, timeout};

/// How often something is looked at that no event tells.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A connected phone. Every event that it takes is from one relay process and of a higher revision than the one before.
pub(super) struct Watcher {
    phone: Phone,
    events: Events,
    instance: RelayInstanceId,
    revision: u64,
}

impl Watcher {
    /// Connects one of the account's phones. Presence is told of all desktops, whichever the phone is bound to.
    pub(super) async fn connect(account: &Account, phone: usize, desktop: usize) -> Self {
        let phone = Phone::connect(account.phone(phone, desktop)).await.expect("the watching phone registers");
        let (events, instance) = (phone.events(), phone.registered().relay_instance_id);
        let mut watcher = Watcher { phone, events, instance, revision: 0 };
        watcher.revision = watcher.target().revision.expect("a relay counts revisions");
        watcher
    }

    /// Its desktop, as the registration's answer showed it.
    pub(super) fn target(&self) -> &DeviceStatus {
        self.phone.registered().target.as_ref().expect("a phone is told of its desktop")
    }

    /// The revision of the newest event, or of the registration's answer.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// The next presence event.
    pub(super) async fn next(&mut self) -> DeviceStatus {
        let event = timeout(PATIENCE, self.events.recv()).await.expect("a presence event comes").expect("the watching phone lives");
        self.read(&event)
    }

    /// The next presence event, which is this one.
    pub(super) async fn expect(&mut self, device: DeviceId, status: Presence, reason: &str) -> DeviceStatus {
        let event = self.next().await;
        assert_eq!((event.device_id, event.status, event.reason.as_deref()), (device, status, Some(reason)), "{event:?}");
        event
    }

    /// Every event that the router sent before this call: a call's answer takes the same way behind them.
    pub(super) async fn pending(&mut self) -> Vec<DeviceStatus> {
        // Answered by the desktop or refused by the router, both will do.
        let _ = self.call().await;
        let mut pending = Vec::new();
        while let Some(event) = self.events.try_recv() {
            pending.push(self.read(&event.expect("the watching phone loses no event")));
        }
        pending
    }

    /// Calls its desktop: the number of the error that came instead of a result.
    pub(super) async fn call(&self) -> Result<(), i64> {
        match timeout(PATIENCE, self.phone.call("system.ping", None, None)).await.expect("a call is answered") {
            Ok(_pong) => Ok(()),
            Err(CallError::Refused(error)) => Err(error.code),
            Err(error) => panic!("the watching phone cannot call: {error}"),
        }
    }

    fn read(&mut self, event: &Event) -> DeviceStatus {
        assert_eq!(event.event_type, "device-status");
        let status: DeviceStatus = serde_json::from_str(event.payload.get()).unwrap();
        assert_eq!(status.relay_instance_id, Some(self.instance), "{status:?}");
        let revision = status.revision.expect("an event has a revision");
        assert!(revision > self.revision, "revision {} was followed by {status:?}", self.revision);
        self.revision = revision;
        status
    }
}

/// How a client ends its socket.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// With a closing handshake.
    Goodbye,
    /// With a FIN and nothing before it.
    Fin,
    /// With a RST.
    Reset,
}

impl End {
    pub(super) const ALL: [End; 3] = [End::Goodbye, End::Fin, End::Reset];

    /// Ends the socket. Done when the client knows that it has ended, which the relay may not yet.
    pub(super) async fn apply(self, mut socket: RawSocket) {
        match self {
            End::Goodbye => {
                socket.frame(&Frame::close(1000, "")).await;
                assert_eq!(socket.closed(PATIENCE).await, Some((1000, String::new())));
            }
            End::Fin => {
                socket.finish_writing().await;
                socket.closed(PATIENCE).await;
            }
            End::Reset => socket.reset(),
        }
    }
}

/// A desktop's registered socket that does nothing by itself.
pub(super) async fn desktop_socket(account: &Account, desktop: usize) -> RawSocket {
    registered(&options(account, Role::Desktop, None), account.desktops[desktop]).await
}

/// The same through a network that can fail.
pub(super) async fn desktop_socket_through(proxy: &StallProxy, account: &Account, desktop: usize) -> RawSocket {
    let options = RawOptions { address: proxy.address(), ..options(account, Role::Desktop, None) };
    registered(&options, account.desktops[desktop]).await
}

/// A phone's registered socket that does nothing by itself.
pub(super) async fn phone_socket(account: &Account, phone: usize, desktop: usize) -> RawSocket {
    registered(&options(account, Role::Mobile, Some(account.desktops[desktop])), account.phones[phone]).await
}

fn options(account: &Account, role: Role, target: Option<DeviceId>) -> RawOptions {
    RawOptions::device_link(&account.address, &account.token, role, target)
}

/// Live presence of all devices of the account, as `GET /api/devices` shows it now.
pub(super) async fn presences(account: &Account) -> BTreeMap<DeviceId, Presence> {
    let devices = account.devices().list().await.unwrap();
    devices.iter().map(|device| (device.device_id, device.presence.expect("the relay shows live presence"))).collect()
}

/// Stored status of all devices of the account, as `GET /api/devices` shows it now.
pub(super) async fn stored(account: &Account) -> BTreeMap<DeviceId, Presence> {
    let devices = account.devices().list().await.unwrap();
    devices.iter().map(|device| (device.device_id, device.status.expect("the relay shows the stored status"))).collect()
}

/// The routes of the account's registered sockets, as `GET /admin/connections` shows them now; sorted, each as often as it is there.
pub(super) async fn routes(relay: &RelayProcess, user: UserId) -> Vec<String> {
    let url = format!("http://{}/admin/connections?user={user}", relay.ready().admin);
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer: Value = client.get(url).bearer_auth(relay.admin_token()).send().await.unwrap().json().await.unwrap();
    let mut routes: Vec<String> =
        answer["connections"].as_array().unwrap().iter().map(|connection| connection["route"].as_str().unwrap().to_owned()).collect();
    routes.sort();
    routes
}

/// A phone's route.
pub(super) fn phone_route(phone: DeviceId, desktop: DeviceId) -> String {
    format!("{phone}::{desktop}")
}

/// Waits until `GET /admin/connections` shows exactly these routes.
pub(super) async fn until_routes(relay: &RelayProcess, user: UserId, wanted: &[String]) {
    let mut wanted = wanted.to_vec();
    wanted.sort();
    until("the connections are those", || async { routes(relay, user).await == wanted }).await;
}

/// Waits until something is so.
pub(super) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so().await {
        assert!(Instant::now() < deadline, "not in time: {what}");
        sleep(POLL_INTERVAL).await;
    }
}
