//! The actor itself: in paused time before a store whose statements take a set time, and in real time before SQLite.

use super::*;
use crate::{
    clock::{self, EpochMs},
    store::{
        ApiKey, ApiKeyHash, CompatibilityRule, Device, DevicePatch, DeviceWrite, LiveProcess, MinimumProtocolRule, PresenceChange,
        ProcessRecord, PushClaim, PushTarget, StatusWrite, Store, StoreError, Upserted, sqlite::SqliteStore,
    },
};
use actix::{Actor, Addr, prelude::SendError};
use async_trait::async_trait;
use futures_util::future::join_all;
use relay_protocol::{
    compatibility::{RuleId, RuleSpec},
    device::{DeviceFacts, Presence, PresenceReason, Role},
    id::{ApiKeyId, DeviceId, RelayInstanceId, UserId},
    push::PushAddress,
    version::Version,
};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::watch;
use uuid::Uuid;

/// How long a statement of the [`TimedStore`] takes.
const STATEMENT: Duration = Duration::from_millis(10);
const NOW: EpochMs = EpochMs(1_700_000_000_000);

fn id(n: u128) -> DeviceId {
    DeviceId(Uuid::from_u128(n))
}

fn facts(n: u128) -> DeviceFacts {
    DeviceFacts { id: id(n), user: UserId(Uuid::nil()), role: Role::Desktop, relay_eligible: true }
}

fn status(device: u128, status: Presence) -> WriteStatus {
    WriteStatus(StatusWrite { device: id(device), status, reason: PresenceReason::Registered, at: NOW })
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Mood {
    #[default]
    Works,
    Fails,
    Hangs,
    Panics,
}

#[derive(Default)]
struct Log {
    mood: Mood,
    /// Devices of each look-up statement.
    looked_up: Vec<usize>,
    rules_read: usize,
    /// Each status statement, successful or not: when it began and what it was to write.
    written: Vec<(Instant, Vec<(u128, Presence)>)>,
    stale: Vec<(Instant, EpochMs)>,
}

/// A store that knows every device, counts its statements and takes [`STATEMENT`] for each.
#[derive(Default)]
struct TimedStore(Mutex<Log>);

impl TimedStore {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap()
    }

    fn set(&self, mood: Mood) {
        self.log().mood = mood;
    }

    async fn answer<T>(&self, answer: T) -> Result<T, StoreError> {
        let mood = self.log().mood;
        tokio::time::sleep(STATEMENT).await;
        match mood {
            Mood::Works => Ok(answer),
            Mood::Fails => Err(StoreError::Unavailable("away".into())),
            Mood::Hangs => std::future::pending().await,
            Mood::Panics => panic!("on purpose"),
        }
    }
}

#[async_trait]
impl Store for TimedStore {
    async fn upsert_device(&self, _write: DeviceWrite, _now: EpochMs) -> Result<Upserted, StoreError> {
        unreachable!("for HTTP handlers")
    }

    async fn devices_of(&self, _user: UserId) -> Result<Vec<Device>, StoreError> {
        unreachable!("for HTTP handlers")
    }

    async fn patch_device(&self, _: UserId, _: DeviceId, _: DevicePatch, _: EpochMs) -> Result<Option<Device>, StoreError> {
        unreachable!("for HTTP handlers")
    }

    async fn forget_device(&self, _user: UserId, _id: DeviceId, _now: EpochMs) -> Result<bool, StoreError> {
        unreachable!("for HTTP handlers")
    }

    async fn look_up(&self, ids: &[DeviceId]) -> Result<Vec<DeviceFacts>, StoreError> {
        self.log().looked_up.push(ids.len());
        self.answer(ids.iter().map(|id| facts(id.0.as_u128())).collect()).await
    }

    async fn write_statuses(&self, writes: &[StatusWrite], _instance: RelayInstanceId) -> Result<(), StoreError> {
        let batch = writes.iter().map(|write| (write.device.0.as_u128(), write.status)).collect();
        self.log().written.push((clock::now(), batch));
        self.answer(()).await
    }

    async fn disconnect_stale(&self, _instance: RelayInstanceId, at: EpochMs) -> Result<u64, StoreError> {
        self.log().stale.push((clock::now(), at));
        self.answer(0).await
    }

    async fn presence_history(&self, _: DeviceId, _: Option<EpochMs>, _: u32) -> Result<Vec<PresenceChange>, StoreError> {
        Ok(Vec::new())
    }

    async fn claim_push_token(&self, _: UserId, _: DeviceId, _: PushAddress, _: EpochMs) -> Result<PushClaim, StoreError> {
        self.answer(PushClaim::NoSuchDevice).await
    }

    async fn release_push_tokens(&self, _: UserId, _: Option<DeviceId>) -> Result<u64, StoreError> {
        self.answer(0).await
    }

    async fn push_targets(&self, _: UserId) -> Result<Vec<PushTarget>, StoreError> {
        self.answer(Vec::new()).await
    }

    async fn push_target(&self, _: DeviceId) -> Result<Option<PushTarget>, StoreError> {
        self.answer(None).await
    }

