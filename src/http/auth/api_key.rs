//! API keys: bearers that programs keep, each with a subset of the scopes (device-lane section 1).
//!
//! A key is `rk_` and 32 random bytes as base64url. Storage has its SHA-256 only, so it is shown once. There is no cache: a revoked
//! key is refused from the next call on, whichever process revoked it.

use crate::{
    http::error::ApiError,
    limits::{API_KEY_LOOK_UP_WAIT, API_KEY_LOOK_UPS_MAX},
    secrets::Secret,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use relay_actors::store::{ApiKeyHash, Store};
use relay_protocol::identity::Identity;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use tokio::{sync::Semaphore, time::timeout};

/// What tells a key from a JWT, and lets scanners of leaked secrets find it.
const PREFIX: &str = "rk_";
/// Random bytes of a key.
const SECRET_BYTES: usize = 32;

/// A new key.
pub fn generate() -> Secret {
    Secret::new(format!("{PREFIX}{}", Secret::generate().expose()))
}

/// What is stored of a key.
pub fn hash(key: &Secret) -> ApiKeyHash {
    hash_of(key.expose())
}

fn hash_of(key: &str) -> ApiKeyHash {
    ApiKeyHash(Sha256::digest(key).into())
}

/// Whether this token is meant as a key.
pub(super) fn is_api_key(token: &str) -> bool {
    token.starts_with(PREFIX)
}

fn is_well_formed(key: &str) -> bool {
    let secret = key.strip_prefix(PREFIX).and_then(|secret| URL_SAFE_NO_PAD.decode(secret).ok());
    secret.is_some_and(|secret| secret.len() == SECRET_BYTES)
}

/// Looks keys up.
pub(super) struct ApiKeys {
    store: Arc<dyn Store>,
    /// Made-up keys of the right form cost a look-up each. Those over this number wait here, not in the storage's queue, where they
    /// would push out everybody else.
    look_ups: Semaphore,
}

impl ApiKeys {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        ApiKeys { store, look_ups: Semaphore::new(API_KEY_LOOK_UPS_MAX) }
    }

    /// The bearer of this key.
    ///
    /// # Errors
    /// [`ApiError::TokenInvalid`], without storage for what cannot be a key; [`ApiError::StorageUnavailable`].
    pub(super) async fn bearer_of(&self, key: &str) -> Result<Identity, ApiError> {
        if !is_well_formed(key) {
            return Err(ApiError::TokenInvalid);
        }
        // Nobody closes the semaphore, but with storage away its turns are slow to come.
        let Ok(Ok(_turn)) = timeout(API_KEY_LOOK_UP_WAIT, self.look_ups.acquire()).await else {
            return Err(ApiError::StorageUnavailable);
        };
        let key = self.store.api_key(hash_of(key)).await?.ok_or(ApiError::TokenInvalid)?;
        Ok(Identity { user: key.user, scopes: key.scopes, api_key: Some(key.id) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_rk_and_43_characters_and_never_the_same() {
        let (one, two) = (generate(), generate());
        assert_ne!(one, two);
        assert_eq!(one.expose().len(), 46);
        assert!(is_api_key(one.expose()) && is_well_formed(one.expose()));
        assert!(!is_api_key("eyJhbGciOiJIUzI1NiJ9.e30.x"));
    }

    #[test]
    fn what_is_no_key_is_known_without_storage() {
        let secret = "A".repeat(43);
        assert!(is_well_formed(&format!("rk_{secret}")));
        // The last character of 43 holds two bits that must be zero; a key has one spelling only.
        let long = "A".repeat(8_000);
        for secret in ["", "A", &secret[..42], &format!("{secret}A"), &format!("{secret}="), &format!("{}+", &secret[..42]), &long] {
            assert!(!is_well_formed(&format!("rk_{secret}")), "{secret}");
        }
        assert!(!is_well_formed(&format!("rk_{}B", &secret[..42])));
        assert!(!is_well_formed(&format!("RK_{secret}")) && !is_well_formed(&secret));
    }

    /// FIPS 180-2, appendix B.1: the hash is over the whole text, prefix and all, as it is shown.
    #[test]
    fn what_is_stored_is_the_sha_256_of_the_shown_text() {
        assert_eq!(hash(&Secret::new("abc")).0[..4], [0xba, 0x78, 0x16, 0xbf]);
    }
}
