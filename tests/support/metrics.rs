//! What `GET /metrics` says, and what a case changed of it.

use super::relay_process::RelayProcess;
use std::collections::BTreeMap;

/// Series by name and labels, as they are written.
#[derive(Clone, Debug, PartialEq)]
pub struct Scrape(BTreeMap<String, f64>);

/// Series that move by themselves, or with the size and timing of what was sent.
const RESTLESS: [&str; 9] = [
    "process_",
    "relay_inbound_bytes",
    "relay_mailbox_messages",
    "relay_outbound_bytes",
    "relay_persistence_lag_seconds",
    "relay_persistence_lookups_open",
    "relay_persistence_statuses_unwritten",
    "relay_rpc_duration_seconds_bucket",
    "relay_rpc_duration_seconds_sum",
];

impl Scrape {
    pub async fn of(relay: &RelayProcess) -> Self {
        let text = Self::text(relay).await;
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        Scrape(
            samples.map(|line| line.rsplit_once(' ').unwrap()).map(|(series, value)| (series.to_owned(), value.parse().unwrap())).collect(),
        )
    }

    /// The whole answer.
    pub async fn text(relay: &RelayProcess) -> String {
        let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().unwrap();
        let request = client.get(format!("http://{}/metrics", relay.ready().admin)).bearer_auth(relay.admin_token());
        request.send().await.unwrap().error_for_status().unwrap().text().await.unwrap()
    }

    /// The value of one series.
    pub fn get(&self, series: &str) -> f64 {
        *self.0.get(series).unwrap_or_else(|| panic!("there is no {series}"))
    }

    /// Whether there is this series.
    pub fn has(&self, series: &str) -> bool {
        self.0.contains_key(series)
    }

    /// What is another value now, with the difference.
    pub fn moved_since(&self, before: &Scrape) -> Vec<String> {
        assert!(self.0.keys().eq(before.0.keys()), "no series comes or goes");
        let rests = |series: &str| !RESTLESS.iter().any(|prefix| series.starts_with(prefix));
        let moved = self.0.iter().filter(|(series, value)| rests(series) && before.get(series) != **value);
        moved.map(|(series, value)| format!("{series} {:+}", value - before.get(series))).collect()
    }
}
