//! The text format of Prometheus, version 0.0.4: families with HELP and TYPE, and their series.

use std::fmt::{Display, Write};

/// The content type of the format.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What a scraper gets.
#[derive(Default)]
pub(super) struct Text(String);

/// The series of one family.
pub(super) struct Family<'a> {
    text: &'a mut String,
    name: &'static str,
}

impl Text {
    /// A family that only grows; its name ends with `_total`.
    pub(super) fn counter(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, "counter", help)
    }

    /// A family that goes up and down.
    pub(super) fn gauge(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, "gauge", help)
    }

    /// A family of distributions.
    pub(super) fn histogram(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, "histogram", help)
    }

    fn family(&mut self, name: &'static str, kind: &str, help: &str) -> Family<'_> {
        put(&mut self.0, format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
        Family { text: &mut self.0, name }
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

impl Family<'_> {
    /// The only series.
    pub(super) fn is(mut self, value: impl Display) {
        self.put("", &[], value);
    }

    /// One series of several. Labels and their values are words of the code, so nothing is escaped.
    pub(super) fn series(&mut self, labels: &[(&str, &str)], value: impl Display) -> &mut Self {
        self.put("", labels, value);
        self
    }

    /// One series for each value of one label.
    pub(super) fn by<'a, V: Display>(mut self, label: &str, values: impl IntoIterator<Item = (&'a str, V)>) {
        for (value_of_label, value) in values {
            self.put("", &[(label, value_of_label)], value);
        }
    }

    /// One distribution: how many are up to each bound in milliseconds, all of them last; and their sum in seconds.
    pub(super) fn distribution(&mut self, labels: &[(&str, &str)], bounds_ms: &[u64], cumulative: &[u64], sum_seconds: f64) {
        let bounds = bounds_ms.iter().map(|bound| format!("{}", *bound as f64 / 1_000.0)).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(cumulative) {
            let labels: Vec<_> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
            self.put("_bucket", &labels, count);
        }
        self.put("_sum", labels, sum_seconds);
        self.put("_count", labels, cumulative.last().copied().unwrap_or_default());
    }

    fn put(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        put(self.text, format_args!("{}{suffix}", self.name));
        for (index, (label, value)) in labels.iter().enumerate() {
            debug_assert!(!value.contains(['"', '\\', '\n']), "{value}");
            put(self.text, format_args!("{}{label}=\"{value}\"", if index == 0 { '{' } else { ',' }));
        }
        put(self.text, format_args!("{} {value}\n", if labels.is_empty() { "" } else { "}" }));
    }
}

fn put(text: &mut String, piece: std::fmt::Arguments<'_>) {
    // Writing to memory does not fail.
    let _ = text.write_fmt(piece);
}
