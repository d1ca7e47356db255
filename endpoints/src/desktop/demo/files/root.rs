//! One folder, and the way to what is in it.
//!
//! A path of a phone is relative and has plain names only. It is resolved first, since links that stay inside are fine, and judged by
//! where it leads. Then what was resolved is opened name by name from the root's own descriptor, each without following links: if
//! something of it has become a link in between, the opening fails. What is left is that a folder inside may be moved out of the root
//! by others while a path through it is open; what is read then is what was inside when it was opened.

use super::super::fault::Fault;
use crate::desktop::router::HandlerError;
use relay_protocol::desktop_error::DesktopError;
use rustix::{
    fd::OwnedFd,
    fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, open, openat, statat},
    io::Errno,
};
use serde::Serialize;
use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::{Component, Path, PathBuf},
};

/// Longest path of a phone, in bytes: PATH_MAX of Linux.
const PATH_BYTES_MAX: usize = 4_096;
/// For each name on the way: it is opened, not followed, and a pipe does not make us wait.
const NO_FOLLOW: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// The folder.
pub(super) struct Root {
    /// Without links.
    path: PathBuf,
    descriptor: OwnedFd,
}

/// What something in the folder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Kind {
    File,
    Directory,
    Symlink,
    /// A pipe, a socket, a device: it is seen in lists and never opened.
    Other,
}

impl Kind {
    pub(super) fn of(kind: FileType) -> Self {
        match kind {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Symlink,
            FileType::Fifo | FileType::Socket | FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => Kind::Other,
        }
    }
}

/// One thing, by its path below the root.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Stat {
    /// With the links in it resolved; empty for the root.
    pub(super) path: String,
    pub(super) kind: Kind,
    /// In bytes.
    pub(super) size: u64,
    /// Epoch milliseconds.
    pub(super) modified_at: i64,
}

/// One name of a list.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) kind: Kind,
}

/// A folder's names in their order.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Listed {
    pub(super) path: String,
    pub(super) entries: Vec<Named>,
    /// There are more names than these; which ones are missing is not decided by their order.
    pub(super) is_truncated: bool,
    /// Names that are not UTF-8, which no phone could send back.
    pub(super) unreadable_names: usize,
}

