//! Where routers find the persistence actor and the push actor. Each may fail and be started anew, so its address is looked up, not kept
//! for ever.

use crate::{
    clock::EpochMs,
    counters::Counters,
    mailbox::{self, Refused},
    persistence::{Persistence, PersistenceState, ReconcileStale, Shared, WriteStatus},
    push::{DesktopOnline, HintFate, Notify, Push},
    store::StatusWrite,
};
use actix::Addr;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

/// The current addresses.
#[derive(Clone)]
pub struct Services {
    persistence: Arc<RwLock<Addr<Persistence>>>,
    shared: Arc<Shared>,
    /// None until it has been started, which needs the rest of this.
    push: Arc<RwLock<Option<Addr<Push>>>>,
    counters: Arc<Counters>,
}

impl Services {
    /// Services whose persistence actor runs, and what it shares with those that may follow it.
    pub(super) fn new(persistence: Addr<Persistence>, shared: Arc<Shared>, counters: Arc<Counters>) -> Self {
        Services { persistence: Arc::new(RwLock::new(persistence)), shared, push: Arc::default(), counters }
    }

    /// The push actor that runs now; none before the first.
    pub fn push(&self) -> Option<Addr<Push>> {
        self.kept_push().clone()
    }

    /// Has the account's phones told of a desktop, if there is room for that.
    pub fn tell_phones(&self, message: DesktopOnline) {
        let is_taken = self.kept_push().as_ref().is_some_and(|push| mailbox::offer(push, message).is_ok());
        if !is_taken {
            self.counters.push.hints.count(HintFate::Overloaded.name());
        }
    }

    /// Hands an alert over, if there is room for it.
    ///
    /// # Errors
    /// There is none; it comes back.
    pub fn notify(&self, message: Notify) -> Result<(), Box<Notify>> {
        match self.kept_push().as_ref() {
            Some(push) => mailbox::offer(push, message).map_err(|refused| match refused {
                Refused::Full(message) | Refused::Gone(message) => Box::new(message),
            }),
            None => Err(Box::new(message)),
        }
    }

    /// The one address that is kept: a clone of it has a place in the mailbox of its own.
    fn kept_push(&self) -> RwLockReadGuard<'_, Option<Addr<Push>>> {
        self.push.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a push actor in the place of the one before, if there was one.
    pub(super) fn replace_push(&self, fresh: Addr<Push>) {
        *self.push.write().unwrap_or_else(PoisonError::into_inner) = Some(fresh);
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
