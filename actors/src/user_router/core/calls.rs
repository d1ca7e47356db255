//! Requests of phones, responses of desktops, and what ends a request without a response (device-lane section 4).
//!
//! A registration commits within one step, so a request finds its route held by the old socket or by the new one, never in between:
//! of the cases of -32024 a replaced sender and the drain are left to this file.

use super::{
    Effects, UserCore, after,
    pending::{NewRecord, Record},
};
use crate::{
    counters::{Reply, Unanswered},
    drain::Phase,
    spans::{Outcome, Span},
    user_router::message::{DropReason, Effect, SocketId},
};
use relay_protocol::{
    contract::PendingClass,
    device::Presence,
    error::RpcRefusal,
    id::Route,
    rpc::{Call, RequestId, Response},
    trace_context::TraceParent,
};
use std::time::{Duration, Instant};

impl UserCore {
    /// Any request over a live connection keeps its session alive, whether it can be forwarded or not.
    pub(super) fn on_call(&mut self, now: Instant, socket: SocketId, call: Call, effects: &mut Effects) {
        let client = match self.routes.live(socket).map(|live| live.route) {
            Some(client @ Route::Phone { .. }) => client,
            None if self.routes.was_replaced(socket) => {
                // Its route is not kept: another socket has it.
                return self.refuse_call(now, (socket, None), &call, &RpcRefusal::AuthorityChanging, effects);
            }
            Some(Route::Desktop(_)) | None => return effects.push(Effect::Dropped(DropReason::StaleSocket)),
        };
        if self.config.drain.has_begun() {
            return self.refuse_call(now, (socket, Some(client)), &call, &RpcRefusal::AuthorityChanging, effects);
        }
        self.sessions.touch(&client, now);
        match self.file(now, client, &call) {
            Ok(desktop) => {
                let text = call.forward(&client, self.config.user);
                effects.push(Effect::Forward { socket: desktop, id: call.id, text });
            }
            Err(refusal) => self.refuse_call(now, (socket, Some(client)), &call, &refusal, effects),
        }
    }

    /// Answers a request that has no record.
    fn refuse_call(&self, now: Instant, from: (SocketId, Option<Route>), call: &Call, refusal: &RpcRefusal, effects: &mut Effects) {
        let (socket, client) = from;
        let Call { method, .. } = *call;
        self.config.counters.refusals.count(refusal.name());
        self.config.counters.rpc.unanswered(method.class, Unanswered::Refused);
        effects.push(Effect::Send { socket, text: refusal.to_text(&call.id_json()) });
        if let Some(trace) = self.trace_of(call) {
            let outcome = Outcome::of(Unanswered::Refused, refusal);
            let span = Span { trace, method, user: self.config.user, client, began: now, ended: now, outcome, delivered: true };
            effects.push(Effect::Record(Box::new(span)));
        }
    }

    /// Whose child the request's span is; none if it has no span.
    fn trace_of(&self, call: &Call) -> Option<TraceParent> {
        self.config.spans.as_ref()?;
        call.trace().filter(TraceParent::is_sampled)
    }

    /// Records the span of a request that had a record.
    fn record(&self, now: Instant, record: &Record, outcome: Outcome, phone: Option<SocketId>, effects: &mut Effects) {
        let Record { method, client, forwarded: began, .. } = *record;
        if let Some(trace) = record.trace {
            // Phones are closed before desktops, so what ends from then on reaches none of them.
            let delivered = phone.is_some() && self.config.drain.phase() < Phase::Closing;
            let span = Span { trace, method, user: self.config.user, client: Some(client), began, ended: now, outcome, delivered };
            effects.push(Effect::Record(Box::new(span)));
        }
    }

