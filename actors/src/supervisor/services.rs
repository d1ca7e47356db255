//! Where routers find the persistence actor. It may fail and be started anew, so the address is looked up, not kept for ever.

use crate::{
    clock::EpochMs,
    mailbox,
    persistence::{Persistence, PersistenceState, ReconcileStale, Shared, WriteStatus},
    store::StatusWrite,
};
use actix::Addr;
use std::sync::{Arc, PoisonError, RwLock};

/// The current addresses.
#[derive(Clone)]
pub struct Services {
    persistence: Arc<RwLock<Addr<Persistence>>>,
    shared: Arc<Shared>,
}

impl Services {
    /// Services whose persistence actor runs, and what it shares with those that may follow it.
    pub fn new(persistence: Addr<Persistence>, shared: Arc<Shared>) -> Self {
        Services { persistence: Arc::new(RwLock::new(persistence)), shared }
    }

    /// The persistence actor that runs now.
    pub fn persistence(&self) -> Addr<Persistence> {
        self.persistence.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has a presence stored, some time.
    pub fn write_status(&self, write: StatusWrite) {
        self.shared.remember(write);
        mailbox::deliver(&*self.persistence.read().unwrap_or_else(PoisonError::into_inner), WriteStatus(write));
    }

    /// Has the statuses ended that processes which are gone have left.
    pub fn end_stale_statuses(&self) {
        mailbox::deliver(&self.persistence(), ReconcileStale { at: EpochMs::now() });
    }

    /// What the persistence actor is busy with.
    pub fn persistence_state(&self) -> PersistenceState {
        self.shared.observe().borrow().clone()
    }

    /// Puts a new persistence actor in the place of one that has failed.
    pub(super) fn replace_persistence(&self, fresh: Addr<Persistence>) {
        *self.persistence.write().unwrap_or_else(PoisonError::into_inner) = fresh;
    }
}
