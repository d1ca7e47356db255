//! Why something of the demo desktop could not be done, and what a phone is told.

use crate::desktop::router::HandlerError;
use relay_protocol::desktop_error::DesktopError;
use rusqlite::ErrorCode;

/// A refusal by a rule, or a storage that failed.
#[derive(Debug)]
pub(super) enum Fault {
    /// A rule says no: told as it is.
    Refused(HandlerError),
    /// SQLite says no: logged, and told without its words.
    Storage(rusqlite::Error),
}

impl Fault {
    pub(super) fn not_found(what: &str) -> Self {
        Fault::Refused(HandlerError::new(DesktopError::NotFound, format!("There is no such {what}.")))
    }

    pub(super) fn conflict(message: impl Into<String>) -> Self {
        Fault::Refused(HandlerError::new(DesktopError::Conflict, message))
    }

    pub(super) fn validation(message: impl Into<String>) -> Self {
        Fault::Refused(HandlerError::new(DesktopError::Validation, message))
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Fault::Refused(HandlerError::new(DesktopError::InvalidParams, message))
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Fault::Storage(error)
    }
}

impl From<Fault> for HandlerError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Refused(error) => error,
            Fault::Storage(error) => {
                tracing::warn!(%error, "the demo's storage failed");
                let told = HandlerError::new(DesktopError::Database, "The desktop's storage failed.");
                // A transaction that could not begin has done nothing.
                let is_busy = matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked));
                if is_busy { told.retryable() } else { told }
            }
        }
    }
}
