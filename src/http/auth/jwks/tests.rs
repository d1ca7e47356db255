//! Tokens against keys, through the verifier; the set is a file.

use super::*;
use crate::{
    http::auth::{
        TokenRules,
        jwt::Verifier,
        signing_keys::{P256_A, P256_B, RSA_A, RSA_B, SigningKey},
    },
    secrets::Secret,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use relay_actors::clock::EpochMs;
use serde_json::{Value, json};
use std::path::PathBuf;
use tempfile::TempDir;

const USER: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";
const NOW_S: i64 = 1_800_000_000;
const SECRET: &str = "a-secret-that-is-long-enough-to-be-one";

struct Issuer {
    directory: TempDir,
}

impl Issuer {
    fn new(keys: &[Value]) -> Self {
        let issuer = Issuer { directory: tempfile::tempdir().unwrap() };
        issuer.publish(keys);
        issuer
    }

    fn publish(&self, keys: &[Value]) {
        std::fs::write(self.path(), json!({"keys": keys}).to_string()).unwrap();
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("keys.json")
    }

    /// Verifies with these keys, and with a secret of one's own or none.
    fn verifier(&self, rules: TokenRules) -> Verifier {
        let (jwks, reader) = Jwks::open(&Location::File(self.path())).unwrap();
        tokio::spawn(reader.run());
        Verifier::new(&TokenRules { jwks: Some(jwks), ..rules }).unwrap()
    }
}

fn no_secret() -> TokenRules {
    TokenRules::default()
}

fn with_secret() -> TokenRules {
    TokenRules { secret: Some(Secret::new(SECRET)), ..TokenRules::default() }
}

fn claims() -> Value {
    json!({"sub": USER, "exp": NOW_S + 60})
}

fn hs256(secret: &[u8], kid: Option<&str>) -> String {
    let header = Header { kid: kid.map(str::to_owned), ..Header::new(Algorithm::HS256) };
    jsonwebtoken::encode(&header, &claims(), &EncodingKey::from_secret(secret).unwrap()).unwrap()
}

/// The token under another header.
fn under(header: &Value, token: &str) -> String {
    let (_, rest) = token.split_once('.').unwrap();
    format!("{}.{rest}", URL_SAFE_NO_PAD.encode(header.to_string()))
}

async fn verdict(verifier: &Verifier, token: &str) -> Result<(), ApiError> {
    let account = verifier.account_of(token, EpochMs(NOW_S * 1000)).await?;
    assert_eq!(account.to_string(), USER);
    Ok(())
}

#[tokio::test]
async fn tokens_of_both_algorithms_are_taken_with_their_kid_and_without() {
    let issuer = Issuer::new(&[RSA_A.jwk("r"), P256_A.jwk("e")]);
    let verifier = issuer.verifier(no_secret());
    for (key, kid) in [(RSA_A, Some("r")), (RSA_A, None), (P256_A, Some("e")), (P256_A, None)] {
        assert_eq!(verdict(&verifier, &key.sign(kid, &claims())).await, Ok(()), "{kid:?}");
    }
}

#[tokio::test]
async fn a_token_must_be_signed_as_its_key_demands() {
    let issuer = Issuer::new(&[RSA_A.jwk("r"), RSA_B.jwk("r2"), P256_A.jwk("e")]);
    let verifier = issuer.verifier(with_secret());
    let (rsa, p256) = (RSA_A.sign(Some("r"), &claims()), P256_A.sign(Some("e"), &claims()));
    let unsigned = |token: &str| token[..=token.rfind('.').unwrap()].to_owned();
    let none = |alg: &str| unsigned(&under(&json!({"alg": alg, "kid": "r"}), &rsa));
    let by_another_family = |algorithm| {
        let SigningKey::Rsa { der, .. } = RSA_A else { panic!("not RSA") };
        let der = base64::engine::general_purpose::STANDARD.decode(der).unwrap();
        let header = Header { kid: Some("r".into()), ..Header::new(algorithm) };
        jsonwebtoken::encode(&header, &claims(), &EncodingKey::from_rsa_der(&der)).unwrap()
    };
    let own_key_in_the_header = {
        let mut header = json!({"alg": "RS256", "kid": "r"});
        header["jwk"] = RSA_B.jwk("r");
        under(&header, &RSA_B.sign(Some("r"), &claims()))
    };
    for (what, token) in [
        ("another key of the set", RSA_B.sign(Some("r"), &claims())),
        ("a key of nobody", P256_B.sign(Some("e"), &claims())),
        ("a key that the token brings along", own_key_in_the_header),
        ("no kid where two keys would do", RSA_A.sign(None, &claims())),
        ("the kid of a key of another type", P256_A.sign(Some("r"), &claims())),
        ("the kid of a key of another type", RSA_A.sign(Some("e"), &claims())),
        ("an unknown kid", RSA_A.sign(Some("x"), &claims())),
        ("an empty kid", RSA_A.sign(Some(""), &claims())),
        ("the kid as a number", under(&json!({"alg": "RS256", "kid": 7}), &rsa)),
        ("another header over a good signature", under(&json!({"alg": "RS256", "kid": "r", "typ": "x"}), &rsa)),
        ("ES256 over a signature of RSA", under(&json!({"alg": "ES256", "kid": "e"}), &rsa)),
        ("RS256 over a signature of P-256", under(&json!({"alg": "RS256", "kid": "r"}), &p256)),
        ("HS256 over a signature of RSA", under(&json!({"alg": "HS256", "kid": "r"}), &rsa)),
        ("no signature", unsigned(&rsa)),
        ("no signature", unsigned(&p256)),
        ("none", none("none")),
        ("none", none("None")),
        ("RS384", by_another_family(Algorithm::RS384)),
        ("RS512", by_another_family(Algorithm::RS512)),
        ("PS256", by_another_family(Algorithm::PS256)),
        ("an extension that must be understood", under(&json!({"alg": "RS256", "kid": "r", "crit": ["exp"]}), &rsa)),
    ] {
        assert_eq!(verdict(&verifier, &token).await, Err(ApiError::TokenInvalid), "{what}");
    }
    assert_eq!(verdict(&verifier, &rsa).await, Ok(()));
    assert_eq!(verdict(&verifier, &p256).await, Ok(()));
}

/// The classic confusion: everybody has the public key, so it must never serve as a secret.
#[tokio::test]
async fn a_public_key_is_no_secret() {
    let issuer = Issuer::new(&[RSA_A.jwk("r"), P256_A.jwk("e")]);
    let SigningKey::Rsa { n, .. } = RSA_A else { panic!("not RSA") };
    let SigningKey::P256 { x, y, .. } = P256_A else { panic!("not P-256") };
    let raw = |text: &str| URL_SAFE_NO_PAD.decode(text).unwrap();
    let point = [&[4][..], &raw(x), &raw(y)].concat();
    for rules in [no_secret(), with_secret()] {
        let verifier = issuer.verifier(rules);
        for secret in [n.as_bytes().to_vec(), raw(n), RSA_A.jwk("r").to_string().into_bytes(), raw(x), point.clone()] {
            for kid in [None, Some("r"), Some("e")] {
                assert_eq!(verdict(&verifier, &hs256(&secret, kid)).await, Err(ApiError::TokenInvalid));
            }
        }
    }
}

#[tokio::test]
async fn a_secret_works_beside_the_keys_and_only_if_there_is_one() {
    let issuer = Issuer::new(&[RSA_A.jwk("r")]);
    let by_secret = hs256(SECRET.as_bytes(), None);
    assert_eq!(verdict(&issuer.verifier(no_secret()), &by_secret).await, Err(ApiError::TokenInvalid));
    let both = issuer.verifier(with_secret());
    assert_eq!(verdict(&both, &by_secret).await, Ok(()));
    assert_eq!(verdict(&both, &RSA_A.sign(Some("r"), &claims())).await, Ok(()));
    let secret_only = Verifier::new(&with_secret()).unwrap();
    assert_eq!(verdict(&secret_only, &RSA_A.sign(Some("r"), &claims())).await, Err(ApiError::TokenInvalid));
}

#[tokio::test]
async fn claims_are_checked_whoever_signed() {
    let issuer = Issuer::new(&[P256_A.jwk("e")]);
    let strict = TokenRules { issuer: Some("issuer".into()), audience: Some("relay".into()), ..no_secret() };
    let verifier = issuer.verifier(strict);
    let good = json!({"sub": USER, "exp": NOW_S + 60, "iss": "issuer", "aud": "relay"});
    assert_eq!(verdict(&verifier, &P256_A.sign(Some("e"), &good)).await, Ok(()));
    for (field, value, expected) in [
        ("exp", json!(NOW_S - 3600), ApiError::TokenExpired),
        ("nbf", json!(NOW_S + 3600), ApiError::TokenInvalid),
        ("iss", json!("other"), ApiError::TokenInvalid),
        ("aud", json!("other"), ApiError::TokenInvalid),
        ("sub", json!("user-1"), ApiError::TokenInvalid),
    ] {
        let mut claims = good.clone();
        claims[field] = value;
        assert_eq!(verdict(&verifier, &P256_A.sign(Some("e"), &claims)).await, Err(expected), "{field}");
    }
}

#[tokio::test]
async fn a_rotated_file_is_read_when_a_token_names_its_new_key() {
    let issuer = Issuer::new(&[P256_A.jwk("old")]);
    let verifier = issuer.verifier(no_secret());
    let (old, new) = (P256_A.sign(Some("old"), &claims()), P256_B.sign(Some("new"), &claims()));
    issuer.publish(&[P256_B.jwk("new")]);
    assert_eq!(verdict(&verifier, &old).await, Ok(()), "nothing is read without need");
    assert_eq!(verdict(&verifier, &new).await, Ok(()));
    assert_eq!(verdict(&verifier, &old).await, Err(ApiError::TokenInvalid));
}

#[tokio::test]
async fn a_file_that_has_become_unreadable_keeps_its_keys() {
    let issuer = Issuer::new(&[P256_A.jwk("a")]);
    let verifier = issuer.verifier(no_secret());
    std::fs::write(issuer.path(), "{").unwrap();
    assert_eq!(verdict(&verifier, &P256_B.sign(Some("b"), &claims())).await, Err(ApiError::KeysUnavailable));
    assert_eq!(verdict(&verifier, &P256_A.sign(Some("a"), &claims())).await, Ok(()));
}

#[tokio::test]
async fn a_file_without_a_usable_key_is_refused_at_the_start_and_says_why() {
    let mut for_encryption = RSA_A.jwk("r");
    for_encryption["use"] = "enc".into();
    for (keys, problem) in [(vec![], "has no key"), (vec![for_encryption], r#"key "r" is not for verifying signatures"#)] {
        let issuer = Issuer::new(&keys);
        let Err(error) = Jwks::open(&Location::File(issuer.path())) else { panic!("opened") };
        assert!(error.to_string().contains(problem), "{error}");
    }
}
