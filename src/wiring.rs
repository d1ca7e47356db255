//! Which storage and which actors this process runs with: the one place that names implementations.

use crate::{
    config::{ConfigError, ServeConfig, database_settings},
    http::{Mount, device_link},
};
use actix::Actor;
use relay_actors::{
    counters::Counters,
    device_socket::{EventLimits, GateLimits, Rate, SocketConfig, SocketTable, Sockets, TableLimits},
    persistence::{Persistence, PersistenceConfig},
    push::{Gateways, Push},
    relay::Relay,
    spans::{self, SpanQueue},
    store::{
        Store,
        migrate::MigrationReport,
        postgres::{self, PostgresStore},
        sqlite::{self, SqliteStore},
    },
    supervisor::{Supervisor, SupervisorConfig, SweepLimits},
    user_router::{actor::RouterConfig, core::CoreConfig},
};
use relay_protocol::id::{RelayInstanceId, UserId};
use std::{
    fmt,
    hash::RandomState,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};
use tokio::sync::oneshot;
use uuid::Uuid;

/// File of the embedded database in the data directory.
const DATABASE_FILE: &str = "relay.db";

/// Messages that wait for one account's router before the sockets that send them stop reading.
const ROUTER_MAILBOX_CAPACITY: usize = 1_024;

/// The running actors, and their way in from the public listener.
pub struct Actors {
    /// For HTTP handlers.
    pub relay: Relay,
    /// Mounts the websocket route.
    pub device_link: Mount,
    /// Spans that are to be exported; none where nobody wants them.
    pub spans: Option<SpanQueue>,
}

/// The embedded database's file.
pub fn database_path(data_dir: &Path) -> PathBuf {
    data_dir.join(DATABASE_FILE)
}

/// Why the storage could not be opened or migrated.
#[derive(Debug)]
pub enum StorageError {
    /// The configuration of the database makes no sense.
    Config(ConfigError),
    /// The embedded database in the data directory.
    Embedded(sqlite::OpenError),
    /// The database server.
    Server(postgres::OpenError),
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StorageError::Config(error) => error.fmt(f),
            StorageError::Embedded(error) => error.fmt(f),
            StorageError::Server(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StorageError {}

/// Opens the storage, migrated. Waits a while for a database server, or for who opens the file; dropping the future ends that.
///
/// # Errors
/// The database cannot be used, is not there in time, or a newer relay has used it.
pub async fn open_store(config: &ServeConfig) -> Result<Arc<dyn Store>, StorageError> {
    let Some(settings) = database_settings(config.database_url.as_ref()).map_err(StorageError::Config)? else {
        return Ok(Arc::new(open_embedded(database_path(&config.data_dir)).await.map_err(StorageError::Embedded)?));
    };
    let pool_size = config.pool_size().map_err(StorageError::Config)?;
    Ok(Arc::new(PostgresStore::open(&settings, pool_size).await.map_err(StorageError::Server)?))
}

/// Waits for its turn for as long as another process takes to open the file, on a thread that nobody waits for: a signal must be able
/// to end the process meanwhile.
async fn open_embedded(path: PathBuf) -> Result<SqliteStore, sqlite::OpenError> {
    let (opened, opening) = oneshot::channel();
    let open = move || {
        // Nobody listens any more once the process ends.
        let _ = opened.send(SqliteStore::open(&path));
    };
    thread::Builder::new().name("store-open".to_owned()).spawn(open).map_err(sqlite::OpenError::Thread)?;
    opening.await.unwrap_or_else(|_panicked| Err(sqlite::OpenError::Thread(io::Error::other("it ended before the file was open"))))
}

/// Migrates the embedded database without opening it for use.
///
/// # Errors
/// As [`open_store`].
pub fn migrate_embedded(data_dir: &Path) -> Result<MigrationReport, StorageError> {
    sqlite::migrate(&database_path(data_dir)).map_err(StorageError::Embedded)
}

/// Migrates a database server's database without opening it for use.
///
/// # Errors
/// As [`open_store`].
pub async fn migrate_server(settings: &postgres::Settings) -> Result<MigrationReport, StorageError> {
    postgres::migrate(settings).await.map_err(StorageError::Server)
}

/// Starts the actors on this storage. Supervisor and persistence run on this thread's arbiter; each router on the arbiter of the
/// worker whose socket registered first.
pub fn start_actors(config: &ServeConfig, store: Arc<dyn Store>, gateways: Gateways) -> Actors {
    let instance = RelayInstanceId(Uuid::new_v4());
    let sockets = Arc::new(SocketTable::new(TableLimits {
        inbound_bytes_max: config.inbound_total.0,
        outbound_bytes_max: config.outbound_total.0,
        message_bytes_max: config.max_message.0,
        events: EventLimits {
            flush_interval: config.flush_interval.0,
            flush_bytes: config.flush_size.0,
            bytes_max: config.event_lane_limit.0,
        },
    }));
    let counters = Arc::new(Counters::default());
    let (spans, span_queue) = config.otlp_endpoint.as_ref().map(|_| spans::queue(counters.clone())).unzip();
    let persistence = PersistenceConfig { policy_cache: config.policy_cache.0, ..PersistenceConfig::default() };
    let core = CoreConfig {
        resume_ttl: config.resume_ttl.0,
        pending_default: config.pending_default.0,
        pending_load: config.pending_load.0,
        pending_outbox: config.pending_outbox.0,
        interest_ttl: config.interest_ttl.0,
        spans,
        // The account is filled in for each router.
        ..CoreConfig::new(UserId(Uuid::nil()), instance, RandomState::new())
    };
    let supervisor = SupervisorConfig {
        sweep: SweepLimits {
            register_timeout: config.register_timeout.0,
            silence_timeout: config.silence_timeout.0,
            ..SweepLimits::default()
        },
        reconnect_grace: config.reconnect_grace.0,
    };
    let routers = RouterConfig { core, mailbox_capacity: ROUTER_MAILBOX_CAPACITY };
    let start_persistence = move |shared| Persistence::new(store.clone(), instance, persistence, shared).start();
    let push_counters = counters.push.clone();
    let start_push = move |services| Push::new(gateways.clone(), services, push_counters.clone()).start();
    let (_, directory) = Supervisor::launch(supervisor, routers, sockets.clone(), counters, start_persistence, start_push);
    let config = SocketConfig {
        gate: GateLimits {
            message_bytes_max: config.max_message.0,
            rate: Rate { burst: config.rate_burst, per_second: config.rate_per_second },
            ..GateLimits::default()
        },
        heartbeat_interval: config.heartbeat_interval.0,
        outbound_bytes_max: config.outbound_limit.0,
    };
    let relay = Relay::new(instance, Sockets { table: sockets, directory, config });
    Actors { device_link: device_link::mount(&relay), relay, spans: span_queue }
}
