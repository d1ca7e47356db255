//! The real binary as a child process: started on free ports with a data directory of its own, killed and reaped when dropped.
//!
//! A log line of level ERROR, or a panic, fails the test that owns the process, unless it said that it expects one.

use super::{PATIENCE, data_dir::DataDir, token::TEST_SECRET};
use relay_endpoints::address::RelayAddress;
use serde::Deserialize;
use std::{
    fs::{self, File},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};
use tokio::time::{Instant, sleep};

/// How often the ready file and the exit status are looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Log text shown with a failure, from the end.
const LOG_TAIL_LINES: usize = 60;
/// Tests are faster than any client, so the rate limit is out of their way unless a flag of theirs says otherwise.
const RATE_RAISED: [(&str, &str); 2] = [("RELAY_RATE_BURST", "1000000"), ("RELAY_RATE_PER_SECOND", "1000000")];

/// What the ready file says.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ready {
    pub public: SocketAddr,
    pub admin: SocketAddr,
    pub relay_instance_id: String,
    pub pid: u32,
}

pub struct RelayProcess {
    child: Child,
    ready: Ready,
    log: PathBuf,
    printed: PathBuf,
    errors_allowed: bool,
    /// Kept until the process is gone; shared so that a second process can take over the data.
    data_dir: Arc<DataDir>,
}

impl RelayProcess {
    /// Starts a relay with fresh data and waits until it serves.
    pub async fn start(extra_args: &[&str]) -> Self {
        Self::start_in(&[], extra_args).await
    }

    /// The same with these variables in its environment.
    pub async fn start_in(environment: &[(&str, &str)], extra_args: &[&str]) -> Self {
        Self::spawn(relay(), Arc::new(DataDir::new()), environment, extra_args).await
    }

    /// Starts a relay with fresh data that may have this many files open, and no more.
    pub async fn start_with_descriptors(descriptors: u32, extra_args: &[&str]) -> Self {
        Self::start_behind(&format!("ulimit -n {descriptors}"), extra_args).await
    }

