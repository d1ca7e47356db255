//! A scenario against the floor and a relay of its own in turn, as ratios of medians.
//!
//! Each measurement starts its server anew. Who goes first changes from round to round, so that drift of the machine touches both.

use crate::{
    big,
    error::Error,
    fanout, idle,
    report::{Report, progress},
    rpc,
    server::Server,
    slow,
    stats::{Recorder, median},
    storm,
    target::{Kin, Target},
};
use serde::Serialize;
use std::{ffi::OsString, fmt, path::PathBuf, sync::Arc};

/// What is compared, by its name in the reports, with the decimal places of the table. A scenario has those that it reports.
const MEASURES: [(&str, usize); 24] = [
    ("server_cpu_s_per_1k", 4),
    ("server_cpu_s_per_1m", 3),
    ("server_cpu_s_per_gib", 3),
    ("delivered_per_s", 0),
    ("mib_per_s", 0),
    ("round_trips_per_s", 0),
    ("registered_per_s", 0),
    ("all_registered_s", 3),
    ("p50_us", 1),
    ("p90_us", 1),
    ("p99_us", 1),
    ("p999_us", 1),
    ("unanswered", 0),
    ("rss_mib", 1),
    ("peak_rss_mib", 1),
    ("one_peak_growth_mib", 1),
    ("one_kept_growth_mib", 1),
    ("peak_growth_mib", 1),
    ("kept_growth_mib", 1),
    ("kib_per_connection", 2),
    ("kib_per_connection_held", 2),
    ("idle_cpu_ms_per_s", 2),
    ("generator_cpu_s", 2),
    ("other_cpu_s", 2),
];
/// How a scenario was set up, by the names in its report.
const SETTINGS: [&str; 13] = [
    "scenario",
    "pairs",
    "phones",
    "window",
    "rate",
    "params_bytes",
    "result_bytes",
    "payload_bytes",
    "mib",
    "results",
    "secs",
    "devices",
    "lanes",
];
/// A secret for one run on loopback; the relay wants at least 32 bytes.
const JWT_SECRET: &str = "relay-bench-secret-for-a-run-on-loopback";
/// The rate limit stays on, and out of the way: no phone is as fast as a generator.
const RATE_RAISED: [(&str, &str); 2] = [("--rate-burst", "=1000000"), ("--rate-per-second", "=1000000")];

/// The relay that is started for the run.
#[derive(clap::Args, Clone, Debug)]
#[group(skip)]
pub struct Private {
    /// The relay to start, a release build if its figures are to mean something [default: this program, or `relay` beside it]
    #[arg(long, value_name = "PATH")]
    pub relay_binary: Option<PathBuf>,
    /// A further argument of `relay serve`, such as `--log=warn`; may be repeated. Its rate limit is raised unless one of these sets it
    #[arg(long = "server-arg", value_name = "ARG", allow_hyphen_values = true)]
    pub server_args: Vec<OsString>,
}

impl Private {
    /// What the relay is told: the raised rate limit where nothing else is asked for, then what is asked for.
    pub fn server_arguments(&self) -> Vec<OsString> {
        let sets = |flag: &str| self.server_args.iter().any(|argument| argument.to_string_lossy().split('=').next() == Some(flag));
        let raised = RATE_RAISED.into_iter().filter(|(flag, _)| !sets(flag)).map(|(flag, value)| format!("{flag}{value}").into());
        raised.chain(self.server_args.iter().cloned()).collect()
    }
}

/// What is measured.
#[derive(Clone, Debug)]
pub enum Scenario {
    /// Round trips.
    Rpc(rpc::Options),
    /// Registrations.
    Storm(storm::Options),
    /// Connections that do nothing.
    Idle(idle::Options),
    /// A timeline to many phones.
    Fanout(fanout::Options),
    /// Large results.
    Big(big::Options),
    /// Peers that read nothing, beside one that does.
    Slow(slow::Options),
}

impl Scenario {
    /// Measures one server. The report counts failures; it is for the caller to judge them.
    pub async fn run(&self, target: &Target, pid: Option<u32>) -> Result<(Report, Arc<Recorder>), Error> {
        match self {
            Scenario::Rpc(options) => rpc::run(target, pid, options).await,
            Scenario::Storm(options) => storm::run(target, pid, options).await,
            Scenario::Idle(options) => idle::run(target, pid, options).await,
            Scenario::Fanout(options) => fanout::run(target, pid, options).await,
            Scenario::Big(options) => big::run(target, pid, options).await,
            Scenario::Slow(options) => slow::run(target, pid, options).await,
        }
    }
}

/// A program to start, and what comes before the arguments that its start adds.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program.
    pub path: PathBuf,
    /// Its first arguments.
    pub arguments: Vec<OsString>,
}

/// One measure of both.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Its name in the reports.
    pub measure: &'static str,
    /// The floor's median.
    pub floor: f64,
    /// The relay's median.
    pub relay: f64,
    /// Relay to floor; none where the floor's is zero.
    pub ratio: Option<f64>,
}

/// The outcome, with every single report.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Medians and ratios.
    pub rows: Vec<Row>,
    /// The floor's reports.
    pub floor: Vec<Report>,
    /// The relay's reports.
    pub relay: Vec<Report>,
}