    /// Files a record for the request and names the desktop's socket.
    fn file(&mut self, now: Instant, client: Route, call: &Call) -> Result<SocketId, RpcRefusal> {
        let desktop = client.desktop();
        let Some(socket) = self.routes.socket_of(&Route::Desktop(desktop)) else {
            return Err(match self.statuses.presence(desktop) {
                Presence::Reconnecting => RpcRefusal::DesktopReconnecting,
                Presence::Online | Presence::Disconnected => RpcRefusal::DesktopOffline,
            });
        };
        let request = NewRecord {
            id: call.id.clone(),
            id_json: call.id_json(),
            client,
            fingerprint: call.fingerprint(&client, &self.config.hashing),
            method: call.method,
            trace: self.trace_of(call),
            forwarded: now,
            expires: after(now, self.record_life(call.method.pending)),
        };
        self.pending.insert(desktop, request, &self.config)?;
        Ok(socket)
    }

    fn record_life(&self, class: PendingClass) -> Duration {
        match class {
            PendingClass::Default => self.config.pending_default,
            PendingClass::Load => self.config.pending_load,
            PendingClass::Outbox => self.config.pending_outbox,
        }
    }

    /// A response counts only for a record of the connection that it came over, and only if it names that record's phone.
    pub(super) fn on_response(&mut self, now: Instant, socket: SocketId, response: &Response, effects: &mut Effects) {
        let Some(route) = self.routes.live(socket).map(|live| live.route) else {
            return effects.push(Effect::Dropped(DropReason::StaleSocket));
        };
        self.sessions.touch(&route, now);
        let desktop = match route {
            Route::Desktop(desktop) => desktop,
            Route::Phone { .. } => return effects.push(Effect::Dropped(DropReason::NoPendingRecord)),
        };
        let record = self.pending.get(desktop, &response.id).filter(|record| response.client == Some(record.client));
        let Some(record) = record else {
            return effects.push(Effect::Dropped(DropReason::NoPendingRecord));
        };
        let phone = self.routes.socket_of(&record.client);
        match phone {
            Some(socket) => effects.push(Effect::Send { socket, text: response.deliver(&record.id_json) }),
            None => effects.push(Effect::Dropped(DropReason::PhoneGone)),
        }
        if response.is_final
            && let Some(record) = self.pending.remove(desktop, &response.id)
        {
            let reply = if response.is_error() { Reply::Error } else { Reply::Result };
            self.config.counters.rpc.answered(record.method.class, reply, now.saturating_duration_since(record.forwarded));
            self.record(now, &record, Outcome::Answered(reply), phone, effects);
        }
    }

    pub(super) fn on_not_forwarded(&mut self, now: Instant, socket: SocketId, id: &RequestId, effects: &mut Effects) {
        let Some(Route::Desktop(desktop)) = self.routes.live(socket).map(|live| live.route) else { return };
        if let Some(record) = self.pending.remove(desktop, id) {
            self.refuse(now, &record, &RpcRefusal::DesktopMoved, Unanswered::NotTaken, effects);
        }
    }

    pub(super) fn expire_records(&mut self, now: Instant, effects: &mut Effects) {
        while let Some(record) = self.pending.pop_due(now) {
            self.refuse(now, &record, &RpcRefusal::Expired, Unanswered::Expired, effects);
        }
    }

    /// Answers requests whose desktop's connection has ended.
    pub(super) fn refuse_all(&self, now: Instant, records: &[Record], refusal: &RpcRefusal, effects: &mut Effects) {
        for record in records {
            self.refuse(now, record, refusal, Unanswered::DesktopLost, effects);
        }
    }

    /// Answers a request that has no record any more. The answer goes to whatever socket the phone's route has now.
    fn refuse(&self, now: Instant, record: &Record, refusal: &RpcRefusal, how: Unanswered, effects: &mut Effects) {
        self.config.counters.refusals.count(refusal.name());
        self.config.counters.rpc.unanswered(record.method.class, how);
        let phone = self.routes.socket_of(&record.client);
        match phone {
            Some(socket) => effects.push(Effect::Send { socket, text: refusal.to_text(&record.id_json) }),
            None => effects.push(Effect::Dropped(DropReason::PhoneGone)),
        }
        self.record(now, record, Outcome::of(how, refusal), phone, effects);
    }
}
