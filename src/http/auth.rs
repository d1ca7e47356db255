//! Who is calling: account tokens (HS256 JWTs, device-lane section 1) and the admin token.
//!
//! Both come in the `Authorization` header and nowhere else: what stands in a query string ends up in logs.

use super::{Api, error::ApiError};
use crate::{
    limits::{BEARER_BYTES_MAX, JWT_LEEWAY},
    secrets::Secret,
};
use actix_web::{
    FromRequest, HttpRequest,
    dev::Payload,
    http::header::{self, HeaderMap},
    web,
};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use relay_actors::clock::EpochMs;
use relay_protocol::id::UserId;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{
    fmt,
    future::{Ready, ready},
    time::Duration,
};
use subtle::ConstantTimeEq;

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

/// Checks account tokens.
pub struct Authenticator {
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

impl Authenticator {
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
        Ok(Authenticator { key, validation })
    }

    /// The account whose token these headers carry.
    ///
    /// # Errors
    /// [`ApiError::TokenMissing`], [`ApiError::TokenInvalid`] or [`ApiError::TokenExpired`].
    pub fn authenticate(&self, headers: &HeaderMap, now: EpochMs) -> Result<UserId, ApiError> {
        self.account_of(bearer(headers)?, now)
    }

    fn account_of(&self, token: &str, now: EpochMs) -> Result<UserId, ApiError> {
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

/// The admin listener's token, kept as a hash.
pub struct AdminToken {
    hash: [u8; 32],
}

impl AdminToken {
    /// The token to require.
    pub fn new(token: &Secret) -> Self {
        AdminToken { hash: Sha256::digest(token.expose()).into() }
    }

    /// Whether these headers carry it. Hashes of one length are compared in constant time, so the answer's timing tells neither
    /// content nor length.
    ///
    /// # Errors
    /// [`ApiError::TokenMissing`] or [`ApiError::TokenInvalid`].
    pub fn check(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        let given: [u8; 32] = Sha256::digest(bearer(headers)?).into();
        if bool::from(given.ct_eq(&self.hash)) { Ok(()) } else { Err(ApiError::TokenInvalid) }
    }
}

/// The account of a call, as a handler's argument: the handler runs only for a valid token.
#[derive(Clone, Copy, Debug)]
pub struct Account(pub UserId);

impl FromRequest for Account {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(api_of(request).and_then(|api| {
            let account = api.authenticate(request.headers());
            if account.is_err() {
                api.handshakes.count(request, None)?;
            }
            account.map(Account)
        }))
    }
}

/// The operator of a call, as a handler's argument: the handler runs only for the admin token.
#[derive(Clone, Copy, Debug)]
pub struct Operator;

impl FromRequest for Operator {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(api_of(request).and_then(|api| api.admin_token.check(request.headers())).map(|()| Operator))
    }
}

fn api_of(request: &HttpRequest) -> Result<&web::Data<Api>, ApiError> {
    // Every listener carries it; without one nobody can be let in.
    request.app_data().ok_or(ApiError::TokenInvalid)
}

/// The token of the one `Authorization: Bearer` header. The scheme's letter case does not matter (RFC 9110 section 11.1).
fn bearer(headers: &HeaderMap) -> Result<&str, ApiError> {
    let mut values = headers.get_all(header::AUTHORIZATION);
    let value = values.next().ok_or(ApiError::TokenMissing)?;
    if values.next().is_some() {
        return Err(ApiError::TokenInvalid);
    }
    let value = value.to_str().map_err(|_not_ascii| ApiError::TokenInvalid)?;
    let (scheme, token) = value.split_once(' ').unwrap_or((value, ""));
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(ApiError::TokenMissing);
    }
    let token = token.trim_matches(' ');
    match token.len() {
        0 => Err(ApiError::TokenMissing),
        1..=BEARER_BYTES_MAX => Ok(token),
        _ => Err(ApiError::TokenInvalid),
    }
}

/// Seconds since the epoch. Exact: milliseconds of any real date fit the 53 bits of an `f64`.
fn seconds(time: EpochMs) -> f64 {
    time.0 as f64 / 1000.0
}

#[cfg(test)]
#[path = "auth_tests.rs"]
mod tests;
