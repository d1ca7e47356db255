//! The task that renews this process's row.

use super::{
    KnownProcesses,
    core::{Core, Report},
};
use crate::{
    clock,
    drain::{Drain, Phase},
    store::{LiveProcess, ProcessRecord, Store, StoreError},
    supervisor::Services,
};
use std::{
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::time::{sleep, timeout};

/// Longest time between two renewals. Operations page: half a minute is soon enough for people.
const INTERVAL_MAX: Duration = Duration::from_secs(30);
/// Shortest time between two renewals, however short the reconnect wait is.
const INTERVAL_MIN: Duration = Duration::from_secs(1);
/// A process counts as dead when it has missed so many renewals.
const RENEWALS_MISSED: u32 = 3;
/// Longest wait after a renewal that failed, so that a short outage costs none of those.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// A renewal that storage has not answered by then counts as failed.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a process that ends waits for its row to go. What is left of it goes by itself.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(1);

const _: () = assert!(RETRY_INTERVAL.as_millis() + RENEWAL_TIMEOUT.as_millis() < INTERVAL_MAX.as_millis());

/// How often a row is renewed, and how long a renewal is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// Time between two renewals.
    pub interval: Duration,
    /// A process whose last renewal is this old counts as dead.
    pub good_for: Duration,
}

impl Renewal {
    /// A dead process counts as dead when its desktops do: after one reconnect wait, within bounds.
    pub fn within(reconnect_grace: Duration) -> Self {
        let interval = (reconnect_grace / RENEWALS_MISSED).clamp(INTERVAL_MIN, INTERVAL_MAX);
        Renewal { interval, good_for: RENEWALS_MISSED * interval }
    }
}

/// Keeps this process's row while the process runs.
pub struct Heartbeat {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) own: ProcessRecord,
    pub(crate) renewal: Renewal,
    pub(crate) drain: Drain,
    pub(crate) known: KnownProcesses,
    /// Is told when what a process has left is stale.
    pub(crate) services: Services,
}

impl Heartbeat {
    /// Writes the row, renews it, at once when the drain begins, and takes it away when the process is drained and is to end.
    pub async fn run(self) {
        let Heartbeat { store, own, renewal, drain, known, services } = self;
        let mut core = Core::new(own.instance, renewal.good_for);
        let mut ends = pin!(drain.process_may_end());
        loop {
            let is_draining = drain.phase() > Phase::Serving;
            let own = ProcessRecord { is_draining, ..own.clone() };
            let instance = own.instance;
            let mut renewing = pin!(timeout(RENEWAL_TIMEOUT, store.renew_process(own, renewal.good_for)));
            let answer = tokio::select! {
                answer = &mut renewing => answer.unwrap_or_else(|_late| Err(no_answer())),
                () = &mut ends => {
                    // It must not put the row back behind its removal.
                    let removal = async {
                        let _ = renewing.await;
                        store.remove_process(instance).await
                    };
                    return leave(removal).await;
                }
            };
            let wait = if answer.is_ok() { renewal.interval } else { renewal.interval.min(RETRY_INTERVAL) };
            note(&mut core, &known, &services, clock::now(), is_draining, answer);
            tokio::select! {
                () = &mut ends => return leave(store.remove_process(instance)).await,
                () = drain.reached(Phase::Draining), if !is_draining => {}
                () = sleep(wait) => {}
            }
        }
    }
}

fn no_answer() -> StoreError {
    StoreError::Unavailable(format!("no answer within {}", humantime::format_duration(RENEWAL_TIMEOUT)))
}

async fn leave(removal: impl Future<Output = Result<(), StoreError>>) {
    match timeout(REMOVAL_TIMEOUT, removal).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "the row of this process stays until it expires"),
        Err(_late) => tracing::debug!("the row of this process may stay until it expires"),
    }
}

fn note(
    core: &mut Core,
    known: &KnownProcesses,
    services: &Services,
    now: Instant,
    is_draining: bool,
    answer: Result<Vec<LiveProcess>, StoreError>,
) {
    for report in core.on_answer(now, is_draining, answer.as_deref()) {
        match report {
            Report::Serves(ProcessRecord { instance, version, host, pid, .. }) => {
                tracing::warn!(%instance, version, host, pid, "another relay process serves on this storage");
            }
            Report::ServesNoLonger { instance, is_draining } => {
                tracing::info!(%instance, is_draining, "the other relay process serves no longer");
            }
            Report::Failing { cause } => tracing::warn!(cause, "this relay process cannot be recorded in storage"),
            Report::LeftStale => services.end_stale_statuses(),
            Report::Recovered { failing_for } => tracing::info!(?failing_for, "this relay process is recorded in storage again"),
        }
    }
    if let Ok(live) = answer {
        known.replace(now, live);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_renewed_three_times_in_a_reconnect_wait_within_bounds() {
        let seconds = Duration::from_secs;
        for (grace, interval, good_for) in [
            (seconds(90), seconds(30), seconds(90)),
            (seconds(6), seconds(2), seconds(6)),
            (seconds(600), seconds(30), seconds(90)),
            (Duration::from_millis(300), seconds(1), seconds(3)),
            (Duration::ZERO, seconds(1), seconds(3)),
        ] {
            assert_eq!(Renewal::within(grace), Renewal { interval, good_for }, "{grace:?}");
        }
    }
}
