//! Push: which provider reaches a phone, and under which token (device-lane sections 2 and 8).

use crate::limits::{PUSH_APP_ID_BYTES_MAX, PUSH_TOKEN_BYTES_MAX};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// Who carries a push to a phone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// Apple Push Notification service.
    Apns,
    /// Firebase Cloud Messaging, HTTP v1.
    Fcm,
}

impl Provider {
    /// Every variant.
    pub const ALL: [Provider; 2] = [Provider::Apns, Provider::Fcm];

    /// The word on the wire, in storage and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Provider::Apns => "apns",
            Provider::Fcm => "fcm",
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Which of Apple's two services a token belongs to: builds from Xcode get tokens of the sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Environment {
    /// Apps from the App Store and `TestFlight`. Also what a claim means that names none.
    #[default]
    Production,
    /// Apps under development.
    Sandbox,
}

impl Environment {
    /// The word on the wire and in storage.
    pub fn as_str(self) -> &'static str {
        match self {
            Environment::Production => "production",
            Environment::Sandbox => "sandbox",
        }
    }
}

/// The text names no provider, or no environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownWord;

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the word is not known")
    }
}

impl std::error::Error for UnknownWord {}

impl FromStr for Provider {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        Provider::ALL.into_iter().find(|provider| provider.as_str() == text).ok_or(UnknownWord)
    }
}

impl FromStr for Environment {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        [Environment::Production, Environment::Sandbox].into_iter().find(|environment| environment.as_str() == text).ok_or(UnknownWord)
    }
}

/// Why a text is no push token, or no app id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// It is empty.
    Empty,
    /// It has more bytes than this.
    TooLong(usize),
    /// It has a character that stands in none.
    Character,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::Empty => f.write_str("it is empty"),
            Malformed::TooLong(bytes_max) => write!(f, "it is longer than {bytes_max} bytes"),
            Malformed::Character => f.write_str("it has characters that stand in none"),
        }
    }
}

impl std::error::Error for Malformed {}

fn check(text: &str, bytes_max: usize, is_allowed: impl Fn(u8) -> bool) -> Result<(), Malformed> {
    match text.len() {
        0 => Err(Malformed::Empty),
        len if len > bytes_max => Err(Malformed::TooLong(bytes_max)),
        _ if text.bytes().all(is_allowed) => Ok(()),
        _ => Err(Malformed::Character),
    }
}

/// What a provider gave a phone: whoever has it can, with the key of the app, write to that phone. Never shown, not even by `Debug`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PushToken(Box<str>);

impl PushToken {
    /// For the provider and for storage.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PushToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PushToken(…)")
    }
}

impl FromStr for PushToken {
    type Err = Malformed;

    /// Takes what can stand in a URL's path or in JSON as it is. APNs tokens are hexadecimal digits and FCM's have letters, digits,
    /// `:`, `_` and `-`; neither promises that for ever.
    fn from_str(text: &str) -> Result<Self, Malformed> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b':' | b'_' | b'-' | b'.' | b'~' | b'=' | b'+');
        check(text, PUSH_TOKEN_BYTES_MAX, is_allowed)?;
        Ok(PushToken(text.into()))
    }
}

/// The app that holds a token: for APNs its bundle id, which is the topic of its pushes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct AppId(Box<str>);

impl AppId {
    /// The id.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AppId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for AppId {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        check(text, PUSH_APP_ID_BYTES_MAX, |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'))?;
        Ok(AppId(text.into()))
    }
}

/// Where a push goes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PushAddress {
    /// Who carries it.
    pub provider: Provider,
    /// The phone's token there.
    pub token: PushToken,
    /// Which of Apple's services; FCM has one.
    pub environment: Environment,
    /// The app, where the phone named it; otherwise the one that the relay is configured for.
    pub app_id: Option<AppId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_both_providers_are_taken_and_never_shown() {
        for text in
            ["00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0", "cXy0:APA91bH_x-1", &"a".repeat(PUSH_TOKEN_BYTES_MAX)]
        {
            let token: PushToken = text.parse().unwrap();
            assert_eq!(token.expose(), text);
            assert_eq!(format!("{token:?}"), "PushToken(…)");
        }
    }

    #[test]
    fn what_could_not_stand_in_a_path_or_a_row_is_no_token() {
        assert_eq!("".parse::<PushToken>(), Err(Malformed::Empty));
        let long = "a".repeat(PUSH_TOKEN_BYTES_MAX + 1);
        assert_eq!(long.parse::<PushToken>(), Err(Malformed::TooLong(PUSH_TOKEN_BYTES_MAX)));
        for text in ["a/b", "a b", "a\0", "a?b", "a#b", "ä", "a%2F", "a\r\nb"] {
            assert_eq!(text.parse::<PushToken>(), Err(Malformed::Character), "{text:?}");
        }
    }

    #[test]
    fn an_app_id_is_a_bundle_id() {
        assert_eq!("org.example.relay-app".parse::<AppId>().unwrap().as_str(), "org.example.relay-app");
        assert_eq!("org.example/app".parse::<AppId>(), Err(Malformed::Character));
        assert_eq!("a".repeat(PUSH_APP_ID_BYTES_MAX + 1).parse::<AppId>(), Err(Malformed::TooLong(PUSH_APP_ID_BYTES_MAX)));
    }

    #[test]
    fn words_read_back() {
        for provider in Provider::ALL {
            assert_eq!(provider.as_str().parse(), Ok(provider));
        }
        for environment in [Environment::Production, Environment::Sandbox] {
            assert_eq!(environment.as_str().parse(), Ok(environment));
        }
        assert_eq!("APNS".parse::<Provider>(), Err(UnknownWord));
    }
}
