//! Resume sessions: one per route, in memory only, proved by a token that is kept as a hash (device-lane section 3).

use super::after;
use crate::user_router::message::Whose;
use relay_protocol::{
    id::{ApiKeyId, Route, SessionId},
    register::ResumeClaim,
};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};
use subtle::ConstantTimeEq;

#[derive(Debug)]
pub(super) struct Session {
    id: SessionId,
    token_hash: [u8; 32],
    /// The API key of the registration that began or last resumed it.
    pub(super) api_key: Option<ApiKeyId>,
    pub(super) expires: Instant,
}

#[derive(Debug)]
pub(super) struct Sessions {
    ttl: Duration,
    pub(super) by_route: BTreeMap<Route, Session>,
    /// No session expires before this. Each RPC moves an expiry, so the bound is raised only when it has come.
    pub(super) next_sweep: Option<Instant>,
}

impl Sessions {
    pub(super) fn new(ttl: Duration) -> Self {
        Sessions { ttl, by_route: BTreeMap::new(), next_sweep: None }
    }

    /// Begins the route's session; the one before, if any, can no longer be resumed.
    pub(super) fn begin(&mut self, route: Route, id: SessionId, token: &str, api_key: Option<ApiKeyId>, now: Instant) {
        let expires = after(now, self.ttl);
        self.by_route.insert(route, Session { id, token_hash: hash(token), api_key, expires });
        self.next_sweep = Some(self.next_sweep.map_or(expires, |sweep| sweep.min(expires)));
    }

    /// Whether the claim is right; if so, the session lives on from now, under this key. A wrong claim changes nothing. Expired sessions
    /// have been swept before.
    pub(super) fn resume(&mut self, route: &Route, claim: &ResumeClaim, api_key: Option<ApiKeyId>, now: Instant) -> bool {
        let Some(session) = self.by_route.get_mut(route).filter(|session| session.id == claim.session) else { return false };
        if !bool::from(session.token_hash.as_slice().ct_eq(hash(&claim.token).as_slice())) {
            return false;
        }
        session.expires = after(now, self.ttl);
        session.api_key = api_key;
        true
    }

    /// An RPC came over the route.
    pub(super) fn touch(&mut self, route: &Route, now: Instant) {
        if let Some(session) = self.by_route.get_mut(route) {
            session.expires = after(now, self.ttl);
        }
    }

    pub(super) fn end(&mut self, route: &Route) {
        self.by_route.remove(route);
        self.forget_sweep_if_empty();
    }

    /// Ends the sessions that they hold themselves, not those of phones with their desktops.
    pub(super) fn end_all_of(&mut self, whose: Whose) {
        self.by_route.retain(|route, session| !whose.includes(Some(route.device()), session.api_key));
        self.forget_sweep_if_empty();
    }

    pub(super) fn clear(&mut self) {
        self.by_route.clear();
        self.forget_sweep_if_empty();
    }

    pub(super) fn sweep(&mut self, now: Instant) {
        if self.next_sweep.is_some_and(|sweep| sweep <= now) {
            self.by_route.retain(|_, session| session.expires > now);
            self.next_sweep = self.by_route.values().map(|session| session.expires).min();
        }
    }

    pub(super) fn next_sweep(&self) -> Option<Instant> {
        self.next_sweep
    }

    pub(super) fn len(&self) -> usize {
        self.by_route.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_route.is_empty()
    }

    fn forget_sweep_if_empty(&mut self) {
        if self.by_route.is_empty() {
            self.next_sweep = None;
        }
    }
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}