    async fn drop_push_token(&self, _: DeviceId, _: EpochMs) -> Result<bool, StoreError> {
        self.answer(false).await
    }

    async fn minimum_protocol_rules(&self) -> Result<Vec<MinimumProtocolRule>, StoreError> {
        self.log().rules_read += 1;
        self.answer(vec![MinimumProtocolRule { minimum_relay_protocol_version: "1.8".into() }]).await
    }

    async fn compatibility_rules(&self) -> Result<Vec<CompatibilityRule>, StoreError> {
        Ok(Vec::new())
    }

    async fn add_compatibility_rule(&self, _: RuleSpec, _: EpochMs, _: u32) -> Result<Option<RuleId>, StoreError> {
        Ok(None)
    }

    async fn remove_compatibility_rule(&self, _: RuleId) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn create_api_key(&self, _: ApiKey, _: ApiKeyHash, _: u32) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn api_keys_of(&self, _: UserId) -> Result<Vec<ApiKey>, StoreError> {
        Ok(Vec::new())
    }

    async fn api_key(&self, _: ApiKeyHash) -> Result<Option<ApiKey>, StoreError> {
        Ok(None)
    }

    async fn revoke_api_key(&self, _: UserId, _: ApiKeyId, _: EpochMs) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn renew_process(&self, _: ProcessRecord, _: Duration) -> Result<Vec<LiveProcess>, StoreError> {
        Ok(Vec::new())
    }

    async fn remove_process(&self, _: RelayInstanceId) -> Result<(), StoreError> {
        Ok(())
    }

    async fn ping(&self) -> Result<(), StoreError> {
        unreachable!("for HTTP handlers")
    }
}

struct Rig {
    store: Arc<TimedStore>,
    actor: Addr<Persistence>,
    state: watch::Receiver<PersistenceState>,
}

/// Pauses time: from here on it moves to the next timer whenever nothing else is left to do.
fn paused() -> Rig {
    paused_with(PersistenceConfig::default())
}

fn paused_with(config: PersistenceConfig) -> Rig {
    tokio::time::pause();
    let store = Arc::new(TimedStore::default());
    let (actor, state) = start(Arc::clone(&store) as Arc<dyn Store>, config);
    Rig { store, actor, state }
}

fn start(store: Arc<dyn Store>, config: PersistenceConfig) -> (Addr<Persistence>, watch::Receiver<PersistenceState>) {
    let shared = Arc::new(Shared::default());
    let state = shared.observe();
    (Persistence::new(store, RelayInstanceId(Uuid::from_u128(1)), config, shared).start(), state)
}

impl Rig {
    async fn look_up(&self, devices: &[u128]) -> LookedUp {
        self.actor.send(LookUp { devices: devices.iter().copied().map(id).collect() }).await.unwrap()
    }

    async fn flush(&self) -> Result<(), PersistenceStopped> {
        self.actor.send(Flush).await.unwrap()
    }
}

/// Each of tokio's timers may end up to a millisecond late, in paused time too.
fn assert_took(took: Duration, expected: Duration) {
    assert!(took >= expected && took < expected + STATEMENT, "{took:?}, not {expected:?}");
}

fn found(device: u128) -> LookedUp {
    LookedUp { required: Ok(Version::new(1, 8)), devices: Ok(vec![facts(device)]) }
}

#[actix::test]
async fn a_thousand_look_ups_at_once_are_two_statements() {
    let rig = paused();
    let began = clock::now();
    let rig = &rig;
    let answers = join_all((0..1_000).map(|device| async move { rig.look_up(&[device]).await })).await;
    for (device, answer) in (0..).zip(answers) {
        assert_eq!(answer, found(device));
    }
    assert_eq!(rig.store.log().looked_up, [1, 999]);
    assert_eq!(rig.store.log().rules_read, 1);
    assert_took(clock::now() - began, STATEMENT * 2);
}

#[actix::test]
async fn a_look_up_before_a_hanging_storage_is_answered_at_its_deadline_and_the_next_works() {
    let rig = paused();
    rig.store.set(Mood::Hangs);
    let began = clock::now();
    assert_eq!(rig.look_up(&[1]).await, LookedUp::unavailable());
    assert_took(clock::now() - began, PersistenceConfig::default().lookup_deadline);
    rig.store.set(Mood::Works);
    assert_eq!(rig.look_up(&[1]).await, found(1));
    assert!(rig.state.borrow().failing.is_empty());
}

#[actix::test]
async fn look_ups_that_storage_fails_are_answered_at_once() {
    let rig = paused();
    rig.store.set(Mood::Fails);
    let began = clock::now();
    assert_eq!(rig.look_up(&[1]).await, LookedUp::unavailable());
    assert_took(clock::now() - began, STATEMENT);
    assert_eq!(rig.state.borrow().failing.keys().copied().collect::<Vec<_>>(), [Statement::Devices, Statement::Rules]);
}

