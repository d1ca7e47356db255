//! What a JWK set says (RFC 7517), as far as the relay uses it: public keys for RS256 and ES256, and which of them a token means.
//!
//! Pure: no I/O, no clock. A key that the relay cannot use is left out and named in [`KeySet::left_out`], since a set may hold keys
//! for others (RFC 7517 section 5); a text that is no set at all is an error.

use crate::limits::{JWKS_KEYS_MAX, RSA_MODULUS_BITS_MAX, RSA_MODULUS_BITS_MIN};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::fmt;

/// Length of a coordinate of P-256. RFC 7518 section 6.2.1.2: always the full size.
const P256_COORDINATE_BYTES: usize = 32;
/// First byte of a point that is written as both of its coordinates (SEC 1 section 2.3.3).
const UNCOMPRESSED_POINT: u8 = 0x04;
/// Longest public exponent: 32 bits. The one in use everywhere, 65537, has 17.
const RSA_EXPONENT_BYTES_MAX: usize = 4;

/// How a token that needs a key of a set is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyAlgorithm {
    /// RSA with PKCS #1 v1.5 padding and SHA-256.
    Rs256,
    /// ECDSA on P-256 with SHA-256.
    Es256,
}

impl KeyAlgorithm {
    /// That of a token with this `alg`, if a set can have a key for it.
    pub fn of(alg: Algorithm) -> Option<Self> {
        [(Algorithm::RS256, KeyAlgorithm::Rs256), (Algorithm::ES256, KeyAlgorithm::Es256)]
            .into_iter()
            .find_map(|(known, algorithm)| (known == alg).then_some(algorithm))
    }

    /// The word for it in `alg`.
    fn name(self) -> &'static str {
        match self {
            KeyAlgorithm::Rs256 => "RS256",
            KeyAlgorithm::Es256 => "ES256",
        }
    }
}

/// A public key that verifies tokens of one algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    kid: Option<String>,
    public: Public,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Public {
    /// Modulus and exponent, big-endian without leading zeros.
    Rsa { n: Vec<u8>, e: Vec<u8> },
    /// An uncompressed point.
    P256(Vec<u8>),
}

impl Key {
    /// What it verifies.
    pub fn algorithm(&self) -> KeyAlgorithm {
        match self.public {
            Public::Rsa { .. } => KeyAlgorithm::Rs256,
            Public::P256(_) => KeyAlgorithm::Es256,
        }
    }

    /// For the one who verifies.
    pub fn decoding_key(&self) -> DecodingKey {
        match &self.public {
            Public::Rsa { n, e } => DecodingKey::from_rsa_raw_components(n, e),
            Public::P256(point) => DecodingKey::from_ec_der(point),
        }
    }
}

/// The usable keys of a set, and what became of the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeySet {
    keys: Vec<Key>,
    left_out: Vec<LeftOut>,
}

/// A key of a set that is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Its `kid`, if it could be read.
    pub kid: Option<String>,
    /// Why.
    pub reason: Unusable,
}

/// Why a key is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// Not an object, or a field of it is missing, ill-typed or doubled.
    Malformed,
    /// Neither RSA nor P-256. A symmetric key is one of these: it would make forgers of all who can read the set.
    OtherType,
    /// Its `use` or `key_ops` is not for verifying signatures.
    OtherUse,
    /// Its `alg` is not the one that the relay takes from a key of its type.
    OtherAlgorithm,
    /// An RSA modulus below 2,048 bits (RFC 7518 section 3.3) or above what is worth the work.
    RsaSize,
    /// Another key of the same type has the same `kid`: a name for two keys names none.
    KidTwice,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kid {
            Some(kid) => write!(f, "key {kid:?} ")?,
            None => f.write_str("a key without kid ")?,
        }
        match self.reason {
            Unusable::Malformed => f.write_str("is malformed"),
            Unusable::OtherType => f.write_str("is neither an RSA nor a P-256 key"),
            Unusable::OtherUse => f.write_str("is not for verifying signatures"),
            Unusable::OtherAlgorithm => f.write_str("is for another algorithm than RS256 or ES256"),
            Unusable::RsaSize => write!(f, "has not {RSA_MODULUS_BITS_MIN} to {RSA_MODULUS_BITS_MAX} bits"),
            Unusable::KidTwice => f.write_str("shares its kid with another one"),
        }
    }
}

/// The text is no JWK set that the relay takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAKeySet {
    /// Not a JSON object with an array `keys`.
    Shape(String),
    /// More keys than [`JWKS_KEYS_MAX`].
    TooManyKeys(usize),
}

impl fmt::Display for NotAKeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotAKeySet::Shape(problem) => write!(f, "not a JWK set: {problem}"),
            NotAKeySet::TooManyKeys(count) => write!(f, "{count} keys, more than {JWKS_KEYS_MAX}"),
        }
    }
}

impl std::error::Error for NotAKeySet {}

/// Which key a token means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice<'a> {
    /// This one.
    Key(&'a Key),
    /// None that is known; a newer set may have it.
    Unknown,
    /// None, and a newer set would not help: the key of this `kid` is for another algorithm, or several would do.
    Refused,
}

