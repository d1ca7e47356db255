//! The wait between failures of one statement: it doubles, up to a bound, until a success.

use crate::persistence::PersistenceConfig;
use std::time::{Duration, Instant};

pub(super) struct Backoff {
    initial: Duration,
    max: Duration,
    next: Duration,
    retry_at: Option<Instant>,
}

impl Backoff {
    pub(super) fn new(config: &PersistenceConfig) -> Self {
        Backoff { initial: config.retry_initial, max: config.retry_max, next: config.retry_initial, retry_at: None }
    }

    /// When the statement that failed last is to run again; none after a success.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.retry_at.is_none_or(|retry_at| retry_at <= now)
    }

    /// Whether there was a failure, and the wait after it is over.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.retry_at.is_some() && self.is_over(now)
    }

    pub(super) fn on_result(&mut self, now: Instant, succeeded: bool) {
        if succeeded {
            self.next = self.initial;
            self.retry_at = None;
        } else {
            self.retry_at = Some(now + self.next);
            self.next = (self.next * 2).min(self.max);
        }
    }
}
