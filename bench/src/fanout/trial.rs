//! One rate, with connections of its own.

use super::{
    Options,
    phone::{self, Run},
};
use crate::{
    clock::Clock,
    error::Error,
    event::Stream,
    link::Window,
    peer::Peer,
    procfs::{self, Snapshot},
    report::Report,
    stats::Recorder,
    target::Target,
    timeline::{self, Plan, Progress},
};
use futures_util::{StreamExt, TryStreamExt, stream};
use std::{
    sync::{Arc, atomic::AtomicU64, atomic::Ordering::Relaxed},
    time::Duration,
};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

/// Phones connecting at the same time.
const LANES: usize = 32;
/// Between the last phone's arrival and the first frame.
const LEAD: Duration = Duration::from_millis(50);
/// How long frames may come in after the last one was due.
const LATE: Duration = Duration::from_secs(5);
/// How often it is looked whether all have come.
const LATE_CHECK: Duration = Duration::from_millis(10);

/// What came of one rate.
pub(super) struct Trial {
    pub(super) recorder: Arc<Recorder>,
    rate: f64,
    seconds: f64,
    before: Snapshot,
    after: Snapshot,
    /// Frames that arrived within the measured span, whenever they were due.
    delivered: u64,
    lost: u64,
    payload_bytes: usize,
}

/// Creates the devices.
pub(super) async fn prepare(target: &Target, phones: u16) -> Result<(), Error> {
    let peers: Vec<Peer> = [Peer::desktop(0)].into_iter().chain((0..phones).map(|number| Peer::nth_phone(0, number))).collect();
    target.prepare(&peers).await
}

/// Connects everybody, sends for the span, and waits for what is still on its way.
pub(super) async fn run(target: &Target, pid: Option<u32>, options: &Options, rate: f64) -> Result<Trial, Error> {
    let stream = Stream::new(options.size);
    let payload_bytes = stream.payload_bytes();
    let (recorder, clock, progress) = (Arc::new(Recorder::new()), Clock::start(), Arc::new(Progress::default()));
    let run =
        Arc::new(Run { recorder: recorder.clone(), clock, body_and_number_key: stream.body_and_number_key(), arrived: AtomicU64::new(0) });
    let mut tasks = JoinSet::new();
    let desktop = target.connect(Peer::desktop(0)).await?;
    tasks.spawn(timeline::desktop(desktop, stream, clock, progress.clone(), recorder.clone()));
    let phones: Vec<_> = stream::iter(0..options.phones)
        .map(|number| timeline::watch(target, Peer::nth_phone(0, number), Window::Wide))
        .buffer_unordered(LANES)
        .try_collect()
        .await?;
    for phone in phones {
        tasks.spawn(phone::receive(run.clone(), phone));
    }

    let start = Duration::from_nanos(clock.nanos()) + LEAD;
    let begin = start + Duration::from_secs_f64(options.warm);
    let end = begin + Duration::from_secs_f64(options.secs);
    recorder.begin(nanos(begin));
    recorder.end(nanos(end));
    progress.begin(Plan { start_nanos: nanos(start), end_nanos: nanos(end), per_second: rate / f64::from(options.phones) });
    sleep_until(clock, begin).await;
    if let Some(pid) = pid {
        procfs::reset_peak(pid);
    }
    let (begun, before, arrived_before) = (clock.nanos(), procfs::snapshot(pid), run.arrived.load(Relaxed));
    sleep_until(clock, end).await;
    let (ended, after, arrived_after) = (clock.nanos(), procfs::snapshot(pid), run.arrived.load(Relaxed));

    let missing = || (progress.sent() * u64::from(options.phones)).saturating_sub(run.arrived.load(Relaxed));
    let all_arrived = async {
        while recorder.errors() == 0 && !(progress.is_done() && missing() == 0) {
            sleep(LATE_CHECK).await;
        }
    };
    let _what_is_missing_is_counted = timeout(LATE, all_arrived).await;
    tasks.shutdown().await;
    let lost = missing();
    if lost > 0 || !progress.is_done() {
        recorder.fail(|| format!("{lost} frames did not arrive within {} s", LATE.as_secs()));
    }
    let seconds = Duration::from_nanos(ended - begun).as_secs_f64();
    Ok(Trial { recorder, rate, seconds, before, after, delivered: arrived_after - arrived_before, lost, payload_bytes })
}

impl Trial {
    /// Whether everything arrived, and nearly all of it within this time.
    pub(super) fn kept_up(&self, p99_limit: Duration) -> bool {
        self.recorder.judge().is_ok() && self.recorder.quantile_micros(0.99) < p99_limit.as_micros() as f64
    }

    /// Its figures.
    pub(super) fn report(&self, scenario: &str, target: &Target, pid: Option<u32>, options: &Options) -> Report {
        let mut report = Report::new(scenario, &target.kin);
        report.count("phones", options.phones.into());
        report.count("payload_bytes", self.payload_bytes as u64);
        report.number("rate", 0, self.rate);
        report.number("secs", 2, self.seconds);
        report.count("delivered", self.delivered);
        report.number("delivered_per_s", 0, self.delivered as f64 / self.seconds);
        report.latencies(&self.recorder);
        report.cpu_per(&self.before, &self.after, "server_cpu_s_per_1m", 3, self.delivered as f64 / 1e6);
        report.memory(pid);
        report.count("lost", self.lost);
        report.failures(&self.recorder);
        report
    }
}

async fn sleep_until(clock: Clock, moment: Duration) {
    sleep(moment.saturating_sub(Duration::from_nanos(clock.nanos()))).await;
}

fn nanos(moment: Duration) -> u64 {
    u64::try_from(moment.as_nanos()).unwrap_or(u64::MAX)
}
