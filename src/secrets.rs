//! The data directory and the secrets that `relay serve` makes for itself in it.
//!
//! A secret is 32 random bytes as base64url, in a file that only its owner may read, written once and used ever after.

use crate::limits::SECRET_BYTES_MIN;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use std::{
    convert::Infallible,
    fmt,
    fs::{DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    str::FromStr,
};

/// File of the HS256 secret.
pub const JWT_SECRET_FILE: &str = "jwt-secret";
/// File of the admin listener's bearer token.
pub const ADMIN_TOKEN_FILE: &str = "admin-token";

/// No secret file is longer; a larger one is a mistake.
const SECRET_FILE_BYTES_MAX: u64 = 64 * 1024;
/// Bits that let others than the owner at a file.
const OTHERS: u32 = 0o077;

/// A text that is never shown: `Debug` hides it, and there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// A secret with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Secret(text.into())
    }

    /// A fresh one: 32 bytes of the system's randomness as base64url, 43 characters.
    pub fn generate() -> Self {
        Secret(URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>()))
    }

    /// The text, for the one who computes with it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether it is below the least length of a key.
    pub fn is_too_short(&self) -> bool {
        self.0.len() < SECRET_BYTES_MIN
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

impl FromStr for Secret {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Secret(text.to_owned()))
    }
}

/// Why a secret or the data directory cannot be used. Every text says what to do.
#[derive(Debug)]
pub enum SecretError {
    /// There is no such file.
    Missing(PathBuf),
    /// Others than its owner may read or write the file.
    Exposed(PathBuf, u32),
    /// The file's content is below the least length of a key.
    TooShort(PathBuf),
    /// The file is not a text of reasonable size.
    NotAText(PathBuf),
    /// The system refused.
    Io(PathBuf, io::Error),
}

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretError::Missing(path) => {
                write!(f, "there is no {}: start `relay serve` with this data directory first, or pass the secret", path.display())?;
                f.write_str("; a relay with --jwks alone has none and takes only its issuer's tokens (RELAY_TOKEN)")
            }
            SecretError::Exposed(path, mode) => {
                let path = path.display();
                write!(f, "{path} may be read or written by others than its owner (mode {mode:04o}): chmod 600 it; replace it if they did")
            }
            SecretError::TooShort(path) => {
                let path = path.display();
                write!(f, "{path} holds less than {SECRET_BYTES_MIN} bytes: put a longer secret there, or delete it to get a new one")
            }
            SecretError::NotAText(path) => write!(f, "{} is not a text of at most 64KiB: delete it to get a new one", path.display()),
            SecretError::Io(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for SecretError {}

/// Makes the data directory, with mode 0700 if it is new. An existing one is left as it is.
///
/// # Errors
/// The system refused, or the path is something else.
pub fn prepare_data_dir(data_dir: &Path) -> Result<(), SecretError> {
    let io_error = |error| SecretError::Io(data_dir.to_owned(), error);
    if let Some(parent) = data_dir.parent() {
        std::fs::create_dir_all(parent).map_err(io_error)?;
    }
    match DirBuilder::new().mode(0o700).create(data_dir) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && data_dir.is_dir() => Ok(()),
        Err(error) => Err(io_error(error)),
    }
}

/// The HS256 secret that `relay serve` made in this data directory.
///
/// # Errors
/// There is none, or its file cannot be trusted.
pub fn jwt_secret_in(data_dir: &Path) -> Result<Secret, SecretError> {
    read(&data_dir.join(JWT_SECRET_FILE))
}

/// The admin token that `relay serve` made in this data directory.
///
/// # Errors
/// There is none, or its file cannot be trusted.
pub fn admin_token_in(data_dir: &Path) -> Result<Secret, SecretError> {
    read(&data_dir.join(ADMIN_TOKEN_FILE))
}

/// The secret in this file of the data directory, made now if there is none.
///
/// # Errors
/// The file cannot be trusted, or the system refused.
pub fn load_or_generate(data_dir: &Path, file: &str) -> Result<Secret, SecretError> {
    let path = data_dir.join(file);
    match read(&path) {
        Err(SecretError::Missing(_)) => {}
        found @ (Ok(_) | Err(_)) => return found,
    }
    let secret = Secret::generate();
    if create_private(&path, secret.expose().as_bytes()).map_err(|error| SecretError::Io(path.clone(), error))? {
        return Ok(secret);
    }
    // Another process was first; its secret counts.
    read(&path)
}