    /// Starts a relay with fresh data as a shell does it that has run this first.
    pub async fn start_behind(shell: &str, extra_args: &[&str]) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{shell} && exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_relay")]);
        Self::spawn(command, Arc::new(DataDir::new()), &[], extra_args).await
    }

    /// Starts a relay on the data of another one, which may still run or be gone.
    pub async fn start_on(data_dir: Arc<DataDir>, extra_args: &[&str]) -> Self {
        Self::start_on_in(data_dir, &[], extra_args).await
    }

    /// The same with these variables in its environment.
    pub async fn start_on_in(data_dir: Arc<DataDir>, environment: &[(&str, &str)], extra_args: &[&str]) -> Self {
        Self::spawn(relay(), data_dir, environment, extra_args).await
    }

    async fn spawn(mut command: Command, data_dir: Arc<DataDir>, environment: &[(&str, &str)], extra_args: &[&str]) -> Self {
        // Two processes on one directory must not share these files.
        let own = tempfile::Builder::new().prefix("process-").tempdir_in(data_dir.path()).unwrap().keep();
        let (ready_file, log, printed) = (own.join("ready.json"), own.join("log"), own.join("printed"));
        let mut child = command
            .args(["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--jwt-secret", TEST_SECRET])
            .arg("--ready-file")
            .arg(&ready_file)
            .arg("--data-dir")
            .arg(data_dir.path())
            .args(extra_args)
            // The relay reads its configuration from RELAY_*; a developer's own settings must not change a test.
            .envs_without_relay()
            .envs(RATE_RAISED)
            .envs(environment.iter().copied())
            .envs(data_dir.database_url().map(|url| ("RELAY_DATABASE_URL", url)))
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(File::create(&printed).unwrap())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .expect("the relay binary starts");
        let ready = match wait_for_ready(&mut child, &ready_file).await {
            Ok(ready) => ready,
            Err(problem) => {
                end(&mut child);
                panic!("{problem}\n{}", tail(&log));
            }
        };
        RelayProcess { child, ready, log, printed, errors_allowed: false, data_dir }
    }

    pub fn ready(&self) -> &Ready {
        &self.ready
    }

    /// The public listener.
    pub fn address(&self) -> RelayAddress {
        format!("http://{}", self.ready.public).parse().unwrap()
    }

    pub fn data_dir(&self) -> Arc<DataDir> {
        Arc::clone(&self.data_dir)
    }

    /// The token of the admin listener.
    pub fn admin_token(&self) -> String {
        fs::read_to_string(self.data_dir.path().join("admin-token")).unwrap().trim().to_owned()
    }

    /// This test provokes ERROR lines.
    pub fn allow_errors(&mut self) {
        self.errors_allowed = true;
    }

    pub fn alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Resident memory.
    pub fn rss_kib(&self) -> u64 {
        self.status_number("VmRSS:")
    }

    /// The highest resident memory so far.
    pub fn rss_peak_kib(&self) -> u64 {
        self.status_number("VmHWM:")
    }

    /// Processor time that it has used, of all its threads.
    pub fn cpu_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        // The command's name, in parentheses, may hold spaces. Behind it, fields 14 and 15 of proc(5) are the 12th and 13th.
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum();
        Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
    }

    /// Open file descriptors.
    pub fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    /// What it logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// What it wrote to standard output so far.
    pub fn printed(&self) -> String {
        fs::read_to_string(&self.printed).unwrap()
    }

    /// Sends a signal by name, such as `TERM`, `STOP` or `CONT`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status().unwrap();
        assert!(sent.success(), "kill -{name} failed");
    }

    /// SIGKILL, and reaped: the process is gone when this returns.
    pub fn kill(&mut self) {
        end(&mut self.child);
    }

    /// Waits for it to end by itself.
    pub async fn exited(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the relay did not exit\n{}", tail(&self.log));
            sleep(POLL_INTERVAL).await;
        }
    }

    fn status_number(&self, key: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(key)).expect("the process runs");
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

impl Drop for RelayProcess {
    fn drop(&mut self) {
        end(&mut self.child);
        if std::thread::panicking() {
            eprintln!("the relay's log ends with:\n{}", tail(&self.log));
            return;
        }
        let log = self.log();
        let bad: Vec<&str> = log.lines().filter(|line| is_error(line)).collect();
        assert!(self.errors_allowed || bad.is_empty(), "the relay logged errors:\n{}", bad.join("\n"));
    }
}

/// Whether a log line, pretty or JSON, has level ERROR or reports a panic.
pub fn is_error(line: &str) -> bool {
    let level_is_error = line.split_whitespace().take(3).any(|word| word == "ERROR") || line.contains(r#""level":"ERROR""#);
    level_is_error || line.contains("panicked at")
}

fn relay() -> Command {
    Command::new(env!("CARGO_BIN_EXE_relay"))
}

trait WithoutRelayVariables {
    fn envs_without_relay(&mut self) -> &mut Self;
}

impl WithoutRelayVariables for Command {
    fn envs_without_relay(&mut self) -> &mut Self {
        for (name, _value) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("RELAY_") {
                self.env_remove(name);
            }
        }
        self
    }
}

async fn wait_for_ready(child: &mut Child, ready_file: &Path) -> Result<Ready, String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Ok(text) = fs::read(ready_file) {
            // It is written atomically: what is there is whole.
            return serde_json::from_slice(&text).map_err(|error| format!("the ready file cannot be read: {error}"));
        }
        if let Some(status) = child.try_wait().unwrap() {
            return Err(format!("the relay exited before it served: {status}"));
        }
        if Instant::now() >= deadline {
            return Err("the relay did not serve in time".to_owned());
        }
        sleep(POLL_INTERVAL).await;
    }
}

fn end(child: &mut Child) {
    // Killing fails only if the process has been reaped already.
    let _ = child.kill();
    let _ = child.wait();
}

fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
}
