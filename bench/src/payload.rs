//! JSON bodies of an exact size, shaped like a list of search hits: parsers care what they read.

/// The smallest body there is.
pub const SMALLEST_BYTES: usize = r#"{"items":[],"pad":""}"#.len();

/// A JSON object of exactly `size` bytes (or [`SMALLEST_BYTES`], if that is more).
pub fn make(size: usize) -> String {
    const TAIL: &str = r#"],"pad":""#;
    const END: &str = r#""}"#;
    let size = size.max(SMALLEST_BYTES);
    let mut body = String::with_capacity(size);
    body.push_str(r#"{"items":["#);
    for n in 0.. {
        let record = record(n);
        if body.len() + record.len() + TAIL.len() + END.len() > size {
            break;
        }
        body.push_str(&record);
    }
    body.push_str(TAIL);
    body.extend(std::iter::repeat_n('.', size - END.len() - body.len()));
    body.push_str(END);
    body
}

/// One hit, with the comma before it where one is due. Values vary so that no two neighbours are alike.
fn record(n: u32) -> String {
    let comma = if n == 0 { "" } else { "," };
    let (folder, line, score, open) = (n % 17, n * 37 % 1009, n.wrapping_mul(7919) % 997 + 1, n.is_multiple_of(3));
    format!(r#"{comma}{{"path":"src/part{folder}/file{n}.rs","line":{line},"kind":"function","score":0.{score},"open":{open}}}"#)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_have_their_exact_size_and_are_json() {
        for size in [SMALLEST_BYTES, SMALLEST_BYTES + 1, 64, 110, 111, 200, 1_000, 16_384, 1 << 20] {
            let body = make(size);
            assert_eq!(body.len(), size);
            serde_json::from_str::<serde_json::Value>(&body).expect("valid JSON");
        }
    }

    #[test]
    fn a_size_below_the_smallest_gives_the_smallest() {
        assert_eq!(make(0), r#"{"items":[],"pad":""}"#);
    }

    #[test]
    fn a_large_body_is_records_and_little_padding() {
        let body: serde_json::Value = serde_json::from_str(&make(16_384)).expect("valid JSON");
        assert!(body["items"].as_array().expect("a list").len() > 150);
        assert!(body["pad"].as_str().expect("a string").len() < 110);
    }
}
