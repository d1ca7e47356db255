//! Typed identifiers. Two ids of different kinds cannot be mixed up, and each prints in its wire form.

use serde::{Deserialize, Deserializer, Serialize};
use std::{fmt, str::FromStr};
use uuid::Uuid;

/// The text was not a UUID in its hyphenated form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAUuid;

impl fmt::Display for NotAUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a UUID like 0f8fad5b-d9cb-469f-a165-70867728950e")
    }
}

impl std::error::Error for NotAUuid {}

/// Only the 36-character hyphenated form counts on the wire; the parser alone would also take braces, URNs and bare digits.
fn parse_hyphenated(text: &str) -> Result<Uuid, NotAUuid> {
    if text.len() != uuid::fmt::Hyphenated::LENGTH {
        return Err(NotAUuid);
    }
    Uuid::try_parse(text).map_err(|_not_a_uuid| NotAUuid)
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.as_hyphenated().fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = NotAUuid;

            fn from_str(text: &str) -> Result<Self, NotAUuid> {
                parse_hyphenated(text).map($name)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

uuid_id! {
    /// An account: the `sub` of its bearer JWT.
    UserId
}
uuid_id! {
    /// A device row of an account. Any letter case on the wire, lower case inside.
    DeviceId
}
uuid_id! {
    /// An API key of an account. Names the key; its secret proves it.
    ApiKeyId
}
uuid_id! {
    /// One registered socket of a route (a connection generation). Never reused.
    ConnectionId
}
uuid_id! {
    /// A resume session. Names the session; the resume token proves it.
    SessionId
}
uuid_id! {
    /// One relay process. New at every start, so that clients notice that its memory is empty.
    RelayInstanceId
}

uuid_id! {
    /// One time during which a session of a desktop had interest. New whenever interest begins; timeline frames show it.
    AuthorizationGeneration
}

/// Where frames go: one desktop, or one phone's view of one desktop. At most one live connection per route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Route {
    /// The desktop itself.
    Desktop(DeviceId),
    /// A phone, bound to the desktop that it selected.
    Phone {
        /// The phone.
        phone: DeviceId,
        /// The desktop that it talks to.
        desktop: DeviceId,
    },
}

impl Route {
    /// The device that holds the socket.
    pub fn device(&self) -> DeviceId {
        match *self {
            Route::Desktop(device) | Route::Phone { phone: device, .. } => device,
        }
    }

    /// The desktop at the end of the route.
    pub fn desktop(&self) -> DeviceId {
        match *self {
            Route::Desktop(desktop) | Route::Phone { desktop, .. } => desktop,
        }
    }
}

/// `desktopId`, or `phoneId::desktopId`: the `clientId` that a desktop sees.
impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Route::Desktop(desktop) => desktop.fmt(f),
            Route::Phone { phone, desktop } => write!(f, "{phone}::{desktop}"),
        }
    }
}

impl FromStr for Route {
    type Err = NotAUuid;

    fn from_str(text: &str) -> Result<Self, NotAUuid> {
        match text.split_once("::") {
            Some((phone, desktop)) => Ok(Route::Phone { phone: phone.parse()?, desktop: desktop.parse()? }),
            None => Ok(Route::Desktop(text.parse()?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

    #[test]
    fn ids_take_any_letter_case_and_print_lower_case() {
        let id: DeviceId = ONE.to_uppercase().parse().unwrap();
        assert_eq!(id.to_string(), ONE);
    }

    #[test]
    fn ids_take_only_the_hyphenated_form() {
        for text in [
            "",
            "0f8fad5bd9cb469fa16570867728950e",
            "{0f8fad5b-d9cb-469f-a165-70867728950e}",
            &format!("{ONE} "),
            &format!(" {}", &ONE[1..]),
        ] {
            assert_eq!(text.parse::<DeviceId>(), Err(NotAUuid), "{text:?}");
        }
    }

    #[test]
    fn routes_print_and_parse() {
        let desktop: DeviceId = ONE.parse().unwrap();
        let phone = DeviceId(Uuid::nil());
        for (route, text) in
            [(Route::Desktop(desktop), ONE.to_string()), (Route::Phone { phone, desktop }, format!("{}::{ONE}", Uuid::nil()))]
        {
            assert_eq!(route.to_string(), text);
            assert_eq!(text.parse(), Ok(route));
        }
    }
}
