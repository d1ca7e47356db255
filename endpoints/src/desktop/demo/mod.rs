//! The demo desktop: small but real, so that somebody who builds a phone has something to talk to.
//!
//! It is made of the parts that any desktop needs: a [`Router`] with handlers by namespace, a database, an outbox with receipts, agents
//! that publish what they do while somebody watches. Only what the agents say is made up (`script`). Its state is one SQLite file;
//! the router's memory of keys is another beside it.
//!
//! `system` and `session` are plain look-ups and changes (`methods`). A message goes through `store::outbox`, which knows each
//! operation once, to `agent`, and comes out as entries of a timeline. `files` reads below one folder (`files`). What the contract
//! has beyond that (git, attachments, approvals, accounts) is answered -32047.

mod agent;
mod database;
mod example;
mod fault;
mod files;
mod id;
mod limits;
mod methods;
mod model;
mod run;
mod script;
mod session;
mod store;
mod system;

use super::{
    Publisher,
    router::{Router, idempotency::Idempotency},
};
use crate::clock;
use agent::Agents;
use database::Database;
use methods::Shared;
use relay_protocol::id::UserId;
use std::{
    fmt,
    fs::{DirBuilder, File, TryLockError},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// The file with the desktop's state, in its folder.
pub const DATABASE_FILE: &str = "demo.db";
/// The file with what its router knows of keys, beside it.
pub const IDEMPOTENCY_FILE: &str = "idempotency.db";
/// Whoever has this file locked uses the folder.
const LOCK_FILE: &str = "lock";

/// Between two words of an agent, unless told otherwise: fast enough to wait for, slow enough to be seen.
pub const PACE_DEFAULT: Duration = Duration::from_millis(50);

/// What a demo desktop needs.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// The account that it is signed in to.
    pub user: UserId,
    /// Its folder, made if there is none. One desktop uses it at a time.
    pub data: PathBuf,
    /// What `files.*` may read; nothing without it.
    pub files: Option<PathBuf>,
    /// Between two words of an agent; not zero.
    pub pace: Duration,
}

/// A demo desktop whose state is open.
pub struct Demo {
    options: DemoOptions,
    shared: Shared,
    files: files::Files,
    idempotency: Idempotency,
    /// Held for as long as this lives.
    _lock: File,
}

/// Why a demo desktop cannot start.
#[derive(Debug)]
pub enum DemoError {
    /// The folder, or a file in it, cannot be used.
    Io(PathBuf, io::Error),
    /// Another desktop uses the folder.
    InUse(PathBuf),
    /// The state cannot be read.
    State(PathBuf, String),
}

impl fmt::Display for DemoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DemoError::Io(path, error) => write!(f, "{}: {error}", path.display()),
            DemoError::InUse(path) => write!(f, "another demo desktop uses {}", path.display()),
            DemoError::State(path, problem) => write!(f, "{}: {problem}", path.display()),
        }
    }
}

impl std::error::Error for DemoError {}

impl Demo {
    /// Opens the state, and fills it with an example if there is none. Blocks: for start-up only.
    ///
    /// # Errors
    /// The folder or the root of `files` cannot be used, or another desktop uses the folder.
    pub fn open(options: DemoOptions) -> Result<Self, DemoError> {
        let lock = lock_folder(&options.data)?;
        let files = match &options.files {
            Some(root) => files::Files::below(root).map_err(|error| DemoError::Io(root.clone(), error))?,
            None => files::Files::none(),
        };
        let path = options.data.join(DATABASE_FILE);
        let now = clock::epoch_ms_signed();
        let database = Database::open(&path, |transaction| example::fill(transaction, now));
        let database = database.map_err(|fault| DemoError::State(path, fault.to_string()))?;
        let path = options.data.join(IDEMPOTENCY_FILE);
        let idempotency = Idempotency::open(&path).map_err(|error| DemoError::State(path, error.to_string()))?;
        Ok(Demo { options, shared: Shared { database, progress: Arc::default() }, files, idempotency, _lock: lock })
    }

    /// A router that answers all of the contract.
    pub fn router(&self) -> Router {
        Router::new(self.options.user)
            .idempotency(self.idempotency.clone())
            .namespace(system::namespace(&self.shared))
            .namespace(session::namespace(&self.shared))
            .namespace(run::namespace(&self.shared))
            .namespace(files::namespace(&self.shared, &self.files))
    }

    /// Has the agents work, for as long as this is polled, and tell of it through the desktop's publisher.
    pub async fn work(self, publisher: Publisher) {
        let Shared { database, progress } = self.shared;
        Agents { database, progress, publisher, pace: self.options.pace }.work().await;
    }
}

/// Makes the folder, for its owner alone, and takes it.
fn lock_folder(folder: &Path) -> Result<File, DemoError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        |error| DemoError::Io(path, error)
    };
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed(folder))?;
    let path = folder.join(LOCK_FILE);
    let file = File::options().append(true).create(true).open(&path).map_err(failed(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(DemoError::InUse(folder.to_owned())),
        Err(TryLockError::Error(error)) => Err(DemoError::Io(path, error)),
    }
}
