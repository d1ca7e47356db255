//! The service account, in the JSON file that Google gives.

use super::super::key_file::{self, KeyFileError};
use crate::http_client;
use hyper::Uri;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde::{Deserialize, Serialize};
use std::{fmt, path::Path};

/// What the access token is for.
const SCOPE: &str = "https://www.googleapis.com/auth/firebase.messaging";
/// How long an assertion is good for; Google takes an hour at most.
const ASSERTION_SECONDS: i64 = 3_600;

/// An account that may send for one project.
pub struct ServiceAccount {
    key: EncodingKey,
    key_id: Option<String>,
    email: String,
    project_id: String,
    token_uri: Uri,
}

/// Why there is no such account.
#[derive(Debug)]
pub enum AccountError {
    /// The file has no text.
    File(KeyFileError),
    /// It is no JSON object; where it ends to be one.
    NotJson(String),
    /// It is another of Google's files.
    OtherFile(String),
    /// A field is missing, or is no text.
    Missing(&'static str),
    /// `private_key` is no RSA key in PEM.
    NoKey,
    /// `token_uri` is no https address.
    TokenUri,
    /// `project_id` has characters that none has.
    ProjectId,
}

impl fmt::Display for AccountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AccountError::File(error) => error.fmt(f),
            AccountError::NotJson(place) => write!(f, "not the JSON file of a service account: {place}"),
            AccountError::OtherFile(kind) => write!(
                f,
                "has the type {kind}, not service_account; in the Firebase console: Project settings, Service accounts, Generate new private key"
            ),
            AccountError::Missing(field) => write!(f, "has no {field}; give Google's file as it was downloaded"),
            AccountError::NoKey => f.write_str("its private_key is no RSA key in PEM; give Google's file as it was downloaded"),
            AccountError::TokenUri => f.write_str("its token_uri is not https://HOST/PATH"),
            AccountError::ProjectId => f.write_str("its project_id is no name of a project"),
        }
    }
}

impl std::error::Error for AccountError {}

#[derive(Deserialize)]
struct Fields {
    #[serde(rename = "type")]
    kind: Option<String>,
    project_id: Option<String>,
    private_key_id: Option<String>,
    private_key: Option<String>,
    client_email: Option<String>,
    token_uri: Option<String>,
}

#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    scope: &'static str,
    aud: String,
    iat: i64,
    exp: i64,
}

impl ServiceAccount {
    /// Reads the account and tries its key.
    ///
    /// # Errors
    /// [`AccountError`].
    pub fn read(path: &Path) -> Result<Self, AccountError> {
        Self::parse(&key_file::read(path).map_err(AccountError::File)?)
    }

