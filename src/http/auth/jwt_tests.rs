use super::*;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use futures_util::FutureExt;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const USER: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";
const NOW_S: i64 = 1_800_000_000;
const NOW: EpochMs = EpochMs(NOW_S * 1000);

fn rules() -> TokenRules {
    TokenRules { secret: Some(Secret::new("s".repeat(32))), ..TokenRules::default() }
}

fn strict_rules() -> TokenRules {
    TokenRules { issuer: Some("issuer".into()), audience: Some("relay".into()), ..rules() }
}

fn user() -> UserId {
    USER.parse().unwrap()
}

fn signed(algorithm: Algorithm, claims: &Value) -> String {
    jsonwebtoken::encode(&Header::new(algorithm), claims, &EncodingKey::from_secret(rules().secret.unwrap().expose().as_bytes()).unwrap())
        .unwrap()
}

/// A token whose header says what it likes, over a correct HS256 signature.
fn signed_under_header(header: &Value, claims: &Value) -> String {
    let message = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string())).join(".");
    let block = |pad: u8| {
        let mut block = [pad; 64];
        for (byte, key) in block.iter_mut().zip(rules().secret.unwrap().expose().bytes()) {
            *byte ^= key;
        }
        block
    };
    // HMAC by its definition (RFC 2104), since the library signs only under honest headers.
    let inner = Sha256::new().chain_update(block(0x36)).chain_update(&message).finalize();
    let signature = Sha256::new().chain_update(block(0x5c)).chain_update(inner).finalize();
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
}

fn verdict_with(rules: &TokenRules, token: &str) -> Result<UserId, ApiError> {
    judge(&Verifier::new(rules).unwrap(), token, NOW)
}

/// Nothing is waited for when a secret decides.
fn judge(verifier: &Verifier, token: &str, now: EpochMs) -> Result<UserId, ApiError> {
    verifier.account_of(token, now).now_or_never().expect("an answer at once")
}

fn verdict(token: &str) -> Result<UserId, ApiError> {
    verdict_with(&rules(), token)
}

fn claims() -> Value {
    json!({"sub": USER, "exp": NOW_S + 60})
}

#[test]
fn a_minted_token_names_its_account_until_it_expires() {
    for rules in [rules(), strict_rules()] {
        let token = mint(&rules, user(), Duration::from_secs(60), NOW).unwrap();
        let verifier = Verifier::new(&rules).unwrap();
        let at = |time: EpochMs| judge(&verifier, &token, time);
        assert_eq!(at(NOW), Ok(user()));
        assert_eq!(at(NOW.plus(Duration::from_secs(60) + JWT_LEEWAY)), Err(ApiError::TokenExpired));
    }
}

#[test]
fn expiry_is_judged_with_the_stated_leeway() {
    let leeway = i64::try_from(JWT_LEEWAY.as_secs()).unwrap();
    for (exp, expected) in [
        (json!(NOW_S - leeway + 1), Ok(user())),
        (json!(NOW_S - leeway), Err(ApiError::TokenExpired)),
        (json!(NOW_S - leeway - 1), Err(ApiError::TokenExpired)),
        (json!((NOW_S - leeway) as f64 + 0.001), Ok(user())),
        (json!(-1), Err(ApiError::TokenExpired)),
        (json!(1e300), Ok(user())),
    ] {
        assert_eq!(verdict_of_exp(&exp), expected, "{exp}");
    }
    for exp in [json!(null), json!("1900000000"), json!(true), json!([NOW_S + 60])] {
        assert_eq!(verdict_of_exp(&exp), Err(ApiError::TokenInvalid), "{exp}");
    }
    assert_eq!(verdict(&signed(Algorithm::HS256, &json!({"sub": USER}))), Err(ApiError::TokenInvalid), "no exp");
}

fn verdict_of_exp(exp: &Value) -> Result<UserId, ApiError> {
    verdict(&signed_under_header(&json!({"alg": "HS256"}), &json!({"sub": USER, "exp": exp})))
}

#[test]
fn a_token_is_not_valid_before_its_nbf() {
    let leeway = i64::try_from(JWT_LEEWAY.as_secs()).unwrap();
    for (not_before, expected) in [(NOW_S + leeway - 1, true), (NOW_S + leeway, true), (NOW_S + leeway + 1, false)] {
        let token = signed(Algorithm::HS256, &json!({"sub": USER, "exp": NOW_S + 3600, "nbf": not_before}));
        assert_eq!(verdict(&token).is_ok(), expected, "{}", not_before - NOW_S);
    }
}

