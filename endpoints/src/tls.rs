//! TLS to a relay, by rustls with the `ring` provider.

use rustls::{ClientConfig, RootCertStore, crypto::ring};
use std::{
    io,
    sync::{Arc, OnceLock},
};

/// Settings that trust the system's authorities, or those in the file that `SSL_CERT_FILE` names. They are read once in a process, which
/// also lets a client that comes back resume its TLS session.
///
/// # Errors
/// There is nobody to trust.
pub(crate) fn trusting() -> io::Result<Arc<ClientConfig>> {
    static TRUSTING: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(config) = TRUSTING.get() {
        return Ok(config.clone());
    }
    let mut roots = RootCertStore::empty();
    // Some certificate that cannot be used is common, and no reason not to trust the others.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(io::Error::other("no certificate authority is trusted: install ca-certificates, or name a PEM file by SSL_CERT_FILE"));
    }
    Ok(TRUSTING.get_or_init(|| settings(roots)).clone())
}

/// Settings for addresses without TLS.
pub(crate) fn trusting_nobody() -> Arc<ClientConfig> {
    settings(RootCertStore::empty())
}

fn settings(roots: RootCertStore) -> Arc<ClientConfig> {
    let versions = ClientConfig::builder_with_provider(Arc::new(ring::default_provider())).with_safe_default_protocol_versions();
    let versions = versions.expect("ring speaks the default versions");
    Arc::new(versions.with_root_certificates(roots).with_no_client_auth())
}
