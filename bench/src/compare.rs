//! `compare`: `rpc` against floor and relay in turn, as ratios of medians.
//!
//! Each measurement starts its server anew. Who goes first changes from round to round, so that drift of the machine touches both.

use crate::{
    error::Error,
    report::Report,
    rpc,
    server::Server,
    stats::median,
    target::{Kin, Target},
};
use serde::Serialize;
use std::{ffi::OsString, fmt, path::PathBuf};

/// What is compared, by its name in the reports.
const MEASURES: [&str; 7] = ["server_cpu_ms_per_1k", "round_trips_per_s", "p50_us", "p90_us", "p99_us", "p999_us", "peak_rss_mib"];
/// A secret for one run on loopback; the relay wants at least 32 bytes.
const JWT_SECRET: &str = "relay-bench-secret-for-a-run-on-loopback";
/// The rate limit stays on, and out of the way: no phone is as fast as a generator.
const RATE_RAISED: [(&str, &str); 2] = [("--rate-burst", "=1000000"), ("--rate-per-second", "=1000000")];

/// Whom to compare, and how often.
#[derive(clap::Args, Clone, Debug)]
#[group(skip)]
pub struct Options {
    /// The relay's release binary
    #[arg(long, value_name = "PATH")]
    pub relay_binary: PathBuf,
    /// Measurements of each
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// A further argument of `relay serve`, such as `--log=warn`; may be repeated. Its rate limit is raised unless one of these sets it
    #[arg(long = "server-arg", value_name = "ARG", allow_hyphen_values = true)]
    pub server_args: Vec<OsString>,
    /// What to measure
    #[command(flatten)]
    pub rpc: rpc::Options,
}

impl Options {
    /// What the relay is told: the raised rate limit where nothing else is asked for, then what is asked for.
    pub fn server_arguments(&self) -> Vec<OsString> {
        let sets = |flag: &str| self.server_args.iter().any(|argument| argument.to_string_lossy().split('=').next() == Some(flag));
        let raised = RATE_RAISED.into_iter().filter(|(flag, _)| !sets(flag)).map(|(flag, value)| format!("{flag}{value}").into());
        raised.chain(self.server_args.iter().cloned()).collect()
    }
}

/// How to start this program as the floor.
#[derive(Clone, Debug)]
pub struct FloorCommand {
    /// The program.
    pub program: PathBuf,
    /// What comes before `--listen`.
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
pub async fn run(options: &Options, floor: &FloorCommand) -> Result<Comparison, Error> {
    let (mut floor_reports, mut relay_reports) = (Vec::new(), Vec::new());
    for round in 0..options.rounds {
        for turn in 0..2 {
            let (server, kin, reports) = if (round + turn).is_multiple_of(2) {
                (start_floor(floor).await?, Kin::Floor, &mut floor_reports)
            } else {
                (start_relay(options).await?, Kin::Relay { jwt_secret: JWT_SECRET.to_owned() }, &mut relay_reports)
            };
            eprintln!("round {} of {}: {kin}", round + 1, options.rounds);
            let target = Target { addr: server.addr(), kin };
            let (report, recorder) = rpc::run(&target, Some(server.pid()), &options.rpc).await?;
            server.stop().await?;
            recorder.judge()?;
            reports.push(report);
        }
    }
    Ok(Comparison { rows: rows(&floor_reports, &relay_reports), floor: floor_reports, relay: relay_reports })
}

async fn start_floor(floor: &FloorCommand) -> Result<Server, Error> {
    Server::start(&floor.program, |_data, ready_file| {
        let mut arguments = floor.arguments.clone();
        arguments.extend(["--listen".into(), "127.0.0.1:0".into(), "--ready-file".into(), ready_file.into()]);
        arguments
    })
    .await
}

async fn start_relay(options: &Options) -> Result<Server, Error> {
    Server::start(&options.relay_binary, |data, ready_file| {
        let mut arguments: Vec<OsString> = ["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"].map(OsString::from).into();
        arguments.extend(["--ready-file".into(), ready_file.into(), "--data-dir".into(), data.into()]);
        arguments.extend(["--jwt-secret".into(), JWT_SECRET.into()]);
        arguments.extend(options.server_arguments());
        arguments
    })
    .await
}

/// One row for each measure that both have.
fn rows(floor: &[Report], relay: &[Report]) -> Vec<Row> {
    let middle = |reports: &[Report], measure| median(&reports.iter().filter_map(|report| report.value(measure)).collect::<Vec<_>>());
    MEASURES
        .into_iter()
        .filter_map(|measure| {
            let (floor, relay) = (middle(floor, measure)?, middle(relay, measure)?);
            let ratio = (floor != 0.0).then(|| (relay / floor * 100.0).round() / 100.0);
            Some(Row { measure, floor, relay, ratio })
        })
        .collect()
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<22}{:>12}{:>12}{:>14}", "measure", "floor", "relay", "relay/floor")?;
        for Row { measure, floor, relay, ratio } in &self.rows {
            let ratio = ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
            writeln!(f, "{measure:<22}{floor:>12.1}{relay:>12.1}{ratio:>14}")?;
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
    fn a_floor_of_zero_has_no_ratio() {
        assert_eq!(rows(&reports(&[0.0]), &reports(&[5.0]))[0].ratio, None);
    }

    #[test]
    fn a_measure_that_one_of_them_lacks_is_left_out() {
        assert_eq!(rows(&reports(&[1.0]), &[]), []);
    }
}
