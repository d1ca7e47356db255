//! All decisions of the persistence actor: what is asked of storage when, and who is answered what.
//!
//! Invariants: at most one read of devices, one read of rules and one write in flight; each look-up and each flush is
//! answered exactly once; a status leaves the queue only when it is stored or replaced by a newer one of its device.

mod backoff;
mod lookups;
mod policy;
#[cfg(test)]
mod tests;
mod writes;

use super::{LookedUp, PersistenceConfig, PersistenceState, PolicyUnavailable};
use crate::{
    clock::EpochMs,
    store::{MinimumProtocolRule, StatusWrite, StoreError},
};
use lookups::Lookups;
use policy::Policy;
use relay_protocol::{device::DeviceFacts, id::DeviceId};
use std::{
    collections::{BTreeMap, VecDeque, btree_map::Entry},
    time::{Duration, Instant},
};
use writes::Writes;

/// One asker of a look-up. Grows with each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct RequestId(pub(super) u64);

/// One asker of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FlushId(pub(super) u64);

/// One run of a statement. Never reused, so that an answer to another run changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StatementId(pub(super) u64);

/// The statements that the actor runs, for logs and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Statement {
    /// Reads device rows.
    Devices,
    /// Reads the rules that set a minimum protocol version.
    Rules,
    /// Writes statuses.
    Statuses,
    /// Ends the statuses that an earlier process left.
    Stale,
}

impl Statement {
    /// Every statement.
    pub const ALL: [Statement; 4] = [Statement::Devices, Statement::Rules, Statement::Statuses, Statement::Stale];

    /// A word for logs and metric labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Statement::Devices => "devices",
            Statement::Rules => "rules",
            Statement::Statuses => "statuses",
            Statement::Stale => "stale",
        }
    }
}

#[derive(Debug)]
pub(super) enum Input {
    LookUp { request: RequestId, devices: Vec<DeviceId> },
    WriteStatus(StatusWrite),
    ReconcileStale { at: EpochMs },
    Flush { flush: FlushId },
    DevicesRead { statement: StatementId, result: Result<Vec<DeviceFacts>, StoreError> },
    RulesRead { statement: StatementId, result: Result<Vec<MinimumProtocolRule>, StoreError> },
    StatusesWritten { statement: StatementId, result: Result<(), StoreError> },
    StaleEnded { statement: StatementId, result: Result<u64, StoreError> },
    Timeout,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    ReadDevices {
        statement: StatementId,
        devices: Vec<DeviceId>,
    },
    ReadRules {
        statement: StatementId,
    },
    WriteStatuses {
        statement: StatementId,
        writes: Vec<StatusWrite>,
    },
    EndStale {
        statement: StatementId,
        at: EpochMs,
    },
    AnswerLookUp {
        request: RequestId,
        answer: LookedUp,
    },
    AnswerFlush {
        flush: FlushId,
    },
    /// The first failure of a statement that had not failed before.
    ReportFailing {
        statement: Statement,
        cause: String,
    },
    /// The first success after failures.
    ReportRecovered {
        statement: Statement,
        failing_for: Duration,
    },
    ReportStaleEnded {
        devices: u64,
    },
}

pub(super) type Effects = VecDeque<Effect>;

pub(super) struct Core {
    lookups: Lookups,
    policy: Policy,
    writes: Writes,
    flushes: Vec<FlushId>,
    failing: BTreeMap<Statement, Instant>,
    last_statement: StatementId,
}

impl Core {
    pub(super) fn new(config: &PersistenceConfig) -> Self {
        Core {
            lookups: Lookups::new(config),
            policy: Policy::new(config),
            writes: Writes::new(config),
            flushes: Vec::new(),
            failing: BTreeMap::new(),
            last_statement: StatementId(0),
        }
    }

    pub(super) fn handle(&mut self, now: Instant, input: Input, out: &mut Effects) {
        // First, whatever the input: at its deadline a look-up is unavailable, even if the answer comes at that very time.
        self.lookups.expire(now, out);
        match input {
            Input::LookUp { request, devices } => self.on_look_up(now, request, devices, out),
            Input::WriteStatus(write) => self.writes.queue_status(now, write),
            Input::ReconcileStale { at } => self.writes.queue_stale(at),
            Input::Flush { flush } => self.flushes.push(flush),
            Input::DevicesRead { statement, result } => self.on_devices_read(now, statement, result, out),
            Input::RulesRead { statement, result } => self.on_rules_read(now, statement, result, out),
            Input::StatusesWritten { statement, result } => self.on_statuses_written(now, statement, result, out),
            Input::StaleEnded { statement, result } => self.on_stale_ended(now, statement, result, out),
            Input::Timeout => {}
        }
        self.start_statements(now, out);
        self.answer_flushes(out);
    }

    /// When to call [`Core::handle`] with `Timeout` if nothing else comes before, and why.
    pub(super) fn next_timeout(&self) -> Option<(Instant, &'static str)> {
        [self.lookups.next_timeout(), self.policy.next_timeout(), self.writes.next_timeout()]
            .into_iter()
            .flatten()
            .min_by_key(|(at, _reason)| *at)
    }