#[test]
fn only_hs256_under_the_right_key_is_accepted() {
    assert_eq!(verdict(&signed(Algorithm::HS256, &claims())), Ok(user()));
    assert_eq!(verdict(&signed_under_header(&json!({"alg": "HS256", "typ": "JWT"}), &claims())), Ok(user()));
    for algorithm in [Algorithm::HS384, Algorithm::HS512] {
        assert_eq!(verdict(&signed(algorithm, &claims())), Err(ApiError::TokenInvalid), "{algorithm:?}");
    }
    for algorithm in ["none", "None", "NONE", "", "RS256", "ES256", "HS384", "hs256", "PS256", "EdDSA"] {
        let token = signed_under_header(&json!({"alg": algorithm, "typ": "JWT"}), &claims());
        assert_eq!(verdict(&token), Err(ApiError::TokenInvalid), "{algorithm}");
        let unsigned = &token[..=token.rfind('.').unwrap()];
        assert_eq!(verdict(unsigned), Err(ApiError::TokenInvalid), "{algorithm} without a signature");
    }
    assert_eq!(verdict(&signed_under_header(&json!({"typ": "JWT"}), &claims())), Err(ApiError::TokenInvalid), "no alg");
    let other = TokenRules { secret: Some(Secret::new("t".repeat(32))), ..rules() };
    assert_eq!(verdict(&mint(&other, user(), Duration::from_secs(60), NOW).unwrap()), Err(ApiError::TokenInvalid));
}

#[test]
fn a_changed_token_is_refused() {
    let token = signed(Algorithm::HS256, &claims());
    let parts: Vec<&str> = token.split('.').collect();
    let other_claims = URL_SAFE_NO_PAD.encode(json!({"sub": USER, "exp": NOW_S + 61}).to_string());
    for changed in [
        format!("{}.{other_claims}.{}", parts[0], parts[2]),
        format!("{}.{}.", parts[0], parts[1]),
        format!("{}.{}", parts[0], parts[1]),
        format!("{token}.{}", parts[2]),
        format!("{token}="),
        "x".into(),
        "..".into(),
    ] {
        assert_eq!(verdict(&changed), Err(ApiError::TokenInvalid), "{changed}");
    }
}

#[test]
fn the_subject_must_be_a_uuid() {
    assert_eq!(verdict(&signed(Algorithm::HS256, &json!({"sub": USER.to_uppercase(), "exp": NOW_S + 60}))), Ok(user()));
    for sub in [json!("user-1"), json!(""), json!(7), json!(null), json!([USER]), json!(format!("{USER} "))] {
        let token = signed(Algorithm::HS256, &json!({"sub": sub, "exp": NOW_S + 60}));
        assert_eq!(verdict(&token), Err(ApiError::TokenInvalid), "{sub}");
    }
    assert_eq!(verdict(&signed(Algorithm::HS256, &json!({"exp": NOW_S + 60}))), Err(ApiError::TokenInvalid), "no sub");
}

#[test]
fn issuer_and_audience_are_checked_when_configured() {
    let exp = NOW_S + 60;
    for (claims, expected) in [
        (json!({"sub": USER, "exp": exp, "iss": "issuer", "aud": "relay"}), true),
        (json!({"sub": USER, "exp": exp, "iss": "issuer", "aud": ["other", "relay"]}), true),
        (json!({"sub": USER, "exp": exp, "iss": "other", "aud": "relay"}), false),
        (json!({"sub": USER, "exp": exp, "iss": "issuer", "aud": "other"}), false),
        (json!({"sub": USER, "exp": exp, "iss": "issuer", "aud": []}), false),
        (json!({"sub": USER, "exp": exp, "iss": 7, "aud": "relay"}), false),
        (json!({"sub": USER, "exp": exp, "aud": "relay"}), false),
        (json!({"sub": USER, "exp": exp, "iss": "issuer"}), false),
    ] {
        let token = signed(Algorithm::HS256, &claims);
        assert_eq!(verdict_with(&strict_rules(), &token).is_ok(), expected, "{claims}");
        assert_eq!(verdict(&token), Ok(user()), "without configuration any is accepted: {claims}");
    }
}
