//! Why a call has no result, and what to do next.

use crate::{frame::RpcError, link::Cause};
use relay_protocol::error::RpcRefusal;
use std::{fmt, sync::Arc, time::Duration};

/// Why a [`Call`](super::Call) has no result. Offline, reconnecting and timed out stay apart, as the person in front of the phone has
/// to do different things.
#[derive(Clone, Debug)]
pub enum Failure {
    /// There was no connection to the relay in all this time. Nothing was sent.
    NotSent(Duration),
    /// The desktop is offline.
    DesktopOffline(RpcError),
    /// The desktop lost its connection and may be back soon. If it was lost while the request was with it, the request may have run.
    DesktopReconnecting(RpcError),
    /// No final answer in this time. The request may have run.
    TimedOut(Duration),
    /// The relay has waited for the desktop as long as it does. The request may have run.
    RelayTimedOut(RpcError),
    /// The relay that would have delivered the answer is gone: another process has taken its place. The request may have run.
    ReplyLost,
    /// The relay or the desktop said no, for another reason.
    Refused(RpcError),
    /// The client has ended for good: trying again cannot mend this.
    Ended(Arc<Cause>),
    /// The client was closed, or dropped.
    Closed,
    /// As many calls are open as a relay takes of one phone.
    TooManyCalls,
    /// A call with this id is open.
    DuplicateId,
}

impl Failure {
    pub(super) fn of_refusal(error: RpcError) -> Self {
        let is = |refusal: RpcRefusal| error.code == i64::from(refusal.code());
        if is(RpcRefusal::DesktopOffline) {
            Failure::DesktopOffline(error)
        } else if is(RpcRefusal::DesktopReconnecting) {
            Failure::DesktopReconnecting(error)
        } else if is(RpcRefusal::Expired) {
            Failure::RelayTimedOut(error)
        } else {
            Failure::Refused(error)
        }
    }

    /// What the relay or the desktop answered, if this is an answer.
    pub fn refusal(&self) -> Option<&RpcError> {
        match self {
            Failure::DesktopOffline(error)
            | Failure::DesktopReconnecting(error)
            | Failure::RelayTimedOut(error)
            | Failure::Refused(error) => Some(error),
            Failure::NotSent(_)
            | Failure::TimedOut(_)
            | Failure::ReplyLost
            | Failure::Ended(_)
            | Failure::Closed
            | Failure::TooManyCalls
            | Failure::DuplicateId => None,
        }
    }

    /// What to do next, for people (seed: device routing, states and next steps).
    pub fn advice(&self) -> &'static str {
        match self {
            Failure::NotSent(_) => "The phone is restoring its connection to the server. Give it a moment.",
            Failure::DesktopOffline(_) => "Check the desktop app, the computer's sleep state, the account, the region, and the network.",
            Failure::DesktopReconnecting(_) => {
                "The desktop is coming back. Give it a moment, and read the session's state before you repeat a change."
            }
            Failure::TimedOut(_) | Failure::RelayTimedOut(_) | Failure::ReplyLost => {
                "The request may still have run. Read the session's state before you repeat a change."
            }
            Failure::Refused(error) if error.retryable => "This can pass. Try again later.",
            Failure::Refused(_) => "Repeating the same request does not help.",
            Failure::Ended(_) => "The phone does not come back by itself. Sign in again, update the app, or close the other one.",
            Failure::Closed => "The phone was closed.",
            Failure::TooManyCalls => "Wait for an open request to end.",
            Failure::DuplicateId => "Wait for the request with this id, or give the new one another id.",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::NotSent(after) => write!(f, "no connection to the relay within {} s; nothing was sent", after.as_secs_f64()),
            Failure::DesktopOffline(error)
            | Failure::DesktopReconnecting(error)
            | Failure::RelayTimedOut(error)
            | Failure::Refused(error) => error.fmt(f),
            Failure::TimedOut(after) => write!(f, "no answer within {} s", after.as_secs_f64()),
            Failure::ReplyLost => f.write_str("the relay was restarted, and the answer is lost with it"),
            Failure::Ended(cause) => cause.fmt(f),
            Failure::Closed => f.write_str("the phone was closed"),
            Failure::TooManyCalls => f.write_str("too many calls are open"),
            Failure::DuplicateId => f.write_str("a call with this id is still open"),
        }
    }
}

impl std::error::Error for Failure {}
