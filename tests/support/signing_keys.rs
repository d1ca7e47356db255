//! Keys that sign tokens in tests, made for nothing else with `openssl genrsa` and `openssl ecparam`: fixed, since making RSA keys is
//! slow in a debug build.

use base64::{Engine, engine::general_purpose::STANDARD};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde_json::{Value, json};

/// A key pair: signs as an issuer does, and shows its public half as a JWK.
#[derive(Clone, Copy)]
pub enum SigningKey {
    /// PKCS #1 as base64, and the modulus as it stands in a JWK.
    Rsa { der: &'static str, n: &'static str },
    /// PKCS #8 as base64, and the coordinates as they stand in a JWK.
    P256 { der: &'static str, x: &'static str, y: &'static str },
}

impl SigningKey {
    /// `alg` of its tokens.
    pub fn algorithm(self) -> Algorithm {
        match self {
            SigningKey::Rsa { .. } => Algorithm::RS256,
            SigningKey::P256 { .. } => Algorithm::ES256,
        }
    }

    /// The public half, as it stands in a set under this `kid`.
    pub fn jwk(self, kid: &str) -> Value {
        let mut jwk = self.bare_jwk();
        jwk["kid"] = kid.into();
        jwk
    }

    /// The public half with nothing but what makes it a key.
    pub fn bare_jwk(self) -> Value {
        match self {
            SigningKey::Rsa { n, .. } => json!({"kty": "RSA", "n": n, "e": "AQAB"}),
            SigningKey::P256 { x, y, .. } => json!({"kty": "EC", "crv": "P-256", "x": x, "y": y}),
        }
    }

    /// A token with these claims, naming its key or not.
    pub fn sign(self, kid: Option<&str>, claims: &Value) -> String {
        let header = Header { kid: kid.map(str::to_owned), ..Header::new(self.algorithm()) };
        jsonwebtoken::encode(&header, claims, &self.encoding_key()).unwrap()
    }

    /// The private half, as it stands in a key file.
    pub fn pem(self) -> String {
        match self {
            SigningKey::Rsa { der, .. } => format!("-----BEGIN RSA PRIVATE KEY-----\n{der}\n-----END RSA PRIVATE KEY-----\n"),
            SigningKey::P256 { der, .. } => format!("-----BEGIN PRIVATE KEY-----\n{der}\n-----END PRIVATE KEY-----\n"),
        }
    }

    /// What a token of this key says, if the signature is this key's.
    pub fn verify(self, token: &str) -> Value {
        let key = match self {
            SigningKey::Rsa { n, .. } => DecodingKey::from_rsa_components(n, "AQAB").unwrap(),
            SigningKey::P256 { x, y, .. } => DecodingKey::from_ec_components(x, y).unwrap(),
        };
        let mut validation = Validation::new(self.algorithm());
        (validation.validate_exp, validation.validate_aud) = (false, false);
        validation.required_spec_claims.clear();
        jsonwebtoken::decode(token, &key, &validation).unwrap().claims
    }

