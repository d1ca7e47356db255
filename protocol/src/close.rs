//! Why the relay closes a socket: code, reason text, and what the client may do next (device-lane section 3).

/// Every reason for which the relay sends a close frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// Broken framing.
    ProtocolViolation,
    /// A binary message.
    Binary,
    /// Text that is not UTF-8.
    NotUtf8,
    /// A message over the cap.
    TooLarge,
    /// An unfinished message that stopped growing, or took too long.
    UnfinishedMessage,
    /// The process is leaving.
    RelayDraining,
    /// An operator closed this one connection.
    ClosedByOperator,
    /// The account or device was logged out.
    LoggedOut,
    /// The device was forgotten.
    DeviceForgotten,
    /// The device may no longer use the relay.
    NotEligible,
    /// The credential was revoked.
    Revoked,
    /// No successful `register` in time.
    RegistrationTimeout,
    /// The same route registered on another socket.
    Replaced,
    /// The connection could not take its traffic.
    Saturated,
    /// No inbound byte for the silence limit.
    Silent,
    /// The account's router failed; the client registers again.
    RouterFailed,
}

impl CloseReason {
    /// Every reason, by code.
    pub const ALL: [CloseReason; 16] = [
        CloseReason::ProtocolViolation,
        CloseReason::UnfinishedMessage,
        CloseReason::Binary,
        CloseReason::NotUtf8,
        CloseReason::LoggedOut,
        CloseReason::DeviceForgotten,
        CloseReason::NotEligible,
        CloseReason::Revoked,
        CloseReason::TooLarge,
        CloseReason::RouterFailed,
        CloseReason::RelayDraining,
        CloseReason::ClosedByOperator,
        CloseReason::RegistrationTimeout,
        CloseReason::Replaced,
        CloseReason::Saturated,
        CloseReason::Silent,
    ];

    /// The websocket close code.
    pub fn code(self) -> u16 {
        match self {
            // A stalled network may be the cause, so the session stays resumable: not 1008.
            CloseReason::ProtocolViolation | CloseReason::UnfinishedMessage => 1002,
            CloseReason::Binary => 1003,
            CloseReason::NotUtf8 => 1007,
            CloseReason::LoggedOut | CloseReason::DeviceForgotten | CloseReason::NotEligible | CloseReason::Revoked => 1008,
            CloseReason::TooLarge => 1009,
            CloseReason::RouterFailed => 1011,
            CloseReason::RelayDraining | CloseReason::ClosedByOperator => 1012,
            CloseReason::RegistrationTimeout => 4001,
            CloseReason::Replaced => 4002,
            CloseReason::Saturated => 4003,
            CloseReason::Silent => 4004,
        }
    }

    /// The reason text of the close frame.
    pub fn text(self) -> &'static str {
        match self {
            CloseReason::ProtocolViolation => "protocolViolation",
            CloseReason::Binary => "binary",
            CloseReason::NotUtf8 => "notUtf8",
            CloseReason::TooLarge => "messageTooLarge",
            CloseReason::UnfinishedMessage => "unfinishedMessage",
            CloseReason::RelayDraining => "relayDraining",
            CloseReason::ClosedByOperator => "closedByOperator",
            CloseReason::LoggedOut => "loggedOut",
            CloseReason::DeviceForgotten => "deviceForgotten",
            CloseReason::NotEligible => "notEligible",
            CloseReason::Revoked => "revoked",
            CloseReason::RegistrationTimeout => "registrationTimeout",
            CloseReason::Replaced => "replaced",
            CloseReason::Saturated => "saturated",
            CloseReason::Silent => "silent",
            CloseReason::RouterFailed => "routerFailed",
        }
    }

    /// Whether the session may be resumed afterwards. After any 1008 never.
    pub fn allows_resume(self) -> bool {
        self.code() != 1008
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_close_frame_always_fits_a_control_frame() {
        for reason in CloseReason::ALL {
            assert!(2 + reason.text().len() <= 125);
        }
    }

    #[test]
    fn no_1008_allows_a_resume() {
        for reason in [CloseReason::LoggedOut, CloseReason::DeviceForgotten, CloseReason::NotEligible, CloseReason::Revoked] {
            assert_eq!(reason.code(), 1008);
            assert!(!reason.allows_resume());
        }
        let resumable = [
            CloseReason::UnfinishedMessage,
            CloseReason::RelayDraining,
            CloseReason::ClosedByOperator,
            CloseReason::Replaced,
            CloseReason::Saturated,
            CloseReason::Silent,
        ];
        for reason in resumable {
            assert!(reason.allows_resume());
        }
    }
}
