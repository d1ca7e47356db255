//! The highest rate that a server keeps up with: doubled until it does not, then halved in between.

use super::{
    Options,
    trial::{self, Trial},
};
use crate::{
    error::Error,
    report::{Report, progress},
    stats::Recorder,
    target::Target,
};
use std::{sync::Arc, time::Duration};

/// Where the search begins, in frames per second over all phones. No machine is too slow for a 64th of it.
const FIRST_RATE: f64 = 64_000.0;
const SLOWEST_RATE: f64 = 1_000.0;
/// It ends when the rate that is kept and the one that is not are this close.
const CLOSE: f64 = 1.05;
/// No machine is faster.
const FASTEST_RATE: f64 = 1e8;
/// 1.5 times the 250 ms that a relay gathers frames for (device lane, section 6).
const P99_LIMIT: Duration = Duration::from_millis(375);

/// Reports on the best trial.
pub(super) async fn run(target: &Target, pid: Option<u32>, options: &Options) -> Result<(Report, Arc<Recorder>), Error> {
    let mut best: Option<(Report, Trial)> = None;
    let (mut kept, mut missed) = (0.0, f64::INFINITY);
    let mut trials = 0;
    while let Some(rate) = next_rate(kept, missed) {
        let trial = trial::run(target, pid, options, rate).await?;
        trials += 1;
        let report = trial.report("fanout-search", target, pid, options);
        let kept_up = trial.kept_up(P99_LIMIT);
        progress(format_args!(
            "  {rate:.0} frames/s: {}, p99 {:.0} ms",
            if kept_up { "kept" } else { "missed" },
            trial.recorder.quantile_micros(0.99) / 1e3
        ));
        if kept_up {
            kept = rate;
        } else {
            missed = rate;
        }
        if kept_up || best.is_none() {
            best = Some((report, trial));
        }
    }
    let (mut report, trial) = best.ok_or(Error::TooSlow { step: "a fan-out at any rate" })?;
    if kept == 0.0 {
        trial.recorder.fail(|| format!("even {missed:.0} frames/s were too many"));
    }
    report.count("trials", trials);
    Ok((report, trial.recorder))
}

/// The next rate to try, given the highest that was kept and the lowest that was missed; none when it is found.
fn next_rate(kept: f64, missed: f64) -> Option<f64> {
    if missed.is_infinite() {
        let next = if kept == 0.0 { FIRST_RATE } else { kept * 2.0 };
        return (next <= FASTEST_RATE).then_some(next);
    }
    if kept == 0.0 {
        return Some(missed / 2.0).filter(|next| *next >= SLOWEST_RATE);
    }
    (missed / kept > CLOSE).then(|| (kept + missed) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_ends_close_below_what_is_possible() {
        for possible in [1_500.0, 64_000.0, 250_000.0, 2_000_000.0, 60e6] {
            let (mut kept, mut missed, mut trials) = (0.0, f64::INFINITY, 0);
            while let Some(rate) = next_rate(kept, missed) {
                *(if rate <= possible { &mut kept } else { &mut missed }) = rate;
                trials += 1;
            }
            assert!(kept <= possible && kept * CLOSE >= possible, "{kept} of {possible}");
            assert!(trials <= 18, "{trials}");
        }
    }

    #[test]
    fn a_server_that_keeps_up_with_nothing_or_with_everything_ends_the_search() {
        assert_eq!(next_rate(0.0, SLOWEST_RATE), None);
        assert_eq!(next_rate(FASTEST_RATE, f64::INFINITY), None);
    }
}
