//! What the tables of the core share: frames and ids, without a relay.

use crate::frame::{DeviceStatus, Registered, Resume};
use relay_protocol::{
    device::Presence,
    id::{DeviceId, RelayInstanceId},
};
use std::time::Duration;

fn uuid(number: u128) -> String {
    uuid::Uuid::from_u128(number).to_string()
}

pub(super) fn instance(number: u128) -> RelayInstanceId {
    uuid(number).parse().unwrap()
}

/// The desktop of the tables.
pub(super) fn desktop() -> DeviceId {
    uuid(9).parse().unwrap()
}

/// The desktop's presence, as a process tells it.
pub(super) fn status(process: u128, revision: u64, status: Presence) -> DeviceStatus {
    DeviceStatus {
        device_id: desktop(),
        status,
        reason: None,
        at: None,
        revision: Some(revision),
        relay_instance_id: Some(instance(process)),
    }
}

/// The answer of a process to a registration, with the desktop's presence if it was ever heard of.
pub(super) fn registered(process: u128, revision: Option<u64>) -> Registered {
    Registered {
        resume: Resume { session_id: uuid(process).parse().unwrap(), resume_token: format!("token-{process}") },
        connection_id: uuid(7).parse().unwrap(),
        relay_instance_id: instance(process),
        expires_in: Duration::from_secs(60),
        target: revision.map(|revision| status(process, revision, Presence::Online)),
        resumed: false,
    }
}
