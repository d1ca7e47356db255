//! What a failure of the server or of the way to it means: for the connection, for a start, and in words.

use std::{error::Error, io, iter::successors};
use tokio_postgres::error::{DbError, Severity};

/// Classes of SQLSTATE that pass by themselves: connection exceptions, insufficient resources, operator intervention (starting up,
/// shutting down, but also a statement that took too long), and a lock that somebody else has.
const PASSING: [&str; 4] = ["08", "53", "57", "55P03"];

/// The server ended a statement at its time limit, or somebody asked it to.
pub(super) const QUERY_CANCELED: &str = "57014";

/// Whether the connection has ended with this error.
pub(super) fn ends_connection(error: &tokio_postgres::Error) -> bool {
    let fatal = |error: &DbError| matches!(error.parsed_severity(), Some(Severity::Fatal | Severity::Panic));
    error.is_closed() || error.as_db_error().is_some_and(fatal) || io_error(error).is_some()
}

/// Whether the same may succeed later without anybody's help, for a start: the server is not there yet, is starting, or is full. A
/// wrong password, an unknown database and a certificate that does not fit are what they are.
pub(super) fn passes(error: &tokio_postgres::Error) -> bool {
    match error.as_db_error() {
        Some(error) => PASSING.iter().any(|class| error.code().code().starts_with(class)),
        None => error.is_closed() || io_error(error).is_some_and(|error| !is_tls(error)),
    }
}

/// The error with its causes. Of what the server says, only the message: its detail may quote a row.
pub(super) fn describe(error: &tokio_postgres::Error) -> String {
    if let Some(error) = error.as_db_error() {
        return format!("{} (SQLSTATE {})", error.message(), error.code().code());
    }
    causes(error).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn causes(error: &tokio_postgres::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    successors(Some(error as &(dyn Error + 'static)), |error: &&(dyn Error + 'static)| (*error).source())
}

fn io_error(error: &tokio_postgres::Error) -> Option<&io::Error> {
    causes(error).find_map(|cause| cause.downcast_ref())
}

fn is_tls(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>())
}
