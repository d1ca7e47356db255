//! When a certificate ends, and when that is worth a warning.

use crate::limits::{TLS_EXPIRY_WARNING, TLS_EXPIRY_WARNING_INTERVAL};
use der::{
    Decode, Reader, SliceReader, Tag,
    asn1::{AnyRef, GeneralizedTime, UtcTime},
};
use relay_actors::clock::EpochMs;
use std::time::Duration;

/// The end of a certificate's validity (RFC 5280 section 4.1.2.5), as time since 1970.
///
/// # Errors
/// It is no certificate.
pub(super) fn not_after(certificate: &[u8]) -> der::Result<Duration> {
    let mut certificate = inside(AnyRef::from_der(certificate)?)?;
    let mut fields = inside(AnyRef::decode(&mut certificate)?)?;
    // The version is left out of certificates of the first.
    if matches!(Tag::peek(&fields)?, Tag::ContextSpecific { .. }) {
        fields.tlv_bytes()?;
    }
    let _serial_algorithm_issuer = [fields.tlv_bytes()?, fields.tlv_bytes()?, fields.tlv_bytes()?];
    let mut validity = inside(AnyRef::decode(&mut fields)?)?;
    let _not_before = validity.tlv_bytes()?;
    if Tag::peek(&validity)? == Tag::UtcTime {
        return UtcTime::decode(&mut validity).map(|end| end.to_unix_duration());
    }
    GeneralizedTime::decode(&mut validity).map(|end| end.to_unix_duration())
}

fn inside(sequence: AnyRef<'_>) -> der::Result<SliceReader<'_>> {
    SliceReader::new(sequence.value())
}

/// Says when to warn: at the first look within [`TLS_EXPIRY_WARNING`] of the end, and then once a day.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    last: Option<EpochMs>,
}

impl Warnings {
    pub(super) fn is_due(&mut self, now: EpochMs, end: EpochMs) -> bool {
        if now < end.minus(TLS_EXPIRY_WARNING) {
            self.last = None;
            return false;
        }
        let is_due = self.last.is_none_or(|last| last.plus(TLS_EXPIRY_WARNING_INTERVAL) <= now);
        if is_due {
            self.last = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::{CertificateDer, pem::PemObject};

    const DAY: i64 = 24 * 60 * 60 * 1_000;

    fn end_of(pem: &[u8]) -> der::Result<u64> {
        not_after(&CertificateDer::from_pem_slice(pem).unwrap()).map(|end| end.as_secs())
    }

    /// `openssl req -x509 -newkey ed25519 -nodes -subj /CN=a -keyout /dev/null -days 3650`.
    const WITH_UTC_TIME: &[u8] = b"-----BEGIN CERTIFICATE-----\n\
        MIIBLDCB36ADAgECAhRWPbFFetAh6ZFGl4RNKAiCYegMQzAFBgMrZXAwDDEKMAgG\n\
        A1UEAwwBYTAeFw0yNjExMzAyMzU0NThaFw0zNjExMjcyMzU0NThaMAwxCjAIBgNV\n\
        BAMMAWEwKjAFBgMrZXADIQAdqXGp/O7YwfLQ7D0cn7shoX2N+LakDG+1xpgF7GMW\n\
        JaNTMFEwHQYDVR0OBBYEFCpjFwdwRhRGheAorXYeVaEJK0nJMB8GA1UdIwQYMBaA\n\
        FCpjFwdwRhRGheAorXYeVaEJK0nJMA8GA1UdEwEB/wQFMAMBAf8wBQYDK2VwA0EA\n\
        S7LM8wsSshF2OZ+agoWdOfLft9ksewHiuQNsS/uEuJu7iJIrFvb1BQergOwRMd4W\n\
        z+V5oKKEFP7wMN7FjfeqCw==\n\
        -----END CERTIFICATE-----";

    #[test]
    fn both_forms_of_time_are_read() {
        assert_eq!(end_of(WITH_UTC_TIME).unwrap(), 2_111_442_898);
        // Valid for a hundred years, so past those that UTCTime can tell.
        assert_eq!(end_of(include_bytes!("../../tests/support/tls/issuer.pem")).unwrap(), 4_949_658_313);
    }

    #[test]
    fn what_is_no_certificate_is_an_error() {
        let certificate = CertificateDer::from_pem_slice(WITH_UTC_TIME).unwrap();
        for length in [0, 1, 4, 20, 60, certificate.len() - 1] {
            assert!(not_after(&certificate[..length]).is_err(), "{length}");
        }
        assert!(not_after(&[0x30, 0x02, 0x30, 0x00]).is_err());
    }

    #[test]
    fn a_warning_is_due_from_fourteen_days_on_and_then_once_a_day() {
        let end = EpochMs(100 * DAY);
        let mut warnings = Warnings::default();
        let mut is_due = |at: i64| warnings.is_due(EpochMs(at), end);
        assert!(!is_due(86 * DAY - 1));
        assert!(is_due(86 * DAY));
        assert!(!is_due(86 * DAY + 1) && !is_due(87 * DAY - 1));
        assert!(is_due(87 * DAY));
        assert!(is_due(101 * DAY), "also behind the end");
        assert!(!is_due(101 * DAY + 1));
    }

    #[test]
    fn a_renewal_begins_the_warnings_anew() {
        let mut warnings = Warnings::default();
        assert!(warnings.is_due(EpochMs(99 * DAY), EpochMs(100 * DAY)));
        assert!(!warnings.is_due(EpochMs(99 * DAY), EpochMs(190 * DAY)));
        assert!(warnings.is_due(EpochMs(99 * DAY), EpochMs(100 * DAY)));
    }
}
