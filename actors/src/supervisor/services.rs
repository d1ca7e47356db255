//! Where routers find the persistence actor. It may fail and be started anew, so the address is looked up, not kept for ever.

use crate::{
    mailbox,
    persistence::{Persistence, WriteStatus},
    store::StatusWrite,
};
use actix::Addr;
use std::sync::{Arc, PoisonError, RwLock};

/// The current addresses.
#[derive(Clone)]
pub struct Services {
    persistence: Arc<RwLock<Addr<Persistence>>>,
}

impl Services {
    /// Services whose persistence actor runs.
    pub fn new(persistence: Addr<Persistence>) -> Self {
        Services { persistence: Arc::new(RwLock::new(persistence)) }
    }

    /// The persistence actor that runs now.
    pub fn persistence(&self) -> Addr<Persistence> {
        self.persistence.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has a presence stored, some time.
    pub fn write_status(&self, write: StatusWrite) {
        mailbox::deliver(&*self.persistence.read().unwrap_or_else(PoisonError::into_inner), WriteStatus(write));
    }

    /// Puts a new persistence actor in the place of one that has failed.
    pub(super) fn replace_persistence(&self, fresh: Addr<Persistence>) {
        *self.persistence.write().unwrap_or_else(PoisonError::into_inner) = fresh;
    }
}
