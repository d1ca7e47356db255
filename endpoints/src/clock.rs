//! The only place of this crate that reads wall time. Monotonic time is `tokio::time`, so that paused tests drive it.

/// Milliseconds since the Unix epoch: the unit of times inside frames.
#[expect(clippy::disallowed_methods, reason = "this is the one place that may")]
pub(crate) fn epoch_ms() -> u64 {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
}

/// The same for storage that has no unsigned numbers.
pub(crate) fn epoch_ms_signed() -> i64 {
    i64::try_from(epoch_ms()).unwrap_or(i64::MAX)
}
