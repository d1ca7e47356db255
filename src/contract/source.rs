//! Swift and Kotlin source as tokens: as much of either language as keeps comments and strings apart from code.

use super::NotUnderstood;
use std::str::Chars;

/// Strings within the code within strings, at most: sources that people write have two or three.
const NESTING_MAX: usize = 32;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    Swift,
    Kotlin,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A word or a number.
    Word(String),
    /// A name in backticks, which is no keyword.
    Name(String),
    /// A string; none if it is more than the characters between two quotes: escapes, code inside, several lines.
    Text(Option<String>),
    /// Any other character.
    Mark(char),
}

impl Token {
    pub(super) fn is(&self, word: &str) -> bool {
        matches!(self, Token::Word(own) if own == word)
    }

    /// What declares something under this name.
    pub(super) fn identifier(&self) -> Option<&str> {
        match self {
            Token::Word(name) | Token::Name(name) => Some(name),
            Token::Text(_) | Token::Mark(_) => None,
        }
    }

    /// One deeper behind an opening bracket, one higher behind a closing one.
    pub(super) fn nesting(&self) -> isize {
        match self {
            Token::Mark('(' | '[' | '{') => 1,
            Token::Mark(')' | ']' | '}') => -1,
            Token::Word(_) | Token::Name(_) | Token::Text(_) | Token::Mark(_) => 0,
        }
    }
}

/// A token and the line that it ends in, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) token: Token,
    pub(super) line: usize,
}

/// All tokens of a source.
///
/// # Errors
/// A comment, a string or a name does not end.
pub(super) fn tokens(source: &str, language: Language) -> Result<Vec<Placed>, NotUnderstood> {
    let mut lexer = Lexer { rest: source.chars(), line: 1, language, nesting: 0 };
    let mut tokens = Vec::new();
    while let Some(token) = lexer.next()? {
        tokens.push(Placed { token, line: lexer.line });
    }
    Ok(tokens)
}

/// The tokens between the braces of the enum of this name, and the header before them. `class` is what stands between the word `enum`
/// and the name.
///
/// # Errors
/// There is no such enum, there are several, or it does not end.
pub(super) fn find_enum<'a>(tokens: &'a [Placed], class: Option<&str>, name: &str) -> Result<(&'a [Placed], &'a [Placed]), NotUnderstood> {
    let mut others = Vec::new();
    let mut found = Vec::new();
    for (at, placed) in tokens.iter().enumerate().filter(|(_, placed)| placed.token.is("enum")) {
        let mut rest = &tokens[at + 1..];
        if let Some(class) = class {
            match rest.split_first() {
                Some((first, behind)) if first.token.is(class) => rest = behind,
                Some(_) | None => continue,
            }
        }
        match rest.split_first().and_then(|(first, body)| Some((first.token.identifier()?, body))) {
            Some((own, body)) if own == name => found.push((placed.line, body)),
            Some((other, _)) => others.push(other),
            None => (),
        }
    }
    match found[..] {
        [] if others.is_empty() => Err(NotUnderstood::whole(format!("it has no enum {name}, and no other enum"))),
        [] => Err(NotUnderstood::whole(format!("it has no enum {name}; its enums: {}", others.join(", ")))),
        [(line, rest)] => split_body(rest).ok_or_else(|| NotUnderstood::at(line, format!("the enum {name} does not end"))),
        [_, (line, _), ..] => Err(NotUnderstood::at(line, format!("here is a second enum {name}"))),
    }
}

/// What stands before the first brace, and what between it and its end.
fn split_body(tokens: &[Placed]) -> Option<(&[Placed], &[Placed])> {
    let mut nesting = 0;
    let mut start = None;
    for (at, placed) in tokens.iter().enumerate() {
        if nesting == 0 && placed.token == Token::Mark('{') {
            start = Some(at);
        }
        nesting += placed.token.nesting();
        if let Some(start) = start.filter(|_| nesting == 0) {
            return Some((&tokens[..start], &tokens[start + 1..at]));
        }
    }
    None
}

