//! C17: ends that come twice, at once, or in the wrong order. Each connection is removed once, and nothing stays behind.

use super::watch::{Watcher, desktop_socket, desktop_socket_through, phone_route, phone_socket, presences, until, until_routes};
use crate::support::{
    PATIENCE,
    account::Account,
    raw_socket::Frame,
    relay_process::RelayProcess,
    scale::scaled,
    stall_proxy::{Network, StallProxy},
};
use relay_protocol::{
    device::Presence::{Disconnected, Online, Reconnecting},
    device::Role,
};
use std::time::Duration;

const SILENCE_TIMEOUT: Duration = Duration::from_millis(800);
const SHORT_SILENCE: [&str; 6] = ["--heartbeat-interval", "100ms", "--silence-timeout", "800ms", "--reconnect-grace", "300ms"];
/// A desktop that never comes: what the watching phone is bound to.
const ABSENT: usize = 1;

struct Case {
    relay: RelayProcess,
    account: Account,
    watcher: Watcher,
}

impl Case {
    async fn start(flags: &[&str]) -> Self {
        let relay = RelayProcess::start(flags).await;
        let account = Account::new(&relay, 2, 2).await;
        let watcher = Watcher::connect(&account, 0, ABSENT).await;
        Case { relay, account, watcher }
    }

