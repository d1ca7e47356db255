//! Where log lines go: standard error, filtered, for people or as JSON. Standard output stays for what a command answers.

use crate::config::LogFormat;
use std::io::IsTerminal;
use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

/// Whatever the filter says. tokio-postgres writes each statement with its parameters at DEBUG, which are what accounts told the relay;
/// deadpool-postgres warns of each connection that ended, where the store's own line says it once.
const ALWAYS: [&str; 2] = ["tokio_postgres=warn", "deadpool.postgres=off"];

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
    let no_filter = |error| format!("is no log filter such as info,relay_actors=debug: {error}");
    let mut parsed = EnvFilter::builder().parse(filter).map_err(no_filter)?;
    for always in ALWAYS {
        parsed = parsed.add_directive(always.parse().map_err(no_filter)?);
    }
    Ok(parsed)
}
