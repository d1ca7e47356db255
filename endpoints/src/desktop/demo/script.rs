//! What the made-up agents say. Pure, and the same each time: a run that was cut off is begun anew and ends with the same words.

use super::model::ReplyStyle;
use serde::Deserialize;

/// Characters of a prompt that its answer quotes.
const QUOTED_CHARS: usize = 60;
/// Bytes of text that count as a token, as a rule of thumb has it.
const BYTES_PER_TOKEN: usize = 4;

/// The answer to a prompt.
pub(super) fn answer(prompt: &str, style: ReplyStyle) -> String {
    let words = prompt.split_whitespace().count();
    let unit = if words == 1 { "word" } else { "words" };
    match style {
        ReplyStyle::Ste => format!("I read {words} {unit}. I am a demo agent. I did no work."),
        ReplyStyle::Default => {
            let quoted = quoted(prompt);
            format!(
                "You asked \"{quoted}\", which is {words} {unit}. This agent is made up: it reads nothing, changes nothing, and says the \
                 same to the same question, so that what your app shows can be told from what went wrong."
            )
        }
    }
}

/// What a draft shows step by step: one word more each time.
pub(super) fn drafts(answer: &str) -> impl Iterator<Item = &str> {
    let ends = answer.match_indices(' ').map(|(at, _)| at).chain([answer.len()]);
    ends.map(|end| &answer[..end])
}

/// The beginning of a text, on one line.
fn quoted(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(QUOTED_CHARS) {
        Some((end, _)) => format!("{}…", line[..end].trim_end()),
        None => line,
    }
}

/// How much of a context a question and its answer take, in tokens.
pub(super) fn tokens(prompt: &str, answer: &str) -> i64 {
    i64::try_from((prompt.len() + answer.len()).div_ceil(BYTES_PER_TOKEN)).unwrap_or(i64::MAX)
}

/// What is to become of a text.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Improvement {
    /// A better text.
    Improve,
    /// The rewrite rules of the reply style.
    Ste,
}

/// A text as the demo improves it: by rules that can be seen through, where a real desktop asks an agent. Blanks are put in order and
/// each sentence begins with a capital letter; for `ste`, each also ends where it had a semicolon.
pub(super) fn improve(text: &str, mode: Improvement) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = match mode {
        Improvement::Improve => line,
        Improvement::Ste => line.replace(';', "."),
    };
    let mut improved = String::with_capacity(line.len() + 1);
    let mut begins = true;
    for character in line.chars() {
        if begins && character.is_alphanumeric() {
            improved.extend(character.to_uppercase());
            begins = false;
            continue;
        }
        // A full stop inside a number or a file's name is followed by no blank.
        begins = begins || (character == ' ' && improved.ends_with(['.', '!', '?']));
        improved.push(character);
    }
    if improved.ends_with(char::is_alphanumeric) {
        improved.push('.');
    }
    improved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_depends_on_prompt_and_style_alone() {
        let answered = answer("Explain the settings flow.", ReplyStyle::Default);
        assert!(answered.starts_with("You asked \"Explain the settings flow.\", which is 4 words."), "{answered}");
        assert_eq!(answered, answer("Explain  the\nsettings flow.", ReplyStyle::Default));
        assert_eq!(answer("Go", ReplyStyle::Ste), "I read 1 word. I am a demo agent. I did no work.");
        let long = answer(&"ü".repeat(QUOTED_CHARS + 1), ReplyStyle::Default);
        assert!(long.contains(&format!("\"{}…\"", "ü".repeat(QUOTED_CHARS))), "{long}");
    }

    #[test]
    fn drafts_grow_by_a_word_and_end_with_the_answer() {
        assert_eq!(drafts("a bc d").collect::<Vec<_>>(), ["a", "a bc", "a bc d"]);
        assert_eq!(drafts("a").collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn a_text_is_improved_by_rules() {
        for (text, mode, expected) in [
            ("  fix   the bug", Improvement::Improve, "Fix the bug."),
            ("see a.txt. then go!", Improvement::Improve, "See a.txt. Then go!"),
            ("read it; run it", Improvement::Improve, "Read it; run it."),
            ("read it; run it", Improvement::Ste, "Read it. Run it."),
            ("\"quoted\" text", Improvement::Improve, "\"Quoted\" text."),
            ("", Improvement::Improve, ""),
        ] {
            assert_eq!(improve(text, mode), expected, "{text}");
        }
    }
}
