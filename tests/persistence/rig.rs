//! Traffic that must never notice, calls that may fail in one way only, and what the relay says of its storage.

use crate::support::{
    account::Account,
    data_dir::{DataDir, Sql},
    postgres::Server,
    raw_socket::RawSocket,
    relay_process::RelayProcess,
    stall_proxy::{Network, StallProxy},
    wire::{eventually, registered, round_trip},
};
use futures_util::future::join_all;
use relay_endpoints::devices::{ApiError, Device, Devices, NewDevice};
use relay_protocol::{device::Role, id::DeviceId};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};

/// First success after storage is back. Case C65.
pub(crate) const RECOVERY_MAX: Duration = Duration::from_secs(2);
/// A call that needs storage is answered by then, one way or the other: the store's own limit is seven seconds and a quarter.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(9);
/// A round trip that waited for storage would take longer: a statement alone has two seconds and a half.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(2);
const ROUND_TRIP_INTERVAL: Duration = Duration::from_millis(5);
const KNOCK_INTERVAL: Duration = Duration::from_millis(20);
/// More calls at once than the pool has connections.
const BURST: usize = 20;

/// What happens to the way to the database.
#[derive(Clone, Copy)]
pub(crate) enum Fault {
    /// Every connection ends, and new ones are refused.
    Refused,
    /// Nothing moves and nothing ends.
    Stalled,
}

impl Fault {
    pub(crate) fn begin(self, proxy: &StallProxy) {
        match self {
            Fault::Refused => {
                proxy.set(Network::Refuses);
                proxy.cut();
            }
            Fault::Stalled => proxy.set(Network::Stalls),
        }
    }
}

/// A relay that reaches PostgreSQL by way of a proxy.
pub(crate) struct Rig {
    pub(crate) relay: RelayProcess,
    pub(crate) account: Account,
    pub(crate) proxy: StallProxy,
    /// Past the proxy.
    pub(crate) sql: Sql,
    pub(crate) server: Server,
}

impl Rig {
    /// With an account of two phones and this many desktops.
    pub(crate) async fn start(desktops: usize) -> Self {
        let server = Server::shared();
        let proxy = StallProxy::start(server.address()).await;
        let data_dir = Arc::new(DataDir::with_postgres(server.clone()));
        let url = data_dir.database().url_by_way_of(proxy.address());
        let relay = RelayProcess::start_on(Arc::clone(&data_dir), &["--log-format", "json", "--database-url", &url]).await;
        let account = Account::new(&relay, desktops, 2).await;
        Rig { relay, account, proxy, sql: data_dir.sql().await, server }
    }
}

/// The first phone calls the first desktop, over and over.
pub(crate) struct Traffic {
    stopped: Arc<AtomicBool>,
    round_trips: Arc<AtomicUsize>,
    task: JoinHandle<Duration>,
}

impl Traffic {
    pub(crate) async fn start(account: &Account) -> Self {
        let mut desktop = registered(&account.raw_desktop(), account.desktops[0]).await;
        let mut phone = registered(&account.raw_phone(), account.phones[0]).await;
        let (stopped, round_trips) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stop, count) = (Arc::clone(&stopped), Arc::clone(&round_trips));
        let task = tokio::spawn(async move {
            let mut longest = Duration::ZERO;
            while !stop.load(Relaxed) {
                let begun = Instant::now();
                round_trip(&mut phone, &mut desktop, &format!("call-{}", count.load(Relaxed))).await;
                longest = longest.max(begun.elapsed());
                count.fetch_add(1, Relaxed);
                sleep(ROUND_TRIP_INTERVAL).await;
            }
            longest
        });
        Traffic { stopped, round_trips, task }
    }

    /// How many round trips were made so far.
    pub(crate) fn round_trips(&self) -> usize {
        self.round_trips.load(Relaxed)
    }

    /// All of them were made, and none waited for storage.
    pub(crate) async fn was_never_disturbed(self) {
        self.stopped.store(true, Relaxed);
        let longest = self.task.await.expect("every request is answered");
        assert!(longest < ROUND_TRIP_MAX, "a round trip took {longest:?}");
    }
}

