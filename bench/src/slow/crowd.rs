//! Phones that watch a timeline and read nothing, and the desktop that fills it.

use super::Options;
use crate::{
    clock::Clock,
    error::Error,
    event::Stream,
    link::Window,
    peer::Peer,
    stats::Recorder,
    target::{Link, Target},
    timeline::{self, Plan, Progress},
};
use std::{sync::Arc, time::Duration};
use tokio::{sync::Semaphore, task::JoinSet, time::sleep};

/// The crowd's account; the pair that is measured has the first one.
const PAIR: u32 = 1;
/// Phones coming at the same time. Each has a call open meanwhile, and a desktop may have 128 (device lane, section 4).
const LANES: usize = 64;
/// Between the arrivals of two of them, so that those of a large crowd do not end, and come back, all at the same moment.
const ARRIVAL: Duration = Duration::from_millis(20);
/// How often a frozen phone looks whether it still has a connection. It cannot see the end of what it does not read, so it sends a
/// pong that nobody asked for, and the kernel refuses that on a connection that has ended.
const LOOK: Duration = Duration::from_millis(100);

/// A crowd at work.
pub(super) struct Crowd {
    tasks: JoinSet<()>,
    lives: Arc<Recorder>,
    lives_before: u64,
}

/// Creates the devices.
pub(super) async fn prepare(target: &Target, frozen: u16) -> Result<(), Error> {
    let phones = (0..frozen).map(|number| Peer::nth_phone(PAIR, number));
    target.prepare(&[Peer::desktop(PAIR)].into_iter().chain(phones).collect::<Vec<_>>()).await
}

impl Crowd {
    /// Connects the desktop, which sends until the crowd is dispersed, and one by one `frozen` phones, which read nothing. `lives` gets how long each connection lasted that the relay ended.
    pub(super) async fn gather(
        target: &Target,
        options: &Options,
        frozen: u16,
        recorder: Arc<Recorder>,
        lives: Arc<Recorder>,
    ) -> Result<Self, Error> {
        let (clock, progress) = (Clock::start(), Arc::new(Progress::default()));
        let (mut tasks, lanes) = (JoinSet::new(), Arc::new(Semaphore::new(LANES)));
        let desktop = target.connect(Peer::desktop(PAIR)).await?;
        let stream = Stream::new(options.event_size);
        tasks.spawn(timeline::desktop(desktop, stream, clock, progress.clone(), recorder.clone()));
        progress.begin(Plan { start_nanos: clock.nanos(), end_nanos: u64::MAX, per_second: options.event_rate });
        for number in 0..frozen {
            tasks.spawn(stay(target.clone(), lanes.clone(), number, clock, recorder.clone(), lives.clone()));
            sleep(ARRIVAL).await;
        }
        let lives_before = lives.count();
        Ok(Self { tasks, lives, lives_before })
    }

    /// Ends it, and says how many connections the relay had ended.
    pub(super) async fn disperse(mut self) -> u64 {
        let retired = self.lives.count() - self.lives_before;
        self.tasks.shutdown().await;
        retired
    }
}

async fn freeze(target: &Target, lanes: &Semaphore, number: u16) -> Result<Link, Error> {
    let _lane = lanes.acquire().await;
    timeline::watch(target, Peer::nth_phone(PAIR, number), Window::Narrow).await
}

/// Reads nothing, and comes back whenever the relay has ended the connection.
async fn stay(target: Target, lanes: Arc<Semaphore>, number: u16, clock: Clock, recorder: Arc<Recorder>, lives: Arc<Recorder>) {
    loop {
        let mut link = match freeze(&target, &lanes, number).await {
            Ok(link) => link,
            Err(error) => {
                recorder.fail(|| format!("frozen phone {number}: {error}"));
                return;
            }
        };
        let since = clock.nanos();
        while link.sender.pong(b"").await.is_ok() {
            sleep(LOOK).await;
        }
        lives.record(clock.nanos() - since);
    }
}
