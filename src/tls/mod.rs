//! TLS of the public listener, by rustls with the `ring` provider: 1.2 and 1.3, HTTP/1.1 only.
//!
//! [`open`] reads the certificate and its key when serving starts. [`Renewal`] reads the two files again now and then and puts a new pair
//! into use for the handshakes that follow; connections that are open live on. A pair that cannot be used changes nothing.

mod expiry;
mod pair;
mod renewal;

pub use pair::{PairError, PairFiles};
pub use renewal::Renewal;

use rustls::{
    ServerConfig,
    crypto::ring,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

/// The certificate that handshakes are answered with. Clones tell of the same one.
#[derive(Clone, Debug)]
pub struct Certificate(Arc<InUse>);

impl Certificate {
    /// The end of its validity, as time since 1970; none if it cannot be read.
    pub fn not_after(&self) -> Option<Duration> {
        expiry::not_after(self.0.get().end_entity_cert().ok()?).ok()
    }
}

/// The settings of a listener with this pair, and what keeps the pair up to date.
///
/// # Errors
/// The files cannot be read or make no pair.
pub fn open(files: PairFiles) -> Result<(ServerConfig, Renewal), PairError> {
    let in_use = Arc::new(InUse(RwLock::new(Arc::new(files.read()?))));
    let versions = ServerConfig::builder_with_provider(Arc::new(ring::default_provider())).with_safe_default_protocol_versions();
    let config = versions.map_err(PairError::Settings)?.with_no_client_auth().with_cert_resolver(in_use.clone());
    Ok((config, Renewal::new(files, in_use)))
}

/// The pair that the next handshake uses.
#[derive(Debug)]
struct InUse(RwLock<Arc<CertifiedKey>>);

impl InUse {
    fn get(&self) -> Arc<CertifiedKey> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn replace(&self, pair: CertifiedKey) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(pair);
    }
}

impl ResolvesServerCert for InUse {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.get())
    }
}
