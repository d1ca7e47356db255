//! Keys in files: what can be wrong with one before it is looked at as a key. Nothing of what stands there is ever shown.

use crate::limits::PUSH_KEY_FILE_BYTES_MAX;
use std::{
    fmt,
    fs::File,
    io::{self, Read},
    os::unix::fs::PermissionsExt,
    path::Path,
};

/// Why a file has no text to read a key from.
#[derive(Debug)]
pub enum KeyFileError {
    /// The system refused it.
    Unreadable(io::Error),
    /// It is over [`PUSH_KEY_FILE_BYTES_MAX`].
    TooLarge,
    /// It is no text.
    NotAText,
}

impl fmt::Display for KeyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyFileError::Unreadable(error) => error.fmt(f),
            KeyFileError::TooLarge => write!(f, "larger than {PUSH_KEY_FILE_BYTES_MAX} bytes, so it is no key"),
            KeyFileError::NotAText => f.write_str("not a text file"),
        }
    }
}

impl std::error::Error for KeyFileError {}

/// Reads a file that holds a key, and warns when everybody may.
pub(super) fn read(path: &Path) -> Result<String, KeyFileError> {
    let file = File::open(path).map_err(KeyFileError::Unreadable)?;
    let mode = file.metadata().map_err(KeyFileError::Unreadable)?.permissions().mode() & 0o7777;
    let mut bytes = Vec::new();
    file.take(PUSH_KEY_FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(KeyFileError::Unreadable)?;
    if bytes.len() as u64 > PUSH_KEY_FILE_BYTES_MAX {
        return Err(KeyFileError::TooLarge);
    }
    if mode & 0o007 != 0 {
        let (file, mode) = (path.display(), format!("{mode:04o}"));
        tracing::warn!(%file, mode, "everybody may read or write a key of pushes");
    }
    String::from_utf8(bytes).map_err(|_not_utf8| KeyFileError::NotAText)
}
