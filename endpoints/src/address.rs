//! Where a relay is: one address, written as `http://`, `https://`, `ws://` or `wss://`, from which both the websocket and the
//! HTTP addresses follow.

use std::{fmt, str::FromStr};
use tokio_tungstenite::tungstenite::http::Uri;

/// Path of the device lane's websocket (device-lane section 2).
const DEVICE_LINK_PATH: &str = "/ws/device-link";

/// The address of a relay, without a trailing slash. A path in front of the relay's own paths is kept (a proxy may add one).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayAddress {
    is_secure: bool,
    authority: String,
    path_prefix: String,
}

/// Why a text is no usable relay address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressError {
    /// Not a URL with a host.
    Malformed,
    /// A scheme that no relay speaks.
    UnknownScheme(String),
    /// A query, or a user and password: a relay's address has neither.
    Decorated,
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddressError::Malformed => f.write_str("not a relay address; one looks like http://127.0.0.1:8787"),
            AddressError::UnknownScheme(scheme) => {
                write!(f, "a relay address starts with http://, https://, ws:// or wss://, not {scheme}://")
            }
            AddressError::Decorated => f.write_str("a relay address has no user name, password or query"),
        }
    }
}

impl std::error::Error for AddressError {}

impl FromStr for RelayAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let uri: Uri = text.parse().map_err(|_malformed| AddressError::Malformed)?;
        let is_secure = match uri.scheme_str() {
            Some("http" | "ws") => false,
            Some("https" | "wss") => true,
            Some(other) => return Err(AddressError::UnknownScheme(other.to_owned())),
            None => return Err(AddressError::Malformed),
        };
        let authority = uri.authority().filter(|authority| !authority.host().is_empty()).ok_or(AddressError::Malformed)?;
        if uri.query().is_some() || authority.as_str().contains('@') {
            return Err(AddressError::Decorated);
        }
        let path = uri.path().trim_end_matches('/');
        // The whole address of the socket is accepted too: people copy it from the start-up text.
        let path_prefix = path.strip_suffix(DEVICE_LINK_PATH).unwrap_or(path).to_owned();
        Ok(RelayAddress { is_secure, authority: authority.as_str().to_owned(), path_prefix })
    }
}

impl RelayAddress {
    /// Whether it is reached over TLS.
    pub fn is_secure(&self) -> bool {
        self.is_secure
    }

    /// Host and port, as written.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The address of an HTTP call; `path` starts with a slash.
    pub fn http(&self, path: &str) -> String {
        format!("{}://{}{}{path}", if self.is_secure { "https" } else { "http" }, self.authority, self.path_prefix)
    }

    /// The address of the device lane's websocket.
    pub fn device_link(&self) -> String {
        format!("{}://{}{}{DEVICE_LINK_PATH}", if self.is_secure { "wss" } else { "ws" }, self.authority, self.path_prefix)
    }
}

impl fmt::Display for RelayAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.http(""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_spelling_of_one_relay_is_one_address() {
        for text in ["http://127.0.0.1:8787", "ws://127.0.0.1:8787/", "ws://127.0.0.1:8787/ws/device-link"] {
            let address: RelayAddress = text.parse().unwrap();
            assert_eq!(address.device_link(), "ws://127.0.0.1:8787/ws/device-link", "{text}");
            assert_eq!(address.http("/api/devices"), "http://127.0.0.1:8787/api/devices", "{text}");
            assert_eq!(address.to_string(), "http://127.0.0.1:8787", "{text}");
        }
    }

    #[test]
    fn tls_is_used_where_the_address_says_so() {
        for text in ["https://example.test", "wss://example.test/ws/device-link"] {
            let address: RelayAddress = text.parse().unwrap();
            assert!(address.is_secure(), "{text}");
            assert_eq!(address.device_link(), "wss://example.test/ws/device-link", "{text}");
            assert_eq!(address.to_string(), "https://example.test", "{text}");
        }
    }

    #[test]
    fn a_path_in_front_is_kept() {
        let address: RelayAddress = "http://example.test/relay/".parse().unwrap();
        assert_eq!(address.device_link(), "ws://example.test/relay/ws/device-link");
    }

    #[test]
    fn what_cannot_be_reached_says_why() {
        for (text, error) in [
            ("ftp://example.test", AddressError::UnknownScheme("ftp".to_owned())),
            ("127.0.0.1:8787", AddressError::Malformed),
            ("/ws/device-link", AddressError::Malformed),
            ("", AddressError::Malformed),
            ("http://name:word@example.test", AddressError::Decorated),
            ("http://example.test/?token=1", AddressError::Decorated),
        ] {
            assert_eq!(text.parse::<RelayAddress>(), Err(error), "{text}");
        }
    }
}
