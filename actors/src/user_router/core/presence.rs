//! What phones are told of desktops, and what is stored of both (device-lane section 5).

use super::{Effects, UserCore};
use crate::{
    clock::EpochMs,
    store::StatusWrite,
    user_router::message::{Effect, Whose},
};
use relay_protocol::{
    device::{Presence, PresenceReason},
    event,
    id::{ApiKeyId, ConnectionId, DeviceId, RelayInstanceId},
};
use serde::Serialize;
use std::collections::BTreeMap;

/// How many disconnected desktops are remembered with reason and time. An account has a handful; one that keeps registering and
/// forgetting devices must not make the router grow.
pub(super) const DISCONNECTED_MAX: usize = 64;

/// A desktop's state, with what proves that a late report is still about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Online,
    /// Its connection of this generation, opened with this key, closed, and the reconnect wait is running.
    Reconnecting {
        generation: ConnectionId,
        api_key: Option<ApiKeyId>,
    },
    Disconnected,
}

impl State {
    fn presence(self) -> Presence {
        match self {
            State::Online => Presence::Online,
            State::Reconnecting { .. } => Presence::Reconnecting,
            State::Disconnected => Presence::Disconnected,
        }
    }
}

/// A desktop's state as last broadcast.
#[derive(Clone, Copy, Debug)]
struct Status {
    state: State,
    reason: PresenceReason,
    at: EpochMs,
}

/// The payload of `device-status`, and the `target` of a phone's registration answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DeviceStatus {
    device_id: DeviceId,
    status: Presence,
    reason: PresenceReason,
    at: i64,
    revision: u64,
    relay_instance_id: RelayInstanceId,
}

#[derive(Debug)]
pub(super) struct Statuses {
    instance: RelayInstanceId,
    desktops: BTreeMap<DeviceId, Status>,
    /// Counts the changes of all desktops of the account, seen by a phone or not.
    revision: u64,
}

impl Statuses {
    pub(super) fn new(instance: RelayInstanceId, revision: u64) -> Self {
        Statuses { instance, desktops: BTreeMap::new(), revision }
    }

    pub(super) fn state(&self, desktop: DeviceId) -> State {
        self.desktops.get(&desktop).map_or(State::Disconnected, |status| status.state)
    }

    pub(super) fn presence(&self, desktop: DeviceId) -> Presence {
        self.state(desktop).presence()
    }

    /// A desktop's status now. One that this process has not seen reads like one whose wait has passed, since
    /// `disconnected` with `graceElapsed` is a pair that clients know.
    pub(super) fn of(&self, desktop: DeviceId, now: EpochMs) -> DeviceStatus {
        let unseen = Status { state: State::Disconnected, reason: PresenceReason::GraceElapsed, at: now };
        let Status { state, reason, at } = self.desktops.get(&desktop).copied().unwrap_or(unseen);
        DeviceStatus {
            device_id: desktop,
            status: state.presence(),
            reason,
            at: at.0,
            revision: self.revision,
            relay_instance_id: self.instance,
        }
    }

    /// Desktops that are not disconnected.
    pub(super) fn present(&self) -> impl Iterator<Item = (DeviceId, Presence)> {
        self.states().map(|(desktop, state)| (desktop, state.presence())).filter(|(_, presence)| *presence != Presence::Disconnected)
    }

    pub(super) fn states(&self) -> impl Iterator<Item = (DeviceId, State)> {
        self.desktops.iter().map(|(desktop, status)| (*desktop, status.state))
    }

    pub(super) fn waiting(&self) -> usize {
        self.present().filter(|(_, presence)| *presence == Presence::Reconnecting).count()
    }

    /// Their desktops within the reconnect wait.
    pub(super) fn waiting_of(&self, whose: Whose) -> Vec<DeviceId> {
        let is_of = |desktop, state| matches!(state, State::Reconnecting { api_key, .. } if whose.includes(Some(desktop), api_key));
        self.states().filter(|&(desktop, state)| is_of(desktop, state)).map(|(desktop, _)| desktop).collect()
    }

    pub(super) fn clear(&mut self) {
        self.desktops.clear();
    }

    fn change(&mut self, desktop: DeviceId, status: Status) {
        self.revision = self.revision.saturating_add(1);
        self.desktops.insert(desktop, status);
        let disconnected = || self.desktops.iter().filter(|(_, status)| status.state == State::Disconnected);
        if disconnected().count() > DISCONNECTED_MAX
            && let Some(oldest) = disconnected().min_by_key(|(_, status)| status.at).map(|(desktop, _)| *desktop)
        {
            self.desktops.remove(&oldest);
        }
    }
}

impl UserCore {
    /// Takes a desktop's new state, tells every connected phone of the account, and has it stored if presence changed with it: a
    /// replacement is told, but nothing began.
    pub(super) fn change_status(&mut self, now: EpochMs, desktop: DeviceId, state: State, reason: PresenceReason, effects: &mut Effects) {
        let before = self.statuses.presence(desktop);
        self.statuses.change(desktop, Status { state, reason, at: now });
        let text = event::of_relay(event::DEVICE_STATUS, &self.statuses.of(desktop, now));
        for (_, socket) in self.routes.phones() {
            effects.push(Effect::Send { socket, text: text.clone() });
        }
        if before != state.presence() {
            effects.push(Effect::WriteStatus(StatusWrite { device: desktop, status: state.presence(), reason, at: now }));
        }
    }

    /// Has a phone's presence stored. Phones are not told of each other.
    pub(super) fn write_phone_status(now: EpochMs, phone: DeviceId, status: Presence, reason: PresenceReason, effects: &mut Effects) {
        effects.push(Effect::WriteStatus(StatusWrite { device: phone, status, reason, at: now }));
    }

    /// Only the wait of the last closed generation counts: a desktop may have come back, and gone again, since this one began.
    pub(super) fn on_grace_elapsed(&mut self, now: EpochMs, desktop: DeviceId, generation: ConnectionId, effects: &mut Effects) {
        if matches!(self.statuses.state(desktop), State::Reconnecting { generation: waits, .. } if waits == generation) {
            self.change_status(now, desktop, State::Disconnected, PresenceReason::GraceElapsed, effects);
        }
    }
}