#[derive(Deserialize)]
struct SetText<'a> {
    #[serde(borrow)]
    keys: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct KeyText {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    key_ops: Option<Vec<String>>,
    n: Option<String>,
    e: Option<String>,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl KeySet {
    /// Reads a set.
    ///
    /// # Errors
    /// The text is no set, or too large a one.
    pub fn parse(text: &[u8]) -> Result<Self, NotAKeySet> {
        let set: SetText<'_> = serde_json::from_slice(text).map_err(|error| NotAKeySet::Shape(error.to_string()))?;
        if set.keys.len() > JWKS_KEYS_MAX {
            return Err(NotAKeySet::TooManyKeys(set.keys.len()));
        }
        let mut read = KeySet::default();
        for text in set.keys {
            read.add(text);
        }
        read.leave_out_twins();
        Ok(read)
    }

    fn add(&mut self, text: &RawValue) {
        let Ok(key) = serde_json::from_str::<KeyText>(text.get()) else {
            return self.left_out.push(LeftOut { kid: None, reason: Unusable::Malformed });
        };
        match key.public() {
            Ok(public) => {
                let key = Key { kid: key.kid, public };
                // A key that merely stands there twice is one key.
                if !self.keys.contains(&key) {
                    self.keys.push(key);
                }
            }
            Err(reason) => self.left_out.push(LeftOut { kid: key.kid, reason }),
        }
    }

    fn leave_out_twins(&mut self) {
        let all = std::mem::take(&mut self.keys);
        let has_twin = |key: &Key| {
            all.iter().any(|other| key != other && key.kid.is_some() && key.kid == other.kid && key.algorithm() == other.algorithm())
        };
        let (twins, unique): (Vec<Key>, Vec<Key>) = all.iter().cloned().partition(has_twin);
        self.keys = unique;
        self.left_out.extend(twins.into_iter().map(|key| LeftOut { kid: key.kid, reason: Unusable::KidTwice }));
    }

    /// How many keys can be used.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether none can be used.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The keys that are not used.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// The key of a token with this algorithm and `kid`. Without a `kid` only one key may come into question.
    pub fn choose(&self, algorithm: KeyAlgorithm, kid: Option<&str>) -> Choice<'_> {
        let Some(kid) = kid else {
            let mut fitting = self.keys.iter().filter(|key| key.algorithm() == algorithm);
            return match (fitting.next(), fitting.next()) {
                (Some(key), None) => Choice::Key(key),
                (None, _) => Choice::Unknown,
                (Some(_), Some(_)) => Choice::Refused,
            };
        };
        let mut named = self.keys.iter().filter(|key| key.kid.as_deref() == Some(kid)).peekable();
        if named.peek().is_none() {
            return Choice::Unknown;
        }
        named.find(|key| key.algorithm() == algorithm).map_or(Choice::Refused, Choice::Key)
    }
}

impl KeyText {
    fn public(&self) -> Result<Public, Unusable> {
        let (algorithm, public) = match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", _) => (KeyAlgorithm::Rs256, Self::rsa as fn(&Self) -> _),
            ("EC", Some("P-256")) => (KeyAlgorithm::Es256, Self::p256 as fn(&Self) -> _),
            _ => return Err(Unusable::OtherType),
        };
        let verifies = self.key_ops.as_ref().is_none_or(|operations| operations.iter().any(|operation| operation == "verify"));
        if self.usage.as_ref().is_some_and(|usage| usage != "sig") || !verifies {
            return Err(Unusable::OtherUse);
        }
        if self.alg.as_ref().is_some_and(|alg| alg != algorithm.name()) {
            return Err(Unusable::OtherAlgorithm);
        }
        public(self)
    }

    fn rsa(&self) -> Result<Public, Unusable> {
        let (n, e) = (number(self.n.as_deref())?, number(self.e.as_deref())?);
        let bits = n.len() * 8 - n.first().map_or(0, |byte| byte.leading_zeros() as usize);
        if !(RSA_MODULUS_BITS_MIN..=RSA_MODULUS_BITS_MAX).contains(&bits) {
            return Err(Unusable::RsaSize);
        }
        // Both are odd in every RSA key, and with the exponent 1 anybody could sign.
        let is_odd = |number: &[u8]| number.last().is_some_and(|byte| byte % 2 == 1);
        if !is_odd(&n) || !is_odd(&e) || e == [1] || e.len() > RSA_EXPONENT_BYTES_MAX {
            return Err(Unusable::Malformed);
        }
        Ok(Public::Rsa { n, e })
    }

    fn p256(&self) -> Result<Public, Unusable> {
        let (x, y) = (decoded(self.x.as_deref())?, decoded(self.y.as_deref())?);
        if x.len() != P256_COORDINATE_BYTES || y.len() != P256_COORDINATE_BYTES {
            return Err(Unusable::Malformed);
        }
        Ok(Public::P256([&[UNCOMPRESSED_POINT][..], &x, &y].concat()))
    }
}

fn decoded(text: Option<&str>) -> Result<Vec<u8>, Unusable> {
    text.and_then(|text| URL_SAFE_NO_PAD.decode(text).ok()).ok_or(Unusable::Malformed)
}

/// A number without the zeros that some issuers put before it.
fn number(text: Option<&str>) -> Result<Vec<u8>, Unusable> {
    let mut bytes = decoded(text)?;
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    Ok(bytes.split_off(zeros))
}

#[cfg(test)]
#[path = "key_set_tests.rs"]
mod tests;
