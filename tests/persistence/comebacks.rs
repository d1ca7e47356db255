//! Everybody comes back in the same moment, to a relay whose database is slow: C80.

use crate::{
    rig::storage_is_well,
    support::{
        PATIENCE,
        account::Account,
        data_dir::{DataDir, Sql},
        postgres::OwnServer,
        raw_socket::{RawOptions, RawSocket},
        relay_process::RelayProcess,
        scale::scaled,
        stall_proxy::{Network, StallProxy},
        wire::{connections, eventually},
    },
};
use futures_util::{StreamExt, future::join_all, stream};
use relay_protocol::{close::CloseReason, id::DeviceId};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, sleep};

const POOL_SIZE: usize = 10;
/// Of the database, there and back.
const LATENCY: Duration = Duration::from_millis(20);
/// Clients without jitter: at once, and then again after this.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
const DESKTOPS: usize = 8;
const PHONES: usize = 2;
/// Accounts that are set up at once.
const SET_UP_AT_ONCE: usize = 16;
/// Statements that are not of look-ups and statuses: rules, keys of the pool, what a start asks.
const OTHER_STATEMENTS_MAX: u32 = 20;
/// What each client adds to a process that has had as many before.
const KEPT_KIB_PER_CLIENT_MAX: u64 = 16;

/// Longer than a rush takes: who was cut behind one may still resume.
fn session_life() -> Duration {
    Duration::from_secs(scaled(5, 30) as u64)
}

/// A device that keeps what its last registration told it.
struct Client {
    options: RawOptions,
    device: DeviceId,
    session: Value,
    socket: Option<RawSocket>,
}

/// What a client saw of its return.
#[derive(Debug)]
struct Return {
    /// `resumed` or `registered`.
    kind: String,
    /// Frames that came before its own answer.
    frames_before: usize,
}

impl Client {
    /// As a client without jitter does it, until it is back.
    async fn come_back(&mut self) -> Return {
        let mut resume = self.session.clone();
        loop {
            match self.attempt(&mut resume).await {
                Some(back) => return back,
                None => sleep(RETRY_INTERVAL).await,
            }
        }
    }

    async fn attempt(&mut self, resume: &mut Value) -> Option<Return> {
        let mut socket = match RawSocket::try_open(&self.options).await {
            Ok(socket) => socket,
            Err(answer) => {
                assert!(answer.starts_with("HTTP/1.1 429") || answer.starts_with("HTTP/1.1 503"), "{answer}");
                return None;
            }
        };
        let mut frames_before = 0;
        loop {
            let mut payload = json!({"deviceId": self.device, "relayProtocolVersion": "1.7"});
            if let Some(resume) = resume.as_object() {
                payload.as_object_mut().unwrap().extend(resume.clone());
            }
            socket.text(&json!({"type": "register", "payload": payload}).to_string()).await;
            let answer = loop {
                let received = socket.read(PATIENCE).await;
                if received.close().is_some_and(|(code, _)| code == CloseReason::RegistrationTimeout.code()) {
                    return None;
                }
                let frame: Value = serde_json::from_str(received.text().unwrap_or_else(|| panic!("{received:?}"))).unwrap();
                if frame["type"] != "event" {
                    break frame;
                }
                frames_before += 1;
            };
            let payload = &answer["payload"];
            match answer["type"].as_str().unwrap() {
                "error" if payload["code"] == "invalidResume" => *resume = Value::Null,
                "error" => {
                    assert_eq!(payload["retryable"], true, "{answer}");
                    return None;
                }
                kind => {
                    self.session = json!({"sessionId": payload["sessionId"], "resumeToken": payload["resumeToken"]});
                    self.socket = Some(socket);
                    return Some(Return { kind: kind.to_owned(), frames_before });
                }
            }
        }
    }

    /// How many events it has been sent since, up to the answer to its ping.
    async fn events_since(&mut self) -> usize {
        let socket = self.socket.as_mut().unwrap();
        socket.text(r#"{"type":"ping","payload":{}}"#).await;
        let mut events = 0;
        while !socket.next_text().await.starts_with(r#"{"type":"pong""#) {
            events += 1;
        }
        events
    }
}

/// A relay whose database is slow and counts its statements, and everybody who uses it.
struct Crowd {
    relay: RelayProcess,
    data_dir: Arc<DataDir>,
    database: StallProxy,
    server: OwnServer,
    /// Past the proxy.
    sql: Sql,
    clients: Vec<Client>,
}

impl Crowd {
    async fn start(accounts: usize) -> Self {
        let server = OwnServer::start();
        let data_dir = Arc::new(DataDir::with_postgres(server.server().clone()));
        let database = StallProxy::start(server.server().address()).await;
        let sql = data_dir.sql().await;
        sql.run("ALTER ROLE CURRENT_USER SET log_statement = 'all'").await;
        let relay = Self::relay(&data_dir, &database).await;
        let accounts = stream::iter(0..accounts).map(|_| Account::new(&relay, DESKTOPS, PHONES)).buffer_unordered(SET_UP_AT_ONCE);
        let mut clients = Vec::new();
        for account in accounts.collect::<Vec<_>>().await {
            let mut add = |options: &RawOptions, device: DeviceId| {
                clients.push(Client { options: options.clone(), device, session: Value::Null, socket: None });
            };
            account.desktops.iter().for_each(|device| add(&account.raw_desktop(), *device));
            account.phones.iter().for_each(|device| add(&account.raw_phone(), *device));
        }
        database.set(Network::Delays(LATENCY / 2));
        Crowd { relay, data_dir, database, server, sql, clients }
    }

