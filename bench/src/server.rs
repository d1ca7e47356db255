//! Server processes: started with a ready file, stopped by their own pid.

use crate::error::Error;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use std::{
    ffi::OsString,
    fs::{self, File},
    io,
    net::SocketAddr,
    path::Path,
    process::Stdio,
    time::Duration,
};
use tempfile::TempDir;
use tokio::{
    process::{Child, Command},
    time::{sleep, timeout},
};

/// A relay opens its storage and runs its migrations first.
const START_LIMIT: Duration = Duration::from_secs(30);
const START_CHECK: Duration = Duration::from_millis(20);
/// After SIGTERM a relay drains.
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// Lines of a server's log that are shown when it does not start.
const LOG_TAIL_LINES: usize = 10;

/// What a server writes when it serves; the relay's file has more in it.
#[derive(Serialize, Deserialize)]
struct Ready {
    public: SocketAddr,
    pid: u32,
}

/// Writes a ready file in one step, so that nobody reads half of it.
pub fn write_ready_file(path: &Path, public: SocketAddr) -> io::Result<()> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".part");
    fs::write(&unfinished, serde_json::to_vec(&Ready { public, pid: std::process::id() })?)?;
    fs::rename(unfinished, path)
}

/// A running server with a data directory of its own. Dropping it kills it.
pub struct Server {
    child: Child,
    addr: SocketAddr,
    pid: u32,
    _data: TempDir,
}

impl Server {
    /// Starts `program` and waits until it serves. `arguments` gets the data directory and the ready file.
    pub async fn start(program: &Path, arguments: impl FnOnce(&Path, &Path) -> Vec<OsString>) -> Result<Self, Error> {
        let data = TempDir::with_prefix("relay-bench-").map_err(Error::io("create a data directory"))?;
        let (ready_file, log) = (data.path().join("ready.json"), data.path().join("server.log"));
        let log_file = File::create(&log).map_err(Error::io("create a log file"))?;
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("RELAY_") || name == "NOTIFY_SOCKET") {
            // What somebody has set for a relay of theirs, such as its database, is nothing to load; nor is this one a service.
            command.env_remove(name);
        }
        let mut child = command
            .args(arguments(data.path(), &ready_file))
            .stdin(Stdio::null())
            .stdout(log_file.try_clone().map_err(Error::io("create a log file"))?)
            .stderr(log_file)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Error::Server(format!("cannot start {}: {error}", program.display())))?;
        let serving = timeout(START_LIMIT, wait_until_ready(&mut child, &ready_file)).await;
        let failed = match serving {
            Ok(Ok(ready)) => return Ok(Self { child, addr: ready.public, pid: ready.pid, _data: data }),
            Ok(Err(why)) => why,
            Err(_elapsed) => format!("was not ready within {} s", START_LIMIT.as_secs()),
        };
        Err(Error::Server(format!("{} {failed}{}", program.display(), log_tail(&log))))
    }

    /// Where it serves.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Stops it: politely, and then not.
    pub async fn stop(mut self) -> Result<(), Error> {
        if let Some(pid) = self.child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw) {
            let _already_gone = kill_process(pid, Signal::TERM);
        }
        match timeout(STOP_LIMIT, self.child.wait()).await {
            Ok(ended) => ended.map(|_status| ()).map_err(Error::io("wait for a server")),
            Err(_elapsed) => self.child.kill().await.map_err(Error::io("kill a server")),
        }
    }
}

async fn wait_until_ready(child: &mut Child, ready_file: &Path) -> Result<Ready, String> {
    loop {
        if let Ok(text) = fs::read(ready_file) {
            return serde_json::from_slice(&text).map_err(|error| format!("wrote a ready file that is none: {error}"));
        }
        if let Ok(Some(status)) = child.try_wait() {
            return Err(format!("ended before it was ready ({status})"));
        }
        sleep(START_CHECK).await;
    }
}

fn log_tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let tail = &lines[lines.len().saturating_sub(LOG_TAIL_LINES)..];
    if tail.is_empty() { "; it logged nothing".to_owned() } else { format!("; its last lines:\n{}", tail.join("\n")) }
}