    pub(super) fn state(&self) -> PersistenceState {
        PersistenceState {
            lookups_open: self.lookups.open(),
            lookup_in_flight: self.lookups.is_in_flight(),
            rules_in_flight: self.policy.is_loading(),
            statuses_queued: self.writes.statuses_queued(),
            statuses_in_flight: self.writes.statuses_in_flight(),
            statuses_since: self.writes.statuses_since(),
            stale_pending: self.writes.is_stale_pending(),
            failing: self.failing.clone(),
        }
    }

    fn on_look_up(&mut self, now: Instant, request: RequestId, devices: Vec<DeviceId>, out: &mut Effects) {
        let required = self.policy.required(now);
        if self.lookups.is_full() {
            let answer = LookedUp { required: required.ok_or(PolicyUnavailable), ..LookedUp::unavailable() };
            out.push_back(Effect::AnswerLookUp { request, answer });
            return;
        }
        if required.is_none() && !self.policy.is_loading() {
            let statement = self.new_statement();
            self.policy.begin(now, statement);
            out.push_back(Effect::ReadRules { statement });
        }
        self.lookups.add(now, request, devices, required, out);
    }

    fn on_devices_read(&mut self, now: Instant, statement: StatementId, result: Result<Vec<DeviceFacts>, StoreError>, out: &mut Effects) {
        let Some(batch) = self.lookups.finish(now, statement, result.is_ok()) else { return };
        self.note(now, Statement::Devices, result.as_ref().err().map(StoreError::to_string), out);
        self.lookups.answer(&batch, result.ok(), out);
    }

    fn on_rules_read(
        &mut self,
        now: Instant,
        statement: StatementId,
        result: Result<Vec<MinimumProtocolRule>, StoreError>,
        out: &mut Effects,
    ) {
        let Some(required) = self.policy.finish(now, statement, result) else { return };
        self.note(now, Statement::Rules, required.as_ref().err().cloned(), out);
        self.lookups.set_required(&required.map_err(|_noted| PolicyUnavailable), out);
    }

    fn on_statuses_written(&mut self, now: Instant, statement: StatementId, result: Result<(), StoreError>, out: &mut Effects) {
        if self.writes.finish_statuses(now, statement, result.is_ok()) {
            self.note(now, Statement::Statuses, result.err().map(|error| error.to_string()), out);
        }
    }

    fn on_stale_ended(&mut self, now: Instant, statement: StatementId, result: Result<u64, StoreError>, out: &mut Effects) {
        if !self.writes.finish_stale(now, statement, result.is_ok()) {
            return;
        }
        self.note(now, Statement::Stale, result.as_ref().err().map(StoreError::to_string), out);
        if let Ok(devices) = result {
            out.push_back(Effect::ReportStaleEnded { devices });
        }
    }

    /// Remembers whether a statement fails, and reports the changes only.
    fn note(&mut self, now: Instant, statement: Statement, failure: Option<String>, out: &mut Effects) {
        match failure {
            Some(cause) => {
                if let Entry::Vacant(entry) = self.failing.entry(statement) {
                    entry.insert(now);
                    out.push_back(Effect::ReportFailing { statement, cause });
                }
            }
            None => {
                if let Some(since) = self.failing.remove(&statement) {
                    out.push_back(Effect::ReportRecovered { statement, failing_for: now.saturating_duration_since(since) });
                }
            }
        }
    }

    fn start_statements(&mut self, now: Instant, out: &mut Effects) {
        if self.lookups.is_ready() {
            let statement = self.new_statement();
            let devices = self.lookups.begin(statement);
            out.push_back(Effect::ReadDevices { statement, devices });
        } else if self.lookups.is_retry_due(now) {
            let statement = self.new_statement();
            let devices = self.lookups.begin_retry(statement);
            out.push_back(Effect::ReadDevices { statement, devices });
        }
        if self.policy.is_retry_due(now) {
            let statement = self.new_statement();
            self.policy.begin(now, statement);
            out.push_back(Effect::ReadRules { statement });
        }
        if self.writes.is_stale_due(now) {
            let statement = self.new_statement();
            if let Some(at) = self.writes.begin_stale(statement) {
                out.push_back(Effect::EndStale { statement, at });
            }
        }
        if self.writes.are_statuses_due(now) {
            let statement = self.new_statement();
            let writes = self.writes.begin_statuses(statement);
            out.push_back(Effect::WriteStatuses { statement, writes });
        }
    }

    fn answer_flushes(&mut self, out: &mut Effects) {
        if self.lookups.is_idle() && !self.policy.is_loading() && self.writes.is_idle() {
            out.extend(self.flushes.drain(..).map(|flush| Effect::AnswerFlush { flush }));
        }
    }

    fn new_statement(&mut self) -> StatementId {
        self.last_statement.0 += 1;
        self.last_statement
    }
}