    async fn relay(data_dir: &Arc<DataDir>, database: &StallProxy) -> RelayProcess {
        let url = data_dir.database().url_by_way_of(database.address());
        let (pool, life) = (POOL_SIZE.to_string(), format!("{}s", session_life().as_secs()));
        let flags = ["--database-url", &url, "--database-pool-size", &pool, "--resume-ttl", &life, "--log", "warn"];
        RelayProcess::start_on(Arc::clone(data_dir), &flags).await
    }

    /// Another process in the place of this one, which has ended: clients know its address.
    async fn restart(&mut self) {
        self.relay.signal("TERM");
        assert_eq!(self.relay.exited().await.code(), Some(0));
        self.relay = Self::relay(&self.data_dir, &self.database).await;
        for client in &mut self.clients {
            client.options.address = self.relay.ready().public;
        }
    }

    /// Every connection is lost in one moment, and the relay has noticed.
    async fn is_cut(&mut self) {
        self.clients.iter_mut().filter_map(|client| client.socket.take()).for_each(RawSocket::reset);
        eventually("all are gone", async || connections(&self.relay, None).await.is_empty()).await;
    }

    /// Everybody comes at once, and is `kind` in the end.
    async fn everybody_is(&mut self, kind: &str, within: Duration) {
        storage_is_well(&self.relay).await;
        let (statements, begun) = (self.server.statements(), Instant::now());
        let returns = join_all(self.clients.iter_mut().map(Client::come_back)).await;
        let elapsed = begun.elapsed();
        assert!(elapsed < within, "{kind}: the last was back after {elapsed:?}");
        assert!(returns.iter().all(|back| back.kind == kind), "{kind}: {returns:?}");
        storage_is_well(&self.relay).await;
        let (statements, stored) = (self.server.statements() - statements, begun.elapsed());
        println!("{kind}: {} clients in {elapsed:?}, {statements} statements in {stored:?}", self.clients.len());
        // One look-up and one write at a time, each as long as the latency; the statements of one client each would be many more.
        let batches_max = 2 * u32::try_from(stored.as_millis() / LATENCY.as_millis()).unwrap();
        let bound = usize::try_from(batches_max + OTHER_STATEMENTS_MAX).unwrap();
        assert!(statements <= bound, "{kind}: {statements} statements in {stored:?}");

        // Each device is connected once.
        let mut routes: Vec<String> = connections(&self.relay, None).await.iter().map(|live| live["route"].to_string()).collect();
        routes.sort_unstable();
        routes.dedup();
        assert_eq!((routes.len(), connections(&self.relay, None).await.len()), (self.clients.len(), self.clients.len()), "{kind}");
        let pool = self.sql.rows("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'relay'").await;
        assert!(pool[0][0].parse::<usize>().unwrap() <= POOL_SIZE, "{kind}: {pool:?}");
        // A phone hears of the desktops of its account, and of each change once.
        for (client, back) in self.clients.iter_mut().zip(returns) {
            let events = back.frames_before + client.events_since().await;
            assert!(events <= 2 * DESKTOPS, "{kind}: {events} events for one client");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_everybody_comes_back_at_once_and_storage_is_asked_in_batches() {
    let accounts = scaled(25, 500);
    let within = Duration::from_secs(scaled(8, 60) as u64);
    let mut crowd = Crowd::start(accounts).await;
    crowd.everybody_is("registered", within).await;

    // A cut: within the reconnect wait nobody is told, or stored, as gone.
    crowd.is_cut().await;
    crowd.everybody_is("resumed", within).await;
    let gone = "SELECT count(*) FROM presence_history JOIN devices ON devices.id = device_id \
                WHERE role = 'desktop' AND presence_history.status = 'disconnected'";
    assert_eq!(crowd.sql.rows(gone).await, [["0"]]);
    let kib = crowd.relay.rss_kib();

    // Sessions that have ended meanwhile: two look-ups each.
    crowd.is_cut().await;
    sleep(session_life()).await;
    crowd.everybody_is("registered", within).await;
    let grown = crowd.relay.rss_kib().saturating_sub(kib);
    assert!(grown <= KEPT_KIB_PER_CLIENT_MAX * crowd.clients.len() as u64, "{grown} KiB more");

    // A new process, to which every token is unknown.
    crowd.restart().await;
    crowd.everybody_is("registered", within).await;
    assert_eq!(crowd.sql.rows("SELECT count(*) FROM devices").await, [[crowd.clients.len().to_string()]]);
}
