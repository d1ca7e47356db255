//! `GET /metrics` of the admin listener, in the text format of Prometheus.
//!
//! The relay keeps plain atomics of its own and writes the text itself: the sets of labels are enums of the code, so the families of a
//! client library, which find a series by its labels' text behind a lock, would only add a look-up to each frame. What goes up and down
//! is read when it is asked for, from where it is kept anyway.

mod process;
mod text;

pub use process::ProcessFigures;

use crate::{
    http::{Api, auth::Operator, only},
    tls::Certificate,
};
use actix_web::{
    HttpResponse,
    web::{self, ServiceConfig},
};
use relay_actors::{
    counters::{BUCKETS_MS, Counters, Reply, Tally, Unanswered},
    drain::Phase,
    persistence::Statement,
    processes::SeenProcesses,
    push::Kind,
    readings::{Events, Readings},
    user_router::message::DropReason,
};
use relay_protocol::{
    contract::{self, MethodClass},
    error::{BoundScope, RpcRefusal},
    push::Provider,
};
use std::time::Duration;
use text::{CONTENT_TYPE, Text};

pub(super) fn routes(config: &mut ServiceConfig) {
    config.service(web::resource("/metrics").get(metrics).default_service(only("GET")));
}

/// Everything that the text is made of.
pub struct Scraped<'a> {
    /// Since the start.
    pub counters: &'a Counters,
    /// Now.
    pub readings: &'a Readings,
    /// How far the process is with leaving.
    pub phase: Phase,
    /// The relay processes of this storage.
    pub processes: &'a SeenProcesses,
    /// Handshakes that were refused, by the code of the answer.
    pub handshakes_refused: &'a Tally,
    /// End of the public listener's certificate, since 1970; none without TLS.
    pub certificate_end: Option<Duration>,
    /// Of the kernel, if it tells.
    pub process: Option<ProcessFigures>,
}

async fn metrics(_: Operator, api: web::Data<Api>) -> HttpResponse {
    // The listener of operators has a thread of its own, so that listing descriptors delays nobody's frames.
    let (counters, readings, processes) = (api.relay.counters(), api.relay.readings(), api.relay.processes());
    let scraped = Scraped {
        counters: &counters,
        readings: &readings,
        phase: api.relay.progress().phase,
        processes: &processes,
        handshakes_refused: api.handshakes.refused(),
        certificate_end: api.certificate.as_ref().and_then(Certificate::not_after),
        process: ProcessFigures::read(),
    };
    HttpResponse::Ok().content_type(CONTENT_TYPE).body(scraped.to_text())
}

