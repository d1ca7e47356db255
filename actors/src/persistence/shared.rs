//! What outlives one persistence actor: a panic ends the actor, but neither the statuses that storage does not have yet nor what
//! others see of storage.

use super::PersistenceState;
use crate::store::StatusWrite;
use relay_protocol::id::DeviceId;
use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};
use tokio::sync::watch;

/// Shared by a persistence actor, the one that takes its place, and those who send to them or look at them.
#[derive(Debug, Default)]
pub struct Shared {
    /// The newest status of each device that is not stored yet. Each was looked up, so the table of devices bounds it.
    unwritten: Mutex<BTreeMap<DeviceId, StatusWrite>>,
    state: watch::Sender<PersistenceState>,
}

impl Shared {
    /// Remembers a status until it is stored. To be called before the status is sent: an actor that starts in between gets it twice,
    /// and the newest of a device is always sent last.
    pub fn remember(&self, write: StatusWrite) {
        self.unwritten().insert(write.device, write);
    }

    /// What the actor is busy with, readable at any time without asking it.
    pub fn observe(&self) -> watch::Receiver<PersistenceState> {
        self.state.subscribe()
    }

    /// What an actor that starts has to write.
    pub(super) fn remembered(&self) -> Vec<StatusWrite> {
        self.unwritten().values().copied().collect()
    }

    /// These are stored. A newer status of the same device stays.
    pub(super) fn forget(&self, written: &[StatusWrite]) {
        let mut unwritten = self.unwritten();
        for write in written {
            if unwritten.get(&write.device) == Some(write) {
                unwritten.remove(&write.device);
            }
        }
    }

    pub(super) fn show(&self, state: PersistenceState) {
        self.state.send_replace(state);
    }

    fn unwritten(&self) -> MutexGuard<'_, BTreeMap<DeviceId, StatusWrite>> {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
