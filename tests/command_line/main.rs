//! The real binary as a script sees it: output, exit codes, files, signals.
//!
//! | module | shows |
//! | --- | --- |
//! | `printed` | the commands that `relay serve` prints, typed as they stand |
//! | `use_of` | devices, API keys, tokens, wrong use |
//! | `serve` | starts that cannot be, two processes, the ready file, signals, `relay migrate` |
//! | `service_manager` | what a service manager is told: ready, leaving, signs of life |
//! | `starts` | signals while a start waits for who holds the database |
//! | `configuration` | `--config`, `--print-config`: which value counts, and what is wrong with a file |
//! | `database` | a database server that is not there, or refuses |
//! | `clients` | `relay desktop` and `relay phone` against a server that does what each test needs |
//! | `compat` | `relay compat`, and what its rules do to checks and registrations |
//! | `waiting` | `relay phone` while its desktop is away |
//! | `watching` | `relay phone … watch` and the demo timeline of `relay desktop` |
//! | `demo_desktop` | `relay desktop --demo`: what a phone gets from it, also when it is killed, and the README's tour |
//! | `contract` | `relay contract check`: copies that agree, differ, or cannot be read |
//! | `bench` | `relay bench`: what it starts, prints and leaves behind |
//! | `push` | `relay device push-token`, `relay push test`, and starts with keys of pushes |
//! | `drain` | `relay drain`, `relay status`, `relay log-level` |
//! | `logs` | which lines there are, and what is in none of them |

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

#[path = "../support/mod.rs"]
mod support;

mod bench;
mod clients;
mod compat;
mod configuration;
mod contract;
mod database;
mod demo_desktop;
mod drain;
mod logs;
mod printed;
mod push;
mod serve;
mod service_manager;
mod starts;
mod use_of;
mod waiting;
mod watching;

use serde_json::Value;
use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Output, Stdio},
};
use support::data_dir::DataDir;

const RELAY: &str = env!("CARGO_BIN_EXE_relay");
const USER: &str = "a11ce000-0000-4000-8000-000000000001";

/// The binary, untouched by the environment of whoever runs the tests.
fn relay(directory: &DataDir) -> Command {
    let mut command = Command::new(RELAY);
    command.current_dir(directory.path()).env_clear().envs(directory.database_url().map(|url| ("RELAY_DATABASE_URL", url)));
    command
}

fn finish(directory: &DataDir, arguments: &[&str]) -> Output {
    relay(directory).args(arguments).output().unwrap()
}

/// `relay serve` as a newcomer starts it, but on free ports.
fn serve(directory: &DataDir) -> Command {
    let mut command = relay(directory);
    command.args(["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
    command
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A serving process, ended with its test.
struct Server {
    process: Child,
    start_up_text: Vec<String>,
    url: String,
    admin_url: String,
}

impl Server {
    fn start(directory: &DataDir, flags: &[&str]) -> Self {
        let mut command = serve(directory);
        command.args(["--ready-file", "ready.json"]).args(flags);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        // The last command of the start-up text says that it serves.
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut start_up_text = Vec::new();
        while start_up_text.last().is_none_or(|line: &String| !line.ends_with(" watch demo --for 5s")) {
            start_up_text.push(lines.next().expect("it ended before it served").unwrap());
        }
        let ready: Value = serde_json::from_slice(&std::fs::read(directory.path().join("ready.json")).unwrap()).unwrap();
        assert_eq!(ready["pid"], process.id());
        let [url, admin_url] = ["public", "admin"].map(|listener| format!("http://{}", ready[listener].as_str().unwrap()));
        Server { process, start_up_text, url, admin_url }
    }

    /// The printed commands, as they stand.
    fn commands(&self) -> Vec<&str> {
        self.start_up_text.iter().filter_map(|line| line.strip_prefix("  ")).filter(|line| line.starts_with(RELAY)).collect()
    }

    fn end(mut self, signal: &str) -> Option<i32> {
        let sent = Command::new("kill").args([signal, &self.process.id().to_string()]).status().unwrap();
        assert!(sent.success());
        self.process.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nothing to do if it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
