//! Account tokens: HS256 JWTs (device-lane section 1).

use crate::{http::error::ApiError, limits::JWT_LEEWAY, secrets::Secret};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use relay_actors::clock::EpochMs;
use relay_protocol::id::UserId;
use serde::{Deserialize, Serialize};
use std::{fmt, time::Duration};

/// What an account token must be signed with and say.
#[derive(Clone, Debug)]
pub struct TokenRules {
    /// The HS256 key.
    pub secret: Secret,
    /// The `iss` to require, if any.
    pub issuer: Option<String>,
    /// The `aud` to require, if any.
    pub audience: Option<String>,
}

/// The key cannot be used, or a token cannot be made with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyError(jsonwebtoken::errors::Error);

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the token secret cannot be used: {}", self.0)
    }
}

impl std::error::Error for KeyError {}

/// Checks JWTs.
pub struct Verifier {
    key: DecodingKey,
    validation: Validation,
}

#[derive(Deserialize)]
struct Claims {
    sub: String,
    /// Seconds since the epoch; RFC 7519 allows fractions.
    exp: f64,
    nbf: Option<f64>,
}

impl Verifier {
    /// One that requires tokens after these rules.
    ///
    /// # Errors
    /// The secret is empty.
    pub fn new(rules: &TokenRules) -> Result<Self, KeyError> {
        let key = DecodingKey::from_secret(rules.secret.expose().as_bytes()).map_err(KeyError)?;
        let mut validation = Validation::new(Algorithm::HS256);
        // Times are compared here, with a clock that is an input; the library reads its own. `Claims` requires `exp`.
        validation.validate_exp = false;
        let mut required = vec!["sub"];
        if let Some(issuer) = &rules.issuer {
            validation.set_issuer(&[issuer]);
            required.push("iss");
        }
        match &rules.audience {
            Some(audience) => {
                validation.set_audience(&[audience]);
                required.push("aud");
            }
            // Without a configured audience any is accepted, as the rules say; the library would refuse a token that has one.
            None => validation.validate_aud = false,
        }
        validation.set_required_spec_claims(&required);
        Ok(Verifier { key, validation })
    }

    /// The account of this token.
    ///
    /// # Errors
    /// [`ApiError::TokenInvalid`] or [`ApiError::TokenExpired`].
    pub fn account_of(&self, token: &str, now: EpochMs) -> Result<UserId, ApiError> {
        let claims = jsonwebtoken::decode::<Claims>(token, &self.key, &self.validation)
            .map_err(|error| {
                tracing::debug!(reason = ?std::mem::discriminant(error.kind()), "account token refused");
                ApiError::TokenInvalid
            })?
            .claims;
        let now = seconds(now);
        let leeway = JWT_LEEWAY.as_secs_f64();
        if now >= claims.exp + leeway {
            return Err(ApiError::TokenExpired);
        }
        if claims.nbf.is_some_and(|not_before| now + leeway < not_before) {
            return Err(ApiError::TokenInvalid);
        }
        claims.sub.parse().map_err(|_not_a_uuid| ApiError::TokenInvalid)
    }
}

/// A token for an account, valid from now on.
///
/// # Errors
/// The secret is empty.
pub fn mint(rules: &TokenRules, user: UserId, ttl: Duration, now: EpochMs) -> Result<String, KeyError> {
    #[derive(Serialize)]
    struct Minted<'a> {
        sub: UserId,
        iat: i64,
        exp: i64,
        #[serde(skip_serializing_if = "Option::is_none")]
        iss: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        aud: Option<&'a str>,
    }
    let claims = Minted {
        sub: user,
        iat: now.0.div_euclid(1000),
        exp: now.plus(ttl).0.div_euclid(1000),
        iss: rules.issuer.as_deref(),
        aud: rules.audience.as_deref(),
    };
    let key = EncodingKey::from_secret(rules.secret.expose().as_bytes()).map_err(KeyError)?;
    jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &key).map_err(KeyError)
}

/// Seconds since the epoch. Exact: milliseconds of any real date fit the 53 bits of an `f64`.
fn seconds(time: EpochMs) -> f64 {
    time.0 as f64 / 1000.0
}

#[cfg(test)]
#[path = "jwt_tests.rs"]
mod tests;
