//! What is still to be stored: the newest status of each device, and once the end of stale statuses. One statement at a time.

use super::{StatementId, backoff::Backoff};
use crate::{clock::EpochMs, persistence::PersistenceConfig, store::StatusWrite};
use relay_protocol::id::DeviceId;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Instant,
};

#[derive(Clone, Copy)]
struct Unwritten {
    write: StatusWrite,
    /// Since when the stored status of this device lags behind.
    since: Instant,
}

enum Running {
    Nothing,
    Statuses { statement: StatementId, batch: Vec<Unwritten> },
    Stale { statement: StatementId, at: EpochMs },
}

pub(super) struct Writes {
    batch_devices_max: usize,
    running: Running,
    /// The newest status of each device that no statement has taken up. Only devices that were looked up come here, so the
    /// table of devices bounds it.
    newest: BTreeMap<DeviceId, Unwritten>,
    /// The same devices, those that wait longest first.
    order: VecDeque<DeviceId>,
    statuses_backoff: Backoff,
    stale: Option<EpochMs>,
    /// Its own, so that neither of the two can hold up the other by failing.
    stale_backoff: Backoff,
}

impl Writes {
    pub(super) fn new(config: &PersistenceConfig) -> Self {
        Writes {
            batch_devices_max: config.status_batch_devices_max.max(1),
            running: Running::Nothing,
            newest: BTreeMap::new(),
            order: VecDeque::new(),
            statuses_backoff: Backoff::new(config),
            stale: None,
            stale_backoff: Backoff::new(config),
        }
    }

    pub(super) fn statuses_queued(&self) -> usize {
        self.newest.len()
    }

    pub(super) fn statuses_in_flight(&self) -> usize {
        self.running_batch().len()
    }

    pub(super) fn statuses_since(&self) -> Option<Instant> {
        let queued = self.order.front().and_then(|device| self.newest.get(device));
        self.running_batch().first().or(queued).map(|unwritten| unwritten.since)
    }

    pub(super) fn is_stale_pending(&self) -> bool {
        self.stale.is_some() || matches!(self.running, Running::Stale { .. })
    }

    pub(super) fn is_idle(&self) -> bool {
        self.is_free() && self.newest.is_empty() && self.stale.is_none()
    }

    /// The earliest retry; none while a statement runs, whose end starts the next one. What waits for a retry is queued: a
    /// failure puts it back, and only a success takes the retry away.
    pub(super) fn next_timeout(&self) -> Option<(Instant, &'static str)> {
        if !self.is_free() {
            return None;
        }
        let statuses = self.statuses_backoff.retry_at().map(|at| (at, "status retry"));
        let stale = self.stale_backoff.retry_at().map(|at| (at, "stale status retry"));
        [statuses, stale].into_iter().flatten().min_by_key(|(at, _reason)| *at)
    }

    pub(super) fn queue_status(&mut self, now: Instant, write: StatusWrite) {
        match self.newest.get_mut(&write.device) {
            Some(unwritten) => unwritten.write = write,
            None => {
                self.newest.insert(write.device, Unwritten { write, since: now });
                self.order.push_back(write.device);
            }
        }
    }

    pub(super) fn queue_stale(&mut self, at: EpochMs) {
        self.stale = Some(at);
    }

    pub(super) fn is_stale_due(&self, now: Instant) -> bool {
        self.is_free() && self.stale.is_some() && self.stale_backoff.is_over(now)
    }

    pub(super) fn begin_stale(&mut self, statement: StatementId) -> Option<EpochMs> {
        let at = self.stale.take()?;
        self.running = Running::Stale { statement, at };
        Some(at)
    }

    /// False when this is not the statement in flight.
    pub(super) fn finish_stale(&mut self, now: Instant, statement: StatementId, succeeded: bool) -> bool {
        let Running::Stale { statement: running, at } = self.running else { return false };
        if running != statement {
            return false;
        }
        self.running = Running::Nothing;
        self.stale_backoff.on_result(now, succeeded);
        if !succeeded {
            self.stale.get_or_insert(at);
        }
        true
    }

    pub(super) fn are_statuses_due(&self, now: Instant) -> bool {
        self.is_free() && !self.newest.is_empty() && self.statuses_backoff.is_over(now)
    }

    pub(super) fn begin_statuses(&mut self, statement: StatementId) -> Vec<StatusWrite> {
        let size = self.order.len().min(self.batch_devices_max);
        let batch: Vec<Unwritten> = self.order.drain(..size).filter_map(|device| self.newest.remove(&device)).collect();
        let writes = batch.iter().map(|unwritten| unwritten.write).collect();
        self.running = Running::Statuses { statement, batch };
        writes
    }

    /// False when this is not the statement in flight.
    pub(super) fn finish_statuses(&mut self, now: Instant, statement: StatementId, succeeded: bool) -> bool {
        let batch = match &mut self.running {
            Running::Statuses { statement: running, batch } if *running == statement => std::mem::take(batch),
            Running::Nothing | Running::Statuses { .. } | Running::Stale { .. } => return false,
        };
        self.running = Running::Nothing;
        self.statuses_backoff.on_result(now, succeeded);
        if !succeeded {
            self.put_back(&batch);
        }
        true
    }

    /// To the front, so that a device's wait counts from its first write; what came meanwhile is newer and stays.
    fn put_back(&mut self, batch: &[Unwritten]) {
        let returning: BTreeSet<DeviceId> = batch.iter().map(|unwritten| unwritten.write.device).collect();
        self.order.retain(|device| !returning.contains(device));
        for unwritten in batch.iter().rev() {
            let device = unwritten.write.device;
            self.order.push_front(device);
            self.newest.entry(device).or_insert(*unwritten).since = unwritten.since;
        }
    }

    fn is_free(&self) -> bool {
        match self.running {
            Running::Nothing => true,
            Running::Statuses { .. } | Running::Stale { .. } => false,
        }
    }

    fn running_batch(&self) -> &[Unwritten] {
        match &self.running {
            Running::Statuses { batch, .. } => batch,
            Running::Nothing | Running::Stale { .. } => &[],
        }
    }
}
