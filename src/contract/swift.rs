//! The methods of a Swift enum: `enum RpcMethod: String { case ping = "system.ping" }`.

use super::{
    Name, NotUnderstood,
    source::{Language, Placed, Token, bracketed, find_enum, tokens},
};

/// The raw values of the enum's cases. One without a raw value has its own name, as the language says.
///
/// # Errors
/// There is no such enum, or something in it that this does not understand.
pub(super) fn methods(source: &str, enum_name: &str) -> Result<Vec<Name>, NotUnderstood> {
    let tokens = tokens(source, Language::Swift)?;
    let (header, body) = find_enum(&tokens, None, enum_name)?;
    if !header.iter().any(|placed| placed.token.is("String")) {
        return Err(NotUnderstood::whole(format!("the enum {enum_name} has no raw values of type String")));
    }
    let mut names = Vec::new();
    let mut rest = body;
    while let Some((first, behind)) = rest.split_first() {
        let is_condition = first.token == Token::Mark('#') && behind.first().is_some_and(|next| next.token.is("if"));
        if is_condition {
            return Err(NotUnderstood::at(first.line, "cases under a condition of compilation are not understood"));
        }
        rest = if first.token.nesting() > 0 {
            &rest[bracketed(rest)..]
        } else if first.token.is("case") {
            cases(first.line, behind, &mut names)?
        } else {
            behind
        };
    }
    Ok(names)
}

/// The cases behind one word `case`; gives what stands behind them.
fn cases<'a>(mut line: usize, mut rest: &'a [Placed], names: &mut Vec<Name>) -> Result<&'a [Placed], NotUnderstood> {
    loop {
        let Some((name, behind)) = rest.split_first().and_then(|(first, behind)| Some((first.token.identifier()?, behind))) else {
            return Err(NotUnderstood::at(line, "the word case has no name behind it"));
        };
        line = rest[0].line;
        rest = behind;
        let value = match rest {
            [Placed { token: Token::Mark('('), .. }, ..] => {
                return Err(NotUnderstood::at(line, format!("the case {name} has associated values")));
            }
            [Placed { token: Token::Mark('='), .. }, Placed { token: Token::Text(Some(text)), .. }, behind @ ..] => {
                rest = behind;
                text
            }
            [Placed { token: Token::Mark('='), .. }, ..] => {
                return Err(NotUnderstood::at(line, format!("the raw value of the case {name} is no plain string")));
            }
            _ => name,
        };
        names.push(Name { text: value.to_owned(), line: Some(line) });
        match rest {
            [Placed { token: Token::Mark(','), .. }, behind @ ..] => rest = behind,
            _ => return Ok(rest),
        }
    }
}
