//! Live connections: which socket holds which route.

use crate::user_router::message::{SocketId, Whose};
use relay_protocol::id::{ApiKeyId, ConnectionId, DeviceId, Route};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// A registered socket that holds its route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Live {
    pub(super) route: Route,
    pub(super) connection: ConnectionId,
    /// The API key that opened the socket.
    pub(super) api_key: Option<ApiKeyId>,
}

#[derive(Debug, Default)]
pub(super) struct Routes {
    pub(super) by_socket: BTreeMap<SocketId, Live>,
    pub(super) by_route: BTreeMap<Route, SocketId>,
    /// Sockets that lost their route to a newer one and have not ended: their requests are refused, not ignored.
    pub(super) replaced: BTreeSet<SocketId>,
}

impl Routes {
    /// Gives the route to the socket. The socket that held it before is told apart from then on.
    pub(super) fn open(&mut self, socket: SocketId, live: Live) -> Option<SocketId> {
        self.by_socket.insert(socket, live);
        let old = self.by_route.insert(live.route, socket)?;
        self.by_socket.remove(&old);
        self.replaced.insert(old);
        Some(old)
    }

    /// Takes the route from the socket, if it holds one. A replaced socket is forgotten.
    pub(super) fn close(&mut self, socket: SocketId) -> Option<Live> {
        self.replaced.remove(&socket);
        let live = self.by_socket.remove(&socket)?;
        self.by_route.remove(&live.route);
        Some(live)
    }

    pub(super) fn live(&self, socket: SocketId) -> Option<Live> {
        self.by_socket.get(&socket).copied()
    }

    pub(super) fn was_replaced(&self, socket: SocketId) -> bool {
        self.replaced.contains(&socket)
    }

    pub(super) fn socket_of(&self, route: &Route) -> Option<SocketId> {
        self.by_route.get(route).copied()
    }

    /// Phone routes and their sockets.
    pub(super) fn phones(&self) -> impl Iterator<Item = (Route, SocketId)> {
        self.phones_from(DeviceId(Uuid::nil()))
    }

    pub(super) fn is_phone_online(&self, phone: DeviceId) -> bool {
        self.phones_from(phone).next().is_some_and(|(route, _)| route.device() == phone)
    }

    /// Their sockets, desktops before phones.
    pub(super) fn sockets_of(&self, whose: Whose) -> Vec<SocketId> {
        let is_of = |socket: &SocketId| self.live(*socket).is_some_and(|live| whose.includes(Some(live.route.device()), live.api_key));
        self.by_route.values().copied().filter(is_of).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.by_route.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_route.is_empty()
    }

    pub(super) fn replaced(&self) -> usize {
        self.replaced.len()
    }

    /// Phone routes from the first of this phone on; they sort by phone, behind all desktops.
    fn phones_from(&self, phone: DeviceId) -> impl Iterator<Item = (Route, SocketId)> {
        let first = Route::Phone { phone, desktop: DeviceId(Uuid::nil()) };
        self.by_route.range(first..).map(|(route, socket)| (*route, *socket))
    }
}
