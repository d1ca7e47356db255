//! The methods of a Kotlin enum: `enum class RpcMethod(val method: String) { PING("system.ping") }`, or
//! `@SerialName("system.ping") PING`.

use super::{
    Name, NotUnderstood,
    source::{Language, Placed, Token, bracketed, find_enum, tokens},
};

/// The annotation that gives an entry its name in serialized form.
const SERIAL_NAME: &str = "SerialName";

/// What each entry's one string says: that of its constructor, or that of its `@SerialName`.
///
/// # Errors
/// There is no such enum, or something in it that this does not understand.
pub(super) fn methods(source: &str, enum_name: &str) -> Result<Vec<Name>, NotUnderstood> {
    let tokens = tokens(source, Language::Kotlin)?;
    let (_, mut rest) = find_enum(&tokens, Some("class"), enum_name)?;
    let mut names = Vec::new();
    while let Some(first) = rest.first().filter(|first| first.token != Token::Mark(';')) {
        let mut line = first.line;
        let mut serial = None;
        while let [Placed { token: Token::Mark('@'), line: at, .. }, behind @ ..] = rest {
            (line, rest) = (*at, annotation(behind, &mut serial)?);
        }
        let Some((entry, behind)) = rest.split_first().and_then(|(first, behind)| Some((first.token.identifier()?, behind))) else {
            return Err(NotUnderstood::at(line, "an entry is expected here"));
        };
        line = rest[0].line;
        rest = behind;
        let mut given = Vec::new();
        if rest.first().is_some_and(|next| next.token == Token::Mark('(')) {
            let arguments = &rest[..bracketed(rest)];
            rest = &rest[arguments.len()..];
            given = strings(arguments);
        }
        if rest.first().is_some_and(|next| next.token == Token::Mark('{')) {
            rest = &rest[bracketed(rest)..];
        }
        names.push(Name { text: name_of(entry, line, &given, serial)?, line: Some(line) });
        match rest {
            [] | [Placed { token: Token::Mark(';'), .. }, ..] => (),
            [Placed { token: Token::Mark(','), .. }, behind @ ..] => rest = behind,
            [other, ..] => return Err(NotUnderstood::at(other.line, format!("behind the entry {entry} a comma is expected"))),
        }
    }
    Ok(names)
}

/// Reads an annotation from behind its `@`, and gives what stands behind it.
fn annotation<'a>(mut rest: &'a [Placed], serial: &mut Option<&'a Token>) -> Result<&'a [Placed], NotUnderstood> {
    let mut name = "";
    while let Some((next, behind)) = rest.split_first() {
        match &next.token {
            Token::Word(word) => name = word,
            Token::Mark('.' | ':') => (),
            Token::Mark(_) | Token::Name(_) | Token::Text(_) => break,
        }
        rest = behind;
        // Behind a word without a dot or a colon, the annotation is over or has arguments.
        if next.token.identifier().is_some() && !rest.first().is_some_and(|next| matches!(next.token, Token::Mark('.' | ':'))) {
            break;
        }
    }
    if !rest.first().is_some_and(|next| next.token == Token::Mark('(')) {
        return Ok(rest);
    }
    let (arguments, behind) = rest.split_at(bracketed(rest));
    if name == SERIAL_NAME {
        let [text] = strings(arguments)[..] else {
            return Err(NotUnderstood::at(rest[0].line, "a SerialName is expected to have one string"));
        };
        *serial = Some(text);
    }
    Ok(behind)
}

/// Arguments that are a string and nothing else, with or without their parameter's name; the brackets are the first and the last token.
fn strings(arguments: &[Placed]) -> Vec<&Token> {
    let inner = arguments.get(1..arguments.len().saturating_sub(1)).unwrap_or_default();
    let mut nesting = 0;
    let each = inner.split(move |placed| {
        nesting += placed.token.nesting();
        nesting == 0 && placed.token == Token::Mark(',')
    });
    each.filter_map(|argument| match argument {
        [text] | [Placed { token: Token::Word(_), .. }, Placed { token: Token::Mark('='), .. }, text] => Some(&text.token),
        _ => None,
    })
    .filter(|token| matches!(token, Token::Text(_)))
    .collect()
}

fn name_of(entry: &str, line: usize, given: &[&Token], serial: Option<&Token>) -> Result<String, NotUnderstood> {
    let text = match (given, serial) {
        ([], None) => return Err(NotUnderstood::at(line, format!("the entry {entry} has no string"))),
        ([_, _, ..], _) => return Err(NotUnderstood::at(line, format!("the entry {entry} has several strings"))),
        ([one], Some(serial)) if *one != serial => {
            return Err(NotUnderstood::at(line, format!("the entry {entry} has another string than its SerialName")));
        }
        ([one], _) => one,
        ([], Some(serial)) => serial,
    };
    match text {
        Token::Text(Some(text)) => Ok(text.clone()),
        Token::Text(None) | Token::Word(_) | Token::Name(_) | Token::Mark(_) => {
            Err(NotUnderstood::at(line, format!("the string of the entry {entry} is not plain")))
        }
    }
}
