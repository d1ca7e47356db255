//! Stands where systemd stands: starts and ends blue and green, each with the variables of its file and nothing else, when a command
//! of the script asks for it.

use crate::support::{PATIENCE, relay_process::is_error};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpListener,
    time::{Instant, sleep},
};

const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// What becomes of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is done and answered.
    Works,
    /// It is done and never answered.
    Hangs,
    /// It is not done.
    Fails,
}

struct Shared {
    directory: PathBuf,
    running: Mutex<BTreeMap<String, Child>>,
    outcomes: Mutex<BTreeMap<String, Outcome>>,
    seen: Mutex<Vec<String>>,
}

/// The processes and the commands about them.
pub(crate) struct Units {
    shared: Arc<Shared>,
    address: SocketAddr,
}

impl Units {
    /// Listens there for commands; variables and logs are in the directory.
    pub(crate) async fn listen(address: SocketAddr, directory: &Path) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let shared = Arc::new(Shared {
            directory: directory.to_owned(),
            running: Mutex::default(),
            outcomes: Mutex::default(),
            seen: Mutex::default(),
        });
        let serving = Arc::clone(&shared);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let shared = Arc::clone(&serving);
                tokio::spawn(async move {
                    let mut stream = BufReader::new(stream);
                    let mut command = String::new();
                    stream.read_line(&mut command).await.unwrap();
                    let outcome = shared.run(command.trim()).await;
                    if outcome == Outcome::Hangs {
                        // Until whoever waits has gone.
                        let _ = stream.read_line(&mut command).await;
                    }
                    // Nobody may be left to tell.
                    let _ = stream.write_all(if outcome == Outcome::Works { b"0\n" } else { b"1\n" }).await;
                });
            }
        });
        Units { shared, address }
    }

    /// What the script runs for `start` or `stop`.
    pub(crate) fn command(&self, word: &str) -> String {
        let (host, port) = (self.address.ip(), self.address.port());
        format!("exec 3<>/dev/tcp/{host}/{port}; echo \"{word} $COLOUR\" >&3; read -r code <&3; exit $code")
    }

    /// From now on this command, such as `start green`, ends so.
    pub(crate) fn set(&self, command: &str, outcome: Outcome) {
        self.shared.outcomes.lock().unwrap().insert(command.to_owned(), outcome);
    }

    /// The commands that were done or refused so far.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.shared.seen.lock().unwrap().clone()
    }

    pub(crate) async fn start(&self, colour: &str) {
        assert_eq!(self.shared.run(&format!("start {colour}")).await, Outcome::Works);
    }

    pub(crate) fn signal(&self, colour: &str, name: &str) {
        send(self.shared.running.lock().unwrap().get(colour).expect("it runs"), name);
    }

    pub(crate) fn runs(&self, colour: &str) -> bool {
        self.shared.running.lock().unwrap().get_mut(colour).is_some_and(|child| child.try_wait().unwrap().is_none())
    }

    /// All that a process of this colour logged.
    pub(crate) fn log(&self, colour: &str) -> String {
        fs::read_to_string(self.shared.log(colour)).unwrap_or_default()
    }
}

impl Shared {
    fn log(&self, colour: &str) -> PathBuf {
        self.directory.join(format!("{colour}.log"))
    }

    async fn run(&self, command: &str) -> Outcome {
        let outcome = self.outcomes.lock().unwrap().get(command).copied().unwrap_or(Outcome::Works);
        if outcome != Outcome::Fails {
            match command.split_once(' ').expect("a word and a colour") {
                ("start", colour) => self.start(colour),
                ("stop", colour) => self.stop(colour).await,
                (word, _) => panic!("nobody says {word}"),
            }
        }
        self.seen.lock().unwrap().push(command.to_owned());
        outcome
    }

    fn start(&self, colour: &str) {
        let mut running = self.running.lock().unwrap();
        if running.get_mut(colour).is_some_and(|child| child.try_wait().unwrap().is_none()) {
            return;
        }
        let variables = fs::read_to_string(self.directory.join(format!("{colour}.env"))).unwrap();
        let log = File::options().create(true).append(true).open(self.log(colour)).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_relay"))
            .arg("serve")
            .env_clear()
            .envs(variables.lines().map(|line| line.split_once('=').unwrap()).map(|(name, value)| (name, value.trim_matches('"'))))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        running.insert(colour.to_owned(), child);
    }

    /// SIGTERM, and SIGKILL for one that does not end by itself.
    async fn stop(&self, colour: &str) {
        let Some(mut child) = self.running.lock().unwrap().remove(colour) else { return };
        send(&child, "TERM");
        let deadline = Instant::now() + PATIENCE / 4;
        while child.try_wait().unwrap().is_none() && Instant::now() < deadline {
            sleep(POLL_INTERVAL).await;
        }
        // It may have ended.
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        for child in self.running.lock().unwrap().values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Units {
    fn drop(&mut self) {
        for child in self.shared.running.lock().unwrap().values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
        for colour in ["blue", "green"] {
            let log = self.log(colour);
            if std::thread::panicking() {
                let lines: Vec<&str> = log.lines().filter(|line| !line.contains("registered") && !line.contains(" closed ")).collect();
                eprintln!("{colour} logged at last:\n{}", lines[lines.len().saturating_sub(20)..].join("\n"));
            } else {
                assert!(!log.lines().any(is_error), "{colour} logged errors:\n{log}");
            }
        }
    }
}

fn send(child: &Child, signal: &str) {
    let sent = Command::new("kill").arg(format!("-{signal}")).arg(child.id().to_string()).status().unwrap();
    assert!(sent.success());
}
