//! The required relay protocol version, cached. Device-lane section 3.

use super::{StatementId, backoff::Backoff};
use crate::{
    persistence::PersistenceConfig,
    store::{MinimumProtocolRule, StoreError},
};
use relay_protocol::{
    compatibility::protocol_floor,
    version::{NotAVersion, Version},
};
use std::time::{Duration, Instant};

struct Load {
    statement: StatementId,
    began: Instant,
}

struct Cached {
    required: Version,
    /// When the load began: a rule that was added after that may be missing.
    read_at: Instant,
}

pub(super) struct Policy {
    max_age: Duration,
    cached: Option<Cached>,
    load: Option<Load>,
    backoff: Backoff,
}

impl Policy {
    pub(super) fn new(config: &PersistenceConfig) -> Self {
        Policy { max_age: config.policy_cache, cached: None, load: None, backoff: Backoff::new(config) }
    }

    /// The required version by rules that are not older than the limit.
    pub(super) fn required(&self, now: Instant) -> Option<Version> {
        let cached = self.cached.as_ref()?;
        (now.saturating_duration_since(cached.read_at) <= self.max_age).then(|| cached.required.clone())
    }

    pub(super) fn is_loading(&self) -> bool {
        self.load.is_some()
    }

    /// Whether the rules could not be read, and it is time to find out whether they can now.
    pub(super) fn is_retry_due(&self, now: Instant) -> bool {
        self.load.is_none() && self.backoff.is_due(now)
    }

    pub(super) fn next_timeout(&self) -> Option<(Instant, &'static str)> {
        let retry_at = self.backoff.retry_at().filter(|_| self.load.is_none())?;
        Some((retry_at, "rules retry"))
    }

    pub(super) fn begin(&mut self, now: Instant, statement: StatementId) {
        self.load = Some(Load { statement, began: now });
    }

    /// The outcome for those who waited, with the cause of a failure for logs; `None` when this is not the load that is awaited.
    /// A failure is not cached, so that the next look-up sees a repaired rule at once.
    pub(super) fn finish(
        &mut self,
        now: Instant,
        statement: StatementId,
        result: Result<Vec<MinimumProtocolRule>, StoreError>,
    ) -> Option<Result<Version, String>> {
        let load = self.load.take_if(|load| load.statement == statement)?;
        let required = result.map_err(|error| error.to_string()).and_then(|rules| highest(&rules));
        self.backoff.on_result(now, required.is_ok());
        if let Ok(required) = &required {
            self.cached = Some(Cached { required: required.clone(), read_at: load.began });
        }
        Some(required)
    }
}

fn highest(rules: &[MinimumProtocolRule]) -> Result<Version, String> {
    rules.iter().try_fold(protocol_floor(), |highest, rule| {
        let minimum = rule
            .minimum_relay_protocol_version
            .parse::<Version>()
            .map_err(|NotAVersion| format!("minimum_relay_protocol_version {:?} is no version", rule.minimum_relay_protocol_version))?;
        Ok(highest.max(minimum))
    })
}
