//! Bearer tokens for test users, as `relay token` would mint them.

use jsonwebtoken::{EncodingKey, Header, encode};
use relay_protocol::id::UserId;
use serde::Serialize;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use uuid::Uuid;

/// The secret of every relay that tests start: at least 32 bytes, and no secret.
pub const TEST_SECRET: &str = "test-secret-of-thirty-two-bytes-or-more";

#[derive(Serialize)]
struct Claims {
    sub: UserId,
    exp: i64,
}

/// A user that no other test has.
pub fn fresh_user() -> UserId {
    UserId(Uuid::new_v4())
}

/// A token of one hour.
pub fn token_for(user: UserId) -> String {
    token_with(user, TEST_SECRET, 3600)
}

/// A token signed with `secret` that expires in `expires_in_s` seconds: negative for one that has expired.
pub fn token_with(user: UserId, secret: &str, expires_in_s: i64) -> String {
    let claims = Claims { sub: user, exp: epoch_s() + expires_in_s };
    let key = EncodingKey::from_secret(secret.as_bytes()).unwrap();
    encode(&Header::default(), &claims, &key).unwrap()
}

/// Wall time in seconds, as tokens have it.
#[expect(clippy::disallowed_methods, reason = "a token's expiry is wall time")]
pub fn epoch_s() -> i64 {
    let now: Duration = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(now.as_secs()).unwrap()
}
