use super::*;
use crate::http::auth::signing_keys::{P256_A, P256_B, RSA_1024_N, RSA_A, RSA_B, SigningKey};
use KeyAlgorithm::{Es256, Rs256};
use serde_json::{Value, json};

fn set(keys: &[Value]) -> KeySet {
    KeySet::parse(json!({"keys": keys}).to_string().as_bytes()).unwrap()
}

/// A key with other fields beside or instead of its own; null takes one away.
fn with(key: SigningKey, fields: Value) -> Value {
    let mut jwk = key.jwk("k");
    for (name, value) in fields.as_object().unwrap() {
        if value.is_null() {
            jwk.as_object_mut().unwrap().remove(name);
        } else {
            jwk[name] = value.clone();
        }
    }
    jwk
}

#[test]
fn a_set_gives_its_rsa_and_p256_keys() {
    let keys = set(&[RSA_A.jwk("r"), P256_A.jwk("e")]);
    assert_eq!((keys.len(), keys.left_out()), (2, &[][..]));
    for (kid, algorithm) in [("r", Rs256), ("e", Es256)] {
        let Choice::Key(key) = keys.choose(algorithm, Some(kid)) else { panic!("{kid}") };
        assert_eq!(key.algorithm(), algorithm);
    }
}

#[test]
fn what_a_key_says_it_is_for_must_fit() {
    use Unusable::{Malformed, OtherAlgorithm, OtherType, OtherUse, RsaSize};
    for (jwk, expected) in [
        (with(RSA_A, json!({"alg": "RS256", "use": "sig", "key_ops": ["verify"], "x5t": "x", "other": {"a": 1}})), None),
        (with(P256_A, json!({"alg": "ES256", "use": "sig", "key_ops": ["sign", "verify"]})), None),
        (with(RSA_A, json!({"use": "enc"})), Some(OtherUse)),
        (with(RSA_A, json!({"use": ""})), Some(OtherUse)),
        (with(RSA_A, json!({"use": "SIG"})), Some(OtherUse)),
        (with(P256_A, json!({"use": "enc"})), Some(OtherUse)),
        (with(RSA_A, json!({"key_ops": []})), Some(OtherUse)),
        (with(RSA_A, json!({"key_ops": ["sign", "encrypt"]})), Some(OtherUse)),
        (with(RSA_A, json!({"use": "sig", "key_ops": ["wrapKey"]})), Some(OtherUse)),
        (with(RSA_A, json!({"alg": "RS512"})), Some(OtherAlgorithm)),
        (with(RSA_A, json!({"alg": "PS256"})), Some(OtherAlgorithm)),
        (with(RSA_A, json!({"alg": "HS256"})), Some(OtherAlgorithm)),
        (with(RSA_A, json!({"alg": "ES256"})), Some(OtherAlgorithm)),
        (with(RSA_A, json!({"alg": "rs256"})), Some(OtherAlgorithm)),
        (with(P256_A, json!({"alg": "RS256"})), Some(OtherAlgorithm)),
        (with(P256_A, json!({"alg": "ES384"})), Some(OtherAlgorithm)),
        (with(P256_A, json!({"crv": "P-384"})), Some(OtherType)),
        (with(P256_A, json!({"crv": "secp256k1"})), Some(OtherType)),
        (with(P256_A, json!({"crv": null})), Some(OtherType)),
        (with(P256_A, json!({"kty": "RSA"})), Some(Malformed)),
        (with(RSA_A, json!({"kty": "EC", "crv": "P-256"})), Some(Malformed)),
        (with(RSA_A, json!({"kty": "rsa"})), Some(OtherType)),
        (with(RSA_A, json!({"n": RSA_1024_N})), Some(RsaSize)),
        (with(RSA_A, json!({"kty": null})), Some(Malformed)),
        (with(RSA_A, json!({"n": null})), Some(Malformed)),
        (with(RSA_A, json!({"e": null})), Some(Malformed)),
        (with(RSA_A, json!({"n": "not base64url!"})), Some(Malformed)),
        (with(P256_A, json!({"x": null})), Some(Malformed)),
        (with(P256_A, json!({"y": "AQAB"})), Some(Malformed)),
        (json!({"kty": "oct", "k": "c2VjcmV0", "kid": "k", "alg": "HS256"}), Some(OtherType)),
        (json!({"kty": "OKP", "crv": "Ed25519", "x": "AQAB", "kid": "k"}), Some(OtherType)),
    ] {
        let keys = set(std::slice::from_ref(&jwk));
        let left_out = keys.left_out().first();
        assert_eq!((left_out.map(|left_out| left_out.reason), keys.len()), (expected, usize::from(expected.is_none())), "{jwk}");
        assert!(left_out.is_none_or(|left_out| left_out.reason == Malformed || left_out.kid.as_deref() == Some("k")), "{jwk}");
    }
}

