//! Who is calling: account tokens ([`jwt`], with a key of the relay's own or of an issuer's [`jwks`]), API keys ([`api_key`]) and the
//! admin token.
//!
//! All come in the `Authorization` header and nowhere else: what stands in a query string ends up in logs.

pub mod api_key;
pub mod jwks;
pub mod jwt;

#[cfg(test)]
#[path = "../../../tests/support/signing_keys.rs"]
#[allow(unreachable_pub, missing_docs, dead_code, reason = "shared with the tests over sockets")]
mod signing_keys;

use super::{Api, error::ApiError};
use crate::{limits::BEARER_BYTES_MAX, secrets::Secret};
use actix_web::{
    FromRequest, HttpRequest,
    dev::Payload,
    http::{
        Method,
        header::{self, HeaderMap},
    },
    web,
};
use api_key::ApiKeys;
use futures_util::future::LocalBoxFuture;
pub use jwt::{TokenRules, mint};
use relay_actors::{clock::EpochMs, store::Store};
use relay_protocol::{
    id::UserId,
    identity::{Identity, Scope},
};
use sha2::{Digest, Sha256};
use std::{
    future::{Ready, ready},
    sync::Arc,
};
use subtle::ConstantTimeEq;

/// Checks bearer tokens of every kind.
pub struct Authenticator {
    jwt: jwt::Verifier,
    api_keys: ApiKeys,
}

impl Authenticator {
    /// One that takes JWTs after these rules, and the API keys of this storage.
    ///
    /// # Errors
    /// The secret is empty.
    pub fn new(rules: &TokenRules, store: Arc<dyn Store>) -> Result<Self, jwt::KeyError> {
        Ok(Authenticator { jwt: jwt::Verifier::new(rules)?, api_keys: ApiKeys::new(store) })
    }

    /// The bearer of the token that these headers carry.
    ///
    /// # Errors
    /// [`ApiError::TokenMissing`], [`ApiError::TokenInvalid`], [`ApiError::TokenExpired`] or [`ApiError::KeysUnavailable`], or for an
    /// API key [`ApiError::StorageUnavailable`].
    pub async fn authenticate(&self, headers: &HeaderMap, now: EpochMs) -> Result<Identity, ApiError> {
        let token = bearer(headers)?;
        if api_key::is_api_key(token) {
            return self.api_keys.bearer_of(token).await;
        }
        self.jwt.account_of(token, now).await.map(Identity::of_jwt)
    }
}

/// Whether this bearer may do what needs `scope`.
///
/// # Errors
/// [`ApiError::InsufficientScope`].
pub fn require(identity: &Identity, scope: Scope) -> Result<(), ApiError> {
    if identity.scopes.contains(scope) { Ok(()) } else { Err(ApiError::InsufficientScope(scope)) }
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

/// The caller, as a handler's argument: the handler runs only for a valid token that has the call's scope, `read` for `GET` and
/// `write` for all else (device-lane section 1).
#[derive(Clone, Copy, Debug)]
pub struct Account(pub Identity);

impl FromRequest for Account {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let request = request.clone();
        Box::pin(async move {
            let identity = caller(&request).await?;
            require(&identity, if request.method() == Method::GET { Scope::Read } else { Scope::Write })?;
            Ok(Account(identity))
        })
    }
}

/// The account itself, as a handler's argument: the handler runs only for a JWT. What a key may do must not lead to more keys, or a
/// stolen one could outlive its revocation.
#[derive(Clone, Copy, Debug)]
pub struct Owner(pub UserId);

impl FromRequest for Owner {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let request = request.clone();
        Box::pin(async move {
            let identity = caller(&request).await?;
            if identity.api_key.is_some() { Err(ApiError::AccountTokenRequired) } else { Ok(Owner(identity.user)) }
        })
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

/// The caller. Who sends no valid token is counted: guessing is bounded per address.
async fn caller(request: &HttpRequest) -> Result<Identity, ApiError> {
    let api = api_of(request)?;
    let identity = api.authenticate(request.headers()).await;
    if identity.is_err() {
        api.handshakes.count(request, None)?;
    }
    identity
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

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::HeaderValue;

    fn headers(authorization: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, HeaderValue::from_bytes(authorization.as_bytes()).unwrap());
        headers
    }

    #[test]
    fn only_one_bearer_header_counts() {
        let token = "header.claims.signature";
        let check = |headers: &HeaderMap| bearer(headers).map(str::to_owned);
        for accepted in [format!("Bearer {token}"), format!("bearer {token}"), format!("BEARER   {token} ")] {
            assert_eq!(check(&headers(&accepted)), Ok(token.to_owned()), "{accepted}");
        }
        for missing in [String::new(), "Bearer".into(), "Bearer ".into(), format!("Basic {token}"), token.to_owned()] {
            assert_eq!(check(&headers(&missing)), Err(ApiError::TokenMissing), "{missing}");
        }
        assert_eq!(check(&HeaderMap::new()), Err(ApiError::TokenMissing));
        assert_eq!(check(&headers("Bearer \u{e4}")), Err(ApiError::TokenInvalid));
        assert_eq!(check(&headers(&format!("Bearer {}", "x".repeat(BEARER_BYTES_MAX + 1)))), Err(ApiError::TokenInvalid));

        let mut twice = headers(&format!("Bearer {token}"));
        twice.append(header::AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {token}")).unwrap());
        assert_eq!(check(&twice), Err(ApiError::TokenInvalid));
    }

    #[test]
    fn the_admin_token_must_match_whole() {
        let token = "a".repeat(43);
        let admin = AdminToken::new(&Secret::new(token.clone()));
        assert_eq!(admin.check(&headers(&format!("Bearer {token}"))), Ok(()));
        for wrong in ["a".repeat(42), "a".repeat(44), "b".repeat(43), "A".repeat(43)] {
            assert_eq!(admin.check(&headers(&format!("Bearer {wrong}"))), Err(ApiError::TokenInvalid), "{wrong}");
        }
        assert_eq!(admin.check(&HeaderMap::new()), Err(ApiError::TokenMissing));
    }
}