/// Measures both for all rounds. A run with failures ends it.
pub async fn run(scenario: &Scenario, rounds: u32, floor: &Program, relay: &Program) -> Result<Comparison, Error> {
    let (mut floor_reports, mut relay_reports) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        for turn in 0..2 {
            let (started, reports) = if (round + turn).is_multiple_of(2) {
                (start_floor(floor).await?, &mut floor_reports)
            } else {
                (start_relay(relay).await?, &mut relay_reports)
            };
            progress(format_args!("round {} of {rounds}: {}", round + 1, started.1));
            let (report, recorder) = measure(scenario, started).await?;
            recorder.judge()?;
            reports.push(report);
        }
    }
    Ok(Comparison { rows: rows(&floor_reports, &relay_reports), floor: floor_reports, relay: relay_reports })
}

/// Measures a relay of its own, once and alone.
pub async fn run_alone(scenario: &Scenario, relay: &Program) -> Result<(Report, Arc<Recorder>), Error> {
    let started = start_relay(relay).await?;
    progress(format_args!("measuring a {}", started.1));
    measure(scenario, started).await
}

async fn measure(scenario: &Scenario, (server, kin): (Server, Kin)) -> Result<(Report, Arc<Recorder>), Error> {
    let target = Target { addr: server.addr(), kin };
    let measured = scenario.run(&target, Some(server.pid())).await?;
    server.stop().await?;
    Ok(measured)
}

async fn start_floor(floor: &Program) -> Result<(Server, Kin), Error> {
    let server = Server::start(&floor.path, |_data, ready_file| {
        let mut arguments = floor.arguments.clone();
        arguments.extend(["--listen".into(), "127.0.0.1:0".into(), "--ready-file".into(), ready_file.into()]);
        arguments
    });
    Ok((server.await?, Kin::Floor))
}

async fn start_relay(relay: &Program) -> Result<(Server, Kin), Error> {
    let server = Server::start(&relay.path, |data, ready_file| {
        let mut arguments: Vec<OsString> = ["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"].map(OsString::from).into();
        arguments.extend(["--ready-file".into(), ready_file.into(), "--data-dir".into(), data.into()]);
        arguments.extend(["--jwt-secret".into(), JWT_SECRET.into()]);
        arguments.extend(relay.arguments.iter().cloned());
        arguments
    });
    Ok((server.await?, Kin::Relay { jwt_secret: JWT_SECRET.to_owned() }))
}

/// One row for each measure that both have.
fn rows(floor: &[Report], relay: &[Report]) -> Vec<Row> {
    let middle = |reports: &[Report], measure| median(&reports.iter().filter_map(|report| report.value(measure)).collect::<Vec<_>>());
    MEASURES
        .into_iter()
        .filter_map(|(measure, _places)| {
            let (floor, relay) = (middle(floor, measure)?, middle(relay, measure)?);
            let ratio = (floor != 0.0).then(|| (relay / floor * 100.0).round() / 100.0);
            Some(Row { measure, floor, relay, ratio })
        })
        .collect()
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(report) = self.relay.first() {
            let settings = SETTINGS.into_iter().filter_map(|name| Some(format!("{name} {}", report.figure(name)?)));
            writeln!(f, "{}", settings.collect::<Vec<_>>().join(", "))?;
        }
        writeln!(f, "{:<24}{:>12}{:>12}{:>14}", "measure", "floor", "relay", "relay/floor")?;
        for Row { measure, floor, relay, ratio } in &self.rows {
            let places = MEASURES.into_iter().find(|(name, _)| name == measure).map_or(1, |(_, places)| places);
            let ratio = ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
            writeln!(f, "{measure:<24}{floor:>12.places$}{relay:>12.places$}{ratio:>14}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reports(p50: &[f64]) -> Vec<Report> {
        p50.iter()
            .map(|value| {
                let mut report = Report::new("rpc", &"sample");
                report.number("p50_us", 1, *value);
                report
            })
            .collect()
    }

    #[test]
    fn a_row_holds_medians_and_their_ratio() {
        let rows = rows(&reports(&[100.0, 900.0, 200.0]), &reports(&[300.0, 100.0, 500.0]));
        assert_eq!(rows, [Row { measure: "p50_us", floor: 200.0, relay: 300.0, ratio: Some(1.5) }]);
    }

    #[test]
    fn the_table_tells_the_settings_and_aligns_its_columns() {
        let (floor, relay) = (reports(&[100.0]), reports(&[250.0]));
        let table = Comparison { rows: rows(&floor, &relay), floor, relay }.to_string();
        let expected = [
            "scenario rpc",
            "measure                        floor       relay   relay/floor",
            "p50_us                         100.0       250.0          2.50",
        ];
        assert_eq!(table.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_floor_of_zero_has_no_ratio() {
        assert_eq!(rows(&reports(&[0.0]), &reports(&[5.0]))[0].ratio, None);
    }

    #[test]
    fn a_measure_that_one_of_them_lacks_is_left_out() {
        assert_eq!(rows(&reports(&[1.0]), &[]), []);
    }
}