    async fn only_the_watcher_is_left(&self) {
        until_routes(&self.relay, self.account.user, &[phone_route(self.account.phones[0], self.account.desktops[ABSENT])]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missed_heartbeat_and_the_tcp_close_after_it_remove_a_desktop_once() {
    let mut case = Case::start(&SHORT_SILENCE).await;
    let desktop = case.account.desktops[0];
    for round in 0..scaled(6, 60) {
        let proxy = StallProxy::start(case.relay.ready().public).await;
        let _socket = desktop_socket_through(&proxy, &case.account, 0).await;
        case.watcher.expect(desktop, Online, "registered").await;
        proxy.set(Network::Stalls);
        case.watcher.expect(desktop, Reconnecting, "silent").await;
        // While the relay's own close lingers.
        if round % 2 == 0 {
            proxy.cut();
        } else {
            proxy.reset();
        }
        case.watcher.expect(desktop, Disconnected, "graceElapsed").await;
        case.only_the_watcher_is_left().await;
        assert_eq!(case.watcher.pending().await, []);
        assert_eq!(presences(&case.account).await[&desktop], Disconnected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tcp_close_at_the_moment_of_silence_removes_a_desktop_once() {
    let mut case = Case::start(&SHORT_SILENCE).await;
    let desktop = case.account.desktops[0];
    for late_by in (0..10).map(|step| Duration::from_millis(20 * step)) {
        let proxy = StallProxy::start(case.relay.ready().public).await;
        let _socket = desktop_socket_through(&proxy, &case.account, 0).await;
        case.watcher.expect(desktop, Online, "registered").await;
        proxy.set(Network::Stalls);
        tokio::time::sleep(SILENCE_TIMEOUT - Duration::from_millis(50) + late_by).await;
        proxy.cut();
        let event = case.watcher.next().await;
        let reason = event.reason.unwrap();
        assert!(event.status == Reconnecting && (reason == "silent" || reason == "socketClosed"), "{:?} {reason}", event.status);
        case.watcher.expect(desktop, Disconnected, "graceElapsed").await;
        case.only_the_watcher_is_left().await;
        assert_eq!(case.watcher.pending().await, []);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_close_frame_with_a_reset_behind_it_removes_a_connection_once() {
    let mut case = Case::start(&["--reconnect-grace", "300ms"]).await;
    let (desktop, phone) = (case.account.desktops[0], case.account.phones[1]);
    for _round in 0..scaled(10, 200) {
        let mut of_desktop = desktop_socket(&case.account, 0).await;
        let mut of_phone = phone_socket(&case.account, 1, 0).await;
        case.watcher.expect(desktop, Online, "registered").await;
        for socket in [&mut of_desktop, &mut of_phone] {
            socket.frame(&Frame::close(1000, "bye")).await;
        }
        of_desktop.reset();
        of_phone.reset();
        case.watcher.expect(desktop, Reconnecting, "socketClosed").await;
        case.only_the_watcher_is_left().await;
        let shown = presences(&case.account).await;
        assert_eq!(shown[&phone], Disconnected);
        case.watcher.expect(desktop, Disconnected, "graceElapsed").await;
        assert_eq!(case.watcher.pending().await, []);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_is_forgotten_while_it_closes_is_gone_once_and_for_good() {
    let mut case = Case::start(&["--reconnect-grace", "2s"]).await;
    for round in 0..scaled(12, 200) {
        let desktop = case.account.add(Role::Desktop).await;
        case.account.desktops.push(desktop);
        let mut socket = desktop_socket(&case.account, case.account.desktops.len() - 1).await;
        case.watcher.expect(desktop, Online, "registered").await;
        let devices = case.account.devices();
        let closing = async {
            socket.frame(&Frame::close(1000, "bye")).await;
            if round % 3 == 0 {
                socket.reset();
            } else {
                drop(socket);
            }
        };
        if round % 2 == 0 {
            closing.await;
            devices.forget(desktop).await.unwrap();
        } else {
            let (forgotten, ()) = tokio::join!(devices.forget(desktop), closing);
            forgotten.unwrap();
        }

        // Its socket closed first, or it was forgotten first.
        let mut event = case.watcher.next().await;
        if event.status == Reconnecting {
            assert_eq!((event.device_id, event.reason.as_deref()), (desktop, Some("socketClosed")));
            event = case.watcher.next().await;
        }
        assert_eq!((event.device_id, event.status, event.reason.as_deref()), (desktop, Disconnected, Some("deviceForgotten")));
        case.only_the_watcher_is_left().await;
        assert!(!presences(&case.account).await.contains_key(&desktop));
    }
    // Waits pass in the order in which they began: after a later one, the earlier ones have nothing more to say.
    drop(desktop_socket(&case.account, 0).await);
    for (status, reason) in [(Online, "registered"), (Reconnecting, "socketClosed"), (Disconnected, "graceElapsed")] {
        case.watcher.expect(case.account.desktops[0], status, reason).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ends_of_every_kind_at_once_leave_nothing_behind() {
    let mut case = Case::start(&SHORT_SILENCE).await;
    let descriptors_before = case.relay.descriptors();
    for _round in 0..scaled(3, 30) {
        let lost = case.account.add(Role::Desktop).await;
        let forgotten = case.account.add(Role::Desktop).await;
        case.account.desktops.extend([lost, forgotten]);
        let newest = case.account.desktops.len() - 1;
        let proxy = StallProxy::start(case.relay.ready().public).await;
        let lost_socket = desktop_socket_through(&proxy, &case.account, newest - 1).await;
        let mut phone = phone_socket(&case.account, 1, 0).await;
        let mut forgotten_socket = desktop_socket(&case.account, newest).await;
        proxy.set(Network::Stalls);
        while case.watcher.next().await.status != Reconnecting {}

        // These two send nothing either, so the relay may be closing them by now.
        for socket in [&mut phone, &mut forgotten_socket] {
            socket.try_write(&Frame::close(1000, "").encode(), PATIENCE).await;
        }
        let devices = case.account.devices();
        let (done, ()) = tokio::join!(devices.forget(forgotten), async {
            phone.reset();
            proxy.cut();
            drop((forgotten_socket, lost_socket));
        });
        done.unwrap();
        case.only_the_watcher_is_left().await;
        until("the silent one's wait has passed", async || presences(&case.account).await[&lost] == Disconnected).await;
        let told = case.watcher.pending().await;
        for device in [lost, forgotten] {
            let last = told.iter().rfind(|event| event.device_id == device);
            assert!(last.is_none_or(|event| event.status == Disconnected), "{device}");
        }
        devices.forget(lost).await.unwrap();
    }
    // Sockets of HTTP calls come and go; one left over per round would show.
    until("the sockets are closed", async || case.relay.descriptors() <= descriptors_before + 2).await;
}
