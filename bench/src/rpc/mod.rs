//! `rpc`: round trips from phones to desktops and back.
//!
//! A closed loop keeps a window of calls in flight on each phone and says what a round trip costs; an open loop sends at a fixed
//! total rate, whatever came of the calls before, and says how long one takes. In the open loop a latency counts from the moment
//! the call was due, so a server that stalls is not spared the calls it held up.

mod closed;
mod open;

use crate::{
    cli,
    clock::Clock,
    error::Error,
    frame, pairs,
    pairs::Bodies,
    payload, procfs,
    report::Report,
    stats::Recorder,
    target::{Link, Target},
};
use std::{
    sync::{Arc, atomic::AtomicU64, atomic::Ordering::Relaxed},
    time::Duration,
};
use tokio::task::JoinSet;

/// How much to call.
#[derive(clap::Args, Clone, Debug)]
#[group(skip)]
pub struct Options {
    /// Phones, each with a desktop of its own
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub pairs: u32,
    /// Calls that each phone keeps in flight (closed loop)
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    pub window: u16,
    /// Bytes of params, as JSON text
    #[arg(long, value_name = "BYTES", default_value_t = 200)]
    pub size: usize,
    /// Bytes of the result [default: --size]
    #[arg(long, value_name = "BYTES")]
    pub result_size: Option<usize>,
    /// Seconds to measure
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = cli::positive)]
    pub secs: f64,
    /// Seconds to run before measuring
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = cli::not_negative)]
    pub warm: f64,
    /// Open loop: calls per second over all phones
    #[arg(long, value_name = "COUNT", value_parser = cli::positive)]
    pub rate: Option<f64>,
}

/// What all phones of a run share.
struct Run {
    bodies: Arc<Bodies>,
    recorder: Arc<Recorder>,
    clock: Clock,
    window: u16,
    /// Open loop: calls due within the measured span.
    due: AtomicU64,
}

impl Run {
    /// Checks an answer; a wrong one is a failure of the run.
    fn is_right(&self, answer: &[u8]) -> bool {
        let right = frame::has_result(answer, &self.bodies.result);
        if !right {
            self.wrong_answer(answer);
        }
        right
    }

    fn wrong_answer(&self, answer: &[u8]) {
        self.recorder.fail(|| format!("wrong answer: {}", String::from_utf8_lossy(answer).chars().take(300).collect::<String>()));
    }
}

/// Runs the scenario. The report counts failures; it is for the caller to judge them.
pub async fn run(target: &Target, pid: Option<u32>, options: &Options) -> Result<(Report, Arc<Recorder>), Error> {
    let bodies =
        Arc::new(Bodies { params: payload::make(options.size), result: payload::make(options.result_size.unwrap_or(options.size)) });
    let recorder = Arc::new(Recorder::new());
    let run = Arc::new(Run {
        bodies: bodies.clone(),
        recorder: recorder.clone(),
        clock: Clock::start(),
        window: options.window,
        due: AtomicU64::new(0),
    });

    let mut tasks = JoinSet::new();
    let mut phones = Vec::new();
    for pair in pairs::connect(target, options.pairs).await? {
        pairs::spawn_desktop(&mut tasks, pair.desktop, bodies.clone(), recorder.clone());
        phones.push(pair.phone);
    }
    spawn_phones(&mut tasks, &run, phones, options.rate);

    tokio::time::sleep(Duration::from_secs_f64(options.warm)).await;
    if let Some(pid) = pid {
        procfs::reset_peak(pid);
    }
    let before = procfs::snapshot(pid);
    let begun = run.clock.nanos();
    recorder.begin(begun);
    tokio::time::sleep(Duration::from_secs_f64(options.secs)).await;
    let ended = run.clock.nanos();
    recorder.end(ended);
    let after = procfs::snapshot(pid);
    let within = recorder.count();
    if options.rate.is_some() {
        open::wait_for_late_answers(&run).await;
    }

    let mut report = Report::new(if options.rate.is_some() { "rpc-open" } else { "rpc" }, &target.kin);
    report.count("pairs", u64::from(options.pairs));
    match options.rate {
        Some(rate) => report.number("rate", 1, rate),
        None => report.count("window", u64::from(options.window)),
    }
    report.count("params_bytes", bodies.params.len() as u64);
    report.count("result_bytes", bodies.result.len() as u64);
    let seconds = Duration::from_nanos(ended - begun).as_secs_f64();
    report.number("secs", 2, seconds);
    report.count("round_trips", within);
    report.number("round_trips_per_s", 0, within as f64 / seconds);
    report.latencies(&recorder);
    report.cpu(&before, &after, "server_cpu_s_per_1k", within);
    report.memory(pid);
    if options.rate.is_some() {
        report.count("unanswered", run.due.load(Relaxed).saturating_sub(recorder.count()));
    }
    report.failures(&recorder);
    tasks.shutdown().await;
    Ok((report, recorder))
}

fn spawn_phones(tasks: &mut JoinSet<()>, run: &Arc<Run>, phones: Vec<Link>, rate: Option<f64>) {
    let Some(rate) = rate else {
        for phone in phones {
            tasks.spawn(closed::phone(run.clone(), phone));
        }
        return;
    };
    let paces = phones.into_iter().map(|phone| open::spawn(tasks, run, phone)).collect();
    open::spawn_pacer(run.clone(), paces, rate);
}