#[test]
fn what_is_no_object_of_texts_is_left_out_alone() {
    let odd = [json!(null), json!(7), json!([]), json!("x"), with(RSA_B, json!({"kid": 7})), with(RSA_B, json!({"use": ["sig"]}))];
    let keys = set(&[&odd[..], &[RSA_A.jwk("a")]].concat());
    assert_eq!((keys.len(), keys.left_out().len()), (1, odd.len()));
    let doubled = r#"{"keys":[{"kty":"RSA","kty":"RSA","n":"AQAB","e":"AQAB"}]}"#;
    assert_eq!(KeySet::parse(doubled.as_bytes()).unwrap().left_out(), [LeftOut { kid: None, reason: Unusable::Malformed }]);
}

#[test]
fn the_size_of_a_modulus_is_its_number_of_bits() {
    let modulus = |bits: usize| {
        let mut bytes = vec![0xff; bits.div_ceil(8)];
        bytes[0] >>= (8 - bits % 8) % 8;
        bytes
    };
    let padded = [vec![0; 3], modulus(2048)].concat();
    for (n, taken) in [
        (modulus(2047), false),
        (modulus(2048), true),
        (modulus(2049), true),
        (modulus(8192), true),
        (modulus(8193), false),
        (padded, true),
        ([vec![0; 3], modulus(2040)].concat(), false),
        (Vec::new(), false),
        (vec![0; 256], false),
    ] {
        let keys = set(&[with(RSA_A, json!({"n": URL_SAFE_NO_PAD.encode(&n)}))]);
        assert_eq!(keys.len() == 1, taken, "{} bytes", n.len());
    }
    let plain = set(&[RSA_A.jwk("a")]);
    let SigningKey::Rsa { n, .. } = RSA_A else { panic!("not RSA") };
    let zero_first = [&[0][..], &URL_SAFE_NO_PAD.decode(n).unwrap()].concat();
    assert_eq!(set(&[with(RSA_A, json!({"kid": "a", "n": URL_SAFE_NO_PAD.encode(zero_first)}))]), plain);
}

#[test]
fn an_exponent_with_which_anybody_could_sign_is_refused() {
    for (e, taken) in [
        (vec![1, 0, 1], true),
        (vec![0, 1, 0, 1], true),
        (vec![3], true),
        (vec![1], false),
        (vec![0, 1], false),
        (vec![2], false),
        (vec![0], false),
        (vec![], false),
        (vec![1, 0, 0, 0, 1], false),
    ] {
        assert_eq!(set(&[with(RSA_A, json!({"e": URL_SAFE_NO_PAD.encode(&e)}))]).len() == 1, taken, "{e:?}");
    }
}

