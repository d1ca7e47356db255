//! How connections end, and what each end means for requests, presence and sessions.

use super::{Effects, UserCore, presence::State, routes::Live};
use crate::user_router::message::{Effect, Now, SocketId, Whose};
use relay_protocol::{
    close::CloseReason,
    device::{Presence, PresenceReason},
    error::RpcRefusal,
    id::Route,
};

impl UserCore {
    /// Changes something only for the socket that holds its route now, or is about to: the close of a replaced one is late news.
    pub(super) fn on_socket_closed(&mut self, now: Now, socket: SocketId, effects: &mut Effects) {
        self.registrations.remove(socket);
        if let Some(live) = self.routes.close(socket) {
            self.on_connection_lost(now, live, PresenceReason::SocketClosed, effects);
        }
    }

    pub(super) fn on_retire(&mut self, now: Now, socket: SocketId, reason: CloseReason, effects: &mut Effects) {
        if self.registrations.remove(socket).is_some() {
            return effects.push(Effect::Close { socket, reason });
        }
        // A replaced socket has been told to close, and its requests are refused until it has.
        let Some(live) = self.routes.live(socket) else { return };
        self.routes.close(socket);
        effects.push(Effect::Close { socket, reason });
        if !reason.allows_resume() {
            self.sessions.end(&live.route);
        }
        self.on_connection_lost(now, live, presence_reason(reason), effects);
    }

    /// The device may come back: a desktop has the reconnect wait for it, a phone's requests stay open.
    fn on_connection_lost(&mut self, now: Now, live: Live, reason: PresenceReason, effects: &mut Effects) {
        match live.route {
            Route::Desktop(desktop) => {
                let Live { connection: generation, api_key, .. } = live;
                let records = self.pending.end(desktop);
                self.refuse_all(now.monotonic, &records, &RpcRefusal::DesktopReconnecting, effects);
                self.change_status(now.wall, desktop, State::Reconnecting { generation, api_key }, reason, effects);
                effects.push(Effect::ArmGrace { desktop, generation });
            }
            phone @ Route::Phone { .. } => self.on_phone_lost(now, phone, reason, effects),
        }
    }

    /// They may not come back: there is no wait, and one that runs ends. A registration whose look-up is running ends too, since the
    /// rows that it brings may be older than this.
    pub(super) fn on_close_all_of(&mut self, now: Now, whose: Whose, reason: CloseReason, effects: &mut Effects) {
        for socket in self.registrations.sockets_of(whose) {
            self.registrations.remove(socket);
            effects.push(Effect::Close { socket, reason });
        }
        if !reason.allows_resume() {
            self.sessions.end_all_of(whose);
        }
        let mut desktops = self.statuses.waiting_of(whose);
        for socket in self.routes.sockets_of(whose) {
            effects.push(Effect::Close { socket, reason });
            match self.routes.close(socket).map(|live| live.route) {
                Some(Route::Desktop(desktop)) => {
                    let records = self.pending.end(desktop);
                    self.refuse_all(now.monotonic, &records, &RpcRefusal::DesktopOffline, effects);
                    desktops.push(desktop);
                }
                Some(phone @ Route::Phone { .. }) => self.on_phone_lost(now, phone, presence_reason(reason), effects),
                None => {}
            }
        }
        // Told when all are closed, so that those who go are not told of each other.
        desktops.sort_unstable();
        for desktop in desktops {
            self.change_status(now.wall, desktop, State::Disconnected, presence_reason(reason), effects);
        }
    }

    /// Ends resume sessions and reconnect waits without a word, since devices go on at another process and tell their presence there.
    /// With a socket that has not ended nothing changes: its end is on the way.
    pub(super) fn on_clear(&mut self) {
        if self.routes.is_empty() && self.registrations.is_empty() {
            self.sessions.clear();
            self.statuses.clear();
        }
    }

    fn on_phone_lost(&mut self, now: Now, route: Route, reason: PresenceReason, effects: &mut Effects) {
        self.end_lease(now, route, effects);
        let phone = route.device();
        if !self.routes.is_phone_online(phone) {
            Self::write_phone_status(now.wall, phone, Presence::Disconnected, reason, effects);
        }
    }
}

/// What phones are told of a close. The device-lane page has no word for a revoked credential; it ends a login.
fn presence_reason(reason: CloseReason) -> PresenceReason {
    match reason {
        CloseReason::Silent => PresenceReason::Silent,
        CloseReason::Saturated => PresenceReason::Saturated,
        CloseReason::LoggedOut | CloseReason::Revoked => PresenceReason::LoggedOut,
        CloseReason::DeviceForgotten => PresenceReason::DeviceForgotten,
        CloseReason::NotEligible => PresenceReason::NotEligible,
        CloseReason::ProtocolViolation
        | CloseReason::Binary
        | CloseReason::NotUtf8
        | CloseReason::TooLarge
        | CloseReason::UnfinishedMessage
        | CloseReason::RelayDraining
        | CloseReason::ClosedByOperator
        | CloseReason::RegistrationTimeout
        | CloseReason::Replaced
        | CloseReason::RouterFailed => PresenceReason::SocketClosed,
    }
}
