//! `slow`: what phones that read nothing do to a pair that does.
//!
//! The pair makes round trips at a fixed rate, as an open loop, while the desktop of another account sends timeline frames. It is
//! measured in turn with nobody watching that timeline, with phones that watch and read it, and with phones that watch and read
//! nothing. The relay and the generator share the machine, so traffic alone makes the pair slower: what is to be blamed on phones that
//! do not read is the rise over the same traffic to phones that do, and `p99_ratio` is that. The relay retires those whose lanes are
//! full; each comes back at once on a new socket, so that the pressure stays. At a low rate of events no lane is ever full and nobody
//! is retired: then they only take memory.

mod crowd;

use crate::{
    cli,
    error::Error,
    procfs,
    report::{Report, progress},
    rpc,
    stats::{Recorder, median},
    target::{Kin, Target},
};
use crowd::{Crowd, Habit};
use std::sync::Arc;

/// How many, under what traffic.
#[derive(clap::Args, Clone, Debug)]
#[group(skip)]
pub struct Options {
    /// Phones that watch, and read or do not
    #[arg(long = "frozen", value_name = "COUNT", default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=999))]
    pub watching: u16,
    /// Timeline frames per second for each of them; the default fills the lane of one that does not read within two seconds
    #[arg(long, value_name = "COUNT", default_value_t = 20.0, value_parser = cli::positive)]
    pub event_rate: f64,
    /// Bytes of a timeline frame's payload
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 10)]
    pub event_size: usize,
    /// Round trips per second of the pair
    #[arg(long, value_name = "COUNT", default_value_t = 500.0, value_parser = cli::positive)]
    pub rate: f64,
    /// Times that the pair is measured alone, with those that read and with those that do not; the medians count
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Seconds of each measurement
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = cli::positive)]
    pub secs: f64,
    /// Seconds to run before each
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = cli::not_negative)]
    pub warm: f64,
}

/// Bytes of the pair's params and of its results.
const CALL_BYTES: usize = 200;

/// Figures of one condition, one of each round.
#[derive(Default)]
struct Condition {
    p50_us: Vec<f64>,
    p99_us: Vec<f64>,
    server_cpu_s: Vec<f64>,
    peak_mib: Vec<f64>,
    other_cpu_s: Vec<f64>,
}

impl Condition {
    fn add(&mut self, report: &Report) {
        let measures = [
            (&mut self.p50_us, "p50_us"),
            (&mut self.p99_us, "p99_us"),
            (&mut self.server_cpu_s, "server_cpu_s"),
            (&mut self.peak_mib, "peak_rss_mib"),
            (&mut self.other_cpu_s, "other_cpu_s"),
        ];
        for (values, name) in measures {
            values.extend(report.value(name));
        }
    }
}

/// Runs the scenario. The report counts failures; it is for the caller to judge them.
///
/// # Errors
/// The floor has no lanes, so it cannot be measured; or the measurement failed.
pub async fn run(target: &Target, pid: Option<u32>, options: &Options) -> Result<(Report, Arc<Recorder>), Error> {
    if matches!(target.kin, Kin::Floor) {
        return Err(Error::Refused { step: "slow", answer: "the floor waits for its slowest phone; measure a relay".into() });
    }
    let calls = rpc::Options {
        pairs: 1,
        window: 1,
        size: CALL_BYTES,
        result_size: None,
        secs: options.secs,
        warm: options.warm,
        rate: Some(options.rate),
    };
    let (recorder, lives) = (Arc::new(Recorder::new()), Arc::new(Recorder::new()));
    let mut conditions = [None, Some(Habit::Reads), Some(Habit::Frozen)].map(|habit| (habit, Condition::default()));
    let mut retired = 0;
    crowd::prepare(target, options.watching).await?;
    for round in 0..options.rounds {
        for turn in 0..conditions.len() {
            // Each condition is the first one in turn.
            let which = (round as usize + turn) % conditions.len();
            let (habit, condition) = &mut conditions[which];
            let who = who(*habit, options.watching);
            progress(format_args!("round {} of {}: {who}", round + 1, options.rounds));
            let crowd = Crowd::gather(target, options, *habit, recorder.clone(), lives.clone()).await?;
            let (report, pair) = rpc::run(target, pid, &calls).await?;
            retired += crowd.disperse().await;
            if let Err(error) = pair.judge() {
                recorder.fail(|| format!("{who}: {error}"));
            }
            condition.add(&report);
        }
    }
    let [(_, alone), (_, reading), (_, frozen)] = conditions;

    let mut report = Report::new("slow", &target.kin);
    report.count("frozen", options.watching.into());
    report.number("event_rate", 1, options.event_rate);
    report.count("event_bytes", options.event_size as u64);
    report.number("rate", 1, options.rate);
    report.count("rounds", options.rounds.into());
    report.number("secs", 2, options.secs);
    for (condition, p50, p99, cpu) in [
        (&alone, "p50_us_alone", "p99_us_alone", "server_cpu_s_alone"),
        (&reading, "p50_us_reading", "p99_us_reading", "server_cpu_s_reading"),
        (&frozen, "p50_us_frozen", "p99_us_frozen", "server_cpu_s_frozen"),
    ] {
        report.number(p50, 1, median(&condition.p50_us));
        report.number(p99, 1, median(&condition.p99_us));
        report.number(cpu, 2, median(&condition.server_cpu_s));
    }
    report.number("p99_ratio", 2, ratio(&frozen.p99_us, &reading.p99_us));
    report.number("p99_ratio_to_alone", 2, ratio(&frozen.p99_us, &alone.p99_us));
    report.number("other_cpu_s", 2, median(&frozen.other_cpu_s));
    // The first round begins without anybody, on a relay that has not seen any; later ones may find memory that is kept for reuse.
    let peaks = alone.peak_mib.first().copied().zip(frozen.peak_mib.iter().copied().reduce(f64::max));
    report.number("peak_rss_mib_alone", 1, peaks.map(|(alone, _)| alone));
    report.number("peak_rss_mib_frozen", 1, peaks.map(|(_, frozen)| frozen));
    report.number("peak_kib_per_frozen", 1, peaks.map(|(alone, frozen)| (frozen - alone) * 1024.0 / f64::from(options.watching)));
    report.number("rss_mib_afterwards", 1, pid.and_then(procfs::resident_kib).map(|kib| kib / 1024.0));
    report.count("retired", retired);
    if lives.count() > 0 {
        report.number("retired_after_s_p50", 2, lives.quantile_micros(0.5) / 1e6);
        report.number("retired_after_s_max", 2, lives.longest_micros() / 1e6);
        report.text("frozen_phones", "those retired came back at once on new sockets");
    } else {
        report.text("frozen_phones", "nobody was retired, since no lane was full");
    }
    report.failures(&recorder);
    Ok((report, recorder))
}

fn who(habit: Option<Habit>, watching: u16) -> String {
    match habit {
        None => "nobody watches".into(),
        Some(Habit::Reads) => format!("{watching} phones watch and read"),
        Some(Habit::Frozen) => format!("{watching} phones watch and read nothing"),
    }
}

fn ratio(of: &[f64], to: &[f64]) -> Option<f64> {
    let (of, to) = (median(of)?, median(to)?);
    (to > 0.0).then(|| of / to)
}
