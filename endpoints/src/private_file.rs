//! Files that only their owner reads.

use std::{
    fs::{self, OpenOptions, Permissions},
    io,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
};

const MODE: u32 = 0o600;

/// Makes sure that there is such a file, for SQLite, which gives its other files the mode of this one. A file that is there already is
/// not opened: to close it again would drop the locks that this process has on it.
pub(crate) fn ensure(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(MODE).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => fs::set_permissions(path, Permissions::from_mode(MODE)),
        made => made.map(drop),
    }
}
