//! `fanout`: one desktop's timeline to many phones that watch it, as an open loop.
//!
//! Every frame has a number, and each phone checks that it gets all of them, in order, with the body that was sent. A latency counts
//! from the moment a frame was due to the moment its phone has it, so a server that stalls is not spared the frames it held up.
//! Without a rate, the highest one is searched for that a server keeps up with.

mod phone;
mod search;
mod trial;

use crate::{cli, error::Error, report::Report, stats::Recorder, target::Target};
use std::sync::Arc;

/// How much to send, and to how many.
#[derive(clap::Args, Clone, Debug)]
#[group(skip)]
pub struct Options {
    /// Phones that watch the desktop's session
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=MOST_PHONES))]
    pub phones: u16,
    /// Bytes of an event's payload, as a phone gets it
    #[arg(long, value_name = "BYTES", default_value_t = 200)]
    pub size: usize,
    /// Frames per second over all phones [default: search for the most that arrives with a p99 below 1.5 flush intervals]
    #[arg(long, value_name = "COUNT", value_parser = cli::positive)]
    pub rate: Option<f64>,
    /// Seconds to measure, at each rate
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0, value_parser = cli::positive)]
    pub secs: f64,
    /// Seconds to run before measuring
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = cli::not_negative)]
    pub warm: f64,
}

/// An account holds 1,000 devices (device lane, section 2), and one is the desktop.
const MOST_PHONES: i64 = 999;

/// Runs the scenario. The report counts failures; it is for the caller to judge them.
pub async fn run(target: &Target, pid: Option<u32>, options: &Options) -> Result<(Report, Arc<Recorder>), Error> {
    trial::prepare(target, options.phones).await?;
    match options.rate {
        Some(rate) => {
            let trial = trial::run(target, pid, options, rate).await?;
            Ok((trial.report("fanout", target, pid, options), trial.recorder))
        }
        None => search::run(target, pid, options).await,
    }
}
