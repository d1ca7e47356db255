//! C19: a desktop that was killed, or whose network swallows everything, can be removed without its help, and stays removed.

use super::watch::{Watcher, phone_route, presences, until_routes};
use crate::support::{
    PATIENCE,
    account::Account,
    desktop_process::{desktop_command, start_desktop_process},
    raw_socket::{RawOptions, RawSocket},
    relay_process::RelayProcess,
    stall_proxy::{Network, StallProxy},
};
use relay_endpoints::devices::NewDevice;
use relay_protocol::{
    device::{
        Presence::{Disconnected, Online, Reconnecting},
        Role,
    },
    id::DeviceId,
};
use serde_json::{Value, json};
use std::{process::Stdio, time::Duration};
use tokio::time::{Instant, timeout};

const GRACE: Duration = Duration::from_secs(2);
const SILENCE: Duration = Duration::from_secs(2);
const FLAGS: [&str; 6] = ["--reconnect-grace", "2s", "--silence-timeout", "2s", "--heartbeat-interval", "200ms"];

/// When the account removes a device that no longer answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    StillOnline,
    Reconnecting,
    Offline,
}

/// An account whose desktop is going to be lost, and the phone that calls it.
struct Case {
    relay: RelayProcess,
    account: Account,
    watcher: Watcher,
}

impl Case {
    async fn start() -> Self {
        let relay = RelayProcess::start(&FLAGS).await;
        let account = Account::new(&relay, 1, 1).await;
        let watcher = Watcher::connect(&account, 0, 0).await;
        Case { relay, account, watcher }
    }

    fn desktop(&self) -> DeviceId {
        self.account.desktops[0]
    }

    /// Waits until the phone has been told how far the loss has come.
    async fn lost(&mut self, when: When, reason: &str) {
        let desktop = self.desktop();
        if when == When::StillOnline {
            return;
        }
        self.watcher.expect(desktop, Reconnecting, reason).await;
        if when == When::Offline {
            self.watcher.expect(desktop, Disconnected, "graceElapsed").await;
        }
    }

    /// Removes it, and shows that it is gone for everybody.
    async fn remove(&mut self, when: When) {
        let desktop = self.desktop();
        let shown = match when {
            When::StillOnline => Online,
            When::Reconnecting => Reconnecting,
            When::Offline => Disconnected,
        };
        assert_eq!(presences(&self.account).await[&desktop], shown);
        let asked = Instant::now();
        self.account.devices().forget(desktop).await.unwrap();
        if when != When::Offline {
            self.watcher.expect(desktop, Disconnected, "deviceForgotten").await;
        }
        // Long before the relay would have found out by itself.
        assert!(asked.elapsed() < SILENCE, "{:?}: somebody waited for the device", asked.elapsed());
        assert!(!presences(&self.account).await.contains_key(&desktop));
        assert_eq!(self.watcher.call().await, Err(-32010), "offline for good, {when:?}");
        assert_eq!(self.watcher.pending().await, [], "and nothing more is told of it");
        let gone = self.account.devices().forget(desktop).await.unwrap_err();
        assert!(gone.to_string().contains("deviceNotFound"), "{gone}");
    }

    async fn only_the_phone_is_left(&self) {
        until_routes(&self.relay, self.account.user, &[phone_route(self.account.phones[0], self.desktop())]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_desktop_process_that_was_killed_is_removed_without_its_help() {
    for when in [When::Reconnecting, When::Offline] {
        let mut case = Case::start().await;
        let desktop = case.desktop();
        let mut process = start_desktop_process(&case.account).await;
        case.watcher.expect(desktop, Online, "registered").await;
        assert_eq!(case.watcher.call().await, Ok(()));
        let killed = Instant::now();
        process.kill().await.unwrap();
        case.lost(when, "socketClosed").await;
        match when {
            When::Offline => assert!(killed.elapsed() >= GRACE, "offline before the wait was over"),
            When::StillOnline | When::Reconnecting => assert!(killed.elapsed() < GRACE, "the kernel told of its end at once"),
        }
        case.remove(when).await;
        case.only_the_phone_is_left().await;
        // Started again under the same id it is told that it is no more, and ends.
        let again = desktop_command(&case.account).stdout(Stdio::null()).stderr(Stdio::piped()).output();
        let again = timeout(PATIENCE, again).await.expect("it gives up").unwrap();
        assert_eq!(again.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&again.stderr).contains("deviceNotFound"), "{again:?}");
        assert_eq!(case.watcher.call().await, Err(-32010));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_desktop_whose_network_swallows_everything_is_removed_without_its_help() {
    for when in [When::StillOnline, When::Reconnecting, When::Offline] {
        let mut case = Case::start().await;
        let desktop = case.desktop();
        let proxy = StallProxy::start(case.relay.ready().public).await;
        let direct = RawOptions::device_link(&case.account.address, &case.account.token, Role::Desktop, None);
        let mut socket = RawSocket::open(&RawOptions { address: proxy.address(), ..direct.clone() }).await;
        let session = socket.register(desktop).await;
        case.watcher.expect(desktop, Online, "registered").await;
        proxy.set(Network::Stalls);
        let stalled = Instant::now();
        case.lost(when, "silent").await;
        let least = match when {
            When::StillOnline => Duration::ZERO,
            When::Reconnecting => SILENCE,
            When::Offline => SILENCE + GRACE,
        };
        // The last thing that it sent may be a heartbeat old.
        assert!(stalled.elapsed() + SILENCE / 4 >= least, "given up after {:?}", stalled.elapsed());
        case.remove(when).await;
        case.only_the_phone_is_left().await;

        // Neither its id nor its session is good for anything, also when somebody registers the id anew.
        let resume = json!({"sessionId": session["sessionId"], "resumeToken": session["resumeToken"]});
        assert_eq!(register(&direct, desktop, &resume).await, "deviceNotFound");
        assert_eq!(register(&direct, desktop, &json!({})).await, "deviceNotFound");
        let device = NewDevice {
            device_id: Some(desktop),
            role: Role::Desktop,
            device_name: "anew".to_owned(),
            platform: "linux".to_owned(),
            app_version: "1".to_owned(),
            relay_eligible: None,
        };
        case.account.devices().register(&device).await.unwrap();
        assert_eq!(register(&direct, desktop, &resume).await, "invalidResume");
        assert_eq!(register(&direct, desktop, &json!({})).await, "registered");

        // What the old socket finds when its network is back is an end.
        proxy.set(Network::Works);
        let end = socket.closed(PATIENCE).await.map(|(code, _)| code);
        assert!(matches!(end, None | Some(1008 | 4004)), "{end:?}");
    }
}

/// Registers on a socket of its own: the answer's type, or the error's code.
async fn register(options: &RawOptions, device: DeviceId, resume: &Value) -> String {
    let mut payload = json!({"deviceId": device, "relayProtocolVersion": "1.7"});
    payload.as_object_mut().unwrap().extend(resume.as_object().unwrap().clone());
    let mut socket = RawSocket::open(options).await;
    socket.text(&json!({"type": "register", "payload": payload}).to_string()).await;
    let answer: Value = serde_json::from_str(&socket.next_text().await).unwrap();
    answer["payload"]["code"].as_str().or(answer["type"].as_str()).unwrap().to_owned()
}