impl Root {
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        let path = folder.canonicalize()?;
        let descriptor = open(&path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Root { path, descriptor })
    }

    pub(super) fn stat(&self, path: &str) -> Result<Stat, Fault> {
        let resolved = self.resolve(path)?;
        stat_of(&resolved, &self.look_at(&resolved)?)
    }

    /// A regular file's bytes from `offset` on, as many as there are and at most `length`.
    pub(super) fn read(&self, path: &str, offset: u64, length: usize) -> Result<(Stat, Vec<u8>), Fault> {
        let resolved = self.resolve(path)?;
        // Opening some devices does something, so it is looked at first.
        check_regular(&self.look_at(&resolved)?)?;
        let mut file = File::from(self.open_below(&resolved, OFlags::empty())?);
        let metadata = fstat(&file).map_err(fault)?;
        check_regular(&metadata)?;
        file.seek(SeekFrom::Start(offset)).map_err(|error| fault(errno(&error)))?;
        let mut bytes = Vec::new();
        file.take(length as u64).read_to_end(&mut bytes).map_err(|error| fault(errno(&error)))?;
        Ok((stat_of(&resolved, &metadata)?, bytes))
    }

    pub(super) fn list(&self, path: &str, names_max: usize) -> Result<Listed, Fault> {
        let resolved = self.resolve(path)?;
        let mut entries = Vec::new();
        let (mut is_truncated, mut unreadable_names) = (false, 0);
        for entry in self.folder(&resolved)? {
            let entry = entry.map_err(fault)?;
            let Ok(name) = entry.file_name().to_str() else {
                unreadable_names += 1;
                continue;
            };
            if name == "." || name == ".." {
                continue;
            }
            if entries.len() == names_max {
                is_truncated = true;
                break;
            }
            entries.push(Named { name: name.to_owned(), kind: Kind::of(entry.file_type()) });
        }
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(Listed { path: text(&resolved)?, entries, is_truncated, unreadable_names })
    }

    /// The entries of a folder that was resolved.
    pub(super) fn folder(&self, resolved: &Path) -> Result<Dir, Fault> {
        let descriptor = self.open_below(resolved, OFlags::DIRECTORY)?;
        Dir::read_from(descriptor).map_err(fault)
    }

    /// Where a path leads, relative to the root.
    pub(super) fn resolve(&self, path: &str) -> Result<PathBuf, Fault> {
        if path.len() > PATH_BYTES_MAX || path.contains('\0') {
            return Err(Fault::invalid(format!("path has at most {PATH_BYTES_MAX} bytes and no NUL")));
        }
        let is_plain = |component: Component<'_>| matches!(component, Component::Normal(_) | Component::CurDir);
        if !Path::new(path).components().all(is_plain) {
            return Err(Fault::invalid("path is relative to the desktop's folder and does not go up"));
        }
        let resolved = self.path.join(path).canonicalize().map_err(|error| fault(errno(&error)))?;
        let below = resolved.strip_prefix(&self.path);
        below.map(Path::to_owned).map_err(|_outside| outside())
    }

    fn look_at(&self, resolved: &Path) -> Result<rustix::fs::Stat, Fault> {
        let Some(name) = resolved.file_name() else { return fstat(&self.descriptor).map_err(fault) };
        let parent = self.open_below(resolved.parent().unwrap_or(Path::new("")), OFlags::DIRECTORY)?;
        statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW).map_err(fault)
    }

    /// Opens what was resolved, name by name.
    fn open_below(&self, resolved: &Path, last: OFlags) -> Result<OwnedFd, Fault> {
        let mut descriptor = openat(&self.descriptor, ".", NO_FOLLOW | OFlags::DIRECTORY, Mode::empty()).map_err(fault)?;
        let mut names = resolved.components().peekable();
        while let Some(name) = names.next() {
            let kind = if names.peek().is_some() { OFlags::DIRECTORY } else { last };
            descriptor = openat(&descriptor, name.as_os_str(), NO_FOLLOW | kind, Mode::empty()).map_err(fault)?;
        }
        Ok(descriptor)
    }
}

fn check_regular(metadata: &rustix::fs::Stat) -> Result<(), Fault> {
    match Kind::of(FileType::from_raw_mode(metadata.st_mode)) {
        Kind::File => Ok(()),
        Kind::Directory => Err(Fault::validation("The path leads to a folder.")),
        Kind::Symlink => Err(outside()),
        Kind::Other => Err(Fault::validation("The path leads to something that is no file.")),
    }
}

fn stat_of(resolved: &Path, metadata: &rustix::fs::Stat) -> Result<Stat, Fault> {
    Ok(Stat {
        path: text(resolved)?,
        kind: Kind::of(FileType::from_raw_mode(metadata.st_mode)),
        size: u64::try_from(metadata.st_size).unwrap_or_default(),
        modified_at: metadata.st_mtime * 1_000 + i64::try_from(metadata.st_mtime_nsec / 1_000_000).unwrap_or_default(),
    })
}

/// A resolved path as a phone gets it.
pub(super) fn text(resolved: &Path) -> Result<String, Fault> {
    let text = resolved.to_str().ok_or_else(|| Fault::validation("The path leads to a name that is not UTF-8."))?;
    Ok(text.to_owned())
}

fn outside() -> Fault {
    Fault::Refused(HandlerError::new(DesktopError::Forbidden, "The path leads out of the desktop's folder."))
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// What the system's answer means to a phone.
pub(super) fn fault(errno: Errno) -> Fault {
    match errno {
        Errno::NOENT | Errno::NOTDIR => Fault::not_found("file"),
        // Resolved a moment ago, and a link by now; or links that lead round in circles.
        Errno::LOOP => outside(),
        Errno::ACCESS | Errno::PERM => Fault::Refused(HandlerError::new(DesktopError::Forbidden, "The desktop may not read this.")),
        other => {
            tracing::warn!(error = %other, "a file cannot be read");
            Fault::Refused(HandlerError::new(DesktopError::ExternalService, "The file cannot be read."))
        }
    }
}
