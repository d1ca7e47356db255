//! `--ready-file`: there while this process serves, so that a script can wait for it and read where the listeners are.
//!
//! What an earlier process left behind goes before anything else is done: whoever waits must not take it for ours. The file of a
//! process that still runs is not ours to take away; it is replaced once this one serves, and the older process then leaves it alone.

use crate::{secrets::replace_private, server::Serving};
use rustix::process::{Pid, test_kill_process};
use serde::Deserialize;
use std::{
    fmt, io,
    path::{Path, PathBuf},
};

/// The file could not be read, written or removed.
#[derive(Debug)]
pub struct ReadyFileError {
    path: PathBuf,
    error: io::Error,
}

impl fmt::Display for ReadyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--ready-file {}: {}", self.path.display(), self.error)
    }
}

impl std::error::Error for ReadyFileError {}

/// The file's path; [`ReadyFile::announce`] makes it.
#[derive(Clone, Debug)]
pub struct ReadyFile {
    path: PathBuf,
}

impl ReadyFile {
    /// Removes what a process left that runs no more.
    ///
    /// # Errors
    /// The system refused.
    pub fn prepare(path: &Path) -> Result<Self, ReadyFileError> {
        let file = ReadyFile { path: path.to_owned() };
        match std::fs::read(path) {
            Ok(content) if is_of_a_running_process(&content) => {}
            Ok(_) => file.remove()?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(file.failed(error)),
        }
        Ok(file)
    }

    /// Writes it, whole from the first moment.
    ///
    /// # Errors
    /// The system refused.
    pub fn announce(self, serving: &Serving) -> Result<Announced, ReadyFileError> {
        let content = serde_json::to_vec(serving).map_err(|error| self.failed(error.into()))?;
        replace_private(&self.path, &content).map_err(|error| self.failed(error))?;
        Ok(Announced { file: self, content })
    }

    fn remove(&self) -> Result<(), ReadyFileError> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.failed(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn failed(&self, error: io::Error) -> ReadyFileError {
        ReadyFileError { path: self.path.clone(), error }
    }
}

/// The file, written.
#[derive(Debug)]
pub struct Announced {
    file: ReadyFile,
    content: Vec<u8>,
}

impl Announced {
    /// Removes it, unless another process has announced itself in it since.
    ///
    /// # Errors
    /// The system refused.
    pub fn withdraw(self) -> Result<(), ReadyFileError> {
        match std::fs::read(&self.file.path) {
            Ok(content) if content == self.content => self.file.remove(),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(self.file.failed(error)),
        }
    }
}

fn is_of_a_running_process(content: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Owner {
        pid: i32,
    }
    let owner = serde_json::from_slice::<Owner>(content).ok().filter(|owner| owner.pid > 0).and_then(|owner| Pid::from_raw(owner.pid));
    // One that runs as somebody else runs as well.
    owner.is_some_and(|pid| !matches!(test_kill_process(pid), Err(rustix::io::Errno::SRCH)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use relay_protocol::id::RelayInstanceId;
    use uuid::Uuid;

    fn serving(instance: u128) -> Serving {
        let address = "127.0.0.1:1".parse().unwrap();
        Serving { public: address, admin: address, relay_instance_id: RelayInstanceId(Uuid::from_u128(instance)), pid: std::process::id() }
    }

    #[test]
    fn only_what_a_dead_process_left_goes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ready.json");
        ReadyFile::prepare(&path).unwrap();
        let mut dead = std::process::Command::new("true").spawn().unwrap();
        dead.wait().unwrap();
        let of = |pid: &str| format!(r#"{{"public":"127.0.0.1:1","pid":{pid}}}"#);
        for (content, stays) in [
            ("of something else".to_owned(), false),
            (of(&dead.id().to_string()), false),
            (of("0"), false),
            (of("-1"), false),
            (of(&std::process::id().to_string()), true),
        ] {
            std::fs::write(&path, &content).unwrap();
            ReadyFile::prepare(&path).unwrap();
            assert_eq!(path.exists(), stays, "{content}");
        }
    }

    #[test]
    fn each_process_takes_away_its_own_announcement_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ready.json");
        let older = ReadyFile::prepare(&path).unwrap().announce(&serving(1)).unwrap();
        let newer = ReadyFile::prepare(&path).unwrap().announce(&serving(2)).unwrap();
        older.withdraw().unwrap();
        assert!(path.exists());
        newer.withdraw().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_path_that_cannot_be_names_the_flag() {
        let directory = tempfile::tempdir().unwrap();
        let file = ReadyFile::prepare(&directory.path().join("missing/ready.json")).unwrap();
        assert!(file.announce(&serving(1)).unwrap_err().to_string().starts_with("--ready-file "));
    }
}
