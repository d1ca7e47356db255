//! A certificate chain and the key that belongs to it, from two PEM files.

use crate::limits::TLS_FILE_BYTES_MAX;
use rustls::{
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use std::{
    error::Error,
    fmt,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

/// Where the two are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairFiles {
    /// PEM file with the server's certificate, and behind it those that lead to its authority.
    pub certificate: PathBuf,
    /// PEM file with the certificate's private key, not encrypted.
    pub key: PathBuf,
}

/// Why there is no pair. Nothing of what stands in the files is shown, since that may be the key.
#[derive(Debug)]
pub enum PairError {
    /// One of the files has nothing that can be used.
    File {
        /// The flag that names it.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        fault: FileFault,
    },
    /// Each can be used, but not with the other.
    Mismatch(PairFiles),
    /// The TLS library refuses its own settings.
    Settings(rustls::Error),
}

/// What is wrong with a file.
#[derive(Debug)]
pub enum FileFault {
    /// The system refused it.
    Unreadable(io::Error),
    /// It is over [`TLS_FILE_BYTES_MAX`].
    TooLarge,
    /// It is no PEM file.
    NotPem,
    /// There is no certificate in it.
    NoCertificate,
    /// There is no key in it that can be read without a password.
    NoKey,
    /// The certificate is none that a server can show.
    UnusableCertificate(rustls::Error),
    /// The key is of no kind that is known.
    UnusableKey,
}

impl fmt::Display for PairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PairError::File { flag, path, fault } => write!(f, "{flag} {}: {fault}", path.display()),
            PairError::Mismatch(files) => {
                let (certificate, key) = (files.certificate.display(), files.key.display());
                write!(f, "--tls-key {key}: not the key of the first certificate in --tls-cert {certificate}")
            }
            PairError::Settings(error) => write!(f, "TLS cannot be set up: {error}"),
        }
    }
}

impl Error for PairError {}

impl fmt::Display for FileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileFault::Unreadable(error) => error.fmt(f),
            FileFault::TooLarge => write!(f, "larger than {TLS_FILE_BYTES_MAX} bytes"),
            FileFault::NotPem => f.write_str("malformed PEM"),
            FileFault::NoCertificate => f.write_str("there is no certificate in it (a CERTIFICATE block)"),
            FileFault::NoKey => f.write_str("there is no private key in it (a PRIVATE KEY block; encrypted ones are not taken)"),
            FileFault::UnusableCertificate(error) => write!(f, "the first certificate in it cannot be used: {error}"),
            FileFault::UnusableKey => f.write_str("the private key in it is neither RSA, ECDSA (P-256, P-384) nor Ed25519"),
        }
    }
}

impl PairFiles {
    /// Reads both, and checks that they belong together.
    ///
    /// # Errors
    /// [`PairError`].
    pub(super) fn read(&self) -> Result<CertifiedKey, PairError> {
        let of_certificate = |fault| PairError::File { flag: "--tls-cert", path: self.certificate.clone(), fault };
        let of_key = |fault| PairError::File { flag: "--tls-key", path: self.key.clone(), fault };
        let chain = chain(&self.certificate).map_err(of_certificate)?;
        let key = key(&self.key).map_err(of_key)?;
        let provider = ring::default_provider();
        let key = provider.key_provider.load_private_key(key).map_err(|_may_quote_it| of_key(FileFault::UnusableKey))?;
        let pair = CertifiedKey::new(chain, key);
        match pair.keys_match() {
            Ok(()) => Ok(pair),
            Err(rustls::Error::InconsistentKeys(_)) => Err(PairError::Mismatch(self.clone())),
            Err(error) => Err(of_certificate(FileFault::UnusableCertificate(error))),
        }
    }
}

fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, FileFault> {
    let text = read(path)?;
    let chain = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|_quotes_a_line| FileFault::NotPem)?;
    if chain.is_empty() { Err(FileFault::NoCertificate) } else { Ok(chain) }
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, FileFault> {
    let text = read(path)?;
    let first = PrivateKeyDer::pem_slice_iter(&text).next();
    first.ok_or(FileFault::NoKey)?.map_err(|_quotes_a_line| FileFault::NotPem)
}

fn read(path: &Path) -> Result<Vec<u8>, FileFault> {
    let mut text = Vec::new();
    let file = File::open(path).map_err(FileFault::Unreadable)?;
    file.take(TLS_FILE_BYTES_MAX + 1).read_to_end(&mut text).map_err(FileFault::Unreadable)?;
    if text.len() as u64 > TLS_FILE_BYTES_MAX { Err(FileFault::TooLarge) } else { Ok(text) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const TEST_PAIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/tls");

    #[test]
    fn what_is_wrong_is_said_with_its_flag_and_file_and_shows_nothing_of_the_key() {
        let directory = tempfile::tempdir().unwrap();
        let (certificate, key) = (format!("{TEST_PAIR}/issuer.pem"), format!("{TEST_PAIR}/issuer.key"));
        let secret = fs::read_to_string(&key).unwrap().lines().nth(1).unwrap().to_owned();
        let written = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let one_line = written("one-line", &format!("-----BEGIN PRIVATE KEY-----{secret}"));
        let cut = written("cut", &format!("-----BEGIN PRIVATE KEY-----\n{secret}\n"));
        let not_base64 = written("not-base64", &format!("-----BEGIN PRIVATE KEY-----\n{secret}!\n-----END PRIVATE KEY-----\n"));
        let encrypted = written("encrypted", &fs::read_to_string(&key).unwrap().replace("PRIVATE", "ENCRYPTED PRIVATE"));
        let no_key = written("no-key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
        let no_certificate = written("no-certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
        let large = written("large", &"x".repeat(usize::try_from(TLS_FILE_BYTES_MAX).unwrap() + 1));
        let (empty, absent) = (written("empty", ""), format!("{TEST_PAIR}/absent"));
        let other = format!("{TEST_PAIR}/other-ca.pem");
        for (of_certificate, of_key, wrong, expected) in [
            (&absent, &key, &absent, "--tls-cert"),
            (&certificate, &absent, &absent, "No such file"),
            (&empty, &key, &empty, "no certificate in it"),
            (&key, &key, &key, "no certificate in it"),
            (&certificate, &empty, &empty, "no private key in it"),
            (&certificate, &certificate, &certificate, "no private key in it"),
            (&certificate, &encrypted, &encrypted, "encrypted ones are not taken"),
            (&certificate, &one_line, &one_line, "--tls-key"),
            (&certificate, &cut, &cut, "malformed PEM"),
            (&certificate, &not_base64, &not_base64, "malformed PEM"),
            (&certificate, &no_key, &no_key, "neither RSA"),
            (&no_certificate, &key, &no_certificate, "cannot be used"),
            (&certificate, &large, &large, "larger than"),
            (&other, &key, &other, "not the key of"),
        ] {
            let files = PairFiles { certificate: of_certificate.into(), key: of_key.into() };
            let error = files.read().unwrap_err();
            let text = error.to_string();
            assert!(text.contains(expected) && text.contains(wrong), "{expected}: {text}");
            assert!(!format!("{text} {error:?}").contains(&secret[..16]), "{text}");
        }
        assert!(PairFiles { certificate: certificate.into(), key: key.into() }.read().is_ok());
    }
}
