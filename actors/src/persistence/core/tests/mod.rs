//! Tables over the core: each time rule one millisecond before, at and after its edge; batches counted in statements.

mod lookups;
mod retries;
mod writes;

use super::*;
use crate::persistence::LookupUnavailable;
use relay_protocol::{
    device::{Presence, PresenceReason, Role},
    id::UserId,
    version::Version,
};
use uuid::Uuid;

const MS: Duration = Duration::from_millis(1);

fn config() -> PersistenceConfig {
    PersistenceConfig { lookups_max: 50, lookup_batch_devices_max: 10, status_batch_devices_max: 10, ..PersistenceConfig::default() }
}

/// A core at a time that only the test moves.
struct Rig {
    core: Core,
    now: Instant,
    requests: u64,
    /// The latest run of each statement.
    reads: Vec<(StatementId, Vec<DeviceId>)>,
    loads: Vec<StatementId>,
    writes: Vec<(StatementId, Vec<StatusWrite>)>,
    stale: Vec<(StatementId, EpochMs)>,
    answers: BTreeMap<RequestId, LookedUp>,
    flushed: Vec<FlushId>,
    reports: Vec<Effect>,
}

impl Rig {
    fn new() -> Self {
        Rig::with(&config())
    }

    fn with(config: &PersistenceConfig) -> Self {
        Rig {
            core: Core::new(config),
            now: crate::clock::now(),
            requests: 0,
            reads: Vec::new(),
            loads: Vec::new(),
            writes: Vec::new(),
            stale: Vec::new(),
            answers: BTreeMap::new(),
            flushed: Vec::new(),
            reports: Vec::new(),
        }
    }

    /// With rules read now that require 1.7.
    fn ready() -> Self {
        let mut rig = Rig::new();
        rig.look_up(&[]);
        rig.rules_read(&[]);
        rig
    }

    fn input(&mut self, input: Input) {
        let mut effects = Effects::new();
        self.core.handle(self.now, input, &mut effects);
        for effect in effects {
            match effect {
                Effect::ReadDevices { statement, devices } => self.reads.push((statement, devices)),
                Effect::ReadRules { statement } => self.loads.push(statement),
                Effect::WriteStatuses { statement, writes } => self.writes.push((statement, writes)),
                Effect::EndStale { statement, at } => self.stale.push((statement, at)),
                Effect::AnswerLookUp { request, answer } => {
                    assert_eq!(self.answers.insert(request, answer), None, "answered twice");
                }
                Effect::AnswerFlush { flush } => self.flushed.push(flush),
                report @ (Effect::ReportFailing { .. } | Effect::ReportRecovered { .. } | Effect::ReportStaleEnded { .. }) => {
                    self.reports.push(report);
                }
            }
        }
        if let Some((at, reason)) = self.core.next_timeout() {
            assert!(at > self.now, "{reason} is due already: the timer would spin");
        }
    }

    fn advance(&mut self, by: Duration) {
        self.now += by;
        self.input(Input::Timeout);
    }

    fn look_up(&mut self, devices: &[u128]) -> RequestId {
        self.requests += 1;
        let request = RequestId(self.requests);
        self.input(Input::LookUp { request, devices: devices.iter().copied().map(id).collect() });
        request
    }

    fn devices_read(&mut self, rows: &[u128]) {
        let (statement, _devices) = self.reads.last().unwrap().clone();
        self.input(Input::DevicesRead { statement, result: Ok(rows.iter().copied().map(facts).collect()) });
    }

    fn devices_failed(&mut self) {
        let (statement, _devices) = self.reads.last().unwrap().clone();
        self.input(Input::DevicesRead { statement, result: Err(away()) });
    }

    fn rules_read(&mut self, minimums: &[&str]) {
        let rules = minimums.iter().map(|text| MinimumProtocolRule { minimum_relay_protocol_version: (*text).to_string() }).collect();
        self.input(Input::RulesRead { statement: *self.loads.last().unwrap(), result: Ok(rules) });
    }

    fn rules_failed(&mut self) {
        self.input(Input::RulesRead { statement: *self.loads.last().unwrap(), result: Err(away()) });
    }

    fn write(&mut self, device: u128, status: Presence) {
        self.input(Input::WriteStatus(StatusWrite { device: id(device), status, reason: PresenceReason::Registered, at: EpochMs(0) }));
    }

    fn written(&mut self, result: Result<(), StoreError>) {
        let (statement, _writes) = self.writes.last().unwrap().clone();
        self.input(Input::StatusesWritten { statement, result });
    }

    fn stale_ended(&mut self, result: Result<u64, StoreError>) {
        let (statement, _at) = *self.stale.last().unwrap();
        self.input(Input::StaleEnded { statement, result });
    }

    fn required(&self, request: RequestId) -> Result<Version, PolicyUnavailable> {
        self.answers[&request].required.clone()
    }

    fn found(&self, request: RequestId) -> Result<Vec<DeviceFacts>, LookupUnavailable> {
        self.answers[&request].devices.clone()
    }

    /// Devices of the latest status statement, with their status.
    fn last_batch(&self) -> Vec<(u128, Presence)> {
        self.writes.last().unwrap().1.iter().map(|write| (write.device.0.as_u128(), write.status)).collect()
    }
}

fn id(n: u128) -> DeviceId {
    DeviceId(Uuid::from_u128(n))
}

fn facts(n: u128) -> DeviceFacts {
    DeviceFacts { id: id(n), user: UserId(Uuid::nil()), role: Role::Desktop, relay_eligible: true }
}

