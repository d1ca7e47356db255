//! C14: a desktop came back on a new socket before the old one's end arrived. That end is late news, however it comes.

use super::watch::{Watcher, desktop_socket_through, presences, until_routes};
use crate::support::{
    PATIENCE,
    account::Account,
    raw_socket::{RawSocket, Received},
    relay_process::RelayProcess,
    running_desktop::RunningDesktop,
    stall_proxy::{Network, StallProxy},
};
use relay_endpoints::desktop::SampleRouter;
use relay_protocol::device::Presence;
use std::time::Duration;
use tokio::time::Instant;

/// How long the old end is held back: the case says two seconds, by which time the relay has ended the replaced socket from its side;
/// a short one meets it while it is still there.
const HELD_BACK: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(2)];

struct Replaced {
    relay: RelayProcess,
    account: Account,
    watcher: Watcher,
    proxy: StallProxy,
    old: RawSocket,
    _new: RunningDesktop,
}

impl Replaced {
    /// A desktop registered through a network that then did this, and again past it.
    async fn start(network: Network, flags: &[&str]) -> Self {
        let relay = RelayProcess::start(flags).await;
        let account = Account::new(&relay, 1, 1).await;
        let mut watcher = Watcher::connect(&account, 0, 0).await;
        let proxy = StallProxy::start(relay.ready().public).await;
        let mut old = desktop_socket_through(&proxy, &account, 0).await;
        watcher.expect(account.desktops[0], Presence::Online, "registered").await;
        proxy.set(network);
        if network == Network::HoldsFins {
            old.finish_writing().await;
        }
        let (new, _registered) = RunningDesktop::start(account.desktop(0), SampleRouter).await;
        // The replacement is told, since the session behind the desktop may be a new one; it was never away.
        watcher.expect(account.desktops[0], Presence::Online, "registered").await;
        Replaced { relay, account, watcher, proxy, old, _new: new }
    }

    /// Calls without a pause for this long; each call reaches the new socket.
    async fn call_throughout(&mut self, duration: Duration) {
        let end = Instant::now() + duration;
        while Instant::now() < end {
            assert_eq!(self.watcher.call().await, Ok(()), "the new socket answers");
        }
    }

    /// Nothing was told of the old socket's end, which is over, and the new socket is there alone.
    async fn only_the_new_one_is_left(&mut self) {
        let desktop = self.account.desktops[0];
        let phone = super::watch::phone_route(self.account.phones[0], desktop);
        until_routes(&self.relay, self.account.user, &[desktop.to_string(), phone]).await;
        assert_eq!(self.watcher.call().await, Ok(()));
        assert_eq!(self.watcher.pending().await, []);
        assert_eq!(presences(&self.account).await[&desktop], Presence::Online);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_back_fin_of_the_old_socket_changes_nothing() {
    for held_back in HELD_BACK {
        let mut case = Replaced::start(Network::HoldsFins, &[]).await;
        assert_eq!(case.old.closed(PATIENCE).await, Some((4002, "replaced".to_owned())));
        case.call_throughout(held_back).await;
        case.proxy.set(Network::Works);
        // The relay's own FIN comes back: its side of the old socket has ended.
        assert_eq!(case.old.read(PATIENCE).await, Received::End);
        case.only_the_new_one_is_left().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_of_the_old_socket_changes_nothing() {
    for held_back in HELD_BACK {
        let mut case = Replaced::start(Network::Stalls, &[]).await;
        case.call_throughout(held_back).await;
        case.proxy.reset();
        case.only_the_new_one_is_left().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_silence_of_the_old_socket_changes_nothing() {
    let silence = Duration::from_secs(1);
    let mut case = Replaced::start(Network::Stalls, &["--heartbeat-interval", "200ms", "--silence-timeout", "1s"]).await;
    // The old socket would have been found silent by then; so would the new one, did its answers to pings not count for it.
    case.call_throughout(2 * silence).await;
    case.only_the_new_one_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_return_at_the_moment_of_silence_is_never_shown_the_wrong_way_round() {
    let relay = RelayProcess::start(&["--heartbeat-interval", "100ms", "--silence-timeout", "800ms"]).await;
    let account = Account::new(&relay, 1, 1).await;
    let desktop = account.desktops[0];
    let mut watcher = Watcher::connect(&account, 0, 0).await;
    for late_by in (0..12).map(|step| Duration::from_millis(750 + 20 * step)) {
        let proxy = StallProxy::start(relay.ready().public).await;
        let _old = desktop_socket_through(&proxy, &account, 0).await;
        watcher.expect(desktop, Presence::Online, "registered").await;
        proxy.set(Network::Stalls);
        tokio::time::sleep(late_by).await;
        let (new, _registered) = RunningDesktop::start(account.desktop(0), SampleRouter).await;
        until_routes(&relay, account.user, &[desktop.to_string(), super::watch::phone_route(account.phones[0], desktop)]).await;

        // Found silent before the return, or replaced by it. Nothing follows the return.
        let mut told: Vec<_> = watcher.pending().await.into_iter().map(|event| (event.status, event.reason.unwrap())).collect();
        assert_eq!(told.pop(), Some((Presence::Online, "registered".to_owned())));
        assert!(told.is_empty() || told == [(Presence::Reconnecting, "silent".to_owned())], "{late_by:?}: {told:?}");
        assert_eq!(watcher.call().await, Ok(()));
        new.stop().await;
        watcher.expect(desktop, Presence::Reconnecting, "socketClosed").await;
    }
}