/// How many tokens a bracket and all within it take, from the opening one on.
pub(super) fn bracketed(tokens: &[Placed]) -> usize {
    let mut nesting = 0;
    for (at, placed) in tokens.iter().enumerate() {
        nesting += placed.token.nesting();
        if nesting == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

struct Lexer<'a> {
    rest: Chars<'a>,
    line: usize,
    language: Language,
    /// Strings around this place.
    nesting: usize,
}

impl Lexer<'_> {
    fn next(&mut self) -> Result<Option<Token>, NotUnderstood> {
        loop {
            if self.take("//") {
                while self.peek().is_some_and(|next| next != '\n') {
                    self.bump();
                }
            } else if self.take("/*") {
                self.comment()?;
            } else if self.peek().is_some_and(char::is_whitespace) {
                self.bump();
            } else {
                break;
            }
        }
        if self.language == Language::Swift
            && let Some(hashes) = self.raw_string()
        {
            return self.string(hashes).map(Some);
        }
        let Some(first) = self.bump() else { return Ok(None) };
        let token = match first {
            '"' => self.string(0)?,
            '\'' if self.language == Language::Kotlin => self.character()?,
            '`' => Token::Name(self.until_backtick()?),
            first if is_of_word(first) => Token::Word(self.word(first)),
            other => Token::Mark(other),
        };
        Ok(Some(token))
    }

    fn peek(&self) -> Option<char> {
        self.rest.clone().next()
    }

    fn bump(&mut self) -> Option<char> {
        let next = self.rest.next();
        self.line += usize::from(next == Some('\n'));
        next
    }

    fn take(&mut self, prefix: &str) -> bool {
        let taken = self.rest.as_str().strip_prefix(prefix);
        if let Some(rest) = taken {
            self.rest = rest.chars();
        }
        taken.is_some()
    }

    /// Comments of both languages nest.
    fn comment(&mut self) -> Result<(), NotUnderstood> {
        let line = self.line;
        let mut open = 1;
        while open > 0 {
            if self.take("/*") {
                open += 1;
            } else if self.take("*/") {
                open -= 1;
            } else if self.bump().is_none() {
                return Err(NotUnderstood::at(line, "a comment begins here and does not end"));
            }
        }
        Ok(())
    }

    /// Takes the start of a Swift string like `#"…"#`, and gives how many `#` it has.
    fn raw_string(&mut self) -> Option<usize> {
        let behind = self.rest.as_str().trim_start_matches('#');
        let hashes = self.rest.as_str().len() - behind.len();
        let behind = behind.strip_prefix('"').filter(|_| hashes > 0)?;
        self.rest = behind.chars();
        Some(hashes)
    }

    /// From behind the first quote.
    fn string(&mut self, hashes: usize) -> Result<Token, NotUnderstood> {
        let line = self.line;
        let several_lines = self.take("\"\"");
        let raw = several_lines && self.language == Language::Kotlin;
        let end = format!("{}{}", if several_lines { "\"\"\"" } else { "\"" }, "#".repeat(hashes));
        let escape = format!("\\{}", "#".repeat(hashes));
        let mut text = String::new();
        let mut is_plain = !several_lines;
        loop {
            if self.take(&end) {
                // A string of several lines may end with quotes of its own.
                while raw && self.take("\"") {}
                return Ok(Token::Text(Some(text).filter(|_| is_plain)));
            }
            if self.language == Language::Kotlin && self.peek() == Some('$') {
                self.bump();
                is_plain = false;
                if self.take("{") {
                    self.code('{', '}')?;
                }
            } else if !raw && self.take(&escape) {
                is_plain = false;
                if self.language == Language::Swift && self.take("(") {
                    self.code('(', ')')?;
                } else {
                    self.bump();
                }
            } else {
                match self.bump() {
                    Some('\n') if !several_lines => {
                        return Err(NotUnderstood::at(line, "a string begins here and does not end on its line"));
                    }
                    Some(character) => text.push(character),
                    None => return Err(NotUnderstood::at(line, "a string begins here and does not end")),
                }
            }
        }
    }

    /// Code within a string, from behind its first bracket to behind its last.
    fn code(&mut self, open: char, close: char) -> Result<(), NotUnderstood> {
        let line = self.line;
        self.nesting += 1;
        if self.nesting > NESTING_MAX {
            return Err(NotUnderstood::at(line, "strings are nested too deeply"));
        }
        let mut brackets = 1;
        while brackets > 0 {
            match self.next()? {
                Some(Token::Mark(mark)) if mark == open => brackets += 1,
                Some(Token::Mark(mark)) if mark == close => brackets -= 1,
                Some(_) => (),
                None => return Err(NotUnderstood::at(line, "code within a string begins here and does not end")),
            }
        }
        self.nesting -= 1;
        Ok(())
    }

    /// A character in single quotes, which may be a quote or a bracket; from behind the first.
    fn character(&mut self) -> Result<Token, NotUnderstood> {
        let line = self.line;
        loop {
            match self.bump() {
                Some('\'') => return Ok(Token::Text(None)),
                Some('\\') => drop(self.bump()),
                Some('\n') | None => return Err(NotUnderstood::at(line, "a character begins here and does not end")),
                Some(_) => (),
            }
        }
    }

    fn until_backtick(&mut self) -> Result<String, NotUnderstood> {
        let line = self.line;
        let mut name = String::new();
        loop {
            match self.bump() {
                Some('`') => return Ok(name),
                Some('\n') | None => return Err(NotUnderstood::at(line, "a name in backticks begins here and does not end")),
                Some(character) => name.push(character),
            }
        }
    }

    fn word(&mut self, first: char) -> String {
        let mut word = String::from(first);
        while let Some(next) = self.peek().filter(|next| is_of_word(*next)) {
            word.push(next);
            self.bump();
        }
        word
    }
}

fn is_of_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}
