//! `storm`: many devices come back at once, as after a restart of the relay.

use crate::{clock::Clock, error::Error, peer::Peer, procfs, report::Report, stats::Recorder, target::Target};
use clap::builder::RangedU64ValueParser;
use futures_util::{StreamExt, stream};
use std::sync::Arc;

/// How many come back.
#[derive(clap::Args, Clone, Debug)]
#[group(skip)]
pub struct Options {
    /// Desktops and phones together
    #[arg(long, value_name = "COUNT", default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..))]
    pub devices: u32,
    /// Devices connecting at the same time
    #[arg(long, value_name = "COUNT", default_value_t = 500, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub lanes: usize,
}

/// Runs the scenario. A latency is the time from the first TCP packet to `registered`.
pub async fn run(target: &Target, pid: Option<u32>, options: &Options) -> Result<(Report, Arc<Recorder>), Error> {
    let peers: Vec<Peer> = (0..options.devices).map(peer).collect();
    target.prepare(&peers).await?;

    let recorder = Arc::new(Recorder::new());
    let clock = Clock::start();
    let before = procfs::snapshot(pid);
    let links: Vec<_> = stream::iter(peers)
        .map(|peer| {
            let recorder = recorder.clone();
            async move {
                let begun = clock.nanos();
                match target.connect(peer).await {
                    Ok(link) => {
                        recorder.record(clock.nanos() - begun);
                        Some(link)
                    }
                    Err(error) => {
                        recorder.fail(|| error.to_string());
                        None
                    }
                }
            }
        })
        .buffer_unordered(options.lanes.max(1))
        .filter_map(std::future::ready)
        .collect()
        .await;
    let seconds = clock.nanos() as f64 / 1e9;
    let after = procfs::snapshot(pid);

    let registered = links.len() as u64;
    let mut report = Report::new("storm", &target.kin);
    report.count("devices", u64::from(options.devices));
    report.count("lanes", options.lanes as u64);
    report.number("all_registered_s", 3, seconds);
    report.number("registered_per_s", 0, registered as f64 / seconds);
    report.latencies(&recorder);
    report.cpu(&before, &after, "server_cpu_s_per_1k", registered);
    report.memory(pid);
    report.failures(&recorder);
    Ok((report, recorder))
}

/// Desktops and phones in turn.
fn peer(index: u32) -> Peer {
    if index.is_multiple_of(2) { Peer::desktop(index / 2) } else { Peer::phone(index / 2) }
}