fn away() -> StoreError {
    StoreError::Unavailable("away".into())
}

fn version(text: &str) -> Version {
    text.parse().unwrap()
}

#[test]
fn an_answer_to_another_statement_changes_nothing() {
    let mut rig = Rig::new();
    let request = rig.look_up(&[1]);
    rig.write(1, Presence::Online);
    let other = StatementId(999);
    rig.input(Input::DevicesRead { statement: other, result: Ok(vec![]) });
    let rule = MinimumProtocolRule { minimum_relay_protocol_version: "9".into() };
    rig.input(Input::RulesRead { statement: other, result: Ok(vec![rule]) });
    rig.input(Input::StatusesWritten { statement: other, result: Err(away()) });
    rig.input(Input::StaleEnded { statement: other, result: Err(away()) });
    assert!(rig.answers.is_empty() && rig.reports.is_empty());
    assert_eq!((rig.reads.len(), rig.loads.len(), rig.writes.len()), (1, 1, 1));
    rig.rules_read(&[]);
    rig.devices_read(&[1]);
    assert_eq!(rig.answers[&request], LookedUp { required: Ok(version("1.7")), devices: Ok(vec![facts(1)]) });
}

#[test]
fn a_flush_waits_for_everything() {
    let flush = |rig: &mut Rig| {
        let known = rig.flushed.len();
        rig.input(Input::Flush { flush: FlushId(1) });
        rig.flushed.len() > known
    };
    let mut rig = Rig::new();
    assert!(flush(&mut rig), "idle");

    let mut rig = Rig::ready();
    rig.look_up(&[1]);
    assert!(!flush(&mut rig), "a look-up");
    rig.advance(config().lookup_deadline);
    assert!(rig.flushed.is_empty(), "its statement still runs");
    rig.devices_read(&[]);
    assert_eq!(rig.flushed.len(), 1);

    let mut rig = Rig::new();
    rig.look_up(&[]);
    assert!(!flush(&mut rig), "a load of rules");
    rig.advance(config().lookup_deadline);
    assert!(rig.flushed.is_empty());
    rig.rules_read(&[]);
    assert_eq!(rig.flushed.len(), 1);

    let mut rig = Rig::new();
    rig.write(1, Presence::Online);
    assert!(!flush(&mut rig), "a status");
    rig.written(Err(away()));
    assert!(rig.flushed.is_empty(), "it waits for its retry");
    rig.advance(config().retry_initial);
    rig.written(Ok(()));
    assert_eq!(rig.flushed.len(), 1);

    let mut rig = Rig::new();
    rig.input(Input::ReconcileStale { at: EpochMs(7) });
    assert!(!flush(&mut rig), "stale statuses");
    rig.stale_ended(Err(away()));
    assert!(rig.flushed.is_empty(), "they wait for their retry");
    rig.advance(config().retry_initial);
    rig.stale_ended(Ok(0));
    assert_eq!(rig.flushed.len(), 1);
}

#[test]
fn failures_are_reported_when_they_begin_and_when_they_end() {
    let mut rig = Rig::new();
    let failing = |statement| Effect::ReportFailing { statement, cause: "storage cannot answer: away".into() };
    rig.write(1, Presence::Online);
    rig.written(Err(away()));
    let since = rig.now;
    rig.advance(config().retry_initial);
    rig.written(Err(away()));
    rig.look_up(&[1]);
    rig.devices_failed();
    rig.rules_read(&["latest"]);
    let bad_rule = "minimum_relay_protocol_version \"latest\" is no version".to_string();
    assert_eq!(
        rig.reports,
        [failing(Statement::Statuses), failing(Statement::Devices), Effect::ReportFailing { statement: Statement::Rules, cause: bad_rule },]
    );
    assert_eq!(rig.core.state().failing[&Statement::Statuses], since);

    rig.reports.clear();
    rig.advance(config().retry_initial * 2);
    rig.written(Ok(()));
    assert_eq!(rig.reports, [Effect::ReportRecovered { statement: Statement::Statuses, failing_for: config().retry_initial * 3 }]);
    assert!(!rig.core.state().failing.contains_key(&Statement::Statuses));
}

#[test]
fn the_state_shows_queues_flights_and_lag() {
    let mut rig = Rig::new();
    assert_eq!(rig.core.state(), PersistenceState::default());
    let began = rig.now;
    rig.look_up(&[1]);
    rig.look_up(&[2]);
    rig.write(1, Presence::Online);
    rig.advance(MS);
    rig.write(2, Presence::Online);
    rig.write(1, Presence::Disconnected);
    rig.input(Input::ReconcileStale { at: EpochMs(7) });
    let expected = PersistenceState {
        lookups_open: 2,
        lookup_in_flight: true,
        rules_in_flight: true,
        statuses_queued: 2,
        statuses_in_flight: 1,
        statuses_since: Some(began),
        stale_pending: true,
        failing: BTreeMap::new(),
    };
    assert_eq!(rig.core.state(), expected);
    rig.written(Err(away()));
    let expected =
        PersistenceState { statuses_queued: 2, statuses_in_flight: 0, failing: [(Statement::Statuses, rig.now)].into(), ..expected };
    assert_eq!(rig.core.state(), expected, "a newer status does not make the lag shorter");
    rig.stale_ended(Ok(0));
    rig.advance(config().retry_initial);
    rig.written(Ok(()));
    assert_eq!(rig.core.state().statuses_since, None);
}