impl Scraped<'_> {
    /// The whole answer.
    pub fn to_text(&self) -> String {
        let mut text = Text::default();
        self.process_state(&mut text);
        self.connections(&mut text);
        self.requests(&mut text);
        self.frames(&mut text);
        self.queues(&mut text);
        self.persistence(&mut text);
        self.pushes(&mut text);
        if let Some(end) = self.certificate_end {
            text.gauge("relay_tls_certificate_expiry_seconds", "End of the certificate's validity, in seconds since 1970.")
                .is(end.as_secs());
        }
        if let Some(process) = self.process {
            process.write(&mut text);
        }
        text.finish()
    }

    fn process_state(&self, text: &mut Text) {
        let (protocol, _) = contract::protocol_versions();
        let version = [("version", env!("CARGO_PKG_VERSION")), ("protocol", protocol)];
        text.gauge("relay_build_info", "Always 1; what runs is in the labels.").series(&version, 1);
        let phases = Phase::ALL.map(|phase| (phase.as_str(), u8::from(phase == self.phase)));
        text.gauge("relay_drain_phase", "1 for the phase in which the process is.").by("phase", phases);
        let (serving, draining) = self.processes.by_phase();
        let processes = [(Phase::Serving.as_str(), serving), (Phase::Draining.as_str(), draining)];
        text.gauge("relay_processes", "Relay processes that use this storage, this one among them, by phase.").by("phase", processes);
        let counters = self.counters;
        text.counter("relay_router_failures_total", "Routers that ended by a panic.").is(counters.routers_failed.get());
        text.counter("relay_persistence_restarts_total", "Persistence actors that ended by a panic and were started anew.")
            .is(counters.persistence_restarted.get());
    }

    fn connections(&self, text: &mut Text) {
        let Scraped { counters, readings, .. } = self;
        let by_role = [("desktop", readings.desktops), ("mobile", readings.phones)];
        text.gauge("relay_connections", "Registered sockets, by role.").by("role", by_role);
        text.gauge("relay_unregistered_sockets", "Open sockets without a registration.").is(readings.unregistered);
        text.gauge("relay_accounts", "Accounts with live state: a connection, a reconnect wait or a resume session.").is(readings.accounts);
        text.counter("relay_handshakes_refused_total", "Upgrade requests that were refused, by the code of the answer.")
            .by("code", self.handshakes_refused.read());
        text.counter("relay_registrations_total", "Registrations, by what became of them.").by("outcome", counters.registrations.read());
        text.counter("relay_retired_total", "Connections that the relay gave up, by reason.").by("reason", counters.retired.read());
        text.counter("relay_closes_total", "Sockets that have ended, by reason.").by("reason", counters.closed.read());
        text.counter("relay_kills_total", "TCP connections that had to be ended from outside of their actor.").is(counters.killed.get());
    }

    fn requests(&self, text: &mut Text) {
        let Scraped { counters, readings, .. } = self;
        let replies = [(Reply::Result, "result"), (Reply::Error, "error")];
        let mut requests = text.counter("relay_rpc_requests_total", "Requests of known methods that have ended, by class and outcome.");
        for class in MethodClass::ALL {
            for (reply, outcome) in replies {
                let count = counters.rpc.histogram(class, reply).read().count();
                requests.series(&[("class", class.name()), ("outcome", outcome)], count);
            }
            for how in Unanswered::ALL {
                requests.series(&[("class", class.name()), ("outcome", how.name())], counters.rpc.count_unanswered(class, how));
            }
        }
        let mut durations = text.histogram("relay_rpc_duration_seconds", "Time from the hand-over of a request to its final response.");
        for class in MethodClass::ALL {
            for (reply, outcome) in replies {
                let read = counters.rpc.histogram(class, reply).read();
                let labels = [("class", class.name()), ("outcome", outcome)];
                durations.distribution(&labels, &BUCKETS_MS, &read.cumulative, read.sum.as_secs_f64());
            }
        }
        text.gauge("relay_open_requests", "Requests that wait for their answer.").is(readings.open_requests);
        let bounds = BoundScope::ALL.map(BoundScope::name);
        text.gauge("relay_open_requests_limit", "How many there may be, by bound.")
            .by("bound", bounds.into_iter().zip(readings.open_requests_max));
        text.gauge("relay_open_requests_peak", "The most that were open at once since the start, by bound.")
            .by("bound", BoundScope::ALL.map(|scope| (scope.name(), counters.open_peaks.get(scope))));
        let mut refusals = text.counter("relay_refusals_total", "Requests that the relay answered itself, by reason and JSON-RPC code.");
        for refusal in &RpcRefusal::ALL {
            let (reason, code) = (refusal.name(), refusal.code().to_string());
            refusals.series(&[("reason", reason), ("code", &code)], counters.refusals.get(reason));
        }
        text.counter("relay_trace_spans_total", "Spans of requests that have ended, by fate.").by("fate", counters.spans.read());
    }

    fn frames(&self, text: &mut Text) {
        let Scraped { counters, readings, .. } = self;
        let Events { delivered, coalesced, lease_ended, closed } = readings.events;
        let [no_lease, stale_generation] =
            [DropReason::NoLease, DropReason::StaleGeneration].map(|reason| counters.dropped.get(reason.name()));
        let fates = [
            ("delivered", delivered),
            ("coalesced", coalesced),
            ("noLease", no_lease + lease_ended),
            ("staleGeneration", stale_generation),
            ("connectionClosed", closed),
        ];
        text.counter("relay_event_frames_total", "Events of desktops, for each phone, by fate.").by("fate", fates);
        let dropped = [DropReason::NoPendingRecord, DropReason::PhoneGone, DropReason::StaleSocket];
        text.counter("relay_dropped_frames_total", "Other frames that were dropped without an answer, by reason.")
            .by("reason", dropped.map(|reason| (reason.name(), counters.dropped.get(reason.name()))));
        text.counter("relay_frame_errors_total", "Frames that were answered with an error frame, by code.")
            .by("code", counters.frame_errors.read());
        text.counter("relay_rate_limited_total", "Messages and pings of phones that were over their rate and were dropped.")
            .is(counters.rate_limited.get());
        text.gauge("relay_leases", "Phones with a timeline lease.").is(readings.leases);
    }

    fn queues(&self, text: &mut Text) {
        let readings = self.readings;
        text.gauge("relay_mailbox_messages", "Messages of sockets that wait for their account's router.").is(readings.mailbox_messages);
        text.gauge("relay_mailbox_messages_largest", "Those of the account that has most.").is(readings.mailbox_messages_largest);
        text.gauge("relay_outbound_bytes", "Bytes that wait in outbound lanes.").is(readings.outbound.held);
        text.gauge("relay_outbound_bytes_limit", "How many may.").is(readings.outbound.max);
        text.gauge("relay_inbound_bytes", "Bytes of messages that are unfinished or wait for a router.").is(readings.inbound.held);
        text.gauge("relay_inbound_bytes_limit", "How many may.").is(readings.inbound.max);
    }

    fn persistence(&self, text: &mut Text) {
        let readings = self.readings;
        text.gauge("relay_persistence_lookups_open", "Look-ups of registrations that storage has not answered.").is(readings.lookups_open);
        text.gauge("relay_persistence_statuses_unwritten", "Devices whose newest status is not stored.").is(readings.statuses_unwritten);
        text.gauge("relay_persistence_lag_seconds", "How long the one that has waited longest has waited.")
            .is(readings.status_lag.as_secs_f64());
        let failing = Statement::ALL.map(|statement| (statement.as_str(), u8::from(readings.failing.contains(&statement))));
        text.gauge("relay_persistence_failing", "1 while the last run of the statement has failed.").by("statement", failing);
    }

    fn pushes(&self, text: &mut Text) {
        let push = &self.counters.push;
        text.counter("relay_push_notifications_total", "Alerts that desktops asked for, by outcome.")
            .by("outcome", push.notifications.read());
        text.counter("relay_push_desktop_online_total", "Registrations of desktops that had been gone, by what phones are told.")
            .by("outcome", push.hints.read());
        let mut ended = text.counter("relay_pushes_total", "Pushes that have ended, by provider, kind and fate.");
        for provider in Provider::ALL {
            for kind in Kind::ALL {
                for (fate, count) in push.of(provider, kind).read() {
                    ended.series(&[("provider", provider.as_str()), ("kind", kind.name()), ("fate", fate)], count);
                }
            }
        }
        text.counter("relay_push_retries_total", "Tries of pushes that failed and are repeated, by provider.")
            .by("provider", push.retries.read());
        let mut waiting = text.gauge("relay_push_queue", "Pushes that wait for their provider, by provider and kind.");
        for provider in Provider::ALL {
            let queue = push.queue(provider);
            for (kind, gauge) in [(Kind::Alert, &queue.alerts), (Kind::Silent, &queue.silents)] {
                waiting.series(&[("provider", provider.as_str()), ("kind", kind.name())], gauge.get());
            }
        }
        text.gauge("relay_push_in_flight", "Pushes that the provider is being asked to take.")
            .by("provider", Provider::ALL.map(|provider| (provider.as_str(), push.queue(provider).in_flight.get())));
        text.gauge("relay_push_paused", "1 while nothing is sent because the provider fails.")
            .by("provider", Provider::ALL.map(|provider| (provider.as_str(), push.queue(provider).paused.get())));
        text.counter("relay_push_restarts_total", "Push actors that ended by a panic and were started anew.").is(push.restarted.get());
    }
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
