//! `slow`: what phones that read nothing do to a pair that does.
//!
//! The pair makes round trips at a fixed rate, as an open loop, while the desktop of another account sends timeline frames. It is
//! measured in turn without anybody watching that timeline, and with phones that watch it and read nothing. The relay retires those
//! whose lanes are full; each comes back at once on a new socket, so that the pressure stays. At a low rate of events no lane is ever
//! full and nobody is retired: then they only take memory.

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
use crowd::Crowd;
use std::sync::Arc;

/// How many, under what traffic.
#[derive(clap::Args, Clone, Debug)]
#[group(skip)]
pub struct Options {
    /// Phones that watch and read nothing
    #[arg(long, value_name = "COUNT", default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=999))]
    pub frozen: u16,
    /// Timeline frames per second for each of them; the default fills a lane within a second
    #[arg(long, value_name = "COUNT", default_value_t = 100.0, value_parser = cli::positive)]
    pub event_rate: f64,
    /// Bytes of a timeline frame's payload
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 10)]
    pub event_size: usize,
    /// Round trips per second of the pair
    #[arg(long, value_name = "COUNT", default_value_t = 500.0, value_parser = cli::positive)]
    pub rate: f64,
    /// Times that the pair is measured without them and with them; the medians count
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
    let (mut without, mut with) = (Condition::default(), Condition::default());
    let mut retired = 0;
    crowd::prepare(target, options.frozen).await?;
    for round in 0..options.rounds {
        for turn in 0..2 {
            let frozen = if (round + turn).is_multiple_of(2) { 0 } else { options.frozen };
            progress(format_args!("round {} of {}: {frozen} frozen phones", round + 1, options.rounds));
            let crowd = Crowd::gather(target, options, frozen, recorder.clone(), lives.clone()).await?;
            let (report, pair) = rpc::run(target, pid, &calls).await?;
            retired += crowd.disperse().await;
            if let Err(error) = pair.judge() {
                recorder.fail(|| format!("with {frozen} frozen phones: {error}"));
            }
            if frozen == 0 { without.add(&report) } else { with.add(&report) }
        }
    }

    let mut report = Report::new("slow", &target.kin);
    report.count("frozen", options.frozen.into());
    report.number("event_rate", 1, options.event_rate);
    report.count("event_bytes", options.event_size as u64);
    report.number("rate", 1, options.rate);
    report.count("rounds", options.rounds.into());
    report.number("secs", 2, options.secs);
    report.number("p50_us_without", 1, median(&without.p50_us));
    report.number("p50_us_with", 1, median(&with.p50_us));
    report.number("p99_us_without", 1, median(&without.p99_us));
    report.number("p99_us_with", 1, median(&with.p99_us));
    report.number("p99_ratio", 2, ratio(&with.p99_us, &without.p99_us));
    report.number("server_cpu_s_without", 2, median(&without.server_cpu_s));
    report.number("server_cpu_s_with", 2, median(&with.server_cpu_s));
    report.number("other_cpu_s", 2, median(&with.other_cpu_s));
    // The first round begins without them, on a relay that has not seen any; later ones may find memory that is kept for reuse.
    let peaks = without.peak_mib.first().copied().zip(with.peak_mib.iter().copied().reduce(f64::max));
    report.number("peak_rss_mib_without", 1, peaks.map(|(without, _)| without));
    report.number("peak_rss_mib_with", 1, peaks.map(|(_, with)| with));
    report.number("peak_kib_per_frozen", 1, peaks.map(|(without, with)| (with - without) * 1024.0 / f64::from(options.frozen)));
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

fn ratio(with: &[f64], without: &[f64]) -> Option<f64> {
    let (with, without) = (median(with)?, median(without)?);
    (without > 0.0).then(|| with / without)
}
