//! The signing key that Apple gives for push, in a .p8 file.

use super::super::key_file::{self, KeyFileError};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde::Serialize;
use std::{fmt, path::Path};

/// Length of the ids that Apple gives to keys and teams.
const ID_CHARS: usize = 10;

/// A key that signs provider tokens.
pub struct ApnsKey {
    key: EncodingKey,
    key_id: String,
    team_id: String,
}

/// Why there is no such key.
#[derive(Debug)]
pub enum ApnsKeyError {
    /// The file has no text.
    File(KeyFileError),
    /// It holds a certificate.
    Certificate,
    /// It holds a key that only a password opens.
    Encrypted,
    /// It is no PEM file with a private key.
    NoKey,
    /// It holds a key of another kind.
    OtherKind,
}

impl fmt::Display for ApnsKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ApnsKeyError::File(error) => error.fmt(f),
            ApnsKeyError::Certificate => {
                f.write_str("holds a certificate; the relay needs the key (AuthKey_….p8) that Apple's developer site gives under Keys")
            }
            ApnsKeyError::Encrypted => f.write_str("holds an encrypted key; give Apple's .p8 file as it was downloaded"),
            ApnsKeyError::NoKey => f.write_str("holds no private key in PEM; give Apple's .p8 file as it was downloaded"),
            ApnsKeyError::OtherKind => {
                f.write_str("holds a key that is not on the curve P-256, so it is not one that Apple gives for push")
            }
        }
    }
}

impl std::error::Error for ApnsKeyError {}

/// Whether this can be an id of a key or a team.
pub fn is_apple_id(text: &str) -> bool {
    text.len() == ID_CHARS && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
}

#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    iat: i64,
}

impl ApnsKey {
    /// Reads the key and tries it.
    ///
    /// # Errors
    /// [`ApnsKeyError`].
    pub fn read(path: &Path, key_id: &str, team_id: &str) -> Result<Self, ApnsKeyError> {
        Self::parse(&key_file::read(path).map_err(ApnsKeyError::File)?, key_id, team_id)
    }

    /// A key from the text of a .p8 file.
    ///
    /// # Errors
    /// [`ApnsKeyError`].
    pub fn parse(pem: &str, key_id: &str, team_id: &str) -> Result<Self, ApnsKeyError> {
        let other = if pem.contains("-----BEGIN CERTIFICATE") {
            ApnsKeyError::Certificate
        } else if pem.contains("ENCRYPTED") {
            ApnsKeyError::Encrypted
        } else if pem.contains("PRIVATE KEY-----") {
            ApnsKeyError::OtherKind
        } else {
            return Err(ApnsKeyError::NoKey);
        };
        let Ok(key) = EncodingKey::from_ec_pem(pem.as_bytes()) else { return Err(other) };
        let key = ApnsKey { key, key_id: key_id.to_owned(), team_id: team_id.to_owned() };
        // A key of another curve parses, and fails here.
        if key.sign(0).is_err() { Err(other) } else { Ok(key) }
    }

    /// A provider token that says it was made at this time, in seconds since 1970.
    pub(super) fn sign(&self, issued_at: i64) -> Result<String, jsonwebtoken::errors::Error> {
        let header = Header { kid: Some(self.key_id.clone()), ..Header::new(Algorithm::ES256) };
        jsonwebtoken::encode(&header, &Claims { iss: &self.team_id, iat: issued_at }, &self.key)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Made for these tests.
    pub(in super::super) const P256: &str = "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgoBw6iarYUl1cMwGF
+15C0Dy38P0tmb4zb00r+DSQUpahRANCAAQpWdmILsNSN5EOLEngXT2U1rZQKo3E
76xjU4u370JUvApRCwpELgA8HUh+B3LHSZHvPslk1BvaolJpEP4ex5TK
-----END PRIVATE KEY-----
";
    const P384: &str = "-----BEGIN PRIVATE KEY-----
MIG2AgEAMBAGByqGSM49AgEGBSuBBAAiBIGeMIGbAgEBBDAqn0j9U/d8maG77q9I
5vfZyeaXo9URyRsdB7Kex1U6l8L2GprzJDhbQ+Pcsqvc6lOhZANiAAQkcvPHCVPY
8+P28EE4tH6NEVopKQHZ0kMc85Q/nCplNAGYCXNEzb7FjYxpxWpCJU2BVkQujgyd
mq767foHZ+QqHgXdP/NujVpWuJFu198pS8GdhxA+22CTkeJqBwF2fvk=
-----END PRIVATE KEY-----
";

    fn fault(pem: &str) -> String {
        match ApnsKey::parse(pem, "KEY0000001", "TEAM000001") {
            Ok(_) => panic!("a key"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn each_fault_of_a_key_is_told() {
        assert!(ApnsKey::parse(P256, "KEY0000001", "TEAM000001").is_ok());
        assert!(fault(P384).contains("not on the curve P-256"));
        assert!(fault("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").contains("holds a certificate"));
        assert!(fault("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n").contains("encrypted key"));
        assert!(fault("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n").contains("not one that Apple gives"));
        for text in ["", "{}", "KEY0000001"] {
            assert!(fault(text).contains("no private key"), "{text}");
        }
    }

    #[test]
    fn ids_have_ten_capitals_and_digits() {
        assert!(is_apple_id("ABCDE12345"));
        for text in ["", "ABCDE1234", "ABCDE123456", "abcde12345", "ABCDE-2345", "ÄBCDE1234"] {
            assert!(!is_apple_id(text), "{text}");
        }
    }
}