/// A desktop of no particular kind.
pub(crate) fn new_device(name: &str) -> NewDevice {
    NewDevice {
        device_id: None,
        role: Role::Desktop,
        device_name: name.to_owned(),
        platform: "linux".to_owned(),
        app_version: "1".to_owned(),
        relay_eligible: None,
    }
}

/// The one way in which a call may fail for want of storage.
#[track_caller]
pub(crate) fn is_unavailable<T: std::fmt::Debug>(answer: Result<T, ApiError>) {
    match answer {
        Err(ApiError::Refused { status: 503, error }) => assert_eq!((error.code.as_str(), error.retryable), ("storageUnavailable", true)),
        other => panic!("{other:?}"),
    }
}

/// Calls until a call works, which must be soon. Those that fail meanwhile say that they may be repeated.
pub(crate) async fn works_again(devices: &Devices, since: Instant) {
    loop {
        let answer = devices.list().await;
        if answer.is_ok() {
            break;
        }
        is_unavailable(answer);
        sleep(KNOCK_INTERVAL).await;
    }
    assert!(since.elapsed() <= RECOVERY_MAX, "the first success came after {:?}", since.elapsed());
}

/// Many calls at once, so that each connection of the pool is used: all of them work.
pub(crate) async fn burst_works(devices: &Devices) {
    let answers: Vec<Result<Vec<Device>, ApiError>> = join_all((0..BURST).map(|_| devices.list())).await;
    let failed: Vec<ApiError> = answers.into_iter().filter_map(Result::err).collect();
    assert!(failed.is_empty(), "{} of {BURST} failed: {}", failed.len(), failed[0]);
}

/// Sends a `register`: done, or the code of an error that may be repeated on the same socket.
pub(crate) async fn try_register(socket: &mut RawSocket, device: DeviceId) -> Result<(), String> {
    let register = json!({"type": "register", "payload": {"deviceId": device, "relayProtocolVersion": "1.7"}});
    socket.text(&register.to_string()).await;
    loop {
        let answer: Value = serde_json::from_str(&socket.next_text().await).unwrap();
        match answer["type"].as_str().unwrap() {
            "event" => {}
            "registered" => return Ok(()),
            _error => {
                assert_eq!(answer["payload"]["retryable"], true, "{answer}");
                return Err(answer["payload"]["code"].as_str().unwrap().to_owned());
            }
        }
    }
}

/// What `/readyz` answers on this listener.
pub(crate) async fn readiness(listener: std::net::SocketAddr) -> (u16, Value) {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer = client.get(format!("http://{listener}/readyz")).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

/// Waits until the relay says that nothing fails and nothing waits to be stored.
pub(crate) async fn storage_is_well(relay: &RelayProcess) {
    let well = (200, json!({"status": "ready", "storage": "ok", "unwrittenStatuses": 0, "draining": false}));
    eventually("storage is well", async || readiness(relay.ready().admin).await == well).await;
}

/// The stored status of each device.
pub(crate) async fn statuses(sql: &Sql) -> BTreeMap<DeviceId, String> {
    let rows = sql.rows("SELECT id, status FROM devices").await;
    rows.iter().map(|row| (row[0].parse().unwrap(), row[1].clone())).collect()
}

/// How often the log tells of each statement that storage fails, and that it works again.
pub(crate) fn reports(relay: &RelayProcess) -> BTreeMap<String, (usize, usize)> {
    let mut reports = BTreeMap::<String, (usize, usize)>::new();
    for line in relay.log().lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let Some(statement) = line["statement"].as_str() else { continue };
        let (failing, working) = reports.entry(statement.to_owned()).or_default();
        match line["message"].as_str() {
            Some("storage fails") => *failing += 1,
            Some("storage works again") => *working += 1,
            _other => {}
        }
    }
    reports
}
