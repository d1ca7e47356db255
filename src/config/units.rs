//! What flags say for people: durations, sizes, addresses.

use std::{fmt, net::SocketAddr, str::FromStr, time::Duration};

/// A duration, written for people: `90s`, `31m`, `1h 30m`, `250ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period(pub Duration);

/// In the largest unit of which it is a whole number, as the operations page writes defaults.
impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u128); 3] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000)];
        let milliseconds = self.0.as_millis();
        let fits = |(_, length): &(&str, u128)| milliseconds != 0 && milliseconds.is_multiple_of(*length);
        match UNITS.into_iter().find(fits) {
            Some((unit, length)) => write!(f, "{}{unit}", milliseconds / length),
            None => write!(f, "{milliseconds}ms"),
        }
    }
}

impl FromStr for Period {
    type Err = humantime::DurationError;

    fn from_str(text: &str) -> Result<Self, humantime::DurationError> {
        humantime::parse_duration(text).map(Period)
    }
}

/// A host or IP address with a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    /// Host as it goes into a URL: IPv6 addresses keep their brackets.
    pub host: String,
    /// Port; 0 lets the system pick one.
    pub port: u16,
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// The text was no address with a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAnAddress;

impl fmt::Display for NotAnAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an address is HOST:PORT, like 127.0.0.1:8787, [::1]:8787 or localhost:0")
    }
}

impl std::error::Error for NotAnAddress {}

impl FromStr for ListenAddress {
    type Err = NotAnAddress;

    fn from_str(text: &str) -> Result<Self, NotAnAddress> {
        let (host, port) = text.rsplit_once(':').ok_or(NotAnAddress)?;
        let port = port.parse().ok().filter(|_| port.bytes().all(|byte| byte.is_ascii_digit())).ok_or(NotAnAddress)?;
        let is_ip = text.parse::<SocketAddr>().is_ok();
        let is_name = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'));
        if is_ip || is_name { Ok(ListenAddress { host: host.to_owned(), port }) } else { Err(NotAnAddress) }
    }
}

/// A number of bytes, written for people: `512`, `64KiB`, `32MiB`, `1GiB`. Whole numbers and binary units only, since `32MB` means
/// two different things.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub usize);

const UNITS: [(&str, usize); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, bytes) = UNITS.into_iter().find(|(_, bytes)| self.0 != 0 && self.0.is_multiple_of(*bytes)).unwrap_or(("B", 1));
        write!(f, "{}{unit}", self.0 / bytes)
    }
}

/// The text was no size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotASize;

impl fmt::Display for NotASize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size is a whole number of B, KiB, MiB or GiB, like 32MiB")
    }
}

impl std::error::Error for NotASize {}

impl FromStr for ByteSize {
    type Err = NotASize;

    fn from_str(text: &str) -> Result<Self, NotASize> {
        let digits_end = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits_end);
        let number: usize = number.parse().map_err(|_not_a_number| NotASize)?;
        let unit = unit.trim_start();
        let bytes = match unit {
            "" => 1,
            _ => UNITS.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or(NotASize)?.1,
        };
        number.checked_mul(bytes).map(ByteSize).ok_or(NotASize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_for_people() {
        for (text, shown) in [
            ("90s", "90s"),
            ("1m 30s", "90s"),
            ("31m", "31m"),
            ("24h", "24h"),
            ("1day", "24h"),
            ("250ms", "250ms"),
            ("1500ms", "1500ms"),
            ("0s", "0ms"),
        ] {
            let period: Period = text.parse().unwrap();
            assert_eq!(period.to_string(), shown, "{text}");
            assert_eq!(shown.parse(), Ok(period));
        }
        for text in ["", "90", "-1s", "s", "1parsec"] {
            assert!(text.parse::<Period>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn sizes_parse() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("512B", 512),
            ("64KiB", 65_536),
            ("64 kib", 65_536),
            ("32MiB", 33_554_432),
            ("1GiB", 1_073_741_824),
            ("17179869183GiB", usize::MAX - (1 << 30) + 1),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text:?}");
        }
    }

    #[test]
    fn what_is_no_size_does_not_parse() {
        for text in ["", "MiB", "1.5MiB", "-1", "+1", " 1", "32MB", "32M", "32MiBs", "1 2", "17179869184GiB", "99999999999999999999"] {
            assert_eq!(text.parse::<ByteSize>(), Err(NotASize), "{text:?}");
        }
    }

    #[test]
    fn sizes_print_as_they_parse() {
        for text in ["0B", "1B", "1025B", "64KiB", "32MiB", "3GiB"] {
            assert_eq!(text.parse::<ByteSize>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn addresses_parse_and_print() {
        for text in ["127.0.0.1:8787", "0.0.0.0:0", "[::1]:80", "localhost:8787", "relay-1.internal:65535"] {
            assert_eq!(text.parse::<ListenAddress>().unwrap().to_string(), text);
        }
        for text in
            ["", "8787", ":8787", "localhost", "localhost:", "localhost:65536", "localhost:+1", "::1", "http://localhost:1", "a b:1"]
        {
            assert_eq!(text.parse::<ListenAddress>(), Err(NotAnAddress), "{text:?}");
        }
    }
}
