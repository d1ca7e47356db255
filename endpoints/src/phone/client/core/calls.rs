//! The open calls of a client, over any number of links: when each is sent, sent again, answered, or given up. Pure: time and chance
//! are arguments.
//!
//! The relay keeps a request's record while its phone is away, so a call stays open over a gap and is never sent again because of
//! one: an answer that comes later is the call's, and one that was lost in the gap is missed until the deadline. Only an answer that
//! says `retryable` lets a call be sent again.

use super::{
    super::failure::Failure,
    retry::{Budget, Retries},
};
use crate::{
    backoff::Backoff,
    frame::{IncomingResponse, Outcome, OutgoingRequest, RpcError, encode, kind},
    phone::Request,
    trace::Traceparent,
};
use rand::{RngExt, rngs::StdRng};
use relay_protocol::{
    contract::{self, Platform},
    error::RpcRefusal,
};
use serde_json::value::RawValue;
use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};
use tokio::time::Instant;
use uuid::Builder;

/// Whose call it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Owner {
    /// The program's: calls are numbered in the order in which it started them.
    Program(u64),
    /// The client asks whether the desktop is there.
    Ping,
    /// The client loads the latest window of the watched session.
    Window,
}

/// What happens to a call.
#[derive(Debug)]
pub(super) enum CallEvent {
    /// The request's frame is to be sent.
    Send(String),
    /// An answer that is not the last.
    Progress(Owner, Outcome),
    /// The end of the call.
    Done(Owner, Result<Box<RawValue>, Failure>),
}

#[derive(Debug)]
pub(super) struct Calls {
    retries: Retries,
    platform: Platform,
    budget: Budget,
    is_linked: bool,
    open: BTreeMap<Owner, Open>,
    /// The calls that wait for an answer, by what the answer will name.
    by_id: HashMap<String, Owner>,
}

#[derive(Debug)]
struct Open {
    request: Request,
    id: String,
    phase: Phase,
    patience: Duration,
    deadline: Instant,
    backoff: Backoff,
    retries_left: u32,
    /// The latest refusal that was no end.
    refused: Option<RpcError>,
}

#[derive(Debug, PartialEq, Eq)]
enum Phase {
    /// Until there is a link.
    Held,
    /// Until there is an answer.
    Sent,
    /// Until it may be sent again.
    Pausing(Instant),
}

impl Calls {
    pub(super) fn new(now: Instant, retries: Retries, platform: Platform) -> Self {
        let (open, by_id) = (BTreeMap::new(), HashMap::new());
        Calls { retries, platform, budget: Budget::new(now, retries), is_linked: false, open, by_id }
    }

    /// Opens a call, which is sent at once if there is a link. What its request leaves open is made up, and stays the same when it is
    /// sent again, but for an id.
    pub(super) fn start(&mut self, now: Instant, owner: Owner, mut request: Request, rng: &mut StdRng, out: &mut Vec<CallEvent>) {
        let id = request.id.clone().unwrap_or_else(|| fresh_id(rng));
        if self.by_id.contains_key(&id) || self.open.values().any(|open| open.request.id.as_ref() == Some(&id)) {
            return out.push(CallEvent::Done(owner, Err(Failure::DuplicateId)));
        }
        let is_mutation = contract::find(&request.method).is_some_and(|method| method.mutation);
        if is_mutation && request.idempotency_key.is_none() {
            request.idempotency_key = Some(fresh_id(rng));
        }
        request.traceparent.get_or_insert_with(|| Traceparent::random(rng).to_string());
        let patience = *request.deadline.get_or_insert_with(|| contract::phone_deadline(&request.method, self.platform));
        let retries_left = match owner {
            // Whether to ask again is decided by what else is known of the desktop.
            Owner::Ping => 0,
            Owner::Program(_) | Owner::Window => self.retries.per_call,
        };
        let backoff = Backoff::new(self.retries.backoff);
        let open = Open { request, id, phase: Phase::Held, patience, deadline: now + patience, backoff, retries_left, refused: None };
        self.open.insert(owner, open);
        self.send_if_linked(owner, out);
    }

    /// Nobody waits for it any longer.
    pub(super) fn forget(&mut self, owner: Owner) {
        if let Some(open) = self.open.remove(&owner) {
            self.by_id.remove(&open.id);
        }
    }

    /// The phone is registered. Another process than before knows nothing of what was sent then.
    pub(super) fn on_registered(&mut self, is_other_process: bool, out: &mut Vec<CallEvent>) {
        self.is_linked = true;
        if is_other_process {
            for owner in self.in_phase(&Phase::Sent) {
                self.finish(owner, Err(Failure::ReplyLost), out);
            }
        }
    }

    /// Sends what was asked while there was no link.
    pub(super) fn send_held(&mut self, out: &mut Vec<CallEvent>) {
        for owner in self.in_phase(&Phase::Held) {
            self.send_if_linked(owner, out);
        }
    }

