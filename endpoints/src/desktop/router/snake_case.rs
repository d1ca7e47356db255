//! Finds fields in snake_case: names of a desktop's inside that no phone should see.
//!
//! In valid JSON a string is a key exactly if a colon follows it, so one pass over the text needs neither a stack nor a tree: depth
//! costs nothing, and strings are skipped at the speed of `memchr`.

use memchr::{memchr, memchr2};
use std::borrow::Cow;

/// Whether a key is in snake_case: only `a-z`, `0-9` and `_`, with an underscore between two others. `user_id` is; `userId`, `_id`,
/// `user_`, `USER_ID` and `user-id_2` are not.
pub(super) fn is_snake_case(key: &str) -> bool {
    let inner = key.trim_matches('_');
    inner.contains('_') && inner.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

/// The first key in snake_case, decoded, of any object at any depth. The text must be valid JSON.
pub(super) fn find(json: &str) -> Option<Cow<'_, str>> {
    let bytes = json.as_bytes();
    let mut at = 0;
    while let Some(start) = memchr(b'"', bytes.get(at..)?).map(|found| at + found) {
        let (end, is_escaped) = end_of_string(bytes, start + 1)?;
        at = end + 1;
        if !is_followed_by_colon(bytes.get(at..)?) {
            continue;
        }
        let key = match is_escaped {
            false => Cow::Borrowed(json.get(start + 1..end)?),
            // What cannot be decoded is half of a surrogate pair, and no such character is in snake_case.
            true => Cow::Owned(serde_json::from_str(json.get(start..=end)?).unwrap_or_default()),
        };
        if is_snake_case(&key) {
            return Some(key);
        }
    }
    None
}

/// The place of the closing quote, and whether a backslash is before it.
fn end_of_string(bytes: &[u8], start: usize) -> Option<(usize, bool)> {
    let mut at = start;
    let mut is_escaped = false;
    loop {
        let found = at + memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes[found] == b'"' {
            return Some((found, is_escaped));
        }
        is_escaped = true;
        at = found + 2;
    }
}

fn is_followed_by_colon(rest: &[u8]) -> bool {
    rest.iter().find(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r')) == Some(&b':')
}
