//! The row of this process in storage: when it is written, renewed and taken away, in paused time.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod support;

use relay_actors::{
    clock,
    device_socket::{GateLimits, SocketConfig, Sockets},
    processes::{Renewal, SeenProcesses},
    relay::{DrainLimits, Relay},
};
use relay_protocol::{
    id::RelayInstanceId,
    limits::{HEARTBEAT_INTERVAL, OUTBOUND_BYTES_MAX, RECONNECT_GRACE},
};
use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};
use support::{MemoryStore, OVERTAKEN_BY, Rig, advance, settle};
use tokio::task::JoinHandle;
use uuid::Uuid;

const LIMITS: DrainLimits = DrainLimits { work: Duration::from_secs(60), step: Duration::from_secs(3) };
/// The runtime's timers fire up to a millisecond late.
const TICK: Duration = Duration::from_millis(2);
/// Of the default reconnect wait.
const INTERVAL: Duration = Duration::from_secs(30);
const GOOD_FOR: Duration = Duration::from_secs(90);
/// After a renewal that failed.
const RETRY: Duration = Duration::from_secs(5);

/// A relay of this storage, and what records it there.
struct Process {
    relay: Relay,
    heartbeat: JoinHandle<()>,
    drain: JoinHandle<()>,
    _rig: Rig,
}

impl Process {
    async fn start(store: &Arc<MemoryStore>) -> Self {
        let rig = Rig::start();
        let config =
            SocketConfig { gate: GateLimits::default(), heartbeat_interval: HEARTBEAT_INTERVAL, outbound_bytes_max: OUTBOUND_BYTES_MAX };
        let sockets = Sockets { table: rig.sockets.clone(), directory: rig.directory.clone(), config };
        let relay = Relay::new(RelayInstanceId(Uuid::new_v4()), sockets);
        let heartbeat = relay.heartbeat(store.clone(), "1.2.3", "somewhere".into(), Renewal::within(RECONNECT_GRACE));
        let leaving = relay.clone();
        let drain = actix::spawn(async move { leaving.drain(LIMITS).await });
        let process = Process { relay, heartbeat: actix::spawn(heartbeat.run()), drain, _rig: rig };
        settle().await;
        process
    }

    fn id(&self) -> RelayInstanceId {
        self.relay.instance_id()
    }

    /// Who it knows of, in no particular order, and who of them is leaving.
    fn knows(&self, others: &[(&Process, bool)]) -> bool {
        let seen = self.relay.processes();
        let is_known = |(process, is_draining): &(&Process, bool)| {
            seen.live.iter().any(|live| live.record.instance == process.id() && live.record.is_draining == *is_draining)
        };
        seen.live.len() == others.len() && others.iter().all(is_known)
    }

    async fn killed(self) {
        self.heartbeat.abort();
        settle().await;
    }
}

/// When this process was renewed, as time since then.
fn renewals(store: &MemoryStore, process: &Process, start: Instant) -> Vec<Duration> {
    let renewals = store.processes.renewals.lock().unwrap();
    renewals.iter().filter(|(_, own)| *own == process.id()).map(|(at, _)| at.duration_since(start)).collect()
}

fn rows(store: &MemoryStore) -> usize {
    store.processes.rows.lock().unwrap().len()
}

#[actix::test]
async fn a_process_records_itself_and_renews_that_every_half_minute() {
    tokio::time::pause();
    let (store, start) = (Arc::new(MemoryStore::default()), clock::now());
    let process = Process::start(&store).await;
    let seen = process.relay.processes();
    let record = &seen.live[0].record;
    assert_eq!((record.version.as_str(), record.host.as_str(), record.pid), ("1.2.3", "somewhere", std::process::id()));
    assert_eq!((record.started_at, record.is_draining), (process.relay.started().0, false));
    assert_eq!((seen.age, seen.live[0].last_seen), (Some(Duration::ZERO), Duration::ZERO));

    advance(INTERVAL - TICK).await;
    assert_eq!(renewals(&store, &process, start), [Duration::ZERO]);
    assert_eq!(process.relay.processes().live[0].last_seen, INTERVAL - TICK, "it counts until now");
    advance(2 * TICK).await;
    advance(INTERVAL + TICK).await;
    assert_eq!(renewals(&store, &process, start).len(), 3);
    assert_eq!(rows(&store), 1);
}

