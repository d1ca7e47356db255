//! Texts that must fit: a provider takes so many bytes of JSON, and a body of 2,000 characters may have more.

use serde_json::Value;

/// What stands at the end of a text that was cut.
const CUT: &str = "…";

/// The JSON that `write` makes of the longest beginning of `body` with which it has at most `bytes_max`. A text is cut between characters.
/// Without any of the body it is given as it is, too long or not.
pub(super) fn fit(body: &str, bytes_max: usize, write: impl Fn(&str) -> Value) -> Vec<u8> {
    let written = |text: &str| write(text).to_string().into_bytes();
    let whole = written(body);
    if whole.len() <= bytes_max {
        return whole;
    }
    let ends: Vec<usize> = body.char_indices().map(|(at, _)| at).collect();
    let cut = |count: usize| format!("{}{CUT}", &body[..ends[count]]);
    // What has room for so many characters has room for fewer.
    let room = |count: &usize| written(&cut(*count)).len() <= bytes_max;
    let counts: Vec<usize> = (0..ends.len()).collect();
    let fitting = counts.partition_point(room);
    written(&fitting.checked_sub(1).map_or_else(|| CUT.to_owned(), cut))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fitted(body: &str, bytes_max: usize) -> String {
        let bytes = fit(body, bytes_max, |text| json!({ "b": text }));
        let json: Value = serde_json::from_slice(&bytes).unwrap();
        json["b"].as_str().unwrap().to_owned()
    }

    #[test]
    fn what_fits_is_whole_and_the_rest_is_cut_between_characters() {
        // {"b":""} has 8 bytes.
        assert_eq!(fitted("abcd", 12), "abcd");
        assert_eq!(fitted("abcd", 11), "…");
        assert_eq!(fitted("abcdefgh", 15), "abcd…");
        assert_eq!(fitted("🎉🎉🎉", 18), "🎉…");
        assert_eq!(fitted("🎉🎉🎉", 19), "🎉🎉…");
        assert_eq!(fitted("🎉🎉🎉", 20), "🎉🎉🎉");
        // An escape counts with its bytes.
        assert_eq!(fitted("\u{1}\u{1}\u{1}", 17), "\u{1}…");
        assert_eq!(fitted("ab", 3), "…", "nothing fits");
    }

    #[test]
    fn a_long_text_is_as_long_as_there_is_room() {
        for text in ["a".repeat(2_000), "🎉".repeat(2_000), "\"".repeat(2_000), "\u{7}é".repeat(1_000)] {
            let bytes = fit(&text, 4_096, |text| json!({ "b": text }));
            assert!((4_085..=4_096).contains(&bytes.len()) || text.len() < 4_000, "{}", bytes.len());
        }
    }
}
