use super::*;
use crate::{http::auth::signing_keys::RSA_A, limits::JWKS_KEYS_MAX};
use serde_json::json;

#[test]
fn a_location_is_an_http_address_or_a_path() {
    for path in ["keys.json", "/etc/relay/keys.json", "./a:b", "http:keys", "C:/keys"] {
        assert_eq!(path.parse(), Ok(Location::File(path.into())), "{path}");
    }
    for url in ["https://issuer.example/keys", "http://127.0.0.1:8080/a?b=c", "https://[::1]/", "HTTPS://issuer.example/keys"] {
        assert!(matches!(url.parse(), Ok(Location::Url(_))), "{url}");
    }
    for (text, expected) in [
        ("", NotALocation::Empty),
        ("ftp://issuer.example/keys", NotALocation::Address(NotAnHttpAddress::Form)),
        ("file:///etc/keys", NotALocation::Address(NotAnHttpAddress::Form)),
        ("https://", NotALocation::Address(NotAnHttpAddress::Form)),
        ("https:///keys", NotALocation::Address(NotAnHttpAddress::Form)),
        ("https://a b/", NotALocation::Address(NotAnHttpAddress::Form)),
        ("://x", NotALocation::Address(NotAnHttpAddress::Form)),
        ("https://user:word@issuer.example/keys", NotALocation::Address(NotAnHttpAddress::Credentials)),
        ("https://user@issuer.example/keys", NotALocation::Address(NotAnHttpAddress::Credentials)),
    ] {
        assert_eq!(text.parse::<Location>(), Err(expected), "{text}");
    }
}

#[test]
fn a_file_is_read_up_to_the_limit() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys.json");
    let read = |content: &[u8]| {
        fs::write(&path, content).unwrap();
        read_file_set(&path)
    };
    let set = json!({"keys": [RSA_A.jwk("a")]}).to_string();
    let padded = |length: usize| [set.as_bytes(), &vec![b' '; length - set.len()]].concat();
    assert_eq!(read(set.as_bytes()).unwrap().len(), 1);
    assert_eq!(read(&padded(JWKS_BYTES_MAX)).unwrap().len(), 1);
    assert!(matches!(read(&padded(JWKS_BYTES_MAX + 1)), Err(ReadError::TooLarge)));
    assert!(matches!(read(b"{}"), Err(ReadError::Content(_))));
    let many = json!({"keys": vec![json!({}); JWKS_KEYS_MAX + 1]}).to_string();
    assert!(matches!(read(many.as_bytes()), Err(ReadError::Content(NotAKeySet::TooManyKeys(_)))));
    assert!(matches!(read_file_set(directory.path()), Err(ReadError::File(_))));
    assert!(matches!(read_file_set(&directory.path().join("absent")), Err(ReadError::File(_))));
    assert!(matches!(read_file_set(Path::new("/dev/zero")), Err(ReadError::TooLarge)), "what never ends is cut off");
}