/// Writes a file of mode 0600 that appears whole or not at all, and never replaces one. False: there is one already.
///
/// # Errors
/// The system refused.
pub fn create_private(path: &Path, content: &[u8]) -> io::Result<bool> {
    let temporary = write_beside(path, content)?;
    // A link fails where a rename would overwrite, so the first of two processes wins.
    let linked = std::fs::hard_link(&temporary, path);
    std::fs::remove_file(&temporary)?;
    match linked {
        Ok(()) => sync_parent(path).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Writes a file of mode 0600 in one step, replacing one that is there: a reader sees the old content or the new.
///
/// # Errors
/// The system refused.
pub fn replace_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = write_beside(path, content)?;
    if let Err(error) = std::fs::rename(&temporary, path) {
        std::fs::remove_file(&temporary)?;
        return Err(error);
    }
    sync_parent(path)
}

fn read(path: &Path) -> Result<Secret, SecretError> {
    let io_error = |error| SecretError::Io(path.to_owned(), error);
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(SecretError::Missing(path.to_owned())),
        Err(error) => return Err(io_error(error)),
    };
    let metadata = file.metadata().map_err(io_error)?;
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & OTHERS != 0 {
        return Err(SecretError::Exposed(path.to_owned(), mode));
    }
    if metadata.len() > SECRET_FILE_BYTES_MAX {
        return Err(SecretError::NotAText(path.to_owned()));
    }
    let mut text = String::new();
    match file.take(SECRET_FILE_BYTES_MAX).read_to_string(&mut text) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(SecretError::NotAText(path.to_owned())),
        Err(error) => return Err(io_error(error)),
    }
    // Editors and `echo` end a file with a line break that is not part of the secret.
    let secret = Secret::new(text.trim_end_matches(['\r', '\n']));
    if secret.is_too_short() { Err(SecretError::TooShort(path.to_owned())) } else { Ok(secret) }
}

fn write_beside(path: &Path, content: &[u8]) -> io::Result<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.{}.tmp", uuid::Uuid::new_v4()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    if let Err(error) = file.write_all(content).and_then(|()| file.sync_all()) {
        std::fs::remove_file(&temporary)?;
        return Err(error);
    }
    Ok(temporary)
}

fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
        Some(_) | None => File::open(".")?.sync_all(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn write(path: &Path, content: &[u8], mode: u32) {
        std::fs::write(path, content).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_new_data_directory_and_its_secrets_are_their_owners_alone() {
        let root = tempfile::tempdir().unwrap();
        let data_dir = root.path().join("deep/relay-data");
        prepare_data_dir(&data_dir).unwrap();
        prepare_data_dir(&data_dir).unwrap();
        assert_eq!(mode(&data_dir), 0o700);

        let secret = load_or_generate(&data_dir, JWT_SECRET_FILE).unwrap();
        assert_eq!(secret.expose().len(), 43);
        assert_eq!(mode(&data_dir.join(JWT_SECRET_FILE)), 0o600);
        assert_eq!(load_or_generate(&data_dir, JWT_SECRET_FILE).unwrap(), secret);
        assert_eq!(jwt_secret_in(&data_dir).unwrap(), secret);

        let admin = load_or_generate(&data_dir, ADMIN_TOKEN_FILE).unwrap();
        assert_ne!(admin, secret);
        assert_eq!(admin_token_in(&data_dir).unwrap(), admin);
        assert_eq!(std::fs::read_dir(&data_dir).unwrap().count(), 2, "temporary files are gone");
    }

    #[test]
    fn a_data_directory_that_is_a_file_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("relay-data");
        std::fs::write(&path, "").unwrap();
        assert!(matches!(prepare_data_dir(&path), Err(SecretError::Io(..))));
    }

    #[test]
    fn a_secret_that_others_may_read_or_write_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(JWT_SECRET_FILE);
        for exposed in [0o640, 0o604, 0o620, 0o602, 0o610, 0o644] {
            write(&path, &[b'x'; 64], exposed);
            let error = load_or_generate(root.path(), JWT_SECRET_FILE).unwrap_err();
            assert!(matches!(error, SecretError::Exposed(_, mode) if mode == exposed), "{exposed:o}");
        }
        write(&path, &[b'x'; 64], 0o400);
        assert_eq!(jwt_secret_in(root.path()).unwrap().expose(), "x".repeat(64));
    }

    #[test]
    fn a_line_break_at_the_end_is_not_part_of_the_secret() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(JWT_SECRET_FILE);
        write(&path, format!("{}\r\n", "x".repeat(32)).as_bytes(), 0o600);
        assert_eq!(jwt_secret_in(root.path()).unwrap().expose(), "x".repeat(32));
        write(&path, format!("{}\n", "x".repeat(31)).as_bytes(), 0o600);
        assert!(matches!(load_or_generate(root.path(), JWT_SECRET_FILE), Err(SecretError::TooShort(_))));
    }

    #[test]
    fn what_is_no_text_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(JWT_SECRET_FILE);
        write(&path, &[0xff; 40], 0o600);
        assert!(matches!(jwt_secret_in(root.path()), Err(SecretError::NotAText(_))));
        write(&path, &vec![b'x'; 64 * 1024 + 1], 0o600);
        assert!(matches!(jwt_secret_in(root.path()), Err(SecretError::NotAText(_))));
    }

    #[test]
    fn reading_never_makes_a_secret() {
        let root = tempfile::tempdir().unwrap();
        assert!(matches!(jwt_secret_in(root.path()), Err(SecretError::Missing(_))));
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
    }

    #[test]
    fn create_keeps_what_is_there_and_replace_does_not() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("file");
        assert!(create_private(&path, b"one").unwrap());
        assert!(!create_private(&path, b"two").unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), b"one");
        replace_private(&path, b"two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!((mode(&path), std::fs::read_dir(root.path()).unwrap().count()), (0o600, 1));
    }

    #[test]
    fn debug_output_hides_the_text() {
        assert_eq!(format!("{:?}", Secret::new("visible")), "Secret(hidden)");
    }
}
