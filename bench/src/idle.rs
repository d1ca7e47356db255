//! `idle`: what a connection costs that does nothing.

use crate::{
    cli,
    error::Error,
    link::Incoming,
    pairs::{self, Bodies},
    payload, procfs,
    report::Report,
    stats::Recorder,
    target::{Link, Target},
};
use std::{sync::Arc, time::Duration};
use tokio::{task::JoinSet, time::sleep};

/// How many, and for how long.
#[derive(clap::Args, Clone, Debug)]
#[group(skip)]
pub struct Options {
    /// Pairs to connect; each is two connections
    #[arg(long, value_name = "COUNT", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub pairs: u32,
    /// Seconds to watch them
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = cli::positive)]
    pub hold: f64,
    /// Seconds to wait after connecting and after closing: a server may still be freeing and batching then
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0, value_parser = cli::not_negative)]
    pub settle: f64,
}

/// Runs the scenario. Kernel memory of the sockets is not in the figures.
pub async fn run(target: &Target, pid: Option<u32>, options: &Options) -> Result<(Report, Arc<Recorder>), Error> {
    let settle = Duration::from_secs_f64(options.settle);
    let recorder = Arc::new(Recorder::new());
    let bodies = Arc::new(Bodies { params: String::new(), result: payload::make(0) });
    let fresh = pid.and_then(procfs::resident_kib);
    let mut tasks = JoinSet::new();
    for pair in pairs::connect(target, options.pairs).await? {
        pairs::spawn_desktop(&mut tasks, pair.desktop, bodies.clone(), recorder.clone());
        tasks.spawn(phone(pair.phone, recorder.clone()));
    }
    sleep(settle).await;
    let connected = pid.and_then(procfs::resident_kib);
    let before = procfs::snapshot(pid);
    sleep(Duration::from_secs_f64(options.hold)).await;
    let after = procfs::snapshot(pid);
    let held = pid.and_then(procfs::resident_kib);
    let failures = (recorder.errors(), recorder.timeouts());
    tasks.shutdown().await;
    sleep(settle).await;

    let connections = 2.0 * f64::from(options.pairs);
    let per_connection = |now: Option<f64>| now.zip(fresh).map(|(now, fresh)| (now - fresh) / connections);
    let mib = |kib: Option<f64>| kib.map(|kib| kib / 1024.0);
    let mut report = Report::new("idle", &target.kin);
    report.count("pairs", u64::from(options.pairs));
    report.number("fresh_rss_mib", 1, mib(fresh));
    report.number("connected_rss_mib", 1, mib(connected));
    report.number("kib_per_connection", 2, per_connection(connected));
    report.number("kib_per_connection_held", 2, per_connection(held));
    report.number("closed_rss_mib", 1, mib(pid.and_then(procfs::resident_kib)));
    let cpu = after.server.zip(before.server).map(|(after, before)| (after - before) * 1e3 / options.hold.max(0.1));
    report.number("idle_cpu_ms_per_s", 2, cpu);
    report.count("errors", failures.0);
    report.count("timeouts", failures.1);
    Ok((report, recorder))
}

/// Keeps a phone's connection alive; its end is a failure.
async fn phone(link: Link, recorder: Arc<Recorder>) {
    let Link { peer, mut sender, mut receiver } = link;
    loop {
        let kept = match receiver.receive().await {
            Incoming::Message(_) => Ok(()),
            Incoming::Ping(body) => sender.pong(&body).await,
            Incoming::Closed => Err(Error::Closed { during: "the run" }),
        };
        if let Err(error) = kept {
            recorder.fail(|| format!("phone {}: {error}", peer.pair));
            return;
        }
    }
}