    fn encoding_key(self) -> EncodingKey {
        match self {
            SigningKey::Rsa { der, .. } => EncodingKey::from_rsa_der(&STANDARD.decode(der).unwrap()),
            SigningKey::P256 { der, .. } => EncodingKey::from_ec_der(&STANDARD.decode(der).unwrap()),
        }
    }
}

/// RSA, 2,048 bits.
pub const RSA_A: SigningKey = SigningKey::Rsa {
    der: "\
          MIIEpQIBAAKCAQEAw3yNdkmva/I+0jIHC2FrIxIOgCaf2iOBU6GSdoeD5on3cZPM85FhC+Vi8xd5Dc/Q1Dp2O+f2kMhlEJfBYimuvO45+ZPxKbQDKc/4\
          gb4p6TnDCGuskItEY/FNzt15kJaVToxua7VXUkKk3vbcwOsXvvnRcQ/JkcS2MPLtjZXzY/nvS4u0BsZlKoLu4mqa+2v1ok8VNJCUOLG5w8Pf4w4VVobO\
          NR4wOi2mQTIt3/qao74wMEKpYxE+bAcrc+6Ex9uOIVEjaEts56E4GjvtSnp5zh5XbUCbiqdoN74p/5Re9ABS/+mkXOmOpg9uwUVl6Ojwko0069ayu/aY\
          b2fqOLOqBQIDAQABAoIBAAR7s8bVs8c2/AfYC99P8aQRQvHfcOUQ0WN4niJHw1ejLGCXcijX2bDrJtTKYgVWEcT8Pj/rdvUlE2RJBq9Yo2BD2mKF6Q76\
          yOPJmDppgQ6PO5DS31dFSmE8ZHttCt+tBGmTwOiJdSI20w8l/DQUcCv6ELqWERpdt4vx1k7b9IQDahffoqJfzMaUPcAbxmVUJ6XMKkMriB9p3auJ4Td2\
          HSGs3eOJz2CXqQb/auXzz5P+vLsuJDKFDhaaAmi9f6BQf5ygco9Ch1BOyrk9CWnAFXYz1brEa9C0Hv/vW9dyBZbjTlP/T01XCqg2D8f6exhQTXPD47i8\
          TpkpHQfvkq+VwmECgYEA7x7NNcelBWvBmBTH/2IOOdqUi/r+T5WrJUjjXFVL0sWMOeHPSupOExx6LYB3FhBe2YqLSYxKK4522Ll+IMB57T84ZlUTDKLS\
          6lEEDVWvQI0P+Va7nnQIuhvqt5t2fOzmqeAW9uYKi99B2/zFkbXdFNMoXClsSSdkCEOA22Y38DkCgYEA0Uk8G3S1iDfaqVoQjXHBuAqHQfi2U84ewIaJ\
          Laa9j2tWSf6JgJStu+jbyaKr9xFcJh5ULilXv0s8sPYRoIbDlBZgagF9xXhljEpdvx6cAdlyh+K29xsPJVPNWmiRh0JkOgUkuUbH2NVUIdWoWp8iuNG7\
          HnyTvqnpkS9gZPrx8C0CgYEA0/iKEVKZhuSvCRHi+REDa2XIqQ4mwoX64WJrqj4yqPVWCTmTeOWbsHVeGVf4OSbp7g5SyzABz/rKf/RvSrlVXGrepFhm\
          Op1cOzr2TJvYb3Cc6HtqdlyGH/T/bSPzNWsMTyrHMLdcQgH3b/vzZ+e/w+YrsQdHZtH0ax7r65IBpIECgYEAtDuEdwSYPNoVBhkY/iaENLFkcCz3H873\
          bsetpVHeF3/RjOGWmtPvlk7f0JK104zwtacSyboy5fuuJZuT7JGCJqrqlv/3xzJ7CUkV2LxMj88qsdlNxhpYfcXgqEY7ZaeIVusNCD3rZ1G4JXcxh/FZ\
          3p5HreaM+fqruat6MRxndHUCgYEA5dhsagBoy9jIoO65OVqVrMhYHDoSshENqo0W2g5VHFS27oD7ASPcPlpttxKY+OgbA4Rz6fO2AUiysvTlKQnEnumO\
          KKmrioiFGlO1Xsq6hQiY53FIgni5eHE6a31vJJbPbcUMRq6+vcsHBc/YSAFXsARQ4bgjzZ2/nZ6n0133UIw=",
    n: "\
          w3yNdkmva_I-0jIHC2FrIxIOgCaf2iOBU6GSdoeD5on3cZPM85FhC-Vi8xd5Dc_Q1Dp2O-f2kMhlEJfBYimuvO45-ZPxKbQDKc_4gb4p6TnDCGuskItE\
          Y_FNzt15kJaVToxua7VXUkKk3vbcwOsXvvnRcQ_JkcS2MPLtjZXzY_nvS4u0BsZlKoLu4mqa-2v1ok8VNJCUOLG5w8Pf4w4VVobONR4wOi2mQTIt3_qa\
          o74wMEKpYxE-bAcrc-6Ex9uOIVEjaEts56E4GjvtSnp5zh5XbUCbiqdoN74p_5Re9ABS_-mkXOmOpg9uwUVl6Ojwko0069ayu_aYb2fqOLOqBQ",
};

/// RSA, 2,048 bits.
pub const RSA_B: SigningKey = SigningKey::Rsa {
    der: "\
          MIIEogIBAAKCAQEAz+7yz7gfEyDesG2GJRpzu2U2ZqdRgIs59+M5Cjd+G1AjGGSy7w/3MRtbw7rDWnzFmnjQvmfW1RcYmxKJZfOlQKd8NSOk1sEQsOW7\
          pMbJgIHzJxDGkCP5ZsLqQmyoDWVgOVZ1bBtVmrhiQCJi439E807z++Bml0LDd8rRw1NO1XRgDdCXz+vYorWCdzYiEfU6FfbdhiNmu6BB/+pd7A8x5VPV\
          ePI/MmLtahMTqQiQMF5cThMW6Qf0/BfcjVxrOkTi2AjGfk5UjgK/jVlc7ejpQPt2UfMatBNyNOypK8MAwOe+osuJzxjzS0pddC/ycOKz/LiAPApjwP0O\
          StMyj/lsHwIDAQABAoIBACbQYlfe9UIDVT5Wu38qkGbvLjf8TKzzkEcTDb83+5zKmTqA9ZvFfa2Xf0oqjzPRbat3mPOp+4K8dHXiAG7dC8BlYzyiIi+K\
          S3zR7XSFPPD1kPd+XKpkZLZHdSYgFUCm507csj+TXKfsej6hjJcN10eZudaPHWdn6Yfvfrd40hLq925xagDs4WqUAv9GS6j9t2gsBdR2X2CZ0bIzNVFw\
          5vsRoehqgXiZEXmiDC4nuXBTC1/kB/HUmDIaDAGO2XY77eDNzcJvRhNlblRYuHE/ldvoo0YPvzJGcmIzprzeGiA07nli2Uh8ivPkpcTZfCCAWuU8RHOt\
          cTiq8q8L3vSGxl0CgYEA+PrmEIDcMfXawCBBWakjwEcLJEWOxsBMYM/hNhnLAyDAt0a+K39HF0ZQ1zYiNfagaP7Hzrl7pg94dNDmLvUhtWDFBAzuznRP\
          n4cMF02+jGwbrl5NBk33PvRQoI7THGwO2ceiQUhTir4MAXQc3UE0Pt5N0i1uvE7Ri8CXdJ95p7UCgYEA1cvH6vZmRIhO+ztb4yhTk2c+YcKnO0vQ4t8t\
          3BDJ/x6gwyU7JFLDkYdzTn5Oep5C1nbjaHTtioSSo1TmwUEEafAD5EEomlp0nS2W8mcsK6UO1xPCbeDsNpZFG5JcvUmJE+7rU/HysaCOa17gCK7kUtRV\
          spFbVvYzLrW/hjnJwQMCgYAhmlMklQ+i2oicd336aN5/W9dAHPcpEdj9E/FUSOTiVjBMTArsefARTxcoBJFXcSKzKPe0icoLXnkmYu8+FS1oelf8tPYh\
          /QamBCb4mjCGaSzPOsDwgeNFptme4cfSRS836z6VyvojdoTOSWp/3gX8GiqsnB8e4RBc6TBHuCJGJQKBgCBGwYnBZTMXeQUIsxiaL/Pi9FIB9wlGquR1\
          WREOH9C6KP8NEd6r+AZycn/5JZPxbJnAHRjZ/jqZRSIPYT7vt+DecVf2VlDnMw+/oDg8RzjXlGP4AbRg7ohXK1u8Pu/8uAsgWLq1njQezyF6k0v8S1AN\
          6lopA6cfSB7XJXD4LHNNAoGAWG1ONe8V+V7aTlDLfr7gukWS0lJ0+Uh4ZiFLNqL8H+oeUpeW5/8ooy9P6wqJq9ERRMfXeGwMhmaMZ1TZFcO7EqOWzk/S\
          2xgDQJu/p8dMpQrxf3kMZKzpoUFMCn/EHd0He4LE5yxmG/8ymQRiWewVILHGvyTvmNS04WILpPLMeI0=",
    n: "\
          z-7yz7gfEyDesG2GJRpzu2U2ZqdRgIs59-M5Cjd-G1AjGGSy7w_3MRtbw7rDWnzFmnjQvmfW1RcYmxKJZfOlQKd8NSOk1sEQsOW7pMbJgIHzJxDGkCP5\
          ZsLqQmyoDWVgOVZ1bBtVmrhiQCJi439E807z--Bml0LDd8rRw1NO1XRgDdCXz-vYorWCdzYiEfU6FfbdhiNmu6BB_-pd7A8x5VPVePI_MmLtahMTqQiQ\
          MF5cThMW6Qf0_BfcjVxrOkTi2AjGfk5UjgK_jVlc7ejpQPt2UfMatBNyNOypK8MAwOe-osuJzxjzS0pddC_ycOKz_LiAPApjwP0OStMyj_lsHw",
};

/// The modulus of an RSA key of 1,024 bits.
pub const RSA_1024_N: &str = "\
    sruCKB9wPHSEOGE27bKxmbR98mdOjfMzsOf_8u-6Vjq8wMNz2tEVKBBAP4uju_mxN7LFLrCVzRSb_jGtIw6p8sZLVEJLvTwF5u-jZfWybI0nZgfKvKmg\
    5PMqIshrT_HHqu1FeVxtDvIDB92DotnMkag7GWMN2VGQWkVKH8jfRac";

/// P-256.
pub const P256_A: SigningKey = SigningKey::P256 {
    der: "\
          MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg4u6y8vIfHUo5vw6W4sE8TIT5cP++422mv51Zc833lvuhRANCAAQldRlV9jIJoyieNZGI\
          Yr5rF26ML6BrQ8Yqy3ty0QeXVKYX8bKvFTGxiVWKxm3hKneM7J8BVcJSWdmUlZVjRW0p",
    x: "JXUZVfYyCaMonjWRiGK-axdujC-ga0PGKst7ctEHl1Q",
    y: "phfxsq8VMbGJVYrGbeEqd4zsnwFVwlJZ2ZSVlWNFbSk",
};

/// P-256.
pub const P256_B: SigningKey = SigningKey::P256 {
    der: "\
          MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg8WXlf+hmhJxDGcTsaPmJRZXWmECC12cqoYV+hTmiwE6hRANCAATTYm9VFI0rZQWvf2xK\
          NjDCUGkyvW0L4yOHCCCm2dhEWa2XjdIHJ5m2LwwhQmGuRThwfEDxYYJQXLlxWnM4XnxV",
    x: "02JvVRSNK2UFr39sSjYwwlBpMr1tC-MjhwggptnYRFk",
    y: "rZeN0gcnmbYvDCFCYa5FOHB8QPFhglBcuXFaczhefFU",
};
