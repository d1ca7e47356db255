//! Tables over the core: each time rule one millisecond before, at and after its edge; batches counted in statements.

use super::*;
use crate::persistence::LookupUnavailable;
use relay_protocol::{
    device::{Presence, Role},
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
        self.input(Input::WriteStatus(StatusWrite { device: id(device), status, at: EpochMs(0) }));
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
fn the_required_version_is_the_highest_minimum_and_at_least_the_floor() {
    for (minimums, required) in [
        (&[][..], Ok("1.7")),
        (&["1.6"], Ok("1.7")),
        (&["1.7"], Ok("1.7")),
        (&["1.8", "1.10", "1.9"], Ok("1.10")),
        (&["2"], Ok("2")),
        (&["1.8", "latest"], Err(PolicyUnavailable)),
        (&["", "1.8"], Err(PolicyUnavailable)),
    ] {
        let mut rig = Rig::new();
        let request = rig.look_up(&[]);
        rig.rules_read(minimums);
        assert_eq!(rig.required(request), required.map(version), "{minimums:?}");
        assert_eq!(rig.found(request), Ok(vec![]));
        assert_eq!(rig.reads, [], "no device statement without devices");
    }
}

#[test]
fn rules_are_used_until_they_are_older_than_the_cache_limit() {
    let max_age = config().policy_cache;
    for (age, loads) in [(max_age - MS, 1), (max_age, 1), (max_age + MS, 2)] {
        let mut rig = Rig::ready();
        rig.advance(age);
        let request = rig.look_up(&[]);
        assert_eq!(rig.loads.len(), loads, "{age:?}");
        assert_eq!(rig.answers.contains_key(&request), loads == 1, "{age:?}");
    }
}

#[test]
fn the_age_of_rules_counts_from_the_start_of_their_load() {
    let mut rig = Rig::new();
    rig.look_up(&[]);
    rig.advance(MS);
    rig.rules_read(&[]);
    rig.advance(config().policy_cache);
    rig.look_up(&[]);
    assert_eq!(rig.loads.len(), 2);
}

#[test]
fn rules_that_cannot_be_read_are_replaced_by_the_cache_only_while_it_is_fresh() {
    let mut rig = Rig::ready();
    rig.advance(config().policy_cache + MS);
    let waiting = rig.look_up(&[]);
    rig.rules_failed();
    assert_eq!(rig.required(waiting), Err(PolicyUnavailable));
    // Neither the failure nor a bad rule is kept: the next look-up asks again.
    let next = rig.look_up(&[]);
    rig.rules_read(&["bad"]);
    assert_eq!(rig.required(next), Err(PolicyUnavailable));
    let last = rig.look_up(&[]);
    rig.rules_read(&["1.9"]);
    assert_eq!(rig.required(last), Ok(version("1.9")));
    assert_eq!(rig.loads.len(), 4);
}

#[test]
fn look_ups_that_come_during_a_load_wait_for_it() {
    let mut rig = Rig::new();
    let requests: Vec<_> = (0..5).map(|_| rig.look_up(&[])).collect();
    assert_eq!(rig.loads.len(), 1);
    assert!(rig.answers.is_empty());
    rig.rules_read(&["1.8"]);
    for request in requests {
        assert_eq!(rig.required(request), Ok(version("1.8")));
    }
}

#[test]
fn a_look_up_waits_for_both_its_parts_in_any_order() {
    let mut rig = Rig::new();
    let request = rig.look_up(&[1]);
    rig.devices_read(&[1]);
    assert!(rig.answers.is_empty());
    rig.rules_read(&[]);
    assert_eq!(rig.answers[&request], LookedUp { required: Ok(version("1.7")), devices: Ok(vec![facts(1)]) });

    let mut rig = Rig::new();
    let request = rig.look_up(&[1]);
    rig.rules_failed();
    assert!(rig.answers.is_empty());
    rig.devices_read(&[1]);
    assert_eq!(rig.answers[&request], LookedUp { required: Err(PolicyUnavailable), devices: Ok(vec![facts(1)]) });
}

#[test]
fn what_arrives_during_a_read_shares_the_next_one() {
    let mut rig = Rig::ready();
    let first = rig.look_up(&[1]);
    let others: Vec<_> = [vec![3, 2], vec![1], vec![4, 4], vec![9]].iter().map(|devices| rig.look_up(devices)).collect();
    assert_eq!(rig.reads.len(), 1, "one in flight");
    rig.devices_read(&[1]);
    // Device 1 is read again for the second asker: its row may have changed since the first read began.
    assert_eq!(rig.found(first), Ok(vec![facts(1)]));
    assert_eq!(rig.reads.len(), 2);
    assert_eq!(rig.reads[1].1, [1, 2, 3, 4, 9].map(id));
    rig.devices_read(&[4, 3, 2, 1]);
    let found: Vec<_> = others.iter().map(|request| rig.found(*request).unwrap()).collect();
    assert_eq!(found, [vec![facts(3), facts(2)], vec![facts(1)], vec![facts(4), facts(4)], vec![]]);
    assert_eq!(rig.reads.len(), 2, "nothing is left to read");
}

#[test]
fn a_read_takes_as_many_devices_as_its_bound_and_whole_look_ups() {
    // Bound 10. After a first read of one device: look-ups of these sizes, all of different devices.
    for (sizes, batches) in [
        (&[9, 1][..], &[10][..]),
        (&[9, 2], &[9, 2]),
        (&[10, 1], &[10, 1]),
        (&[11, 1], &[11, 1]),
        (&[1, 11], &[1, 11]),
        (&[4, 4, 4, 4, 4], &[8, 8, 4]),
    ] {
        let mut rig = Rig::ready();
        rig.look_up(&[1]);
        let mut next_device = 100;
        for size in sizes {
            rig.look_up(&(next_device..next_device + size).collect::<Vec<_>>());
            next_device += size;
        }
        for size in batches {
            rig.devices_read(&[]);
            assert_eq!(rig.reads.last().unwrap().1.len(), *size, "{sizes:?}");
        }
        rig.devices_read(&[]);
        assert_eq!(rig.reads.len(), 1 + batches.len(), "{sizes:?}");
    }
}

#[test]
fn a_failed_read_is_answered_at_once_and_the_next_goes_on() {
    let mut rig = Rig::ready();
    let first = rig.look_up(&[1]);
    let second = rig.look_up(&[2]);
    rig.devices_failed();
    assert_eq!(rig.answers[&first], LookedUp { required: Ok(version("1.7")), devices: Err(LookupUnavailable) });
    assert!(!rig.answers.contains_key(&second));
    rig.devices_read(&[2]);
    assert_eq!(rig.found(second), Ok(vec![facts(2)]));
}

#[test]
fn a_look_up_is_unavailable_at_its_deadline() {
    let deadline = config().lookup_deadline;
    for (wait, in_time) in [(deadline - MS, true), (deadline, false), (deadline + MS, false)] {
        let mut rig = Rig::ready();
        let request = rig.look_up(&[1]);
        assert_eq!(rig.core.next_timeout(), Some((rig.now + deadline, "look-up deadline")));
        // No timeout in between: the answer itself comes at that time.
        rig.now += wait;
        rig.devices_read(&[1]);
        assert_eq!(rig.found(request), if in_time { Ok(vec![facts(1)]) } else { Err(LookupUnavailable) }, "{wait:?}");
        assert_eq!(rig.core.next_timeout(), None);
    }
}

#[test]
fn a_deadline_answers_with_what_is_known_and_frees_the_place() {
    let mut rig = Rig::new();
    let hanging = rig.look_up(&[1]);
    rig.advance(MS);
    let behind = rig.look_up(&[2]);
    let rules_only = rig.look_up(&[]);
    rig.advance(config().lookup_deadline - MS);
    assert_eq!(rig.answers[&hanging], LookedUp::unavailable());
    assert!(!rig.answers.contains_key(&behind));
    rig.advance(MS);
    assert_eq!(rig.answers[&behind], LookedUp::unavailable());
    assert_eq!(rig.answers[&rules_only], LookedUp { required: Err(PolicyUnavailable), devices: Ok(vec![]) });
    assert_eq!(rig.core.state().lookups_open, 0);
    // The late answers do no harm, and what expired in the queue is not read.
    rig.rules_read(&[]);
    rig.devices_read(&[1]);
    assert_eq!(rig.reads.len(), 1);
    let request = rig.look_up(&[3]);
    assert_eq!(rig.reads[1].1, [id(3)]);
    rig.devices_read(&[3]);
    assert_eq!(rig.found(request), Ok(vec![facts(3)]));
}

#[test]
fn over_the_bound_a_look_up_is_refused_at_once() {
    let mut rig = Rig::ready();
    let max = u128::try_from(config().lookups_max).unwrap();
    for device in 0..max {
        rig.look_up(&[device]);
    }
    assert_eq!(rig.core.state().lookups_open, config().lookups_max);
    let refused = rig.look_up(&[9]);
    assert_eq!(rig.answers[&refused], LookedUp { required: Ok(version("1.7")), devices: Err(LookupUnavailable) });
    // One answer makes one place.
    rig.devices_read(&[0]);
    let taken = rig.look_up(&[9]);
    assert!(!rig.answers.contains_key(&taken));
}

#[test]
fn an_answer_to_another_statement_changes_nothing() {
    let mut rig = Rig::new();
    let request = rig.look_up(&[1]);
    rig.write(1, Presence::Online);
    let other = StatementId(999);
    rig.input(Input::DevicesRead { statement: other, result: Ok(vec![]) });
    rig.input(Input::RulesRead { statement: other, result: Ok(vec![]) });
    rig.input(Input::StatusesWritten { statement: other, result: Err(away()) });
    rig.input(Input::StaleEnded { statement: other, result: Err(away()) });
    assert!(rig.answers.is_empty() && rig.reports.is_empty());
    assert_eq!((rig.reads.len(), rig.loads.len(), rig.writes.len()), (1, 1, 1));
    rig.rules_read(&[]);
    rig.devices_read(&[1]);
    assert_eq!(rig.found(request), Ok(vec![facts(1)]));
}

#[test]
fn the_newest_status_of_each_device_is_written_in_order_of_waiting() {
    let mut rig = Rig::new();
    rig.write(5, Presence::Online);
    assert_eq!(rig.last_batch(), [(5, Presence::Online)]);
    rig.write(9, Presence::Online);
    rig.write(1, Presence::Online);
    rig.write(9, Presence::Reconnecting);
    rig.write(5, Presence::Reconnecting);
    rig.write(9, Presence::Disconnected);
    assert_eq!(rig.writes.len(), 1, "one in flight");
    rig.written(Ok(()));
    assert_eq!(rig.last_batch(), [(9, Presence::Disconnected), (1, Presence::Online), (5, Presence::Reconnecting)]);
    rig.written(Ok(()));
    assert_eq!(rig.writes.len(), 2);
}

#[test]
fn the_number_of_status_statements_does_not_grow_with_devices() {
    let mut rig = Rig::with(&PersistenceConfig::default());
    for device in 0..1_001 {
        rig.write(device, Presence::Online);
    }
    rig.written(Ok(()));
    rig.written(Ok(()));
    assert_eq!(rig.writes.len(), 2);
    // One more than a statement takes goes into the next.
    for device in 0..1_002 {
        rig.write(device, Presence::Disconnected);
    }
    let sizes = |rig: &Rig| rig.writes[2..].iter().map(|(_, writes)| writes.len()).collect::<Vec<_>>();
    for _statement in 0..3 {
        rig.written(Ok(()));
    }
    assert_eq!(sizes(&rig), [1, 1_000, 1]);
}

#[test]
fn a_failed_status_write_stays_queued_and_the_newer_status_wins() {
    let mut rig = Rig::new();
    for device in [1, 2] {
        rig.write(device, Presence::Online);
    }
    rig.written(Ok(()));
    assert_eq!(rig.last_batch(), [(2, Presence::Online)]);
    rig.write(3, Presence::Online);
    rig.write(2, Presence::Disconnected);
    rig.written(Err(away()));
    assert_eq!(rig.writes.len(), 2, "the retry waits");
    rig.write(4, Presence::Online);
    rig.advance(config().retry_initial);
    // Device 2 has waited longest, and its older status is gone.
    assert_eq!(rig.last_batch(), [(2, Presence::Disconnected), (3, Presence::Online), (4, Presence::Online)]);
    rig.written(Ok(()));
    assert_eq!(rig.writes.len(), 3);
}

#[test]
fn a_failed_batch_returns_whole_and_before_the_rest() {
    let mut rig = Rig::new();
    rig.write(0, Presence::Online);
    for device in 1..=15 {
        rig.write(device, Presence::Online);
    }
    rig.written(Ok(()));
    let first: Vec<_> = rig.last_batch();
    assert_eq!(first.len(), 10);
    rig.written(Err(away()));
    rig.advance(config().retry_initial);
    assert_eq!(rig.last_batch(), first);
    rig.written(Ok(()));
    assert_eq!(rig.last_batch(), (11..=15).map(|device| (device, Presence::Online)).collect::<Vec<_>>());
}

#[test]
fn failed_status_writes_wait_twice_as_long_each_time_up_to_the_bound() {
    let mut rig = Rig::new();
    rig.write(1, Presence::Online);
    for (failure, millis) in [250, 500, 1_000, 2_000, 4_000, 5_000, 5_000].into_iter().enumerate() {
        let wait = Duration::from_millis(millis);
        rig.written(Err(away()));
        assert_eq!(rig.core.next_timeout(), Some((rig.now + wait, "status retry")));
        rig.advance(wait - MS);
        rig.write(2, Presence::Online);
        assert_eq!(rig.writes.len(), failure + 1, "1 ms before {wait:?}");
        rig.advance(MS);
        assert_eq!(rig.writes.len(), failure + 2, "at {wait:?}");
    }
    // A success ends it; the next failure waits the first time again.
    rig.written(Ok(()));
    rig.write(1, Presence::Online);
    rig.written(Err(away()));
    assert_eq!(rig.core.next_timeout(), Some((rig.now + Duration::from_millis(250), "status retry")));
    // A timeout that comes late does the same.
    rig.advance(Duration::from_millis(251));
    assert_eq!(rig.core.next_timeout(), None);
    rig.written(Ok(()));
}

#[test]
fn stale_statuses_are_ended_once_and_retried_until_then() {
    let mut rig = Rig::new();
    rig.input(Input::ReconcileStale { at: EpochMs(7) });
    for (failure, millis) in [250, 500, 1_000, 2_000, 4_000, 5_000, 5_000].into_iter().enumerate() {
        let wait = Duration::from_millis(millis);
        rig.stale_ended(Err(away()));
        assert_eq!(rig.core.next_timeout(), Some((rig.now + wait, "stale status retry")));
        rig.advance(wait - MS);
        assert_eq!(rig.stale.len(), failure + 1);
        rig.advance(MS);
        assert_eq!(rig.stale.len(), failure + 2);
    }
    assert!(rig.core.state().stale_pending);
    rig.stale_ended(Ok(3));
    assert!(!rig.core.state().stale_pending);
    assert!(rig.stale.iter().all(|(_, at)| *at == EpochMs(7)));
    assert_eq!(rig.reports.last(), Some(&Effect::ReportStaleEnded { devices: 3 }));
    assert_eq!(rig.core.next_timeout(), None);
}

#[test]
fn status_and_stale_statements_take_turns_and_neither_holds_up_the_other_by_failing() {
    let mut rig = Rig::new();
    rig.write(1, Presence::Online);
    rig.write(2, Presence::Online);
    rig.input(Input::ReconcileStale { at: EpochMs(7) });
    assert_eq!((rig.writes.len(), rig.stale.len()), (1, 0), "one write in flight");
    rig.written(Ok(()));
    assert_eq!((rig.writes.len(), rig.stale.len()), (1, 1));
    rig.stale_ended(Err(away()));
    assert_eq!((rig.writes.len(), rig.stale.len()), (2, 1), "statuses go on while the other backs off");
    rig.written(Err(away()));
    rig.advance(config().retry_initial);
    assert_eq!((rig.writes.len(), rig.stale.len()), (2, 2));
    rig.stale_ended(Ok(0));
    assert_eq!((rig.writes.len(), rig.stale.len()), (3, 2));
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
