//! Finding names below a folder. Links are seen and not followed, so a walk ends.

use super::{
    super::{
        fault::Fault,
        limits::{QUERY_BYTES_MAX, SEARCH_MATCHES_DEFAULT, SEARCH_MATCHES_MAX},
    },
    root::{Kind, Root, fault, text},
};
use serde::Serialize;
use std::collections::VecDeque;

/// Names that one search looks at: some hundred thousand a second, far within the time that a handler has.
const VISITED_MAX: usize = 100_000;
/// Folders inside each other that it goes into.
const DEPTH_MAX: usize = 32;

/// A name that matches.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Found {
    path: String,
    kind: Kind,
}

/// What was found, the least deep first.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Matches {
    matches: Vec<Found>,
    /// There may be more: the search ended at a bound.
    is_truncated: bool,
}

/// Names that have the query in them, case not counted. Folders that cannot be read are passed over.
pub(super) fn search(root: &Root, path: &str, query: &str, limit: Option<usize>) -> Result<Matches, Fault> {
    if query.trim().is_empty() || query.len() > QUERY_BYTES_MAX {
        return Err(Fault::invalid(format!("query is not blank and has at most {QUERY_BYTES_MAX} bytes")));
    }
    let (query, limit) = (query.to_lowercase(), limit.unwrap_or(SEARCH_MATCHES_DEFAULT).clamp(1, SEARCH_MATCHES_MAX));
    let start = root.resolve(path)?;
    let mut is_truncated = false;
    let (mut matches, mut visited) = (Vec::new(), 0);
    let mut folders = VecDeque::from([(start.clone(), 0)]);
    while let Some((folder, depth)) = folders.pop_front() {
        let opened = match root.folder(&folder) {
            Ok(opened) => opened,
            Err(unreadable) if folder == start => return Err(unreadable),
            Err(_unreadable) => continue,
        };
        let mut names = Vec::new();
        for entry in opened {
            let entry = entry.map_err(fault)?;
            visited += 1;
            if visited > VISITED_MAX {
                is_truncated = true;
                break;
            }
            if let Ok(name) = entry.file_name().to_str()
                && name != "."
                && name != ".."
            {
                names.push((name.to_owned(), Kind::of(entry.file_type())));
            }
        }
        names.sort_by(|one, other| one.0.cmp(&other.0));
        for (name, kind) in names {
            let path = folder.join(&name);
            if name.to_lowercase().contains(&query) {
                if matches.len() == limit {
                    return Ok(Matches { matches, is_truncated: true });
                }
                matches.push(Found { path: text(&path)?, kind });
            }
            match kind {
                Kind::Directory if depth + 1 < DEPTH_MAX => folders.push_back((path, depth + 1)),
                Kind::Directory => is_truncated = true,
                Kind::File | Kind::Symlink | Kind::Other => {}
            }
        }
        if visited > VISITED_MAX {
            break;
        }
    }
    Ok(Matches { matches, is_truncated })
}
