//! What an account's devices are: role, stored row, presence.

use crate::id::{DeviceId, UserId};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// Which side of the lane a device is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Answers requests.
    Desktop,
    /// A phone: sends requests.
    Mobile,
}

impl Role {
    /// The wire word, as in `X-Client-Type`.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Desktop => "desktop",
            Role::Mobile => "mobile",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The text named no role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotARole;

impl fmt::Display for NotARole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a role is desktop or mobile")
    }
}

impl std::error::Error for NotARole {}

impl FromStr for Role {
    type Err = NotARole;

    fn from_str(text: &str) -> Result<Self, NotARole> {
        match text {
            "desktop" => Ok(Role::Desktop),
            "mobile" => Ok(Role::Mobile),
            _ => Err(NotARole),
        }
    }
}

/// Presence of a device, as stored and as broadcast (device-lane section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Presence {
    /// A live connection is registered.
    Online,
    /// A desktop's socket closed less than the reconnect wait ago.
    Reconnecting,
    /// No connection, and no wait running.
    Disconnected,
}

/// The text is no word of this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownWord;

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the word is not known")
    }
}

impl std::error::Error for UnknownWord {}

impl Presence {
    /// Every variant.
    pub const ALL: [Presence; 3] = [Presence::Online, Presence::Reconnecting, Presence::Disconnected];

    /// The wire word.
    pub fn as_str(self) -> &'static str {
        match self {
            Presence::Online => "online",
            Presence::Reconnecting => "reconnecting",
            Presence::Disconnected => "disconnected",
        }
    }
}

impl fmt::Display for Presence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Presence {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        Self::ALL.into_iter().find(|presence| presence.as_str() == text).ok_or(UnknownWord)
    }
}

/// Why a device's presence changed: the `reason` of a `device-status` event, and of the stored history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PresenceReason {
    /// It registered.
    Registered,
    /// Its socket closed.
    SocketClosed,
    /// The reconnect wait passed without a registration.
    GraceElapsed,
    /// It sent nothing for the silence limit.
    Silent,
    /// It could not take its traffic.
    Saturated,
    /// Its account or device was logged out.
    LoggedOut,
    /// It was forgotten.
    DeviceForgotten,
    /// It may no longer use the relay.
    NotEligible,
}

impl PresenceReason {
    /// Every variant.
    pub const ALL: [PresenceReason; 8] = [
        PresenceReason::Registered,
        PresenceReason::SocketClosed,
        PresenceReason::GraceElapsed,
        PresenceReason::Silent,
        PresenceReason::Saturated,
        PresenceReason::LoggedOut,
        PresenceReason::DeviceForgotten,
        PresenceReason::NotEligible,
    ];

    /// The wire word.
    pub fn as_str(self) -> &'static str {
        match self {
            PresenceReason::Registered => "registered",
            PresenceReason::SocketClosed => "socketClosed",
            PresenceReason::GraceElapsed => "graceElapsed",
            PresenceReason::Silent => "silent",
            PresenceReason::Saturated => "saturated",
            PresenceReason::LoggedOut => "loggedOut",
            PresenceReason::DeviceForgotten => "deviceForgotten",
            PresenceReason::NotEligible => "notEligible",
        }
    }
}

impl FromStr for PresenceReason {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text).ok_or(UnknownWord)
    }
}

/// What registration needs to know of a device row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    /// The row's key.
    pub id: DeviceId,
    /// The account that registered it.
    pub user: UserId,
    /// The role that it was registered with.
    pub role: Role,
    /// Whether it may use the relay.
    pub relay_eligible: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_wire_and_read_back() {
        for presence in Presence::ALL {
            assert_eq!(serde_json::to_value(presence).unwrap(), presence.as_str());
            assert_eq!(presence.as_str().parse(), Ok(presence));
        }
        for reason in PresenceReason::ALL {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.as_str());
            assert_eq!(reason.as_str().parse(), Ok(reason));
        }
        assert_eq!("Online".parse::<Presence>(), Err(UnknownWord));
        assert_eq!("socketclosed".parse::<PresenceReason>(), Err(UnknownWord));
    }
}
