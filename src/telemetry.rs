//! Where log lines go: standard error, filtered, for people or as JSON. Standard output stays for what a command answers.

use crate::config::LogFormat;
use std::io::IsTerminal;
use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

/// Starts logging for this process.
///
/// # Errors
/// The filter does not parse, or logging runs already.
pub fn init(filter: &str, format: LogFormat) -> Result<(), String> {
    let registry = tracing_subscriber::registry().with(filter_of(filter)?);
    let lines = fmt::layer().with_writer(std::io::stderr);
    let started = match format {
        // Escape sequences in a file or a journal help nobody.
        LogFormat::Pretty => registry.with(lines.with_ansi(std::io::stderr().is_terminal())).try_init(),
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).try_init(),
    };
    started.map_err(|error| error.to_string())
}

/// Checks a filter without starting anything.
///
/// # Errors
/// The filter does not parse.
pub fn parse_filter(filter: &str) -> Result<(), String> {
    filter_of(filter).map(|_| ())
}

fn filter_of(filter: &str) -> Result<EnvFilter, String> {
    EnvFilter::builder().parse(filter).map_err(|error| format!("is no log filter such as info,relay_actors=debug: {error}"))
}
