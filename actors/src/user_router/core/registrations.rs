//! Registration: from a `register` frame to a route, or to the first check that fails (device-lane section 3).

use super::{
    Effects, UserCore,
    presence::{DeviceStatus, State},
    routes::Live,
};
use crate::user_router::message::{Effect, Fresh, Now, SocketId, Unavailable, Whose};
use relay_protocol::{
    close::CloseReason,
    contract,
    device::{DeviceFacts, Presence, PresenceReason, Role},
    error::{RegisterError, RpcRefusal},
    id::{ApiKeyId, ConnectionId, RelayInstanceId, Route, SessionId, UserId},
    register::{Claim, Register},
    text::Text,
    version::Version,
};
use serde::Serialize;
use std::collections::BTreeMap;

/// A registration whose look-up is running.
#[derive(Debug)]
pub(super) struct Registration {
    pub(super) role: Role,
    pub(super) header_target: Option<String>,
    pub(super) register: Box<Register>,
    pub(super) fresh: Fresh,
    pub(super) api_key: Option<ApiKeyId>,
}

/// Registrations in progress, one per socket.
#[derive(Debug, Default)]
pub(super) struct Registrations {
    pub(super) by_socket: BTreeMap<SocketId, Registration>,
}

impl Registrations {
    pub(super) fn remove(&mut self, socket: SocketId) -> Option<Registration> {
        self.by_socket.remove(&socket)
    }

    /// The sockets on which they are registering.
    pub(super) fn sockets_of(&self, whose: Whose) -> Vec<SocketId> {
        let is_of = |registration: &Registration| whose.includes(registration.register.device_id.parse().ok(), registration.api_key);
        self.by_socket.iter().filter(|(_, registration)| is_of(registration)).map(|(socket, _)| *socket).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.by_socket.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_socket.is_empty()
    }
}

/// The payload of `registered` and `resumed`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    session_id: SessionId,
    resume_token: &'a str,
    expires_at: i64,
    expires_in_ms: u64,
    connection_id: ConnectionId,
    relay_instance_id: RelayInstanceId,
    relay_protocol_version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<DeviceStatus>,
}

impl UserCore {
    /// Refused once the process has begun to leave; a registration whose look-up was running by then may still be decided.
    ///
    /// A socket that is registered, was replaced, or waits for a look-up sends no second registration: its own layer refuses that.
    /// One that came all the same is ignored, so that every look-up is answered to the registration that asked for it.
    pub(super) fn on_register(&mut self, socket: SocketId, registration: Registration, effects: &mut Effects) {
        let is_known =
            self.registrations.by_socket.contains_key(&socket) || self.routes.live(socket).is_some() || self.routes.was_replaced(socket);
        if is_known {
            return;
        }
        if self.config.drain.has_begun() {
            return self.refuse_registration(socket, &RegisterError::RelayDraining, effects);
        }
        let Registration { role, header_target, register, .. } = &registration;
        if let Err(error) = register.version() {
            return self.refuse_registration(socket, &error, effects);
        }
        effects.push(Effect::LookUp { socket, devices: register.devices_to_look_up(*role, header_target.as_deref()) });
        self.registrations.by_socket.insert(socket, registration);
    }

    pub(super) fn on_looked_up(
        &mut self,
        now: Now,
        socket: SocketId,
        required: Result<Version, Unavailable>,
        devices: Result<Vec<DeviceFacts>, Unavailable>,
        effects: &mut Effects,
    ) {
        let Some(registration) = self.registrations.remove(socket) else { return };
        let outcome = judge(self.config.user, &registration, required, devices)
            .and_then(|claim| Ok((claim.route, self.settle_session(now, claim, registration)?)));
        match outcome {
            Ok((route, session)) => self.take_route(now, socket, route, &session, effects),
            Err(error) => self.refuse_registration(socket, &error, effects),
        }
    }

