//! What is logged of verdicts: each at debug level, and a warning where operators must act, without one for each push.

use super::gateway::{Scope, Verdict};
use relay_protocol::push::Provider;
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// Between two warnings of one provider.
const INTERVAL: Duration = Duration::from_secs(60);

/// The last warning of each provider, and how many verdicts have been like it since.
#[derive(Debug, Default)]
pub(super) struct Reports {
    last: BTreeMap<Provider, (Instant, u64)>,
}

impl Reports {
    pub(super) fn tell(&mut self, provider: Provider, verdict: &Verdict, now: Instant) {
        match verdict {
            Verdict::Sent { id } => tracing::debug!(%provider, id, "push sent"),
            Verdict::TokenDead { reason, .. } => tracing::debug!(%provider, reason, "push token is dead"),
            Verdict::Retry { reason, scope: Scope::Push, .. } => tracing::debug!(%provider, reason, "push is tried again"),
            Verdict::Refused { reason } => match self.count(provider, now) {
                Some(more) => tracing::warn!(%provider, reason, more, "push refused"),
                None => tracing::debug!(%provider, reason, "push refused, once more"),
            },
            Verdict::Retry { reason, scope: Scope::Provider, .. } => match self.count(provider, now) {
                Some(more) => tracing::warn!(%provider, reason, more, "push provider fails"),
                None => tracing::debug!(%provider, reason, "push provider fails, once more"),
            },
        }
    }

    /// Whether a warning is due; then how many there were since the last.
    fn count(&mut self, provider: Provider, now: Instant) -> Option<u64> {
        match self.last.get_mut(&provider) {
            Some((at, more)) if *at + INTERVAL > now => {
                *more += 1;
                None
            }
            last => {
                let more = last.map_or(0, |(_, more)| *more);
                self.last.insert(provider, (now, 0));
                Some(more)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn the_first_warning_comes_at_once_and_the_next_counts_those_between() {
        let (mut reports, now) = (Reports::default(), clock::now());
        assert_eq!(reports.count(Provider::Apns, now), Some(0));
        assert_eq!([1, 59].map(|seconds| reports.count(Provider::Apns, now + Duration::from_secs(seconds))), [None, None]);
        assert_eq!(reports.count(Provider::Fcm, now), Some(0), "providers are told apart");
        assert_eq!(reports.count(Provider::Apns, now + INTERVAL), Some(2));
        assert_eq!(reports.count(Provider::Apns, now + 3 * INTERVAL), Some(0));
    }
}
