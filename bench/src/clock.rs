//! Monotonic time as nanoseconds since the run began: small enough to travel inside a call's id.

use tokio::time::Instant;

/// The run's own clock. Copies tell the same time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that says zero now.
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Nanoseconds since the start.
    pub fn nanos(self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