    fn in_phase(&self, phase: &Phase) -> Vec<Owner> {
        self.open.iter().filter(|(_, open)| open.phase == *phase).map(|(owner, _)| *owner).collect()
    }

    /// What was sent stays open.
    pub(super) fn on_link_ended(&mut self) {
        self.is_linked = false;
    }

    pub(super) fn on_response(&mut self, now: Instant, response: IncomingResponse, rng: &mut StdRng, out: &mut Vec<CallEvent>) {
        let Some(&owner) = self.by_id.get(&response.id) else {
            return tracing::debug!(id = response.id, "an answer that nobody waits for");
        };
        match response.outcome {
            progress if !response.is_final => out.push(CallEvent::Progress(owner, progress)),
            Outcome::Result(result) => self.finish(owner, Ok(result), out),
            // The first one with this id is still running, and its answer will come under it.
            Outcome::Error(error) if error.code == i64::from(RpcRefusal::DuplicateRequest.code()) => {
                tracing::debug!(id = response.id, "the request is running already");
            }
            Outcome::Error(error) => match self.pause(now, owner, &error, rng) {
                Some(until) => self.on_pause(owner, until, error),
                None => self.finish(owner, Err(Failure::of_refusal(error)), out),
            },
        }
    }

    /// Until when to wait before the request is sent again; `None` if it is not.
    fn pause(&mut self, now: Instant, owner: Owner, error: &RpcError, rng: &mut StdRng) -> Option<Instant> {
        let open = self.open.get_mut(&owner)?;
        if !error.retryable || open.retries_left == 0 {
            return None;
        }
        let until = now + open.backoff.next_wait(rng);
        // A call that cannot be sent again in time is told at once why.
        if until >= open.deadline || !self.budget.take(now) {
            return None;
        }
        open.retries_left -= 1;
        Some(until)
    }

    fn on_pause(&mut self, owner: Owner, until: Instant, error: RpcError) {
        if let Some(open) = self.open.get_mut(&owner) {
            self.by_id.remove(&open.id);
            open.phase = Phase::Pausing(until);
            open.refused = Some(error);
        }
    }

    /// When [`Calls::on_timeout`] has something to do.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.open.values().map(Open::due).min()
    }

    pub(super) fn on_timeout(&mut self, now: Instant, rng: &mut StdRng, out: &mut Vec<CallEvent>) {
        let due: Vec<Owner> = self.open.iter().filter(|(_, open)| open.due() <= now).map(|(owner, _)| *owner).collect();
        for owner in due {
            let Some(open) = self.open.get_mut(&owner) else { continue };
            if open.deadline <= now {
                let failure = open.overdue();
                self.finish(owner, Err(failure), out);
                continue;
            }
            // What became of the former request may be unknown, so an answer to it must not be taken for one to this.
            open.id = open.request.id.clone().unwrap_or_else(|| fresh_id(rng));
            open.phase = Phase::Held;
            self.send_if_linked(owner, out);
        }
    }

    /// Ends all.
    pub(super) fn end(&mut self, why: &Failure, out: &mut Vec<CallEvent>) {
        self.by_id.clear();
        out.extend(std::mem::take(&mut self.open).into_keys().map(|owner| CallEvent::Done(owner, Err(why.clone()))));
    }

    fn send_if_linked(&mut self, owner: Owner, out: &mut Vec<CallEvent>) {
        let Some(open) = self.open.get_mut(&owner).filter(|_| self.is_linked) else { return };
        open.phase = Phase::Sent;
        self.by_id.insert(open.id.clone(), owner);
        out.push(CallEvent::Send(open.frame()));
    }

    fn finish(&mut self, owner: Owner, result: Result<Box<RawValue>, Failure>, out: &mut Vec<CallEvent>) {
        self.forget(owner);
        out.push(CallEvent::Done(owner, result));
    }
}

impl Open {
    fn due(&self) -> Instant {
        match self.phase {
            Phase::Held | Phase::Sent => self.deadline,
            Phase::Pausing(until) => until.min(self.deadline),
        }
    }

    /// What the deadline means where it finds the call.
    fn overdue(&self) -> Failure {
        match (&self.phase, &self.refused) {
            (Phase::Sent, _) => Failure::TimedOut(self.patience),
            (Phase::Held | Phase::Pausing(_), Some(refused)) => Failure::of_refusal(refused.clone()),
            (Phase::Held | Phase::Pausing(_), None) => Failure::NotSent(self.patience),
        }
    }

    fn frame(&self) -> String {
        let Request { method, params, idempotency_key, traceparent, .. } = &self.request;
        let request = OutgoingRequest {
            id: &self.id,
            method,
            params: params.as_deref(),
            idempotency_key: idempotency_key.as_deref(),
            traceparent: traceparent.as_deref().unwrap_or_default(),
        };
        encode(kind::RPC_REQUEST, &request)
    }
}

fn fresh_id(rng: &mut StdRng) -> String {
    Builder::from_random_bytes(rng.random()).into_uuid().to_string()
}
