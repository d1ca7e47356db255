//! In which ways a copy is not as the manifest.

use super::Name;
use serde::Serialize;
use std::{collections::BTreeMap, fmt};

/// A name with at most this many letters added, left out, changed or swapped is another one misspelt. `chat_load` for `chatLoad` is two.
const MISSPELT_EDITS_MAX: usize = 3;

/// One difference, and where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// What differs.
    #[serde(flatten)]
    pub what: What,
    /// In which line of the copy, counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// Under which keys of the manifest, joined by dots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
}

/// What differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum What {
    /// The manifest has it, the copy does not.
    Missing {
        /// A method or a key.
        name: String,
    },
    /// The copy has it, the manifest does not, and misses nothing that is spelt alike.
    Extra {
        /// A method or a key.
        name: String,
    },
    /// The copy has this instead of another name.
    Misspelt {
        /// As the copy spells it.
        name: String,
        /// As the manifest does: of what the copy misses, the nearest.
        nearest: String,
    },
    /// The copy has it more than once.
    Twice {
        /// A method or a key.
        name: String,
    },
    /// Both have it, with other values.
    Differs {
        /// The manifest's, as JSON.
        manifest: String,
        /// The copy's, as JSON.
        copy: String,
    },
    /// The copy cannot be compared.
    NotUnderstood {
        /// What stands in the way.
        reason: String,
    },
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Missing { name } => write!(f, "{name} is missing"),
            What::Extra { name } => write!(f, "{name} is not in the manifest"),
            What::Misspelt { name, nearest } => write!(f, "{name} is not in the manifest, which has {nearest}"),
            What::Twice { name } => write!(f, "{name} is there twice"),
            What::Differs { manifest, copy } => write!(f, "{copy} here, {manifest} in the manifest"),
            What::NotUnderstood { reason } => f.write_str(reason),
        }
    }
}

/// Compares what the manifest names at a place with what a copy names there; order does not count. Repeated names of the copy first,
/// then strange ones in its order, then missing ones in the manifest's.
pub(super) fn of_names(manifest: &[&str], copy: &[Name], place: Option<&str>) -> Vec<Difference> {
    let mut differences = repeated(copy, place);
    let missing: Vec<&str> = manifest.iter().copied().filter(|name| copy.iter().all(|own| own.text != *name)).collect();
    let strange = first_of_each(copy).filter(|own| !manifest.contains(&own.text.as_str())).collect::<Vec<_>>();
    let nearest = pairs(&missing, &strange);
    let at = |what: What, line: Option<usize>| Difference { what, line, place: place.map(str::to_owned) };
    differences.extend(strange.iter().enumerate().map(|(index, own)| {
        let name = own.text.clone();
        let what = match nearest.get(&index) {
            Some(nearest) => What::Misspelt { name, nearest: (*nearest).to_owned() },
            None => What::Extra { name },
        };
        at(what, own.line)
    }));
    let misspelt = |name: &&str| nearest.values().any(|nearest| nearest == name);
    let absent = missing.iter().filter(|name| !misspelt(name));
    differences.extend(absent.map(|name| at(What::Missing { name: (*name).to_owned() }, None)));
    differences
}

/// Names that are there again.
pub(super) fn repeated(names: &[Name], place: Option<&str>) -> Vec<Difference> {
    let again = names.iter().enumerate().filter(|(index, name)| names[..*index].iter().any(|earlier| earlier.text == name.text));
    let difference =
        |name: &Name| Difference { what: What::Twice { name: name.text.clone() }, line: name.line, place: place.map(str::to_owned) };
    again.map(|(_, name)| difference(name)).collect()
}

fn first_of_each(names: &[Name]) -> impl Iterator<Item = &Name> {
    let is_first = |index: usize, name: &Name| names[..index].iter().all(|earlier| earlier.text != name.text);
    names.iter().enumerate().filter(move |(index, name)| is_first(*index, name)).map(|(_, name)| name)
}

/// For strange names, by their index, the missing one that each stands for. The nearest pair is found first, and no name is in two.
fn pairs<'a>(missing: &[&'a str], strange: &[&Name]) -> BTreeMap<usize, &'a str> {
    let distance = |own: &Name, name: &str| strsim::osa_distance(&own.text, name);
    let mut near: Vec<(usize, usize, &str)> = strange
        .iter()
        .enumerate()
        .flat_map(|(index, own)| missing.iter().map(move |name| (distance(own, name), index, *name)))
        .filter(|(edits, _, _)| *edits <= MISSPELT_EDITS_MAX)
        .collect();
    near.sort_unstable();
    let mut pairs = BTreeMap::new();
    for (_, index, name) in near {
        if !pairs.contains_key(&index) && pairs.values().all(|taken| *taken != name) {
            pairs.insert(index, name);
        }
    }
    pairs
}
