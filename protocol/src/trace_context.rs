//! W3C trace context, as far as the relay judges it: version 00 of `traceparent`, later versions by their first four fields, and
//! the list syntax of `tracestate`. <https://www.w3.org/TR/trace-context/>

use std::fmt;

const VERSION_00_LENGTH: usize = 55;
const TRACESTATE_MEMBERS_MAX: usize = 32;
const TRACESTATE_BYTES_MAX: usize = 8 * 1024;

const SAMPLED: u8 = 0b01;

/// What a `traceparent` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace; not zero.
    pub trace: TraceId,
    /// The caller's span; not zero.
    pub parent: SpanId,
    /// All of the flags, those too that have no meaning yet.
    pub flags: u8,
}

/// The id of a trace, shown as 32 lower-case hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceId(pub u128);

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The id of a span, shown as 16 lower-case hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanId(pub u64);

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl TraceParent {
    /// Reads the text of one; none if [`is_traceparent`] says no.
    pub fn read(text: &str) -> Option<Self> {
        if !is_traceparent(text) {
            return None;
        }
        Some(TraceParent {
            trace: TraceId(u128::from_str_radix(&text[3..35], 16).ok()?),
            parent: SpanId(u64::from_str_radix(&text[36..52], 16).ok()?),
            flags: u8::from_str_radix(&text[53..55], 16).ok()?,
        })
    }

    /// Whether the caller records its span.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }
}

/// Whether a `traceparent` is well formed and names a trace and a parent.
pub fn is_traceparent(text: &str) -> bool {
    let bytes = text.as_bytes();
    if bytes.len() < VERSION_00_LENGTH || !bytes.is_ascii() {
        return false;
    }
    let (version, trace, parent, flags) = (&bytes[..2], &bytes[3..35], &bytes[36..52], &bytes[53..55]);
    let dashes = bytes[2] == b'-' && bytes[35] == b'-' && bytes[52] == b'-';
    let length = match version {
        b"00" => bytes.len() == VERSION_00_LENGTH,
        b"ff" => false,
        _later => bytes.len() == VERSION_00_LENGTH || bytes[VERSION_00_LENGTH] == b'-',
    };
    let hex = |field: &[u8]| field.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let named = |field: &[u8]| field.iter().any(|byte| *byte != b'0');
    dashes && length && [version, trace, parent, flags].into_iter().all(hex) && named(trace) && named(parent)
}

/// Whether a `tracestate` is a list of at most 32 `key=value` members with distinct keys; empty members count for nothing.
pub fn is_tracestate(text: &str) -> bool {
    if text.len() > TRACESTATE_BYTES_MAX {
        return false;
    }
    let mut keys = Vec::new();
    for member in text.split(',').map(|member| member.trim_matches([' ', '\t'])).filter(|member| !member.is_empty()) {
        let Some((key, value)) = member.split_once('=') else { return false };
        if !is_key(key) || !is_value(value) || keys.contains(&key) || keys.len() == TRACESTATE_MEMBERS_MAX {
            return false;
        }
        keys.push(key);
    }
    true
}

fn is_key(key: &str) -> bool {
    let part = |text: &str, length_max: usize, digit_first: bool| {
        let first = text.bytes().next();
        first.is_some_and(|byte| byte.is_ascii_lowercase() || (digit_first && byte.is_ascii_digit()))
            && text.len() <= length_max
            && text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/'))
    };
    match key.split_once('@') {
        Some((tenant, system)) => part(tenant, 241, true) && part(system, 14, false),
        None => part(key, 256, false),
    }
}

fn is_value(value: &str) -> bool {
    (1..=256).contains(&value.len())
        && value.bytes().all(|byte| matches!(byte, 0x20..=0x7e) && byte != b',' && byte != b'=')
        && !value.ends_with(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn traceparent_follows_the_recommendation() {
        assert!(is_traceparent(GOOD));
        assert!(is_traceparent(&GOOD.replace("00-4bf", "cc-4bf")), "a later version with the same fields");
        assert!(is_traceparent(&format!("{}-extra", GOOD.replace("00-4bf", "cc-4bf"))), "a later version with more fields");
        for bad in [
            "",
            "00",
            &GOOD[..54],
            &format!("{GOOD}-extra"),
            &format!("{GOOD} "),
            &GOOD.to_uppercase(),
            &GOOD.replace("00-4bf", "ff-4bf"),
            &format!("{}x", GOOD.replace("00-4bf", "cc-4bf")),
            &GOOD.replace("4bf92f3577b34da6a3ce929d0e0e4736", "00000000000000000000000000000000"),
            &GOOD.replace("00f067aa0ba902b7", "0000000000000000"),
            &GOOD.replace('-', "_"),
            &GOOD.replace("4bf", "é4"),
        ] {
            assert!(!is_traceparent(bad), "{bad}");
        }
    }

    #[test]
    fn a_traceparent_names_trace_and_parent_and_says_whether_it_is_sampled() {
        for (version, flags, rest, sampled) in [
            ("00", "01", "", true),
            ("00", "00", "", false),
            ("00", "02", "", false),
            ("00", "03", "", true),
            ("00", "ff", "", true),
            ("00", "fe", "", false),
            ("cc", "01", "-what-the-future-will-be-like", true),
            ("fe", "00", "", false),
        ] {
            let text = format!("{version}-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-{flags}{rest}");
            let read = TraceParent::read(&text).unwrap();
            assert_eq!((read.trace.0, read.parent.0), (0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c, 0x00f0_67aa_0ba9_02b7), "{text}");
            assert_eq!((read.trace.to_string(), read.parent.to_string()), (text[3..35].to_owned(), text[36..52].to_owned()));
            assert_eq!((read.is_sampled(), format!("{:02x}", read.flags)), (sampled, flags.to_owned()), "{text}");
        }
        for bad in
            ["", "ff-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01", "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01"]
        {
            assert_eq!(TraceParent::read(bad), None, "{bad}");
        }
    }

    #[test]
    fn tracestate_is_a_list_of_distinct_keys() {
        for good in ["", "a=1", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "fw529a3039@dt=x , b=2", "a=1,,b=2", "a=b c"] {
            assert!(is_tracestate(good), "{good}");
        }
        let many = |count: usize| (0..count).map(|n| format!("k{n}=v")).collect::<Vec<_>>().join(",");
        assert!(is_tracestate(&many(32)));
        assert!(!is_tracestate(&many(33)));
        for bad in ["a", "A=1", "a=", "a=1,a=2", "1a=1", "a=b=c", "a=\u{e9}", "@a=1", "a@=1"] {
            assert!(!is_tracestate(bad), "{bad}");
        }
    }
}
