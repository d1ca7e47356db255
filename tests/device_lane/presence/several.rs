//! C16: an account has several connections, and one of them closes.

use super::watch::{End, Watcher, desktop_socket, phone_route, phone_socket, presences, stored, until, until_routes};
use crate::support::{account::Account, raw_socket::RawSocket, relay_process::RelayProcess, scale::scaled};
use relay_protocol::{
    device::Presence::{Disconnected, Online, Reconnecting},
    id::DeviceId,
};

/// Every order of three.
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// One desktop and two phones that connect and close, a third phone that watches, and a desktop that never comes.
struct Household {
    relay: RelayProcess,
    account: Account,
    watcher: Watcher,
}

const DESKTOP: usize = 0;
const ABSENT: usize = 1;
const WATCHER: usize = 2;

impl Household {
    async fn start() -> Self {
        let relay = RelayProcess::start(&[]).await;
        let account = Account::new(&relay, 2, 3).await;
        let watcher = Watcher::connect(&account, WATCHER, ABSENT).await;
        Household { relay, account, watcher }
    }

    /// The desktop, then the two phones.
    fn devices(&self) -> [DeviceId; 3] {
        [self.account.desktops[DESKTOP], self.account.phones[0], self.account.phones[1]]
    }

    fn routes_of(&self, open: [bool; 3]) -> Vec<String> {
        let [desktop, phones @ ..] = self.devices();
        let all = [desktop.to_string(), phone_route(phones[0], desktop), phone_route(phones[1], desktop)];
        let watcher = phone_route(self.account.phones[WATCHER], self.account.desktops[ABSENT]);
        let open = all.into_iter().zip(open).filter(|(_, open)| *open).map(|(route, _)| route);
        open.chain([watcher]).collect()
    }

    async fn open_all(&mut self) -> [Option<RawSocket>; 3] {
        let desktop = desktop_socket(&self.account, DESKTOP).await;
        self.watcher.expect(self.account.desktops[DESKTOP], Online, "registered").await;
        let phones = [phone_socket(&self.account, 0, DESKTOP).await, phone_socket(&self.account, 1, DESKTOP).await];
        self.shows([true; 3]).await;
        assert_eq!(self.watcher.pending().await, [], "phones are not told of each other");
        let [first, second] = phones;
        [Some(desktop), Some(first), Some(second)]
    }

    /// `GET /api/devices` shows each device's own state, at once.
    async fn shows(&self, open: [bool; 3]) {
        let shown = presences(&self.account).await;
        let [desktop, phones @ ..] = self.devices();
        assert_eq!(shown[&desktop], if open[0] { Online } else { Reconnecting });
        assert_eq!(phones.map(|phone| shown[&phone]), [open[1], open[2]].map(|open| if open { Online } else { Disconnected }));
        assert_eq!((shown[&self.account.phones[WATCHER]], shown[&self.account.desktops[ABSENT]]), (Online, Disconnected));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_device_has_its_own_state_whatever_closes_first_and_however() {
    let mut home = Household::start().await;
    for (round, order) in ORDERS.into_iter().enumerate() {
        let mut sockets = home.open_all().await;
        let mut open = [true; 3];
        for (step, closing) in order.into_iter().enumerate() {
            let end = End::ALL[(round + step) % End::ALL.len()];
            end.apply(sockets[closing].take().unwrap()).await;
            open[closing] = false;
            until_routes(&home.relay, home.account.user, &home.routes_of(open)).await;
            home.shows(open).await;
            if closing == DESKTOP {
                home.watcher.expect(home.account.desktops[DESKTOP], Reconnecting, "socketClosed").await;
            }
            assert_eq!(home.watcher.pending().await, [], "{order:?}, {end:?}: one event per change");
        }
        until("what is stored follows", async || {
            let stored = stored(&home.account).await;
            home.devices().map(|device| stored[&device]) == [Reconnecting, Disconnected, Disconnected]
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_phone_with_two_routes_is_online_until_the_last_has_closed() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 2, 2).await;
    let (phone, marker) = (account.phones[0], account.phones[1]);
    let route = |desktop: usize| phone_route(phone, account.desktops[desktop]);
    for (first, last) in [(0, 1), (1, 0)] {
        for end in End::ALL {
            let mut sockets = [Some(phone_socket(&account, 0, 0).await), Some(phone_socket(&account, 0, 1).await)];
            assert_eq!(presences(&account).await[&phone], Online);
            end.apply(sockets[first].take().unwrap()).await;
            until_routes(&relay, account.user, &[route(last)]).await;
            assert_eq!(presences(&account).await[&phone], Online, "{end:?}");
            // Statuses are stored in the order of their changes: what a later one follows has been stored, if it was written at all.
            let marked = phone_socket(&account, 1, 0).await;
            until("the marker is stored", async || stored(&account).await[&marker] == Online).await;
            assert_eq!(stored(&account).await[&phone], Online, "{end:?}");
            drop(marked);
            until_routes(&relay, account.user, &[route(last)]).await;
            until("the marker is gone", async || stored(&account).await[&marker] == Disconnected).await;
            end.apply(sockets[last].take().unwrap()).await;
            until_routes(&relay, account.user, &[]).await;
            assert_eq!(presences(&account).await[&phone], Disconnected, "{end:?}");
            until("the phone is stored as gone", async || stored(&account).await[&phone] == Disconnected).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_connection_that_opens_and_closes_at_once_leaves_the_first_alone() {
    let mut home = Household::start().await;
    let [_desktop, _first, second] = home.open_all().await;
    drop(second);
    until_routes(&home.relay, home.account.user, &home.routes_of([true, true, false])).await;
    for round in 0..scaled(30, 500) {
        let flicker = phone_socket(&home.account, 1, DESKTOP).await;
        End::ALL[round % End::ALL.len()].apply(flicker).await;
    }
    until_routes(&home.relay, home.account.user, &home.routes_of([true, true, false])).await;
    home.shows([true, true, false]).await;
    assert_eq!(home.watcher.pending().await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_desktop_that_is_replaced_by_a_socket_that_closes_at_once_is_told_of_once() {
    let mut home = Household::start().await;
    let desktop = home.account.desktops[DESKTOP];
    for round in 0..scaled(12, 200) {
        let _replaced = desktop_socket(&home.account, DESKTOP).await;
        home.watcher.expect(desktop, Online, "registered").await;
        let flicker = desktop_socket(&home.account, DESKTOP).await;
        End::ALL[round % End::ALL.len()].apply(flicker).await;
        home.watcher.expect(desktop, Online, "registered").await;
        home.watcher.expect(desktop, Reconnecting, "socketClosed").await;
        until_routes(&home.relay, home.account.user, &home.routes_of([false; 3])).await;
        home.shows([false; 3]).await;
        assert_eq!(home.watcher.pending().await, []);
    }
}
