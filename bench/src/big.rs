//! `big`: results as large as a frame may be, one at a time: speed, and the memory that they take and give back.

use crate::{
    cli,
    clock::Clock,
    error::Error,
    frame::{self, CallId, Kind},
    link::Incoming,
    pairs::{self, Bodies, Pair},
    payload, procfs,
    report::Report,
    stats::Recorder,
    target::{Link, Target},
};
use std::{sync::Arc, time::Duration};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

/// How large, and how many.
#[derive(clap::Args, Clone, Debug)]
#[group(skip)]
pub struct Options {
    /// MiB of the desktop's whole message; 32 is the most that a client may send
    #[arg(long, value_name = "COUNT", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=32))]
    pub mib: u32,
    /// Results to measure the speed by, behind the first one
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    pub count: u32,
    /// Seconds to wait before memory is read at rest
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0, value_parser = cli::not_negative)]
    pub settle: f64,
}

/// What the desktop's message has beside the result fits into this, so that the message is no larger than asked for.
const ENVELOPE_BYTES: usize = 512;
/// A healthy server takes less than a second, on a busy machine too.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Resident memory of the server in MiB, where it can be read.
struct Memory {
    pid: Option<u32>,
    idle: Option<f64>,
}

impl Memory {
    /// Growth over the idle state, now.
    fn now(&self) -> Option<f64> {
        self.over_idle(self.pid.and_then(procfs::resident_kib))
    }

    /// Growth over the idle state, at most since the peak was reset.
    fn peak(&self) -> Option<f64> {
        self.over_idle(self.pid.and_then(procfs::peak_kib))
    }

    fn reset_peak(&self) {
        if let Some(pid) = self.pid {
            procfs::reset_peak(pid);
        }
    }

    fn over_idle(&self, kib: Option<f64>) -> Option<f64> {
        Some(kib? / 1024.0 - self.idle?)
    }
}

/// Runs the scenario. First one result alone, for the memory; then the others, for the speed.
pub async fn run(target: &Target, pid: Option<u32>, options: &Options) -> Result<(Report, Arc<Recorder>), Error> {
    let settle = Duration::from_secs_f64(options.settle);
    let message_bytes = usize::try_from(options.mib).unwrap_or(usize::MAX) << 20;
    let bodies = Arc::new(Bodies { params: payload::make(0), result: payload::make(message_bytes - ENVELOPE_BYTES) });
    let (recorder, clock) = (Arc::new(Recorder::new()), Clock::start());
    let Some(Pair { desktop, mut phone }) = pairs::connect(target, 1).await?.pop() else {
        return Err(Error::TooSlow { step: "connecting a pair" });
    };
    let mut tasks = JoinSet::new();
    pairs::spawn_desktop(&mut tasks, desktop, bodies.clone(), recorder.clone());
    sleep(settle).await;
    let memory = Memory { pid, idle: pid.and_then(procfs::resident_kib).map(|kib| kib / 1024.0) };

    memory.reset_peak();
    call(&mut phone, &bodies, 0, clock, &recorder).await?;
    let one_peak = memory.peak();
    sleep(settle).await;
    let one_kept = memory.now();

    memory.reset_peak();
    let (begun, before) = (clock.nanos(), procfs::snapshot(pid));
    for number in 1..=options.count {
        let sent = clock.nanos();
        call(&mut phone, &bodies, number, clock, &recorder).await?;
        recorder.record(clock.nanos() - sent);
    }
    let (ended, after) = (clock.nanos(), procfs::snapshot(pid));
    let peak = memory.peak();
    sleep(settle).await;
    let kept = memory.now();
    tasks.shutdown().await;

    let mib = f64::from(options.mib) * f64::from(options.count);
    let seconds = Duration::from_nanos(ended - begun).as_secs_f64();
    let mut report = Report::new("big", &target.kin);
    report.count("mib", options.mib.into());
    report.count("results", options.count.into());
    report.number("secs", 2, seconds);
    report.number("mib_per_s", 0, mib / seconds);
    report.latencies(&recorder);
    report.cpu_per(&before, &after, "server_cpu_s_per_gib", 3, mib / 1024.0);
    report.number("idle_rss_mib", 1, memory.idle);
    report.number("one_peak_growth_mib", 1, one_peak);
    report.number("one_kept_growth_mib", 1, one_kept);
    report.number("peak_growth_mib", 1, peak);
    report.number("kept_growth_mib", 1, kept);
    report.failures(&recorder);
    Ok((report, recorder))
}

/// One call and its result, which must be the one that the desktop sent.
async fn call(phone: &mut Link, bodies: &Bodies, number: u32, clock: Clock, recorder: &Recorder) -> Result<(), Error> {
    let id = CallId { sequence: number, slot: 0, due_nanos: clock.nanos() };
    phone.sender.send(frame::request(id, &bodies.params)).await?;
    let answered = timeout(ANSWER_LIMIT, answer(phone)).await.map_err(|_elapsed| Error::TooSlow { step: "a large result" })?;
    let text = answered?;
    if !frame::has_result(&text, &bodies.result) {
        recorder.fail(|| format!("wrong answer of {} bytes: {}", text.len(), String::from_utf8_lossy(&text[..text.len().min(300)])));
    }
    Ok(())
}

async fn answer(phone: &mut Link) -> Result<bytes::Bytes, Error> {
    loop {
        match phone.receiver.receive().await {
            Incoming::Message(text) => match frame::kind(&text) {
                Kind::Response | Kind::Error => return Ok(text),
                Kind::Request | Kind::Registered | Kind::Other => {}
            },
            Incoming::Ping(body) => phone.sender.pong(&body).await?,
            Incoming::Closed => return Err(Error::Closed { during: "the run" }),
        }
    }
}
