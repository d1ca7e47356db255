//! What a screen shows of the connection.

use super::failure::Failure;
use crate::link::Cause;
use std::{fmt, sync::Arc};
use tokio::time::Instant;

/// How things are between a phone and its desktop.
#[derive(Clone, Debug)]
pub enum Status {
    /// The first connection is being made.
    Connecting,
    /// The connection to the relay is gone, or there was none.
    Reconnecting {
        /// Why.
        cause: Arc<Cause>,
        /// When the next attempt is made; one is under way when this has passed.
        next_attempt: Instant,
    },
    /// Connected; the desktop is being asked whether it is there, and for the latest window of the watched session.
    Verifying,
    /// The desktop lost its connection, and may be back soon.
    DesktopReconnecting,
    /// The desktop is offline.
    DesktopOffline,
    /// The desktop answers, and the latest window of the watched session is loaded.
    Ready,
    /// The desktop answers, and the latest window of the watched session could not be loaded.
    HistoryUnavailable(Failure),
    /// The end: trying again cannot mend this.
    Ended(Arc<Cause>),
    /// The end: the client was closed.
    Closed,
}

impl Status {
    /// Whether the phone is registered with the relay.
    pub fn is_connected(&self) -> bool {
        match self {
            Status::Verifying | Status::DesktopReconnecting | Status::DesktopOffline | Status::Ready | Status::HistoryUnavailable(_) => {
                true
            }
            Status::Connecting | Status::Reconnecting { .. } | Status::Ended(_) | Status::Closed => false,
        }
    }

    /// Whether nothing comes after it.
    pub fn is_over(&self) -> bool {
        matches!(self, Status::Ended(_) | Status::Closed)
    }

    /// What to do next, for people (seed: device routing, states and next steps).
    pub fn advice(&self) -> &'static str {
        match self {
            Status::Connecting | Status::Reconnecting { .. } | Status::Verifying | Status::DesktopReconnecting => "Give it a moment.",
            Status::DesktopOffline => "Check the desktop app, the computer's sleep state, the account, the region, and the network.",
            Status::Ready | Status::Closed => "",
            Status::HistoryUnavailable(_) => "Use the reload action in the timeline.",
            Status::Ended(_) => "The phone does not come back by itself. Sign in again, update the app, or close the other one.",
        }
    }

    /// Whether a screen that shows `self` need not be told of `other`.
    pub(super) fn is_same(&self, other: &Status) -> bool {
        match (self, other) {
            (Status::Reconnecting { cause, .. }, Status::Reconnecting { cause: other, .. })
            | (Status::Ended(cause), Status::Ended(other)) => Arc::ptr_eq(cause, other),
            // Each failed load is news.
            (Status::HistoryUnavailable(_), Status::HistoryUnavailable(_)) => false,
            (one, other) => std::mem::discriminant(one) == std::mem::discriminant(other),
        }
    }
}

/// One line, lowercase. While the connection is being restored, everything that is not verified is "reconnecting" (seed).
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Status::Connecting => f.write_str("connecting"),
            Status::Reconnecting { cause, .. } => write!(f, "reconnecting: {cause}"),
            Status::Verifying => f.write_str("reconnecting: verifying the desktop"),
            Status::DesktopReconnecting => f.write_str("reconnecting: the desktop lost its connection"),
            Status::DesktopOffline => f.write_str("desktop offline"),
            Status::Ready => f.write_str("ready"),
            Status::HistoryUnavailable(failure) => write!(f, "connected, but history unavailable: {failure}"),
            Status::Ended(cause) => write!(f, "ended: {cause}"),
            Status::Closed => f.write_str("closed"),
        }
    }
}
