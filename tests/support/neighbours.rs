//! Bystanders: pairs that make round trips while something goes wrong elsewhere, and how long theirs took.

use super::{
    account::Account,
    raw_socket::RawSocket,
    relay_process::RelayProcess,
    wire::{registered, round_trip},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{task::JoinHandle, time::Instant};

/// A desktop and a phone of an account that has nothing to do with what a test is about.
pub struct Neighbours {
    desktop: RawSocket,
    phone: RawSocket,
    trips: usize,
}

impl Neighbours {
    pub async fn start(relay: &RelayProcess) -> Self {
        let account = Account::new(relay, 1, 1).await;
        let desktop = registered(&account.raw_desktop(), account.desktops[0]).await;
        let phone = registered(&account.raw_phone(), account.phones[0]).await;
        Neighbours { desktop, phone, trips: 0 }
    }

    pub async fn round_trip(&mut self) {
        self.trips += 1;
        round_trip(&mut self.phone, &mut self.desktop, &format!("neighbour-{}", self.trips)).await;
    }
}

/// Round trips of a pair without a pause, until told to stop.
pub struct Runner {
    stop: Arc<AtomicBool>,
    task: JoinHandle<(Neighbours, Duration)>,
}

impl Runner {
    pub fn start(mut pair: Neighbours) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let task = tokio::spawn(async move {
            let mut slowest = Duration::ZERO;
            while !stopped.load(Relaxed) {
                let begun = Instant::now();
                pair.round_trip().await;
                slowest = slowest.max(begun.elapsed());
            }
            (pair, slowest)
        });
        Runner { stop, task }
    }

    /// The pair, and its slowest round trip.
    pub async fn stop(self) -> (Neighbours, Duration) {
        self.stop.store(true, Relaxed);
        self.task.await.unwrap()
    }
}

/// The slowest round trip of a pair that a quarter of them are slower than: what holds up a whole thread shows, what holds up one
/// pair does not.
pub async fn slowest(runners: Vec<Runner>) -> (Vec<Neighbours>, Duration) {
    let (mut pairs, mut slowest) = (Vec::new(), Vec::new());
    for runner in runners {
        let (pair, its_slowest) = runner.stop().await;
        pairs.push(pair);
        slowest.push(its_slowest);
    }
    slowest.sort_unstable();
    (pairs, slowest[slowest.len() * 3 / 4])
}
