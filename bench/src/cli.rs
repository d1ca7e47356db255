//! The command line, for `relay-bench` and for `relay bench` alike.

use crate::{
    big,
    compare::{self, Private, Program, Scenario},
    error::Error,
    fanout, floor, idle, procfs,
    report::{Report, progress},
    rpc, slow,
    stats::Recorder,
    storm,
    target::{Kin, Target},
};
use serde::Serialize;
use std::{
    ffi::OsString,
    fmt,
    io::{self, Write},
    net::SocketAddr,
    ops::RangeInclusive,
    path::PathBuf,
    sync::Arc,
};
use tokio::signal::unix::{SignalKind, signal};

/// One scenario or helper.
#[derive(clap::Subcommand, Debug)]
pub enum Command {
    /// Round trips from phones to desktops: cost and latency
    Rpc {
        /// Whom to measure
        #[command(flatten)]
        common: Common,
        /// How much to call
        #[command(flatten)]
        options: rpc::Options,
    },
    /// Many devices connect and register at once
    Storm {
        /// Whom to measure
        #[command(flatten)]
        common: Common,
        /// How many come back
        #[command(flatten)]
        options: storm::Options,
    },
    /// Memory and CPU of connections that do nothing
    Idle {
        /// Whom to measure
        #[command(flatten)]
        common: Common,
        /// How many, and for how long
        #[command(flatten)]
        options: idle::Options,
    },
    /// One desktop's timeline to many phones that watch it
    Fanout {
        /// Whom to measure
        #[command(flatten)]
        common: Common,
        /// How much to send, and to how many
        #[command(flatten)]
        options: fanout::Options,
    },
    /// Results as large as they may be: speed, and memory taken and given back
    Big {
        /// Whom to measure
        #[command(flatten)]
        common: Common,
        /// How large, and how many
        #[command(flatten)]
        options: big::Options,
    },
    /// What phones that read nothing do to a pair that does; for a relay only
    Slow {
        /// Whom to measure
        #[command(flatten)]
        whom: Whom,
        /// How many, under what traffic
        #[command(flatten)]
        options: slow::Options,
    },
    /// `rpc` in three rounds against floor and relay, as ratios of medians
    Compare {
        /// The relay to compare
        #[command(flatten)]
        private: Private,
        /// Measurements of each
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
        rounds: u32,
        /// What to measure
        #[command(flatten)]
        options: rpc::Options,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Serves the relay that reads nothing, to compare with
    Floor(floor::Options),
}

/// An example of each command, as typed behind the words of `Front::words`.
pub const EXAMPLES: [(&str, &str); 8] = [
    ("rpc", "rpc --pairs 50 --window 4 --size 200"),
    ("storm", "storm --devices 5000 --json"),
    ("idle", "idle --pairs 2000 --hold 10"),
    ("fanout", "fanout --phones 50 --rate 250000"),
    ("big", "big --mib 8 --rounds 3"),
    ("slow", "slow --frozen 200 --event-rate 2 --event-size 200"),
    ("compare", "compare --rounds 5 --pairs 50 --rate 1000"),
    ("floor", "floor --listen 127.0.0.1:9100 --workers 2"),
];

/// Ends the help of each of these commands with what `help_end` makes of its example.
pub fn with_examples(commands: clap::Command, help_end: impl Fn(&str) -> String) -> clap::Command {
    let add = |commands: clap::Command, (name, example)| commands.mut_subcommand(name, |command| command.after_help(help_end(example)));
    EXAMPLES.into_iter().fold(commands, add)
}

/// The program that these commands belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front {
    /// `relay bench`, which is the relay that it measures.
    Relay,
    /// `relay-bench`, which finds a relay beside itself.
    Alone,
}

impl Front {
    /// The words that lead to these commands.
    fn words(self) -> &'static [&'static str] {
        match self {
            Front::Relay => &["bench"],
            Front::Alone => &[],
        }
    }

    /// The relay that is measured unless another is named.
    fn relay(self, this_program: PathBuf) -> PathBuf {
        match self {
            Front::Relay => this_program,
            Front::Alone => this_program.with_file_name("relay"),
        }
    }
}

/// Whom to measure, and how often.
#[derive(clap::Args, Debug)]
#[group(skip)]
pub struct Common {
    /// The server
    #[command(flatten)]
    pub whom: Whom,
    /// Measurements of floor and relay each, of which the medians count
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..),
        conflicts_with = "target"
    )]
    pub rounds: u32,
}

