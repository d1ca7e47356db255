//! Account tokens: JWTs signed with HS256 and a secret, or with RS256 or ES256 and a key of a JWK set (device-lane section 1).
//!
//! The token's `alg` says only which of these it claims to be. Each algorithm has keys of its own, so a public key is never taken for
//! a secret, and a token without a signature finds no key.

use super::jwks::{Jwks, key_set::KeyAlgorithm};
use crate::{http::error::ApiError, limits::JWT_LEEWAY, secrets::Secret};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use relay_actors::clock::EpochMs;
use relay_protocol::id::UserId;
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, fmt, time::Duration};

/// What an account token must be signed with and say.
#[derive(Clone, Debug, Default)]
pub struct TokenRules {
    /// The HS256 key; without one no token of that kind is taken.
    pub secret: Option<Secret>,
    /// The keys for RS256 and ES256; without them no token of these kinds is taken.
    pub jwks: Option<Jwks>,
    /// The `iss` to require, if any.
    pub issuer: Option<String>,
    /// The `aud` to require, if any.
    pub audience: Option<String>,
}

/// The key cannot be used, or a token cannot be made with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// There is no secret to sign with.
    Missing,
    /// The library does not take it.
    Unusable(jsonwebtoken::errors::Error),
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyError::Missing => f.write_str("there is no token secret"),
            KeyError::Unusable(error) => write!(f, "the token secret cannot be used: {error}"),
        }
    }
}

impl std::error::Error for KeyError {}

/// Checks JWTs.
pub struct Verifier {
    secret: Option<DecodingKey>,
    jwks: Option<Jwks>,
    /// All but the algorithm, which the key decides.
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
        let secret = rules.secret.as_ref().map(|secret| DecodingKey::from_secret(secret.expose().as_bytes()));
        let secret = secret.transpose().map_err(KeyError::Unusable)?;
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
        Ok(Verifier { secret, jwks: rules.jwks.clone(), validation })
    }

    /// The account of this token.
    ///
    /// # Errors
    /// [`ApiError::TokenInvalid`], [`ApiError::TokenExpired`], or [`ApiError::KeysUnavailable`].
    pub async fn account_of(&self, token: &str, now: EpochMs) -> Result<UserId, ApiError> {
        let header = jsonwebtoken::decode_header(token).map_err(|error| refused(&error))?;
        let key = self.key_of(&header).await?;
        let validation = Validation { algorithms: vec![header.alg], ..self.validation.clone() };
        let claims = jsonwebtoken::decode::<Claims>(token, &key, &validation).map_err(|error| refused(&error))?.claims;
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

    /// The key that a token with this header must be signed with.
    async fn key_of(&self, header: &Header) -> Result<Cow<'_, DecodingKey>, ApiError> {
        if header.alg == Algorithm::HS256 {
            return self.secret.as_ref().map(Cow::Borrowed).ok_or(ApiError::TokenInvalid);
        }
        let algorithm = KeyAlgorithm::of(header.alg).ok_or(ApiError::TokenInvalid)?;
        let jwks = self.jwks.as_ref().ok_or(ApiError::TokenInvalid)?;
        jwks.key(algorithm, header.kid.as_deref()).await.map(Cow::Owned)
    }
}

/// A token for an account, valid from now on.
///
/// # Errors
/// There is no secret, or an empty one.
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
    let secret = rules.secret.as_ref().ok_or(KeyError::Missing)?;
    let key = EncodingKey::from_secret(secret.expose().as_bytes()).map_err(KeyError::Unusable)?;
    jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &key).map_err(KeyError::Unusable)
}

fn refused(error: &jsonwebtoken::errors::Error) -> ApiError {
    tracing::debug!(reason = ?std::mem::discriminant(error.kind()), "account token refused");
    ApiError::TokenInvalid
}

/// Seconds since the epoch. Exact: milliseconds of any real date fit the 53 bits of an `f64`.
fn seconds(time: EpochMs) -> f64 {
    time.0 as f64 / 1000.0
}

#[cfg(test)]
#[path = "jwt_tests.rs"]
mod tests;
