//! Phones that watch a timeline, and the desktop that fills it.

use super::Options;
use crate::{
    clock::Clock,
    error::Error,
    event::Stream,
    link::{Incoming, Window},
    peer::Peer,
    stats::Recorder,
    target::{Link, Target},
    timeline::{self, Plan, Progress},
};
use std::{sync::Arc, time::Duration};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::{Semaphore, oneshot},
    task::JoinSet,
    time::sleep,
};

/// The crowd's account; the pair that is measured has the first one.
const PAIR: u32 = 1;
/// Phones coming at the same time. Each has a call open meanwhile, and a desktop may have 128 (device lane, section 4).
const LANES: usize = 64;
/// Between the arrivals of two of them, so that those of a large crowd do not end, and come back, all at the same moment.
const ARRIVAL: Duration = Duration::from_millis(20);
/// How often a frozen phone looks whether it still has a connection. It cannot see the end of what it does not read, so it sends a
/// pong that nobody asked for, and the kernel refuses that on a connection that has ended. Each is work for the relay that a phone which
/// is really frozen does not make, so they are few.
const LOOK: Duration = Duration::from_millis(500);

/// What the crowd does with what it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Habit {
    /// Each phone reads at once.
    Reads,
    /// None ever reads, and each comes back whenever the relay has ended its connection.
    Frozen,
}

/// A crowd at work.
pub(super) struct Crowd {
    _thread: Thread,
    tasks: JoinSet<()>,
    lives: Arc<Recorder>,
    lives_before: u64,
}

/// Creates the devices.
pub(super) async fn prepare(target: &Target, watching: u16) -> Result<(), Error> {
    let phones = (0..watching).map(|number| Peer::nth_phone(PAIR, number));
    target.prepare(&[Peer::desktop(PAIR)].into_iter().chain(phones).collect::<Vec<_>>()).await
}

impl Crowd {
    /// Connects the desktop, which sends until the crowd is dispersed, and one by one those that watch it, if anybody does. `lives` gets
    /// how long each connection lasted that the relay ended.
    pub(super) async fn gather(
        target: &Target,
        options: &Options,
        habit: Option<Habit>,
        recorder: Arc<Recorder>,
        lives: Arc<Recorder>,
    ) -> Result<Self, Error> {
        let (clock, progress) = (Clock::start(), Arc::new(Progress::default()));
        let (mut tasks, lanes) = (JoinSet::new(), Arc::new(Semaphore::new(LANES)));
        let thread = Thread::start()?;
        let (listening, is_listening) = oneshot::channel();
        let (desktop, stream) = (target.clone(), Stream::new(options.event_size));
        let (its_progress, its_recorder) = (progress.clone(), recorder.clone());
        let desktop = async move {
            match desktop.connect(Peer::desktop(PAIR)).await {
                Err(error) => _ = listening.send(Err(error)),
                Ok(link) => {
                    _ = listening.send(Ok(()));
                    timeline::desktop(link, stream, clock, its_progress, its_recorder).await;
                }
            }
        };
        tasks.spawn_on(desktop, &thread.handle);
        is_listening.await.unwrap_or(Err(Error::Closed { during: "the desktop's registration" }))?;
        progress.begin(Plan { start_nanos: clock.nanos(), end_nanos: u64::MAX, per_second: options.event_rate });
        if let Some(habit) = habit {
            for number in 0..options.watching {
                let phone = Phone { number, target: target.clone(), lanes: lanes.clone(), clock, recorder: recorder.clone() };
                match habit {
                    Habit::Reads => tasks.spawn_on(phone.read(), &thread.handle),
                    Habit::Frozen => tasks.spawn_on(phone.freeze(lives.clone()), &thread.handle),
                };
                sleep(ARRIVAL).await;
            }
        }
        let lives_before = lives.count();
        Ok(Self { _thread: thread, tasks, lives, lives_before })
    }

    /// Ends it, and says how many connections the relay had ended.
    pub(super) async fn disperse(mut self) -> u64 {
        let retired = self.lives.count() - self.lives_before;
        self.tasks.shutdown().await;
        retired
    }
}

/// A thread for the crowd alone: what the crowd does must not stand between an answer of the relay and the pair that waits for it.
struct Thread {
    handle: Handle,
    runtime: Option<Runtime>,
}

impl Thread {
    fn start() -> Result<Self, Error> {
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("crowd").enable_all().build();
        let runtime = runtime.map_err(Error::io("start the thread of the crowd"))?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // The run goes on, and may not wait for what still runs on the thread.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// One of the crowd.
struct Phone {
    number: u16,
    target: Target,
    lanes: Arc<Semaphore>,
    clock: Clock,
    recorder: Arc<Recorder>,
}

impl Phone {
    async fn watch(&self, window: Window) -> Option<Link> {
        // The semaphore is never closed.
        let _lane = self.lanes.acquire().await.ok()?;
        let watching = timeline::watch(&self.target, Peer::nth_phone(PAIR, self.number), window).await;
        watching.map_err(|error| self.fail(&error)).ok()
    }

    /// Reads everything.
    async fn read(self) {
        let Some(Link { mut sender, mut receiver, .. }) = self.watch(Window::Wide).await else { return };
        loop {
            let outcome = match receiver.receive().await {
                Incoming::Message(_) => Ok(()),
                Incoming::Ping(body) => sender.pong(&body).await,
                Incoming::Closed => Err(Error::Closed { during: "the run" }),
            };
            if let Err(error) = outcome {
                return self.fail(&error);
            }
        }
    }

    /// Reads nothing, and comes back whenever the relay has ended the connection.
    async fn freeze(self, lives: Arc<Recorder>) {
        while let Some(mut link) = self.watch(Window::Narrow).await {
            let since = self.clock.nanos();
            while link.sender.pong(b"").await.is_ok() {
                sleep(LOOK).await;
            }
            lives.record(self.clock.nanos() - since);
        }
    }

    fn fail(&self, error: &Error) {
        self.recorder.fail(|| format!("watching phone {}: {error}", self.number));
    }
}