    fn refuse_registration(&self, socket: SocketId, error: &RegisterError, effects: &mut Effects) {
        self.config.counters.registrations.count(error.code());
        effects.push(Effect::NotRegistered { socket, answer: error.to_text() });
    }

    /// The last check: resumes the session that the claim names, or begins a new one.
    fn settle_session(&mut self, now: Now, claim: Claim, registration: Registration) -> Result<Settled, RegisterError> {
        let Registration { fresh: Fresh { connection, session, token }, api_key, .. } = registration;
        match claim.resume? {
            Some(resume) if self.sessions.resume(&claim.route, &resume, api_key, now.monotonic) => {
                Ok(Settled { kind: "resumed", connection, session: resume.session, token: resume.token, api_key })
            }
            Some(_) => Err(RegisterError::InvalidResume),
            None => {
                self.sessions.begin(claim.route, session, &token, api_key, now.monotonic);
                Ok(Settled { kind: "registered", connection, session, token, api_key })
            }
        }
    }

    /// Gives the route to the socket. The older socket is closed first; the answer leaves when routing knows the new one.
    fn take_route(&mut self, now: Now, socket: SocketId, route: Route, settled: &Settled, effects: &mut Effects) {
        self.config.counters.registrations.count(settled.kind);
        let connection = settled.connection;
        let was_online = self.routes.is_phone_online(route.device());
        if let Some(old) = self.routes.open(socket, Live { route, connection, api_key: settled.api_key }) {
            self.end_lease(now, route, effects);
            effects.push(Effect::Close { socket: old, reason: CloseReason::Replaced });
        }
        if let Route::Desktop(desktop) = route {
            let records = self.pending.begin(desktop, connection);
            self.refuse_all(now.monotonic, &records, &RpcRefusal::DesktopReconnecting, effects);
        }
        effects.push(Effect::Registered { socket, connection, route, answer: self.answer(now, route, settled) });
        match route {
            Route::Desktop(desktop) => {
                self.tell_of_all(now, desktop, effects);
                let had_gone = self.statuses.presence(desktop) == Presence::Disconnected;
                self.change_status(now.wall, desktop, State::Online, PresenceReason::Registered, effects);
                if had_gone {
                    effects.push(Effect::DesktopOnline { desktop, at: now.wall });
                }
            }
            Route::Phone { phone, .. } if !was_online => {
                Self::write_phone_status(now.wall, phone, Presence::Online, PresenceReason::Registered, effects);
            }
            Route::Phone { .. } => {}
        }
    }

    fn answer(&self, now: Now, route: Route, settled: &Settled) -> Text {
        let target = match route {
            Route::Desktop(_) => None,
            Route::Phone { desktop, .. } => Some(self.statuses.of(desktop, now.wall)),
        };
        let ttl = self.config.resume_ttl;
        let answer = Answer {
            session_id: settled.session,
            resume_token: &settled.token,
            expires_at: now.wall.plus(ttl).0,
            expires_in_ms: u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX),
            connection_id: settled.connection,
            relay_instance_id: self.config.instance,
            relay_protocol_version: contract::protocol_versions().0,
            target,
        };
        Text::envelope(settled.kind, &answer)
    }
}

/// The session of a registration that passed every check.
struct Settled {
    kind: &'static str,
    connection: ConnectionId,
    session: SessionId,
    token: String,
    api_key: Option<ApiKeyId>,
}

/// The checks between the version's syntax and the session, in their order.
fn judge(
    user: UserId,
    registration: &Registration,
    required: Result<Version, Unavailable>,
    devices: Result<Vec<DeviceFacts>, Unavailable>,
) -> Result<Claim, RegisterError> {
    let Registration { role, header_target, register, .. } = registration;
    let required = required.as_ref().map_err(|Unavailable| RegisterError::RelayProtocolPolicyUnavailable);
    let claim = register.claim(*role, header_target.as_deref(), required)?;
    let rows = devices.map_err(|Unavailable| RegisterError::DeviceLookupUnavailable)?;
    claim.check_rows(user, *role, &rows)?;
    Ok(claim)
}
