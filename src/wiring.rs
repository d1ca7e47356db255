//! Which storage and which actors this process runs with: the one place that names implementations.

use crate::{
    config::ServeConfig,
    http::{Mount, port::RelayPort},
    server::OnConnect,
};
use relay_actors::store::{
    Store,
    migrate::MigrationReport,
    sqlite::{self, OpenError, SqliteStore},
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// File of the embedded database in the data directory.
const DATABASE_FILE: &str = "relay.db";

/// The running actors, and their ways in from the public listener.
pub struct Actors {
    /// For HTTP handlers.
    pub relay: Arc<dyn RelayPort>,
    /// Mounts the websocket route.
    pub device_link: Mount,
    /// Sees each connection before its first byte.
    pub on_connect: OnConnect,
}

/// The embedded database's file.
pub fn database_path(data_dir: &Path) -> PathBuf {
    data_dir.join(DATABASE_FILE)
}

/// Opens the storage, migrated.
///
/// # Errors
/// The database cannot be used, or a newer relay has used it.
pub fn open_store(data_dir: &Path) -> Result<SqliteStore, OpenError> {
    SqliteStore::open(&database_path(data_dir))
}

/// Migrates the storage without opening it for use.
///
/// # Errors
/// As [`open_store`].
pub fn migrate(data_dir: &Path) -> Result<MigrationReport, OpenError> {
    sqlite::migrate(&database_path(data_dir))
}

/// Starts the actors on this storage.
pub fn start_actors(_config: &ServeConfig, _store: Arc<dyn Store>) -> Actors {
    Actors { relay: Arc::new(no_sockets::NoSockets::default()), device_link: Arc::new(|_| {}), on_connect: Arc::new(|_, _| {}) }
}

/// Stands in for the actors until the socket layer is joined here: no socket ever connects.
mod no_sockets {
    use super::RelayPort;
    use async_trait::async_trait;
    use relay_actors::relay::{ConnectionInfo, RouterUnavailable};
    use relay_protocol::{
        close::CloseReason,
        device::Presence,
        id::{DeviceId, RelayInstanceId, UserId},
    };
    use std::collections::BTreeMap;
    use uuid::Uuid;

    pub(super) struct NoSockets {
        instance: RelayInstanceId,
    }

    impl Default for NoSockets {
        fn default() -> Self {
            NoSockets { instance: RelayInstanceId(Uuid::new_v4()) }
        }
    }

    #[async_trait]
    impl RelayPort for NoSockets {
        fn instance_id(&self) -> RelayInstanceId {
            self.instance
        }

        fn is_draining(&self) -> bool {
            false
        }

        async fn presence(&self, _user: UserId) -> Result<BTreeMap<DeviceId, Presence>, RouterUnavailable> {
            Ok(BTreeMap::new())
        }

        async fn close_device(&self, _user: UserId, _device: DeviceId, _reason: CloseReason) -> Result<(), RouterUnavailable> {
            Ok(())
        }

        fn connections(&self, _user: Option<UserId>) -> Vec<ConnectionInfo> {
            Vec::new()
        }
    }
}
