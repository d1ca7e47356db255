//! The only place that reads a clock.
//!
//! Monotonic time is tokio's, so that a paused test drives cores, sockets and sweeps alike. Wall time is for what people
//! and rows see; nothing is ever judged by it.

use std::time::{Duration, Instant};

/// Monotonic now.
pub fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// A point of wall time, in milliseconds since the Unix epoch: the unit of times inside frames and rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EpochMs(pub i64);

impl EpochMs {
    /// Wall time now.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that may")]
    pub fn now() -> Self {
        let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        EpochMs(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
    }

    /// This time plus a duration, for an `expiresAt` beside its `expiresInMs`.
    pub fn plus(self, duration: Duration) -> Self {
        EpochMs(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }
}
