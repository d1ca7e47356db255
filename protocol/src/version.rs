//! Dotted version numbers, compared number by number: 1.10 is above 1.7.

use std::{cmp::Ordering, fmt, str::FromStr};

/// More parts than any real version has; more digits than fit a `u32` do not parse either.
const PARTS_MAX: usize = 8;

/// A version such as `1.7`. Missing parts count as zero, so `1.7` equals `1.7.0`.
#[derive(Clone, Debug)]
pub struct Version {
    parts: Vec<u32>,
}

/// The text was not dotted integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAVersion;

impl fmt::Display for NotAVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a version is whole numbers joined by dots, like 1.7")
    }
}

impl std::error::Error for NotAVersion {}

impl Version {
    /// A version of two parts.
    pub fn new(major: u32, minor: u32) -> Self {
        Version { parts: vec![major, minor] }
    }

    fn significant(&self) -> &[u32] {
        let end = self.parts.iter().rposition(|part| *part != 0).map_or(0, |last| last + 1);
        &self.parts[..end]
    }
}

impl FromStr for Version {
    type Err = NotAVersion;

    fn from_str(text: &str) -> Result<Self, NotAVersion> {
        let parts = text
            .split('.')
            .map(|part| {
                let digits_only = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
                part.parse().ok().filter(|_| digits_only).ok_or(NotAVersion)
            })
            .collect::<Result<Vec<u32>, _>>()?;
        if parts.len() > PARTS_MAX { Err(NotAVersion) } else { Ok(Version { parts }) }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, part) in self.parts.iter().enumerate() {
            if index > 0 {
                f.write_str(".")?;
            }
            part.fmt(f)?;
        }
        Ok(())
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.significant() == other.significant()
    }
}

impl Eq for Version {}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        self.significant().cmp(other.significant())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number() {
        let version = |text: &str| text.parse::<Version>().unwrap();
        assert!(version("1.10") > version("1.7"));
        assert!(version("2") > version("1.99"));
        assert!(version("1.7.0") == version("1.7"));
        assert!(version("1.6.9") < version("1.7"));
        assert!(version("1.7.1") > version("1.7"));
    }

    #[test]
    fn only_dotted_integers_parse() {
        for text in ["", ".", "1.", ".7", "1..7", "v1.7", "1.7-beta", "+1.7", " 1.7", "1,7", "4294967296", "1.1.1.1.1.1.1.1.1"] {
            assert_eq!(text.parse::<Version>(), Err(NotAVersion), "{text:?}");
        }
        assert_eq!("01.07".parse::<Version>().unwrap().to_string(), "1.7");
    }
}
