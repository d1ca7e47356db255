//! Figures with their names: one JSON object for programs, one table for people, in the order they were added.

use crate::{
    procfs::{self, Snapshot},
    stats::Recorder,
};
use serde::{Serialize, Serializer, ser::SerializeMap};
use std::{
    fmt,
    io::{self, Write},
};

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Figure {
    /// A word.
    Text(String),
    /// Something counted.
    Count(u64),
    /// Something measured, rounded for reading.
    Number(f64),
}

/// Says on standard error how far a run is; nobody need be there to read it.
pub fn progress(line: impl fmt::Display) {
    let _nobody_reads = writeln!(io::stderr(), "{line}");
}

/// What a scenario found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report(Vec<(&'static str, Figure)>);

impl Report {
    /// A report on a scenario against a kind of server.
    pub fn new(scenario: &str, target: &impl fmt::Display) -> Self {
        let mut report = Self::default();
        report.text("scenario", scenario);
        report.text("target", &target.to_string());
        report
    }

    /// Adds a word.
    pub fn text(&mut self, name: &'static str, text: &str) {
        self.0.push((name, Figure::Text(text.to_owned())));
    }

    /// Adds a count.
    pub fn count(&mut self, name: &'static str, count: u64) {
        self.0.push((name, Figure::Count(count)));
    }

    /// Adds a measured value with this many decimal places; one that could not be read is left out.
    pub fn number(&mut self, name: &'static str, places: i32, value: impl Into<Option<f64>>) {
        if let Some(value) = value.into() {
            let scale = 10f64.powi(places);
            self.0.push((name, Figure::Number((value * scale).round() / scale)));
        }
    }

    /// A figure by its name.
    pub fn figure(&self, name: &str) -> Option<&Figure> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, figure)| figure)
    }

    /// A measured or counted figure by its name.
    pub fn value(&self, name: &str) -> Option<f64> {
        match self.figure(name)? {
            Figure::Text(_) => None,
            Figure::Count(count) => Some(*count as f64),
            Figure::Number(value) => Some(*value),
        }
    }

    /// Adds the latencies of a run.
    pub fn latencies(&mut self, recorder: &Recorder) {
        for (name, quantile) in [("p50_us", 0.5), ("p90_us", 0.9), ("p99_us", 0.99), ("p999_us", 0.999)] {
            self.number(name, 1, recorder.quantile_micros(quantile));
        }
        self.number("max_us", 1, recorder.longest_micros());
    }

    /// Adds what went wrong.
    pub fn failures(&mut self, recorder: &Recorder) {
        self.count("errors", recorder.errors());
        self.count("timeouts", recorder.timeouts());
    }

    /// As [`Report::cpu_per`] for a thousand of what was done.
    pub fn cpu(&mut self, before: &Snapshot, after: &Snapshot, per_thousand: &'static str, done: u64) {
        self.cpu_per(before, after, per_thousand, 5, done as f64 / 1e3);
    }

    /// Adds the CPU seconds between two snapshots, and the server's share per unit of what was done, if anything was.
    ///
    /// `other_cpu_s` is what neither server nor generator used. When it is not small, the machine was shared: latencies then mean
    /// little, while CPU per thousand stays usable.
    pub fn cpu_per(&mut self, before: &Snapshot, after: &Snapshot, per_unit: &'static str, places: i32, units: f64) {
        let server = after.server.zip(before.server).map(|(after, before)| after - before);
        let generator = after.generator - before.generator;
        let other = after.machine - before.machine - generator - server.unwrap_or_default();
        self.number("server_cpu_s", 2, server);
        self.number("generator_cpu_s", 2, generator);
        self.number("other_cpu_s", 2, server.map(|_| other.max(0.0)));
        if units > 0.0 {
            self.number(per_unit, places, server.map(|seconds| seconds / units));
        }
    }

    /// Adds the server's resident memory, now and at its highest.
    pub fn memory(&mut self, pid: Option<u32>) {
        self.number("rss_mib", 1, pid.and_then(procfs::resident_kib).map(|kib| kib / 1024.0));
        self.number("peak_rss_mib", 1, pid.and_then(procfs::peak_kib).map(|kib| kib / 1024.0));
    }
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, figure) in &self.0 {
            map.serialize_entry(name, figure)?;
        }
        map.end()
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Figure::Text(text) => f.write_str(text),
            Figure::Count(count) => count.fmt(f),
            Figure::Number(value) => value.fmt(f),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.0.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
        self.0.iter().try_for_each(|(name, figure)| writeln!(f, "{name:width$}  {figure}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Report {
        let mut report = Report::new("rpc", &"floor");
        report.count("pairs", 50);
        report.number("p50_us", 1, 12.345);
        report.number("server_cpu_s", 2, None);
        report
    }

    #[test]
    fn json_keeps_the_order_and_leaves_out_what_could_not_be_read() {
        assert_eq!(
            serde_json::to_string(&sample()).expect("a report is JSON"),
            r#"{"scenario":"rpc","target":"floor","pairs":50,"p50_us":12.3}"#
        );
    }

    #[test]
    fn the_table_is_aligned() {
        assert_eq!(sample().to_string(), "scenario  rpc\ntarget    floor\npairs     50\np50_us    12.3\n");
    }

    #[test]
    fn figures_are_found_by_name() {
        assert_eq!(sample().value("pairs"), Some(50.0));
        assert_eq!(sample().value("p50_us"), Some(12.3));
        assert_eq!(sample().value("target"), None);
        assert_eq!(sample().value("p99_us"), None);
    }

    #[test]
    fn cpu_is_told_in_seconds_per_thousand() {
        let mut report = Report::default();
        let before = Snapshot { server: Some(1.0), generator: 1.0, machine: 10.0 };
        let after = Snapshot { server: Some(1.5), generator: 2.0, machine: 11.75 };
        report.cpu(&before, &after, "cpu_s_per_1k", 10_000);
        assert_eq!(report.value("cpu_s_per_1k"), Some(0.05));
        assert_eq!(report.value("other_cpu_s"), Some(0.25));
    }
}