#[test]
fn a_kid_names_one_key_of_the_tokens_algorithm() {
    let keys = set(&[RSA_A.jwk("a"), RSA_B.jwk("b"), P256_A.jwk("a"), P256_B.jwk("c"), with(RSA_A, json!({"kid": null}))]);
    let named = |algorithm, kid| match keys.choose(algorithm, Some(kid)) {
        Choice::Key(key) => key.kid.clone().unwrap() + key.algorithm().name(),
        Choice::Unknown => "unknown".to_owned(),
        Choice::Refused => "refused".to_owned(),
    };
    for (algorithm, kid, expected) in [
        (Rs256, "a", "aRS256"),
        (Es256, "a", "aES256"),
        (Rs256, "b", "bRS256"),
        (Es256, "b", "refused"),
        (Rs256, "c", "refused"),
        (Rs256, "A", "unknown"),
        (Rs256, "", "unknown"),
        (Es256, "d", "unknown"),
    ] {
        assert_eq!(named(algorithm, kid), expected, "{algorithm:?} {kid:?}");
    }
}

#[test]
fn without_a_kid_only_one_key_may_come_into_question() {
    for (keys, rs256, es256) in [
        (vec![], "unknown", "unknown"),
        (vec![RSA_A.bare_jwk()], "key", "unknown"),
        (vec![RSA_A.jwk("a")], "key", "unknown"),
        (vec![RSA_A.jwk("a"), P256_A.jwk("a")], "key", "key"),
        (vec![RSA_A.jwk("a"), RSA_B.bare_jwk(), P256_A.jwk("a")], "refused", "key"),
        (vec![RSA_A.jwk("a"), with(RSA_B, json!({"use": "enc"}))], "key", "unknown"),
        (vec![P256_A.bare_jwk(), P256_B.bare_jwk()], "unknown", "refused"),
    ] {
        let read = set(&keys);
        let choice = |algorithm| match read.choose(algorithm, None) {
            Choice::Key(_) => "key",
            Choice::Unknown => "unknown",
            Choice::Refused => "refused",
        };
        assert_eq!((choice(Rs256), choice(Es256)), (rs256, es256), "{keys:?}");
    }
}

#[test]
fn a_kid_of_two_keys_names_none_of_them() {
    let keys = set(&[RSA_A.jwk("a"), RSA_B.jwk("a"), P256_A.jwk("a"), RSA_B.jwk("b")]);
    assert_eq!(keys.choose(Rs256, Some("a")), Choice::Refused);
    assert!(matches!(keys.choose(Es256, Some("a")), Choice::Key(_)));
    assert!(matches!(keys.choose(Rs256, Some("b")), Choice::Key(_)), "the same key under another name is untouched");
    let twin = LeftOut { kid: Some("a".into()), reason: Unusable::KidTwice };
    assert_eq!(keys.left_out(), [twin.clone(), twin]);
    assert_eq!(set(&[RSA_A.jwk("a"), RSA_A.jwk("a")]), set(&[RSA_A.jwk("a")]), "one key that stands there twice is one key");
    assert_eq!(set(&[RSA_A.jwk("a"), RSA_B.jwk("a")]).choose(Rs256, Some("a")), Choice::Unknown, "a later set may tell them apart");
}

#[test]
fn what_is_no_set_is_an_error() {
    for text in
        ["", "{}", "[]", "null", r#"{"keys":{}}"#, r#"{"keys":null}"#, r#"{"keys":[]"#, r#"{"keys":[],"keys":[]}"#, "<html>", "\u{0}"]
    {
        assert!(matches!(KeySet::parse(text.as_bytes()), Err(NotAKeySet::Shape(_))), "{text}");
    }
    assert!(KeySet::parse(br#"{"keys":[],"issuer":"x"}"#).unwrap().is_empty());
    let many = |count: usize| KeySet::parse(json!({"keys": vec![json!({}); count]}).to_string().as_bytes());
    assert_eq!(many(JWKS_KEYS_MAX).unwrap().left_out().len(), JWKS_KEYS_MAX);
    assert_eq!(many(JWKS_KEYS_MAX + 1), Err(NotAKeySet::TooManyKeys(JWKS_KEYS_MAX + 1)));
}
