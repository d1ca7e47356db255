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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Map, Value};

    #[test]
    fn what_is_in_snake_case() {
        for key in ["user_id", "a_b", "a_1", "1_2", "a__b", "_user_id", "user_id_", "__user_id__", "a_b_c"] {
            assert!(is_snake_case(key), "{key}");
        }
        for key in [
            "",
            "_",
            "__",
            "id",
            "userId",
            "_id",
            "id_",
            "__typename",
            "USER_ID",
            "User_id",
            "user_Id",
            "user-id_2",
            "a_b.rs",
            "a b_c",
            "größe_x",
            "a_é",
            "a/b_c",
        ] {
            assert!(!is_snake_case(key), "{key}");
        }
    }

    #[test]
    fn keys_are_found_wherever_and_however_they_are_written() {
        for (json, found) in [
            (r#"{"user_id":1}"#, Some("user_id")),
            ("{ \"user_id\"\r\n\t : 1}", Some("user_id")),
            (r#"[[],{"a":[{"b":{"c_d":{}}}]}]"#, Some("c_d")),
            (r#"{"a":1,"b_c":2,"d_e":3}"#, Some("b_c")),
            (r#"{"\u0075ser\u005Fid":1}"#, Some("user_id")),
            (r#"{"a":"\\","b_c":1}"#, Some("b_c")),
            (r#"{"a":"\\\"","b_c":1}"#, Some("b_c")),
            (r#"{"a\"_b":1}"#, None),
            (r#"{"user\ud800_id":1}"#, None),
            (r#"{"a":"b_c"}"#, None),
            (r#"{"a":"\"b_c\":1"}"#, None),
            (r#"["a_b","c_d"]"#, None),
            (r#""a_b""#, None),
            (r#"{"a":"{\"b_c\":1}"}"#, None),
            ("{}", None),
            ("1", None),
            ("", None),
        ] {
            assert_eq!(find(json).as_deref(), found, "{json}");
        }
    }

    #[test]
    fn depth_and_size_cost_no_stack() {
        let deep = |inner: &str| format!("{}{inner}{}", "{\"a\":[".repeat(1_000_000), "]}".repeat(1_000_000));
        assert_eq!(find(&deep("1")), None);
        assert_eq!(find(&deep("{\"b_c\":1}")).as_deref(), Some("b_c"));
        let long = format!("{{\"data\":\"{}\",\"b_c\":1}}", "\\n\\\"_".repeat(100_000));
        assert_eq!(find(&long).as_deref(), Some("b_c"));
    }

    /// The dumb model: a walk over the tree.
    fn walk(value: &Value) -> bool {
        match value {
            Value::Object(fields) => fields.iter().any(|(key, value)| is_snake_case(key) || walk(value)),
            Value::Array(items) => items.iter().any(walk),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        }
    }

    fn trees() -> impl Strategy<Value = Value> {
        let text = || proptest::string::string_regex("[a-c_:\"\\\\{} \u{e9}\n]{0,6}").unwrap();
        let leaf = prop_oneof![Just(Value::Null), any::<i32>().prop_map(Value::from), text().prop_map(Value::from)];
        leaf.prop_recursive(5, 48, 5, move |inner| {
            let fields = proptest::collection::vec((text(), inner.clone()), 0..5);
            prop_oneof![
                proptest::collection::vec(inner, 0..5).prop_map(Value::from),
                fields.prop_map(|fields| Value::Object(Map::from_iter(fields))),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_text_is_judged_like_the_tree(tree in trees()) {
            let escaped: String = tree.to_string().chars().map(|c| if c == '_' { "\\u005f".to_owned() } else { c.to_string() }).collect();
            for text in [tree.to_string(), format!("{tree:#}"), escaped] {
                prop_assert_eq!(find(&text).is_some(), walk(&tree), "{}", text);
                prop_assert!(find(&text).is_none_or(|key| is_snake_case(&key)));
            }
        }
    }
}
