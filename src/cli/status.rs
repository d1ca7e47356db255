//! `relay status`: what a running relay tells of itself.

use super::{CliError, access::AdminAccess, explain::api_error, help_end, print, table::printable};
use serde_json::Value;
use std::fmt::Write;

/// Flags of `relay status`.
#[derive(clap::Args, Debug)]
#[command(after_help = help_end(&["relay status", "relay status --admin-url http://127.0.0.1:9090 --json"]))]
pub struct Args {
    /// Where and as whom
    #[command(flatten)]
    pub access: AdminAccess,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Asks and prints.
///
/// # Errors
/// The relay refused or cannot be reached.
pub async fn run(args: &Args) -> Result<(), CliError> {
    let status = args.access.client()?.status().await.map_err(|error| api_error(&error, &args.access.admin_url))?;
    if args.json { print(format_args!("{status}\n")) } else { print(as_text(&status)) }
}

/// One line for each value, those of an object or of a list of objects under dotted names: what a newer relay adds is shown too.
fn as_text(status: &Value) -> String {
    let mut lines = Vec::new();
    flatten("", status, &mut lines);
    let width = lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    lines.iter().fold(String::new(), |mut text, (name, value)| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name:width$}  {value}");
        text
    })
}

fn flatten(prefix: &str, value: &Value, lines: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let name = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
                flatten(&name, value, lines);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (index, item) in items.iter().enumerate() {
                flatten(&format!("{prefix}.{index}"), item, lines);
            }
        }
        Value::String(text) => lines.push((printable(prefix), printable(text))),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => lines.push((printable(prefix), printable(&value.to_string()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_value_has_a_line_under_its_dotted_name() {
        let status = json!({"version": "1.2", "drain": {"phase": "serving", "inFlight": 0}, "leases": 3, "list": [{"a": 1}, {"a": 2}], "names": ["x"], "more": "\u{1b}[2J"});
        let text = as_text(&status);
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        let expected = [
            "drain.inFlight  0",
            "drain.phase     serving",
            "leases          3",
            "list.0.a        1",
            "list.1.a        2",
            "more            \u{fffd}[2J",
            "names           [\"x\"]",
            "version         1.2",
        ];
        assert_eq!(lines, expected);
    }
}
