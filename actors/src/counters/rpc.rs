//! Requests: how they ended, how long their answers took, how many were open.

use super::Counter;
use relay_protocol::{contract::MethodClass, error::BoundScope};
use std::time::Duration;

/// Upper bounds of a histogram's buckets, in milliseconds; a last one takes what is longer. From one hop on a local network to the
/// longest life of a record (`PENDING_OUTBOX`, 31 min), finer where an answer feels slow.
pub const BUCKETS_MS: [u64; 18] =
    [1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 120_000, 600_000, 1_860_000];

/// What a desktop's final response carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `result`.
    Result,
    /// `error`.
    Error,
}

/// How a request ends without a response of its desktop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// It was not forwarded.
    Refused,
    /// The desktop's lane did not take it.
    NotTaken,
    /// The desktop's connection ended first.
    DesktopLost,
    /// Its life passed.
    Expired,
}

impl Unanswered {
    /// Every variant, in the order of their declaration.
    pub const ALL: [Unanswered; 4] = [Unanswered::Refused, Unanswered::NotTaken, Unanswered::DesktopLost, Unanswered::Expired];

    /// The word for metrics.
    pub fn name(self) -> &'static str {
        match self {
            Unanswered::Refused => "refused",
            Unanswered::NotTaken => "notTaken",
            Unanswered::DesktopLost => "desktopLost",
            Unanswered::Expired => "expired",
        }
    }
}

/// Requests by the class of their method.
#[derive(Debug, Default)]
pub struct RpcCounters {
    classes: [OfClass; MethodClass::ALL.len()],
}

#[derive(Debug, Default)]
struct OfClass {
    results: Histogram,
    errors: Histogram,
    unanswered: [Counter; Unanswered::ALL.len()],
}

impl RpcCounters {
    /// The desktop's final response came, this long after the request had been handed to it.
    pub fn answered(&self, class: MethodClass, reply: Reply, took: Duration) {
        self.histogram(class, reply).observe(took);
    }

    /// It ended otherwise.
    pub fn unanswered(&self, class: MethodClass, how: Unanswered) {
        self.of(class).unanswered[how as usize].increment();
    }

    /// Times from the hand-over to the final response.
    pub fn histogram(&self, class: MethodClass, reply: Reply) -> &Histogram {
        match reply {
            Reply::Result => &self.of(class).results,
            Reply::Error => &self.of(class).errors,
        }
    }

    /// How many ended like this.
    pub fn count_unanswered(&self, class: MethodClass, how: Unanswered) -> u64 {
        self.of(class).unanswered[how as usize].get()
    }

    fn of(&self, class: MethodClass) -> &OfClass {
        &self.classes[class as usize]
    }
}

/// Durations, by bucket.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [Counter; BUCKETS_MS.len() + 1],
    /// Microseconds: as many requests as a process may have open fill it in more than a century.
    sum_us: Counter,
}

/// A histogram as it was read. Threads may have counted meanwhile, so its sum may be of a few more or fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistogramReading {
    /// Durations up to each bound, those of the buckets before included; the last counts all.
    pub cumulative: [u64; BUCKETS_MS.len() + 1],
    /// Their sum.
    pub sum: Duration,
}

impl Histogram {
    fn observe(&self, duration: Duration) {
        let bucket = BUCKETS_MS.partition_point(|bound| Duration::from_millis(*bound) < duration);
        self.buckets[bucket].increment();
        self.sum_us.add(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
    }

    /// What it holds now.
    pub fn read(&self) -> HistogramReading {
        let mut cumulative = [0; BUCKETS_MS.len() + 1];
        let mut count = 0;
        for (bucket, total) in self.buckets.iter().zip(&mut cumulative) {
            count += bucket.get();
            *total = count;
        }
        HistogramReading { cumulative, sum: Duration::from_micros(self.sum_us.get()) }
    }
}

impl HistogramReading {
    /// How many there are.
    pub fn count(&self) -> u64 {
        self.cumulative[BUCKETS_MS.len()]
    }
}

/// The most requests that were open at once since the start: how near each bound came.
#[derive(Debug, Default)]
pub struct OpenPeaks {
    peaks: [Counter; BoundScope::ALL.len()],
}

impl OpenPeaks {
    /// So many are open now, of one of those whom the bound counts.
    pub(crate) fn see(&self, scope: BoundScope, open: usize) {
        self.peaks[scope as usize].raise_to(open as u64);
    }

    /// The most of any.
    pub fn get(&self, scope: BoundScope) -> u64 {
        self.peaks[scope as usize].get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_falls_into_the_first_bucket_whose_bound_it_does_not_pass() {
        let histogram = Histogram::default();
        let (bound, step) = (Duration::from_millis(5), Duration::from_nanos(1));
        for duration in [Duration::ZERO, bound - step, bound, bound + step, Duration::from_secs(3_600)] {
            histogram.observe(duration);
        }
        let HistogramReading { cumulative, sum } = histogram.read();
        assert_eq!((cumulative[0], cumulative[1], cumulative[2], cumulative[3]), (1, 1, 3, 4));
        assert_eq!((cumulative[BUCKETS_MS.len() - 1], histogram.read().count()), (4, 5), "one is longer than the last bound");
        assert_eq!(sum.as_millis(), 3_600_000 + 3 * 5 - 1 + 1 - 1 + 1 - 1);
    }

    #[test]
    fn buckets_rise_to_the_longest_life_of_a_record() {
        assert!(BUCKETS_MS.is_sorted_by(|one, next| one < next));
        assert_eq!(Duration::from_millis(BUCKETS_MS[BUCKETS_MS.len() - 1]), relay_protocol::limits::PENDING_OUTBOX);
    }

    #[test]
    fn places_are_those_of_the_lists() {
        assert!(Unanswered::ALL.iter().enumerate().all(|(place, how)| *how as usize == place));
        assert!(MethodClass::ALL.iter().enumerate().all(|(place, class)| *class as usize == place));
        assert!(BoundScope::ALL.iter().enumerate().all(|(place, scope)| *scope as usize == place));
    }

    #[test]
    fn a_peak_stays() {
        let peaks = OpenPeaks::default();
        for open in [1, 3, 2] {
            peaks.see(BoundScope::Desktop, open);
        }
        assert_eq!((peaks.get(BoundScope::Desktop), peaks.get(BoundScope::User)), (3, 0));
    }
}
