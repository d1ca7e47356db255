//! What a run collects while it runs, and what is made of it afterwards.

use crate::error::Error;
use hdrhistogram::Histogram;
use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// Latencies outside of this range count as its nearest end.
const SHORTEST_NANOS: u64 = 1_000;
const LONGEST_NANOS: u64 = 120_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

/// Latencies and failures of one run, shared by all its tasks. Only what falls into the measured span counts.
#[derive(Debug)]
pub struct Recorder {
    latencies: Mutex<Histogram<u64>>,
    from: AtomicU64,
    until: AtomicU64,
    errors: AtomicU64,
    timeouts: AtomicU64,
    first_failure: Mutex<Option<String>>,
}

impl Recorder {
    /// A recorder whose span has not begun.
    pub fn new() -> Self {
        Self {
            latencies: Mutex::new(histogram()),
            from: AtomicU64::new(u64::MAX),
            until: AtomicU64::new(u64::MAX),
            errors: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
            first_failure: Mutex::new(None),
        }
    }

    /// Begins the measured span, in nanoseconds of the run's clock.
    pub fn begin(&self, now_nanos: u64) {
        self.from.store(now_nanos, Relaxed);
    }

    /// Ends it; the moment itself lies outside.
    pub fn end(&self, now_nanos: u64) {
        self.until.store(now_nanos, Relaxed);
    }

    /// Whether a moment lies in the measured span.
    pub fn covers(&self, at_nanos: u64) -> bool {
        at_nanos >= self.from.load(Relaxed) && !self.is_over(at_nanos)
    }

    /// Whether a moment lies behind the measured span.
    pub fn is_over(&self, at_nanos: u64) -> bool {
        at_nanos >= self.until.load(Relaxed)
    }

    /// Adds one latency.
    pub fn record(&self, nanos: u64) {
        unpoisoned(&self.latencies).saturating_record(nanos);
    }

    /// Counts a failure, at any time: one before the span spoils the run as well.
    pub fn fail(&self, why: impl FnOnce() -> String) {
        if self.errors.fetch_add(1, Relaxed) == 0 {
            *unpoisoned(&self.first_failure) = Some(why());
        }
    }

    /// Counts a call that was given up.
    pub fn time_out(&self) {
        self.timeouts.fetch_add(1, Relaxed);
    }

    /// How many latencies were recorded.
    pub fn count(&self) -> u64 {
        unpoisoned(&self.latencies).len()
    }

    /// Failures so far.
    pub fn errors(&self) -> u64 {
        self.errors.load(Relaxed)
    }

    /// Calls given up so far.
    pub fn timeouts(&self) -> u64 {
        self.timeouts.load(Relaxed)
    }

    /// Whether the figures describe a server that did all its work.
    ///
    /// # Errors
    /// [`Error::Unclean`] if any call failed or was given up.
    pub fn judge(&self) -> Result<(), Error> {
        let (errors, timeouts) = (self.errors(), self.timeouts());
        if errors + timeouts == 0 {
            return Ok(());
        }
        let first = unpoisoned(&self.first_failure).clone().unwrap_or_else(|| "a call was given up".to_owned());
        Err(Error::Unclean { errors, timeouts, first })
    }

    /// The latency that a share `quantile` of the calls did not exceed, in microseconds.
    pub fn quantile_micros(&self, quantile: f64) -> f64 {
        unpoisoned(&self.latencies).value_at_quantile(quantile) as f64 / 1e3
    }

    /// The longest latency, in microseconds.
    pub fn longest_micros(&self) -> f64 {
        unpoisoned(&self.latencies).max() as f64 / 1e3
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(SHORTEST_NANOS, LONGEST_NANOS, SIGNIFICANT_DIGITS).expect("the constants are in range")
}

/// A task that panicked while it held one of these locks has left a whole value behind: each change is a single step.
fn unpoisoned<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The middle value, or the mean of the two in the middle; none of an empty list.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len().is_multiple_of(2) { Some((sorted[middle - 1] + upper) / 2.0) } else { Some(upper) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle_of_the_sorted_values() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 4.0]), Some(4.0));
        assert_eq!(median(&[9.0, 1.0, 4.0, 2.0]), Some(3.0));
    }

    #[test]
    fn the_span_holds_its_first_moment_and_not_its_last() {
        let recorder = Recorder::new();
        assert!(!recorder.covers(0));
        recorder.begin(100);
        assert!(!recorder.covers(99));
        assert!(recorder.covers(100));
        recorder.end(200);
        assert!(recorder.covers(199));
        assert!(!recorder.covers(200));
        assert!(recorder.is_over(200));
        assert!(!recorder.is_over(99));
    }

    #[test]
    fn quantiles_are_those_of_the_recorded_values() {
        let recorder = Recorder::new();
        for micros in 1..=1_000u64 {
            recorder.record(micros * 1_000);
        }
        assert_eq!(recorder.count(), 1_000);
        for (quantile, expected) in [(0.5, 500.0), (0.9, 900.0), (0.99, 990.0)] {
            let found = recorder.quantile_micros(quantile);
            assert!((found - expected).abs() <= expected * 0.001, "{quantile}: {found}");
        }
        assert!(recorder.longest_micros() >= 1_000.0);
    }

    #[test]
    fn a_latency_out_of_range_is_kept_at_the_end_of_the_range() {
        let recorder = Recorder::new();
        recorder.record(u64::MAX);
        assert_eq!(recorder.count(), 1);
        assert!(recorder.longest_micros() >= 120e6);
    }

    #[test]
    fn the_first_failure_is_the_one_told() {
        let recorder = Recorder::new();
        assert!(recorder.judge().is_ok());
        recorder.fail(|| "first".into());
        recorder.fail(|| "second".into());
        recorder.time_out();
        let Err(Error::Unclean { errors, timeouts, first }) = recorder.judge() else { panic!("a run with failures was believed") };
        assert_eq!((errors, timeouts, first.as_str()), (2, 1, "first"));
    }
}
