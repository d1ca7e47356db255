//! Where log lines go: standard error, filtered, for people or as JSON. Standard output stays for what a command answers.

use crate::config::LogFormat;
use std::{
    fmt,
    io::IsTerminal,
    sync::{Arc, Mutex, PoisonError},
};
use tracing::{Level, Metadata, level_filters::LevelFilter};
use tracing_log::{AsLog, log};
use tracing_subscriber::{
    EnvFilter, Registry,
    filter::filter_fn,
    fmt::layer,
    layer::SubscriberExt,
    reload::{self, Handle},
    util::SubscriberInitExt,
};

/// The filter of this process's log lines, which can be replaced while it runs. Clones are handles on the same one.
#[derive(Clone)]
pub struct LogFilter {
    /// As it was given: what the parsed one prints is in another order.
    text: Arc<Mutex<String>>,
    /// None in tests of handlers, which log nothing.
    running: Option<Handle<EnvFilter, Registry>>,
}

/// Why a filter is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterError {
    /// It has no part that says something.
    Empty,
    /// A part of it is no level and no target with a level.
    NotAPart {
        /// Its place, from 1.
        place: usize,
        /// The part.
        part: String,
    },
    /// Logging has ended.
    Ended,
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FilterError::Empty => f.write_str("names no level; write for example info,relay_actors=debug"),
            FilterError::NotAPart { place, part } => {
                write!(f, "is no log filter such as info,relay_actors=debug: part {place}, {part:?}, is no level and no target=level")
            }
            FilterError::Ended => f.write_str("cannot be replaced: logging has ended"),
        }
    }
}

impl std::error::Error for FilterError {}

/// Starts logging for this process.
///
/// # Errors
/// The filter does not parse, or logging runs already.
pub fn init(filter: &str, format: LogFormat) -> Result<LogFilter, String> {
    let (replaceable, running) = reload::Layer::new(parse(filter).map_err(|error| error.to_string())?);
    let registry = tracing_subscriber::registry().with(replaceable).with(filter_fn(may_be_logged));
    let lines = layer().with_writer(std::io::stderr);
    let started = match format {
        // Escape sequences in a file or a journal help nobody.
        LogFormat::Pretty => registry.with(lines.with_ansi(std::io::stderr().is_terminal())).try_init(),
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).try_init(),
    };
    started.map_err(|error| error.to_string())?;
    Ok(LogFilter { text: Arc::new(Mutex::new(filter.to_owned())), running: Some(running) })
}

/// Whatever the filter says. tokio-postgres writes each statement with its parameters at DEBUG, which are what accounts told the relay;
/// deadpool-postgres warns of each connection that ended, where the store's own line says it once.
fn may_be_logged(metadata: &Metadata<'_>) -> bool {
    let is_of = |name: &str| metadata.target().strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
    if is_of("tokio_postgres") { *metadata.level() <= Level::WARN } else { !is_of("deadpool.postgres") }
}

impl LogFilter {
    /// One that filters nothing, for handlers without a process.
    #[cfg(test)]
    pub(crate) fn detached(text: &str) -> Self {
        LogFilter { text: Arc::new(Mutex::new(text.to_owned())), running: None }
    }

    /// The filter in use, as it was given.
    pub fn text(&self) -> String {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts another one in its place; when it is refused, the one in use stays.
    ///
    /// # Errors
    /// [`FilterError`].
    pub fn replace(&self, filter: &str) -> Result<(), FilterError> {
        let parsed = parse(filter)?;
        // Held for both, so that the text is that of the filter.
        let mut text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = &self.running {
            running.reload(parsed).map_err(|_logging_has_gone| FilterError::Ended)?;
            // Crates that write with `log` ask a level of its own first, which was set at the start.
            log::set_max_level(LevelFilter::current().as_log());
        }
        filter.clone_into(&mut text);
        Ok(())
    }
}

/// Checks a filter without starting anything.
///
/// # Errors
/// [`FilterError`].
pub fn check_filter(filter: &str) -> Result<(), FilterError> {
    parse(filter).map(|_| ())
}

fn parse(filter: &str) -> Result<EnvFilter, FilterError> {
    let parts = filter.split(',').map(str::trim);
    if parts.clone().all(str::is_empty) {
        return Err(FilterError::Empty);
    }
    // The parser's own error does not say where.
    for (index, part) in parts.enumerate().filter(|(_, part)| !part.is_empty()) {
        EnvFilter::builder().parse(part).map_err(|_error| FilterError::NotAPart { place: index + 1, part: part.to_owned() })?;
    }
    EnvFilter::builder().parse(filter).map_err(|_error| FilterError::NotAPart { place: 1, part: filter.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_faulty_part_of_a_filter_is_named() {
        for (filter, place, part) in [("loud=very", 1, "loud=very"), ("info, relay=loud ,debug", 2, "relay=loud"), ("info,,a=b", 3, "a=b")]
        {
            assert_eq!(check_filter(filter), Err(FilterError::NotAPart { place, part: part.to_owned() }), "{filter}");
        }
        assert_eq!((check_filter(""), check_filter(" , ")), (Err(FilterError::Empty), Err(FilterError::Empty)));
        for good in ["info", "info,relay_actors=debug", "off,relay=trace,", "relay::http[request]=debug", "WARN"] {
            assert_eq!(check_filter(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn what_has_parameters_of_statements_stays_silent_under_any_filter() {
        let loudest = parse("trace,tokio_postgres=trace,tokio_postgres::query=trace,deadpool.postgres=trace").unwrap();
        let subscriber = tracing_subscriber::registry().with(loudest).with(filter_fn(may_be_logged));
        tracing::subscriber::with_default(subscriber, || {
            assert!(!tracing::enabled!(target: "tokio_postgres", Level::INFO));
            assert!(!tracing::enabled!(target: "tokio_postgres::query", Level::DEBUG));
            assert!(!tracing::enabled!(target: "deadpool.postgres", Level::ERROR));
            assert!(tracing::enabled!(target: "tokio_postgres::query", Level::WARN));
            assert!(tracing::enabled!(target: "tokio_postgres_of_others", Level::TRACE));
        });
    }

    #[test]
    fn a_filter_that_is_refused_changes_nothing() {
        let filter = LogFilter::detached("info");
        filter.replace("debug,relay=trace").unwrap();
        filter.replace("relay=loud").unwrap_err();
        assert_eq!(filter.text(), "debug,relay=trace");
    }
}
