//! TLS to the database, by rustls with the `ring` provider.
//!
//! Without a CA file the system's certificates are trusted, read at start: which authorities a machine trusts is its operator's
//! affair, and no list ages inside the binary.

use super::tls_stream::Connector;
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// How a connection is protected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tls {
    /// Not at all.
    Off,
    /// Where the server offers it, whoever the server is: against listeners, not against impostors. What libpq calls `prefer`.
    Offered,
    /// Always, with a certificate for the server's name that one of these authorities signed.
    Verified(Authorities),
}

/// Who is trusted to say who the server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Authorities {
    /// Whom the system trusts.
    System,
    /// The certificates in this PEM file.
    File(PathBuf),
}

/// The connector for this; none without TLS.
///
/// # Errors
/// Why there is nobody to trust, in words.
pub(super) fn connector(tls: &Tls) -> Result<Option<Connector>, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?;
    let config = match tls {
        Tls::Off => return Ok(None),
        Tls::Offered => builder.dangerous().with_custom_certificate_verifier(Arc::new(Anyone(provider))).with_no_client_auth(),
        Tls::Verified(Authorities::System) => builder.with_root_certificates(system_roots()?).with_no_client_auth(),
        Tls::Verified(Authorities::File(path)) => builder.with_root_certificates(file_roots(path)?).with_no_client_auth(),
    };
    Ok(Some(Connector(Arc::new(config))))
}

fn system_roots() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    // Some certificate that cannot be used is common, and no reason not to trust the others.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err("the system trusts no certificate authorities: install ca-certificates, or name a PEM file by sslrootcert".into());
    }
    Ok(roots)
}

fn file_roots(path: &Path) -> Result<RootCertStore, String> {
    let failed = |error: &dyn std::fmt::Display| format!("sslrootcert {}: {error}", path.display());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| failed(&error))? {
        let certificate = certificate.map_err(|error| failed(&error))?;
        roots.add(certificate).map_err(|error| failed(&error))?;
    }
    if roots.is_empty() { Err(failed(&"there is no certificate in it")) } else { Ok(roots) }
}

/// Takes any certificate, but from a server that has its key.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
