//! `files.*`: what a phone may see of one folder, and of nothing else.

mod root;
mod search;
#[cfg(test)]
mod tests;

use super::{
    fault::Fault,
    methods::{Methods, Shared},
};
use crate::desktop::router::{HandlerError, Namespace};
use base64::{Engine, engine::general_purpose::STANDARD};
use relay_protocol::{desktop_error::DesktopError, limits::desktop::READ_BINARY_BYTES_MAX};
use root::{Kind, Listed, Root, Stat};
use serde::{Deserialize, Serialize};
use std::{io, path::Path, sync::Arc};

/// Largest text of `files.readContent`, in bytes: more than a screen shows, and far from what a frame holds.
const CONTENT_BYTES_MAX: usize = 1024 * 1024;
/// Names of one listing.
const LISTED_MAX: usize = 2_000;

/// The folder that phones may read, if there is one.
#[derive(Clone)]
pub(super) struct Files {
    root: Option<Arc<Root>>,
}

impl Files {
    pub(super) fn none() -> Self {
        Files { root: None }
    }

    pub(super) fn below(folder: &Path) -> io::Result<Self> {
        Ok(Files { root: Some(Arc::new(Root::open(folder)?)) })
    }

    /// Runs on a thread that may block.
    async fn with<T: Send + 'static>(self, work: impl FnOnce(&Root) -> Result<T, Fault> + Send + 'static) -> Result<T, HandlerError> {
        let hint = "This desktop shows no files; start it with --files DIR.";
        let root = self.root.ok_or_else(|| HandlerError::new(DesktopError::NotFound, hint))?;
        match tokio::task::spawn_blocking(move || work(&root)).await {
            Ok(done) => done.map_err(HandlerError::from),
            Err(_panic) => Err(HandlerError::new(DesktopError::Internal, "The method failed.")),
        }
    }
}

#[derive(Deserialize)]
struct Folder {
    /// The root, if it is absent.
    #[serde(default)]
    path: String,
}

#[derive(Deserialize)]
struct OfPath {
    path: String,
}

#[derive(Deserialize)]
struct BinaryParams {
    path: String,
    /// From here on, in bytes.
    #[serde(default)]
    offset: u64,
    /// As many bytes at most; all that is left, if it is absent.
    length: Option<u64>,
}

#[derive(Deserialize)]
struct SearchParams {
    query: String,
    #[serde(default)]
    path: String,
    limit: Option<usize>,
}

#[derive(Deserialize)]
struct ReferenceParams {
    /// A path as tools write it: `src/main.rs`, `src/main.rs:10`, `src/main.rs:10:3`.
    reference: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Content {
    path: String,
    size: u64,
    content: String,
    /// The file has more than `content`.
    is_truncated: bool,
}

#[derive(Serialize)]
struct Binary {
    path: String,
    /// Of the whole file, in bytes.
    size: u64,
    offset: u64,
    /// Base64.
    data: String,
}

#[derive(Serialize)]
struct Reference {
    path: String,
    kind: Kind,
    line: Option<u32>,
    column: Option<u32>,
}

fn read_content(root: &Root, OfPath { path }: OfPath) -> Result<Content, Fault> {
    let (stat, mut bytes) = root.read(&path, 0, CONTENT_BYTES_MAX)?;
    let is_truncated = stat.size > bytes.len() as u64;
    if is_truncated {
        // A character that is cut at the end is no sign of a binary file.
        let whole = bytes.utf8_chunks().map(|chunk| chunk.valid().len()).next().unwrap_or_default();
        if bytes.len() - whole < 4 {
            bytes.truncate(whole);
        }
    }
    let content =
        String::from_utf8(bytes).map_err(|_not_utf8| Fault::validation("The file is not a text in UTF-8; use files.readBinary."))?;
    Ok(Content { path: stat.path, size: stat.size, content, is_truncated })
}

fn read_binary(root: &Root, BinaryParams { path, offset, length }: BinaryParams) -> Result<Binary, Fault> {
    let wanted = match length {
        Some(length) => length,
        None => root.stat(&path)?.size.saturating_sub(offset),
    };
    let max = READ_BINARY_BYTES_MAX;
    let length = usize::try_from(wanted).ok().filter(|wanted| *wanted <= max);
    let length = length.ok_or_else(|| Fault::validation(format!("One call reads at most {max} bytes; give offset and length.")))?;
    let (stat, bytes) = root.read(&path, offset, length)?;
    Ok(Binary { path: stat.path, size: stat.size, offset, data: STANDARD.encode(bytes) })
}

fn resolve(root: &Root, ReferenceParams { reference }: ReferenceParams) -> Result<Reference, Fault> {
    let mut path = reference.as_str();
    let mut numbers = Vec::new();
    while let Some((rest, number)) = path.rsplit_once(':')
        && let Ok(number) = number.parse::<u32>()
        && numbers.len() < 2
    {
        numbers.insert(0, number);
        path = rest;
    }
    let Stat { path, kind, .. } = root.stat(path)?;
    Ok(Reference { path, kind, line: numbers.first().copied(), column: numbers.get(1).copied() })
}

pub(super) fn namespace(shared: &Shared, files: &Files) -> Namespace {
    let [list, stat, content, binary, search, reference] = std::array::from_fn(|_method| files.clone());
    Methods::new("files", shared)
        .on("list", move |_call, Folder { path }, _shared| {
            list.clone().with(move |root| -> Result<Listed, Fault> { root.list(&path, LISTED_MAX) })
        })
        .on("stat", move |_call, OfPath { path }, _shared| stat.clone().with(move |root| root.stat(&path)))
        .on("readContent", move |_call, params: OfPath, _shared| content.clone().with(move |root| read_content(root, params)))
        .on("readBinary", move |_call, params: BinaryParams, _shared| binary.clone().with(move |root| read_binary(root, params)))
        .on("search", move |_call, SearchParams { query, path, limit }, _shared| {
            search.clone().with(move |root| search::search(root, &path, &query, limit))
        })
        .on("resolveReference", move |_call, params: ReferenceParams, _shared| reference.clone().with(move |root| resolve(root, params)))
        .finish()
}