/// Whom to measure.
#[derive(clap::Args, Debug)]
#[group(skip)]
pub struct Whom {
    /// Measure this kind of server, which runs already; otherwise what is measured is started for the run
    #[arg(long, value_enum, requires = "addr", conflicts_with_all = ["relay_binary", "server_args"])]
    pub target: Option<KinName>,
    /// Its public address
    #[arg(long, value_name = "HOST:PORT", requires = "target")]
    pub addr: Option<SocketAddr>,
    /// The secret that the relay was started with
    #[arg(long, value_name = "SECRET", env = "RELAY_JWT_SECRET", hide_env_values = true, required_if_eq("target", "relay"))]
    pub jwt_secret: Option<String>,
    /// Its process id; without it the report has no figures of the server
    #[arg(long, requires = "target")]
    pub pid: Option<u32>,
    /// The relay to start
    #[command(flatten)]
    pub private: Private,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What a run can be told to last, to wait or to send a second, at least and at most: enough, and a `Duration` holds it and its inverse.
const NUMBERS: RangeInclusive<f64> = 0.001..=1e9;

/// A number of seconds, or of calls a second, without which there would be nothing to measure.
pub(crate) fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| NUMBERS.contains(number));
    number.ok_or_else(|| format!("not a number from {} to {}", NUMBERS.start(), NUMBERS.end()))
}

/// A number of seconds, of which there may be none.
pub(crate) fn not_negative(text: &str) -> Result<f64, String> {
    if text.parse() == Ok(0.0) { Ok(0.0) } else { positive(text).map_err(|error| format!("{error}, nor 0")) }
}

/// A kind of server, as a word.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
pub enum KinName {
    /// The relay's device lane
    Relay,
    /// The relay that reads nothing
    Floor,
}

impl Whom {
    /// The server that runs already, if one was named.
    fn target(&self) -> Option<Target> {
        let kin = match self.target? {
            KinName::Floor => Kin::Floor,
            KinName::Relay => Kin::Relay { jwt_secret: self.jwt_secret.clone().unwrap_or_default() },
        };
        Some(Target { addr: self.addr?, kin })
    }
}

