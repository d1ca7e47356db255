//! W3C trace context, as far as the relay judges it: version 00 of `traceparent`, later versions by their first four fields, and
//! the list syntax of `tracestate`. <https://www.w3.org/TR/trace-context/>

const VERSION_00_LENGTH: usize = 55;
const TRACESTATE_MEMBERS_MAX: usize = 32;
const TRACESTATE_BYTES_MAX: usize = 8 * 1024;

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