#[actix::test]
async fn two_processes_see_each_other_and_one_that_is_killed_is_gone_when_it_missed_three_renewals() {
    tokio::time::pause();
    let store = Arc::new(MemoryStore::default());
    let first = Process::start(&store).await;
    let second = Process::start(&store).await;
    assert!(second.knows(&[(&first, false), (&second, false)]), "at its start");
    assert!(first.knows(&[(&first, false)]));
    advance(INTERVAL + TICK).await;
    assert!(first.knows(&[(&first, false), (&second, false)]), "at its next renewal");

    second.killed().await;
    advance(GOOD_FOR - INTERVAL).await;
    assert_eq!(first.relay.processes().live.len(), 2);
    advance(INTERVAL + TICK).await;
    assert!(first.knows(&[(&first, false)]));
    assert_eq!(rows(&store), 1);
}

#[actix::test]
async fn a_drain_is_recorded_when_it_begins_and_the_row_goes_when_the_process_is_to_end() {
    tokio::time::pause();
    let store = Arc::new(MemoryStore::default());
    let (old, new) = (Process::start(&store).await, Process::start(&store).await);
    old.relay.begin_drain(false);
    settle().await;
    assert!(old.knows(&[(&old, true), (&new, false)]), "at once");
    advance(INTERVAL + TICK).await;
    assert!(old.drain.is_finished() && !old.heartbeat.is_finished(), "it is drained, and was not told to end");
    assert!(new.knows(&[(&old, true), (&new, false)]));
    old.relay.begin_drain(true);
    settle().await;
    assert_eq!((old.heartbeat.is_finished(), rows(&store)), (true, 1));
    advance(INTERVAL + TICK).await;
    assert!(new.knows(&[(&new, false)]));
}

#[actix::test]
async fn while_storage_is_away_what_was_seen_last_is_kept_with_its_age() {
    tokio::time::pause();
    let (store, start) = (Arc::new(MemoryStore::default()), clock::now());
    let process = Process::start(&store).await;
    store.processes.away.store(true, Relaxed);
    advance(INTERVAL + TICK).await;
    advance(RETRY + TICK).await;
    advance(RETRY + TICK).await;
    let SeenProcesses { age, live } = process.relay.processes();
    assert_eq!((age.unwrap(), live.len()), (clock::now() - start, 1));
    assert_eq!(renewals(&store, &process, start).len(), 4, "it is tried again, not as often as it could be");
    store.processes.away.store(false, Relaxed);
    advance(RETRY + TICK).await;
    assert_eq!(process.relay.processes().age, Some(Duration::ZERO));

    // Nor does a storage that says nothing stop it.
    store.processes.stalls.send_replace(true);
    for _ in 0..3 {
        advance(INTERVAL).await;
    }
    let tried = renewals(&store, &process, start).len();
    store.processes.stalls.send_replace(false);
    advance(RETRY + TICK).await;
    assert!(tried > 5 && process.relay.processes().age.unwrap() <= RETRY + TICK, "{tried}");
}

/// A renewal on its way must not put the row back behind its removal, nor may storage that says nothing keep the process.
#[actix::test]
async fn a_process_ends_within_a_second_of_its_drain_whatever_storage_does() {
    for answers_in_time in [true, false] {
        tokio::time::pause();
        let store = Arc::new(MemoryStore::default());
        let process = Process::start(&store).await;
        store.processes.stalls.send_replace(true);
        process.relay.begin_drain(true);
        settle().await;
        advance(Duration::from_millis(500)).await;
        assert_eq!((process.drain.is_finished(), process.heartbeat.is_finished()), (true, false));
        if answers_in_time {
            store.processes.stalls.send_replace(false);
            settle().await;
            advance(2 * OVERTAKEN_BY).await;
        } else {
            advance(Duration::from_secs(1)).await;
        }
        assert_eq!((process.heartbeat.is_finished(), rows(&store)), (true, usize::from(!answers_in_time)));
        tokio::time::resume();
    }
}
