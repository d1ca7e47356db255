//! Times as the HTTP API writes them: RFC 3339, UTC, milliseconds; and as it reads them, in any precision and with any offset.

use relay_actors::clock::EpochMs;
use std::time::{Duration, UNIX_EPOCH};

/// The last millisecond of the year 9999, the last that the format can write.
const LAST_MS: u64 = 253_402_300_799_999;

/// `2026-05-01T12:00:00.000Z`. What the format cannot write (before 1970, after 9999) becomes its first or last time.
pub fn rfc3339(time: EpochMs) -> String {
    let milliseconds = u64::try_from(time.0).unwrap_or(0).min(LAST_MS);
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(milliseconds)).to_string()
}

/// The first millisecond that is not before this time, from 1970 on. Letters in any case, any precision, any offset (RFC 3339 section
/// 5.6). A leap second counts as the second before it.
pub fn parse_rfc3339(text: &str) -> Option<EpochMs> {
    const OFFSET_CHARS: usize = "+00:00".len();
    let text = text.to_ascii_uppercase();
    let (local, offset) = match text.strip_suffix('Z') {
        Some(local) => (local, 0),
        None => {
            let (local, offset) = text.split_at_checked(text.len().checked_sub(OFFSET_CHARS)?)?;
            (local, offset_minutes(offset)?)
        }
    };
    let time = humantime::parse_rfc3339(&format!("{local}Z")).ok()?.duration_since(UNIX_EPOCH).ok()?;
    let milliseconds = i64::try_from(time.as_nanos().div_ceil(1_000_000)).ok()?;
    Some(EpochMs(milliseconds - offset * 60_000))
}

/// How far `+HH:MM` or `-HH:MM` is ahead of UTC.
fn offset_minutes(text: &str) -> Option<i64> {
    let (hours, minutes) = text.get(1..)?.split_once(':')?;
    let number = |digits: &str, max: i64| {
        let is_two_digits = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse::<i64>().ok().filter(|number| is_two_digits && *number <= max)
    };
    let ahead = number(hours, 23)? * 60 + number(minutes, 59)?;
    match text.as_bytes()[0] {
        b'+' => Some(ahead),
        b'-' => Some(-ahead),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_any_precision_and_with_any_offset() {
        for (text, milliseconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2027-01-15T08:00:00.001Z", 1_800_000_000_001),
            ("2027-01-15t08:00:00.001z", 1_800_000_000_001),
            ("2027-01-15T08:00:00Z", 1_800_000_000_000),
            ("2027-01-15T08:00:00.0000001Z", 1_800_000_000_001),
            ("2027-01-15T08:00:00.001000000Z", 1_800_000_000_001),
            ("2027-01-15T08:00:00.000+00:00", 1_800_000_000_000),
            ("2027-01-15T08:00:00-00:00", 1_800_000_000_000),
            ("2027-01-15T13:30:00+05:30", 1_800_000_000_000),
            ("2027-01-14T20:15:00.5-11:45", 1_800_000_000_500),
            ("1970-01-01T00:00:00+00:01", -60_000),
        ] {
            assert_eq!(parse_rfc3339(text), Some(EpochMs(milliseconds)), "{text}");
        }
        for text in [
            "",
            "Z",
            "now",
            "1800000000000",
            "2027-01-15",
            "2027-01-15T08:00:00",
            "2027-01-15 08:00:00Z",
            "2027-01-15T08:00Z",
            "2027-13-15T08:00:00Z",
            "2027-02-30T08:00:00Z",
            "2027-01-15T24:00:00Z",
            "2027-01-15T08:00:00+24:00",
            "2027-01-15T08:00:00+0:000",
            "2027-01-15T08:00:00 00:00",
            "2027-01-15T08:00:00+00:00Z",
            "2027-01-15T08:00:0éZ",
            "é00:00",
        ] {
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
    }

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