#[actix::test]
async fn statuses_are_kept_while_storage_is_away_and_the_newest_is_written_when_it_is_back() {
    let rig = paused();
    rig.store.set(Mood::Fails);
    let began = clock::now();
    for presence in [Presence::Online, Presence::Reconnecting, Presence::Disconnected] {
        rig.actor.send(status(1, presence)).await.unwrap();
        rig.actor.send(status(2, presence)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    assert_eq!(rig.state.borrow().statuses_queued, 2);
    assert_eq!(rig.state.borrow().statuses_since, Some(began));
    rig.store.set(Mood::Works);
    assert_eq!(rig.flush().await, Ok(()));

    let written = rig.store.log().written.clone();
    let gone = [(1, Presence::Disconnected), (2, Presence::Disconnected)];
    assert_eq!(written.last().unwrap().1, gone);
    // Attempts begin one statement and one wait apart: 250, 500 and 1,000 ms.
    assert_eq!(written.len(), 4);
    for ((at, _batch), millis) in written.iter().zip([0, 260, 770, 1_780]) {
        assert_took(*at - began, Duration::from_millis(millis));
    }
    assert_eq!(*rig.state.borrow(), PersistenceState::default());
}

#[actix::test]
async fn a_write_that_hangs_is_given_up_and_tried_again() {
    let rig = paused();
    rig.store.set(Mood::Hangs);
    let began = clock::now();
    rig.actor.send(status(1, Presence::Online)).await.unwrap();
    rig.store.set(Mood::Works);
    assert_eq!(rig.flush().await, Ok(()));
    let config = PersistenceConfig::default();
    let written = rig.store.log().written.clone();
    assert_eq!(written.len(), 2);
    assert_took(written[1].0 - began, config.write_timeout + config.retry_initial);
}

#[actix::test]
async fn stale_statuses_are_ended_once_storage_can() {
    let rig = paused();
    rig.store.set(Mood::Fails);
    rig.actor.send(ReconcileStale { at: NOW }).await.unwrap();
    tokio::time::sleep(Duration::from_secs(20)).await;
    let failures = rig.store.log().stale.len();
    assert!(failures >= 5, "{failures}");
    rig.store.set(Mood::Works);
    assert_eq!(rig.flush().await, Ok(()));
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(rig.store.log().stale.len(), failures + 1);
    assert!(rig.store.log().stale.iter().all(|(_began, at)| *at == NOW));
}

#[actix::test]
async fn the_mailbox_takes_what_the_configuration_says() {
    let rig = paused_with(PersistenceConfig { lookups_max: 50, ..PersistenceConfig::default() });
    assert_eq!(rig.flush().await, Ok(()), "started");
    let message = || status(1, Presence::Online);
    for _ in 0..50 {
        rig.actor.try_send(message()).unwrap();
    }
    assert!((0..2).any(|_| matches!(rig.actor.try_send(message()), Err(SendError::Full(_)))));
}

#[actix::test]
async fn askers_are_answered_when_the_actor_ends() {
    let rig = paused();
    rig.store.set(Mood::Panics);
    let (looked_up, flushed) = tokio::join!(rig.look_up(&[1]), rig.flush());
    assert_eq!(looked_up, LookedUp::unavailable());
    assert_eq!(flushed, Err(PersistenceStopped));
    assert!(!rig.actor.connected());
}

#[actix::test]
async fn sqlite_behind_the_actor() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(&directory.path().join("relay.db")).unwrap());
    let (actor, _state) = start(Arc::clone(&store) as Arc<dyn Store>, PersistenceConfig::default());
    let user = UserId(Uuid::nil());
    for device in [1, 2] {
        let write = DeviceWrite {
            id: id(device),
            user,
            role: Role::Desktop,
            name: "Desk".into(),
            platform: "linux".into(),
            app_version: "1".into(),
            relay_eligible: None,
        };
        store.upsert_device(write, NOW).await.unwrap();
    }
    let looked_up = actor.send(LookUp { devices: vec![id(1), id(9)] }).await.unwrap();
    assert_eq!(looked_up, LookedUp { required: Ok(Version::new(1, 7)), devices: Ok(vec![facts(1)]) });

    // Device 1 was left online by an earlier process, device 2 came back to this one.
    let earlier = RelayInstanceId(Uuid::from_u128(9));
    let left =
        [1, 2].map(|device| StatusWrite { device: id(device), status: Presence::Online, reason: PresenceReason::Registered, at: NOW });
    store.write_statuses(&left, earlier).await.unwrap();
    actor.send(status(2, Presence::Online)).await.unwrap();
    actor.send(ReconcileStale { at: NOW.plus(STATEMENT) }).await.unwrap();
    assert_eq!(actor.send(Flush).await.unwrap(), Ok(()));
    let statuses: Vec<_> =
        store.devices_of(user).await.unwrap().iter().map(|device| (device.facts.id, device.status, device.status_at)).collect();
    assert_eq!(statuses, [(id(1), Presence::Disconnected, Some(NOW.plus(STATEMENT))), (id(2), Presence::Online, Some(NOW))]);
}