    /// An account from the text of its file.
    ///
    /// # Errors
    /// [`AccountError`].
    pub fn parse(json: &str) -> Result<Self, AccountError> {
        // Serde's own text may quote a value, and the value may be the key.
        let fields: Fields = serde_json::from_str(json)
            .map_err(|error| AccountError::NotJson(format!("line {} column {}", error.line(), error.column())))?;
        match fields.kind.as_deref() {
            Some("service_account") => {}
            Some(other) => return Err(AccountError::OtherFile(super::super::transport::word(other))),
            None => return Err(AccountError::Missing("type")),
        }
        let present = |field: Option<String>, name| field.filter(|text| !text.is_empty()).ok_or(AccountError::Missing(name));
        let project_id = present(fields.project_id, "project_id")?;
        let email = present(fields.client_email, "client_email")?;
        let pem = present(fields.private_key, "private_key")?;
        let token_uri = present(fields.token_uri, "token_uri")?;
        if !project_id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b':')) {
            return Err(AccountError::ProjectId);
        }
        let token_uri = http_client::address(&token_uri).map_err(|_not_http| AccountError::TokenUri)?;
        // Whoever reads the assertion may send in the project's name. On loopback nobody else does.
        let is_private = token_uri.scheme_str() == Some("https") || matches!(token_uri.host(), Some("127.0.0.1" | "localhost" | "[::1]"));
        if !is_private {
            return Err(AccountError::TokenUri);
        }
        let key = EncodingKey::from_rsa_pem(pem.as_bytes()).map_err(|_no_key| AccountError::NoKey)?;
        let account = ServiceAccount { key, key_id: fields.private_key_id, email, project_id, token_uri };
        account.assertion(0).map_err(|_unusable| AccountError::NoKey)?;
        Ok(account)
    }

    /// The Firebase project.
    pub fn project_id(&self) -> &str {
        &self.project_id
    }

    /// Where assertions are exchanged for access tokens.
    pub(super) fn token_uri(&self) -> &Uri {
        &self.token_uri
    }

    /// What the account says of itself to get an access token, made at this time, in seconds since 1970 (RFC 7523).
    pub(super) fn assertion(&self, issued_at: i64) -> Result<String, jsonwebtoken::errors::Error> {
        let header = Header { kid: self.key_id.clone(), ..Header::new(Algorithm::RS256) };
        let (aud, exp) = (self.token_uri.to_string(), issued_at + ASSERTION_SECONDS);
        jsonwebtoken::encode(&header, &Claims { iss: &self.email, scope: SCOPE, aud, iat: issued_at, exp }, &self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Made for these tests.
    const RSA: &str = "-----BEGIN PRIVATE KEY-----
MIIEvAIBADANBgkqhkiG9w0BAQEFAASCBKYwggSiAgEAAoIBAQDRXRjfvmIq5C+R
5bfyhAG4hw5Wghsnbmm8O0f8xLF3XmGtm/xdS4Wt+i3GjbXVoST4aKXOwRP0nZBd
2BC6T6Veiq6ZnilDoVn3Ht8FqzDHIoFVrT11zY5pYf6FfVa/GX9zQTaCq0J/Npsl
fi9KyxoAQkI4ySzvHoZl7tGurIR+M6WbfmOMaoRmQWVPyT3/V5IsVvP6xRvIA74z
KAMrweF6Scx6nBTW5w98A1sZgzgpnLBNUGQE4iKwOvN1kmRFEyi7XFxEqg/zaDi9
T5z/VmEGhatYJ3FSS0SWv9fXTKTsT0IzC17qXb5Y4FAfHVJ0SWDhXUI2Dxx6rbG6
rWTdj6FBAgMBAAECgf8bdMhUyiUMFb1BQQLlEliUZiwqUxAOu1Kcb2nKeUf0g3U0
gQwGoJDaAVIhN2dmBA6fFK75e7bsMOxZFiJrB1kPBZrYZVIIWeZDVoz7DXDp4+rP
mBGc7r98OWlgMU2Z0NGsgckURe5XTYSPe11N+slukWtshilcOya8TQqsfgWJ5kjO
6piyusCD9j6slyCex3CwDaS1uf29xWTUenVWwppD9P9zrJ5TEeyGlhNfmIusnACP
f5PRuS0I5uPgW0JTAmQp1/72pvuK4PgakoMHNe8QHTYtxaD3ctBXYOlhqZ6CR6RX
SgF2Q/0oSSHroIAa4eMa+CCZcT3sZ9+D/fPY89ECgYEA6uJQHR95XaR2nsmsb9az
HLjdRCdjd6U99M/Rj/jPWyCcwSR9X1S9kh6kKmz3eFn0s3/v0wF1y/RpMuFiqeCu
n8qVXd/kz8B9So9eMqneA6qr+Gn0ETIxm9ImDXD5G8mKYLsXPwoKaR25p0e0hj7r
Qq+AM6MKSwxMlDyLQYQ9ePECgYEA5C9zf/2q6FMqinEp2J9DfAdeEiHjXEaxb27L
+bz7pvzAj0vk2ss9F85cAhwIQ6gxi6Bhql/+pZPm1J/AzHNfvF5c9OpLA4pqct2T
Ep/R6pFjwgi+VExInxMR8W2hXhHUDMqyGJPsZ+psABtVW/1HMvYs8euBKoFpWfYF
8OV6LVECgYBZN18QwMy7meWIiLfbvyRHa5x377IjVvuCipFh6zLvvSJtZmvMkwZy
gvr+NmeFKj39FEJG1o4kyxBOSDfOqM4LWcqEXq+tjcLJWE2CVu1CXUh20d/nzDX1
psvXXSrxuAq8lTPOOQUdSjIjbOQP/cQkjz7V3j7hpKlNwPVwDEfBMQKBgQCClm1h
OEkRAFd+N1kdcbfrSUQa2G4HpyVwglYVrIPQgyGoYGSumlVyRFT/mA9auOzx3W1H
Vfyjwcr+sBZkazrE0LQeLd+UPSjCZ+/9Xp2Bwob2yo4yLB37e6xvILCS510VnQLj
cfR/W/dG8F2fcYnHrn72TDL1om4qX9Pyk0GioQKBgQCQWhY4mUNPE/Hbq2XqSS8r
WjgUHMX4Kcn0qie4ZwaIbktEh+eRkxOqL8C2c3IkmZn1kl4WHqXIOfQZb+WyxxOs
BEfMaQrwM5Mrw/Am1nxj2PM5NVtaur4j9LA3n0/jzBoifT1C4zkYcpCg1cy9xZlH
34G4vYBC/AR/dYHqbM4AFQ==
-----END PRIVATE KEY-----
";

    fn file() -> Value {
        json!({
            "type": "service_account", "project_id": "relay-test", "private_key_id": "k1", "private_key": RSA,
            "client_email": "push@relay-test.example", "token_uri": "https://oauth2.example/token", "universe_domain": "example"
        })
    }

    fn fault(file: &Value) -> String {
        match ServiceAccount::parse(&file.to_string()) {
            Ok(_) => panic!("an account"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn each_fault_of_an_account_is_told_and_no_key_with_it() {
        assert!(ServiceAccount::parse(&file().to_string()).is_ok());
        for field in ["type", "project_id", "private_key", "client_email", "token_uri"] {
            let mut without = file();
            without.as_object_mut().unwrap().remove(field);
            assert!(fault(&without).contains(&format!("has no {field}")), "{field}");
        }
        for (field, value, says) in [
            ("type", "authorized_user", "has the type authorized_user, not service_account"),
            ("private_key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "no RSA key"),
            ("token_uri", "http://oauth2.example/token", "token_uri is not https"),
            ("token_uri", "oauth2", "token_uri is not https"),
            ("project_id", "a/b", "project_id is no name"),
        ] {
            let mut wrong = file();
            wrong[field] = value.into();
            assert!(fault(&wrong).contains(says), "{}", fault(&wrong));
        }
        let broken = file().to_string().replace("relay-test", "\u{1}secret");
        let told = ServiceAccount::parse(&broken).err().unwrap().to_string();
        assert!(told.contains("not the JSON file of a service account: line 1") && !told.contains("secret"), "{told}");
    }

    #[test]
    fn an_assertion_asks_for_messaging_for_an_hour() {
        let account = ServiceAccount::parse(&file().to_string()).unwrap();
        let assertion = account.assertion(1_000).unwrap();
        let claims: Value = serde_json::from_slice(
            &base64::Engine::decode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, assertion.split('.').nth(1).unwrap()).unwrap(),
        )
        .unwrap();
        let expected = json!({
            "iss": "push@relay-test.example", "scope": SCOPE, "aud": "https://oauth2.example/token", "iat": 1_000, "exp": 4_600
        });
        assert_eq!(claims, expected);
    }
}
