//! The methods of a JSON list: `["system.ping", "session.list"]`.

use super::{Name, NotUnderstood};

/// The list's names.
///
/// # Errors
/// It is not an array of strings and nothing else.
pub(super) fn methods(source: &str) -> Result<Vec<Name>, NotUnderstood> {
    let names: Vec<String> = serde_json::from_str(source).map_err(|error| NotUnderstood::at(error.line(), error))?;
    Ok(names.into_iter().map(|text| Name { text, line: None }).collect())
}
