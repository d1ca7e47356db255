//! Certificates are renewed while the relay runs: the two files are read again, and a pair that has changed is put into use.
//!
//! They are looked at, since who renews a certificate may replace a file, write into it, or turn a link, and notifications differ for each.

use super::{Certificate, InUse, PairError, PairFiles, expiry::Warnings};
use crate::{http::time::rfc3339, limits::TLS_RENEWAL_INTERVAL};
use relay_actors::clock::EpochMs;
use rustls::sign::CertifiedKey;
use std::sync::Arc;

/// Keeps a listener's pair up to date. Belongs to one task.
#[derive(Debug)]
pub struct Renewal {
    files: PairFiles,
    in_use: Arc<InUse>,
    faults: Faults,
    warnings: Warnings,
}

impl Renewal {
    pub(super) fn new(files: PairFiles, in_use: Arc<InUse>) -> Self {
        Renewal { files, in_use, faults: Faults::default(), warnings: Warnings::default() }
    }

    /// The certificate in use.
    pub fn certificate(&self) -> Certificate {
        Certificate(self.in_use.clone())
    }

    /// Looks at the files for ever.
    pub async fn run(mut self) {
        loop {
            self.warn_of_end(EpochMs::now());
            tokio::time::sleep(TLS_RENEWAL_INTERVAL).await;
            let files = self.files.clone();
            // A file system that does not answer must not hold up this thread.
            match tokio::task::spawn_blocking(move || files.read()).await {
                Ok(read) => self.on_read(read),
                Err(error) => tracing::warn!(%error, "the tls certificate could not be looked at"),
            }
        }
    }

    fn warn_of_end(&mut self, now: EpochMs) {
        let Some(not_after) = self.certificate().not_after() else { return };
        let end = EpochMs(0).plus(not_after);
        if self.warnings.is_due(now, end) {
            let (file, not_after) = (self.files.certificate.display(), rfc3339(end));
            tracing::warn!(%file, not_after, "the tls certificate expires soon or has expired");
        }
    }

    fn on_read(&mut self, read: Result<CertifiedKey, PairError>) {
        match read {
            // Another key has another certificate.
            Ok(pair) if pair.cert == self.in_use.get().cert => self.faults.clear(),
            Ok(pair) => {
                self.faults.clear();
                self.in_use.replace(pair);
                tracing::info!(file = %self.files.certificate.display(), "tls certificate renewed");
            }
            Err(error) => {
                if let Some(fault) = self.faults.next_to_tell(error.to_string()) {
                    tracing::warn!(fault, "the new tls certificate cannot be used, the one before it stays in use");
                }
            }
        }
    }
}

/// Which faults are told: each once, and none that is gone at the next look, since one of two files is always written first.
#[derive(Debug, Default)]
struct Faults {
    last: Option<String>,
    is_told: bool,
}

impl Faults {
    fn clear(&mut self) {
        *self = Faults::default();
    }

    fn next_to_tell(&mut self, fault: String) -> Option<String> {
        if self.last.as_ref() != Some(&fault) {
            *self = Faults { last: Some(fault), is_told: false };
            return None;
        }
        if self.is_told {
            return None;
        }
        self.is_told = true;
        Some(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_that_lasts_is_told_once() {
        let mut faults = Faults::default();
        let mut told = |fault: &str| faults.next_to_tell(fault.to_owned());
        assert_eq!(told("half written"), None);
        assert_eq!(told("half written").as_deref(), Some("half written"));
        assert_eq!((told("half written"), told("half written")), (None, None));
        assert_eq!((told("absent"), told("half written")), (None, None));
        assert_eq!(told("half written").as_deref(), Some("half written"));
    }

    #[test]
    fn a_fault_that_is_gone_is_told_again_when_it_returns() {
        let mut faults = Faults::default();
        for _ in 0..2 {
            assert_eq!(faults.next_to_tell("absent".to_owned()), None);
            faults.clear();
        }
        assert_eq!(faults.next_to_tell("absent".to_owned()), None);
        assert!(faults.next_to_tell("absent".to_owned()).is_some());
        faults.clear();
        assert_eq!(faults.next_to_tell("absent".to_owned()), None);
        assert!(faults.next_to_tell("absent".to_owned()).is_some());
    }
}
