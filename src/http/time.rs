//! Times as the HTTP API writes them: RFC 3339, UTC, milliseconds.

use relay_actors::clock::EpochMs;
use std::time::{Duration, UNIX_EPOCH};

/// The last millisecond of the year 9999, the last that the format can write.
const LAST_MS: u64 = 253_402_300_799_999;

/// `2026-05-01T12:00:00.000Z`. What the format cannot write (before 1970, after 9999) becomes its first or last time.
pub fn rfc3339(time: EpochMs) -> String {
    let milliseconds = u64::try_from(time.0).unwrap_or(0).min(LAST_MS);
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(milliseconds)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_to_the_millisecond() {
        for (milliseconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_800_000_000_001, "2027-01-15T08:00:00.001Z"),
            (-1, "1970-01-01T00:00:00.000Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
            (i64::MAX, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(rfc3339(EpochMs(milliseconds)), text);
        }
    }
}
