//! The contract check: each copy of the method contract beside the manifest (device-lane section 10).
//!
//! `manifest` reads manifests and compares them whole, the relay's own with any; `swift`, `kotlin` and `list` read the methods of
//! a phone by name only. They know as much of their language as such a list needs, and say so where it is more. `difference` is
//! what a comparison finds. Nothing here does I/O.

mod difference;
mod kotlin;
mod list;
mod manifest;
mod source;
mod swift;
#[cfg(test)]
mod tests;

pub use difference::{Difference, What};
pub use manifest::Manifest;

use std::fmt::Display;

/// How a copy is written that lists methods by name only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// An enum with raw values.
    Swift,
    /// An enum class with one string for each entry.
    Kotlin,
    /// A JSON array of strings.
    List,
}

/// What there is to say of one copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// How many methods it lists, repeated ones counted; none if it was not understood.
    pub methods: Option<usize>,
    /// In which ways it is not as the manifest; none if it agrees.
    pub differences: Vec<Difference>,
}

impl From<NotUnderstood> for Report {
    fn from(NotUnderstood { line, reason }: NotUnderstood) -> Self {
        Report { methods: None, differences: vec![Difference { what: What::NotUnderstood { reason }, line, place: None }] }
    }
}

/// Compares the methods that a phone's source lists with those of the manifest.
pub fn check_names(manifest: &Manifest, format: Format, source: &str, enum_name: &str) -> Report {
    let names = match format {
        Format::Swift => swift::methods(source, enum_name),
        Format::Kotlin => kotlin::methods(source, enum_name),
        Format::List => list::methods(source),
    };
    match names {
        Ok(names) if names.is_empty() => NotUnderstood::whole("it lists no method").into(),
        Ok(names) => Report { methods: Some(names.len()), differences: difference::of_names(&manifest.methods(), &names, None) },
        Err(problem) => problem.into(),
    }
}

/// Something that a copy lists, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Name {
    text: String,
    /// Counted from 1; none if its reader does not tell lines.
    line: Option<usize>,
}

/// Why a source was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotUnderstood {
    line: Option<usize>,
    reason: String,
}

impl NotUnderstood {
    fn at(line: usize, reason: impl Display) -> Self {
        NotUnderstood { line: Some(line), reason: reason.to_string() }
    }

    fn whole(reason: impl Display) -> Self {
        NotUnderstood { line: None, reason: reason.to_string() }
    }
}
