//! When a key set is read, and what a token without a known key is told: all decisions, without I/O and clock.
//!
//! A set is read again every [`JWKS_REFRESH_INTERVAL`], sooner after a failure, and when a token names a key that it does not have.
//! The last is anybody's to cause, so it happens at most once per [`JWKS_ON_DEMAND_INTERVAL`], however many ask.

use super::key_set::{Choice, Key, KeyAlgorithm, KeySet};
use crate::limits::{JWKS_ON_DEMAND_INTERVAL, JWKS_REFRESH_INTERVAL, JWKS_RETRY_BACKOFF};
use rand::Rng;
use relay_endpoints::backoff::Backoff;
use std::{sync::Arc, time::Instant};

/// What verifiers go by; replaced as a whole after each read.
#[derive(Clone, Debug)]
pub struct Published {
    /// Counts the reads.
    pub generation: u64,
    /// The newest set that could be read.
    keys: Option<Arc<KeySet>>,
    /// Whether the last read failed.
    failing: bool,
    /// From when on a token may ask for a read.
    on_demand_from: Instant,
}

/// What becomes of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This key verifies it.
    Key(Key),
    /// No key does.
    Refused,
    /// The key may exist, but the set cannot be had now.
    Unavailable,
    /// The next generation decides, which is to be read now.
    AskFor(u64),
}

impl Published {
    /// What becomes of a token when it comes.
    pub fn judge(&self, now: Instant, algorithm: KeyAlgorithm, kid: Option<&str>) -> Verdict {
        match self.settle(algorithm, kid) {
            Err(Absent) if now >= self.on_demand_from => Verdict::AskFor(self.generation + 1),
            Err(Absent) => self.without_key(),
            Ok(verdict) => verdict,
        }
    }

    /// What becomes of a token that has waited for this.
    pub fn judge_finally(&self, algorithm: KeyAlgorithm, kid: Option<&str>) -> Verdict {
        self.settle(algorithm, kid).unwrap_or_else(|Absent| self.without_key())
    }

    fn settle(&self, algorithm: KeyAlgorithm, kid: Option<&str>) -> Result<Verdict, Absent> {
        match self.keys.as_ref().ok_or(Absent)?.choose(algorithm, kid) {
            Choice::Key(key) => Ok(Verdict::Key(key.clone())),
            Choice::Refused => Ok(Verdict::Refused),
            Choice::Unknown => Err(Absent),
        }
    }

    /// Only a set that has just been read says that a key does not exist.
    fn without_key(&self) -> Verdict {
        if self.failing || self.keys.is_none() { Verdict::Unavailable } else { Verdict::Refused }
    }
}

/// No known key is meant.
struct Absent;

/// What a read changed, for the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The first failure after success, or of all.
    pub begins_to_fail: bool,
    /// The first success after failures.
    pub recovers: bool,
    /// The keys are others than before.
    pub keys_changed: bool,
}

/// Decides when to read.
#[derive(Debug)]
pub struct Refresh {
    published: Published,
    due: Instant,
    backoff: Backoff,
}

impl Refresh {
    /// Before the first read, or behind it if there is a set already.
    pub fn new(now: Instant, keys: Option<KeySet>) -> Self {
        let due = if keys.is_some() { now + JWKS_REFRESH_INTERVAL } else { now };
        let published = Published { generation: 0, keys: keys.map(Arc::new), failing: false, on_demand_from: now };
        Refresh { published, due, backoff: Backoff::new(JWKS_RETRY_BACKOFF) }
    }

    /// What verifiers go by now.
    pub fn published(&self) -> &Published {
        &self.published
    }

    /// When to read next, if nobody asks before.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// A token waits for this generation. Whether to read now.
    pub fn on_asked(&mut self, now: Instant, generation: u64) -> bool {
        if generation <= self.published.generation {
            return false;
        }
        // What is due in any case does not count as asked for.
        if now >= self.due {
            return true;
        }
        let may_ask = now >= self.published.on_demand_from;
        if may_ask {
            self.published.on_demand_from = now + JWKS_ON_DEMAND_INTERVAL;
        }
        may_ask
    }

    /// A read has ended, with a set or without.
    pub fn on_read(&mut self, now: Instant, keys: Option<KeySet>, rng: &mut impl Rng) -> Report {
        let failed_before = std::mem::replace(&mut self.published.failing, keys.is_none());
        self.published.generation += 1;
        let Some(keys) = keys else {
            self.due = now + self.backoff.next_wait(rng);
            return Report { begins_to_fail: !failed_before, ..Report::default() };
        };
        self.due = now + JWKS_REFRESH_INTERVAL;
        self.backoff = Backoff::new(JWKS_RETRY_BACKOFF);
        let keys_changed = self.published.keys.as_deref() != Some(&keys);
        self.published.keys = Some(Arc::new(keys));
        Report { recovers: failed_before, keys_changed, begins_to_fail: false }
    }
}

#[cfg(test)]
#[path = "refresh_tests.rs"]
mod tests;
