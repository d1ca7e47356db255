//! The command line, for `relay-bench` and for `relay bench` alike.

use crate::{
    compare::{self, FloorCommand},
    error::Error,
    floor, idle, procfs,
    report::Report,
    rpc,
    stats::Recorder,
    storm,
    target::{Kin, Target},
};
use serde::Serialize;
use std::{ffi::OsString, fmt, net::SocketAddr, sync::Arc};

/// One scenario or helper.
#[derive(clap::Subcommand, Debug)]
pub enum Command {
    /// Round trips from phones to desktops: cost and latency
    #[command(
        after_help = "Example: relay-bench rpc --target floor --addr 127.0.0.1:9100 --pid $(pgrep -n relay-bench) --pairs 50 --window 4"
    )]
    Rpc {
        /// Whom to measure
        #[command(flatten)]
        common: Common,
        /// How much to call
        #[command(flatten)]
        options: rpc::Options,
    },
    /// Many devices connect and register at once
    #[command(after_help = "Example: relay-bench storm --target floor --addr 127.0.0.1:9100 --devices 2000")]
    Storm {
        /// Whom to measure
        #[command(flatten)]
        common: Common,
        /// How many come back
        #[command(flatten)]
        options: storm::Options,
    },
    /// Memory and CPU of connections that do nothing
    #[command(after_help = "Example: relay-bench idle --target floor --addr 127.0.0.1:9100 --pairs 2000")]
    Idle {
        /// Whom to measure
        #[command(flatten)]
        common: Common,
        /// How many, and for how long
        #[command(flatten)]
        options: idle::Options,
    },
    /// Starts floor and relay in turn, measures `rpc` against both, prints medians and ratios
    #[command(after_help = "Example: relay-bench compare --relay-binary target/release/relay --rounds 5 --pairs 50 --window 4")]
    Compare {
        /// Whom to compare
        #[command(flatten)]
        options: compare::Options,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Serves the relay that reads nothing, to compare with
    #[command(after_help = "Example: relay-bench floor --listen 127.0.0.1:9100 --workers 2")]
    Floor(floor::Options),
}

/// Whom to measure.
#[derive(clap::Args, Debug)]
#[group(skip)]
pub struct Common {
    /// Kind of server
    #[arg(long, value_enum)]
    pub target: KinName,
    /// Its public address
    #[arg(long)]
    pub addr: SocketAddr,
    /// The secret that the relay was started with
    #[arg(long, env = "RELAY_JWT_SECRET", hide_env_values = true, required_if_eq("target", "relay"))]
    pub jwt_secret: Option<String>,
    /// Its process id; without it the report has no figures of the server
    #[arg(long)]
    pub pid: Option<u32>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// A kind of server, as a word.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
pub enum KinName {
    /// The relay's device lane
    Relay,
    /// The relay that reads nothing
    Floor,
}

impl Common {
    fn target(&self) -> Target {
        let kin = match self.target {
            KinName::Floor => Kin::Floor,
            KinName::Relay => Kin::Relay { jwt_secret: self.jwt_secret.clone().unwrap_or_default() },
        };
        Target { addr: self.addr, kin }
    }
}

/// Runs a command to its end, on a runtime of its own: one thread for the generator, so that what it takes of the machine is known.
///
/// `words` are those that lead to these commands in the calling program (`["bench"]` in `relay bench rpc`). An error is also
/// returned when the run finished and some of its calls failed.
pub fn execute(command: Command, words: &[&str]) -> Result<(), Error> {
    procfs::raise_open_files();
    let threads = if let Command::Floor(options) = &command { options.workers } else { 1 };
    let mut builder = match threads {
        0 | 1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.worker_threads(threads.max(1)).enable_all().build().map_err(Error::io("start the runtime"))?;
    runtime.block_on(run(command, words))
}

async fn run(command: Command, words: &[&str]) -> Result<(), Error> {
    match command {
        Command::Rpc { common, options } => conclude(rpc::run(&common.target(), common.pid, &options).await?, common.json),
        Command::Storm { common, options } => conclude(storm::run(&common.target(), common.pid, &options).await?, common.json),
        Command::Idle { common, options } => conclude(idle::run(&common.target(), common.pid, &options).await?, common.json),
        Command::Compare { options, json } => {
            let program = std::env::current_exe().map_err(Error::io("find this program"))?;
            let arguments = words.iter().copied().chain(["floor"]).map(OsString::from).collect();
            let comparison = compare::run(&options, &FloorCommand { program, arguments }).await?;
            print(&comparison, json);
            Ok(())
        }
        Command::Floor(options) => floor::serve(&options).await,
    }
}

/// Prints the report, and then says whether to believe it.
fn conclude((report, recorder): (Report, Arc<Recorder>), json: bool) -> Result<(), Error> {
    print(&report, json);
    recorder.judge()
}

fn print(outcome: &(impl Serialize + fmt::Display), json: bool) {
    match serde_json::to_string(outcome) {
        Ok(text) if json => println!("{text}"),
        Ok(_) | Err(_) => print!("{outcome}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

    #[derive(Parser)]
    struct Arguments {
        #[command(subcommand)]
        command: Command,
    }

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_relay_needs_its_secret_and_a_floor_does_not() {
        let parse = |target: &str| Arguments::try_parse_from(["bench", "rpc", "--target", target, "--addr", "127.0.0.1:1"]);
        assert!(parse("floor").is_ok());
        assert!(parse("relay").is_err_and(|error| error.to_string().contains("--jwt-secret")));
    }

    #[test]
    fn server_arguments_are_handed_on() {
        let arguments = |extra: &[&str]| {
            let words = ["bench", "compare", "--relay-binary", "relay"].iter().chain(extra);
            let Command::Compare { options, .. } = Arguments::parse_from(words).command else { panic!("another command") };
            options.server_arguments()
        };
        let (burst, per_second) = ("--rate-burst=1000000", "--rate-per-second=1000000");
        assert_eq!(arguments(&[]), [burst, per_second]);
        assert_eq!(arguments(&["--server-arg", "--log=warn"]), [burst, per_second, "--log=warn"]);
        assert_eq!(arguments(&["--server-arg=--rate-burst=5"]), [per_second, "--rate-burst=5"]);
        assert_eq!(arguments(&["--server-arg=--rate-per-second", "--server-arg=7"]), [burst, "--rate-per-second", "7"]);
    }
}