/// Runs a command to its end, on a runtime of its own: one thread for the generator, so that what it takes of the machine is known.
/// SIGINT and SIGTERM end it early, with the servers that it started.
///
/// # Errors
/// It could not be measured, was ended early, or some of its calls failed; in the last case the report has been printed.
pub fn execute(command: Command, front: Front) -> Result<(), Error> {
    procfs::raise_open_files();
    let threads = if let Command::Floor(options) = &command { options.workers } else { 1 };
    let mut builder = match threads {
        0 | 1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.worker_threads(threads.max(1)).enable_all().build().map_err(Error::io("start the runtime"))?;
    runtime.block_on(async {
        let catch = |kind| signal(kind).map_err(Error::io("catch signals"));
        let (mut interrupt, mut terminate) = (catch(SignalKind::interrupt())?, catch(SignalKind::terminate())?);
        tokio::select! {
            outcome = run(command, front) => outcome,
            _ = interrupt.recv() => Err(Error::Interrupted),
            _ = terminate.recv() => Err(Error::Interrupted),
        }
    })
}

async fn run(command: Command, front: Front) -> Result<(), Error> {
    match command {
        Command::Rpc { common, options } => measure(&common, Scenario::Rpc(options), front).await,
        Command::Storm { common, options } => measure(&common, Scenario::Storm(options), front).await,
        Command::Idle { common, options } => measure(&common, Scenario::Idle(options), front).await,
        Command::Fanout { common, options } => measure(&common, Scenario::Fanout(options), front).await,
        Command::Big { common, options } => measure(&common, Scenario::Big(options), front).await,
        Command::Slow { whom, options } => measure_relay(&whom, Scenario::Slow(options), front).await,
        Command::Compare { private, rounds, options, json } => compare(&Scenario::Rpc(options), rounds, &private, front, json).await,
        Command::Floor(options) => floor::serve(&options).await,
    }
}

/// Measures the server that was named, or floor and relay.
async fn measure(common: &Common, scenario: Scenario, front: Front) -> Result<(), Error> {
    match common.whom.target() {
        Some(target) => measure_running(&target, &common.whom, &scenario).await,
        None => compare(&scenario, common.rounds, &common.whom.private, front, common.whom.json).await,
    }
}

/// Measures the relay that was named, or one that is started for it.
async fn measure_relay(whom: &Whom, scenario: Scenario, front: Front) -> Result<(), Error> {
    match whom.target() {
        Some(target) => measure_running(&target, whom, &scenario).await,
        None => conclude(compare::run_alone(&scenario, &relay_program(&whom.private, front)?).await?, whom.json),
    }
}

async fn measure_running(target: &Target, whom: &Whom, scenario: &Scenario) -> Result<(), Error> {
    progress(format_args!("measuring the {} at {}", target.kin, target.addr));
    conclude(scenario.run(target, whom.pid).await?, whom.json)
}

async fn compare(scenario: &Scenario, rounds: u32, private: &Private, front: Front, json: bool) -> Result<(), Error> {
    let arguments = front.words().iter().copied().chain(["floor"]).map(OsString::from).collect();
    let floor = Program { path: this_program()?, arguments };
    let relay = relay_program(private, front)?;
    print(&compare::run(scenario, rounds, &floor, &relay).await?, json)
}

fn relay_program(private: &Private, front: Front) -> Result<Program, Error> {
    if cfg!(debug_assertions) {
        progress("a build without optimisation: figures of it mean little");
    }
    let path = match &private.relay_binary {
        Some(path) => path.clone(),
        None => front.relay(this_program()?),
    };
    Ok(Program { path, arguments: private.server_arguments() })
}

fn this_program() -> Result<PathBuf, Error> {
    std::env::current_exe().map_err(Error::io("find this program"))
}

/// Prints the report, and then says whether to believe it.
fn conclude((report, recorder): (Report, Arc<Recorder>), json: bool) -> Result<(), Error> {
    print(&report, json)?;
    recorder.judge()
}

/// Prints to standard output. A reader that left early, like `head`, is no failure.
fn print(outcome: &(impl Serialize + fmt::Display), json: bool) -> Result<(), Error> {
    let text = match json {
        true => serde_json::to_string(outcome).map_err(|error| Error::io("write JSON")(error.into()))? + "\n",
        false => outcome.to_string(),
    };
    let mut output = io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Error::io("write to standard output")(error)),
        Ok(()) | Err(_) => Ok(()),
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
    fn a_server_that_runs_already_is_named_whole_and_started_by_nobody() {
        let parses = |words: &str| Arguments::try_parse_from(words.split(' ')).is_ok();
        assert!(parses("bench rpc"));
        assert!(parses("bench rpc --rounds 3 --relay-binary relay --server-arg --log=warn"));
        assert!(parses("bench storm --target floor --addr 127.0.0.1:1 --pid 1"));
        for half in ["--target floor", "--addr 127.0.0.1:1", "--pid 1"] {
            assert!(!parses(&format!("bench idle {half}")), "{half}");
        }
        for other in ["--rounds 2", "--relay-binary relay", "--server-arg=--log=warn"] {
            assert!(!parses(&format!("bench rpc --target floor --addr 127.0.0.1:1 {other}")), "{other}");
        }
    }

    #[test]
    fn numbers_with_which_nothing_could_be_measured_are_refused() {
        let parses = |words: String| Arguments::try_parse_from(words.split(' ')).is_ok();
        for flag in ["rpc --secs", "rpc --rate", "compare --secs", "idle --hold"] {
            for (number, taken) in [("0.5", true), ("0", false), ("-1", false), ("nan", false), ("inf", false), ("1e-9", false)] {
                assert_eq!(parses(format!("bench {flag}={number}")), taken, "{flag}={number}");
            }
        }
        for flag in ["rpc --warm", "idle --settle"] {
            for (number, taken) in [("0.5", true), ("0", true), ("-1", false), ("nan", false), ("inf", false)] {
                assert_eq!(parses(format!("bench {flag}={number}")), taken, "{flag}={number}");
            }
        }
        assert!(parses("bench storm --lanes 1".into()) && !parses("bench storm --lanes 0".into()));
    }

    #[test]
    fn each_command_has_an_example_that_parses() {
        let names: Vec<String> = Arguments::command().get_subcommands().map(|command| command.get_name().to_owned()).collect();
        assert_eq!(names, EXAMPLES.map(|(name, _)| name));
        for (name, example) in EXAMPLES {
            assert!(example.starts_with(name));
            Arguments::try_parse_from(["bench"].into_iter().chain(example.split(' '))).unwrap_or_else(|error| panic!("{error}"));
        }
    }

    #[test]
    fn server_arguments_are_handed_on() {
        let arguments = |extra: &[&str]| {
            let words = ["bench", "compare", "--relay-binary", "relay"].iter().chain(extra);
            let Command::Compare { private, .. } = Arguments::parse_from(words).command else { panic!("another command") };
            private.server_arguments()
        };
        let (burst, per_second) = ("--rate-burst=1000000", "--rate-per-second=1000000");
        assert_eq!(arguments(&[]), [burst, per_second]);
        assert_eq!(arguments(&["--server-arg", "--log=warn"]), [burst, per_second, "--log=warn"]);
        assert_eq!(arguments(&["--server-arg=--rate-burst=5"]), [per_second, "--rate-burst=5"]);
        assert_eq!(arguments(&["--server-arg=--rate-per-second", "--server-arg=7"]), [burst, "--rate-per-second", "7"]);
    }
}
