//! The file that `--state` names: the session that the next `relay phone` goes on with.

use crate::secrets::replace_private;
use relay_endpoints::{frame::Resume, phone::client::ResumeStore};
use std::{
    fmt, fs,
    io::{self, ErrorKind},
    path::PathBuf,
};

/// Keeps the session in a file of mode 0600, or not at all.
#[derive(Clone, Debug)]
pub(super) struct State {
    file: Option<PathBuf>,
}

/// What could not be done with the file.
#[derive(Debug)]
pub(super) enum StateError {
    Io(PathBuf, io::Error),
    Malformed(PathBuf),
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StateError::Io(path, error) => write!(f, "{}: {error}", path.display()),
            // What stands there may be a secret of something else.
            StateError::Malformed(path) => write!(f, "{} holds no session of a phone; name another file with --state", path.display()),
        }
    }
}

impl std::error::Error for StateError {}

impl State {
    pub(super) fn new(file: Option<PathBuf>) -> Self {
        State { file }
    }
}

impl ResumeStore for State {
    type Error = StateError;

    fn load(&mut self) -> Result<Option<Resume>, StateError> {
        let Some(path) = &self.file else { return Ok(None) };
        match fs::read(path) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|_malformed| StateError::Malformed(path.clone())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StateError::Io(path.clone(), error)),
        }
    }

    fn save(&mut self, resume: &Resume) -> Result<(), StateError> {
        let Some(path) = &self.file else { return Ok(()) };
        let text = serde_json::to_vec(resume).expect("ids and strings serialize");
        replace_private(path, &text).map_err(|error| StateError::Io(path.clone(), error))
    }

    fn clear(&mut self) -> Result<(), StateError> {
        let Some(path) = &self.file else { return Ok(()) };
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(StateError::Io(path.clone(), error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn resume(token: &str) -> Resume {
        Resume { session_id: "0f8fad5b-d9cb-469f-a165-70867728950e".parse().unwrap(), resume_token: token.to_owned() }
    }

    #[test]
    fn what_was_saved_last_is_there_for_its_owner_alone_until_it_is_cleared() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let mut state = State::new(Some(path.clone()));
        assert!(state.load().unwrap().is_none());
        for token in ["a", "b"] {
            state.save(&resume(token)).unwrap();
            assert!(State::new(Some(path.clone())).load().unwrap() == Some(resume(token)));
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left there");
        state.clear().unwrap();
        state.clear().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn what_is_no_session_is_not_taken_for_one_and_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        fs::write(&path, "secret").unwrap();
        let error = State::new(Some(path)).load().unwrap_err();
        assert!(matches!(error, StateError::Malformed(_)) && !error.to_string().contains("secret"), "{error}");
        assert!(matches!(State::new(Some(folder.path().to_owned())).load(), Err(StateError::Io(..))));
    }

    #[test]
    fn without_a_file_nothing_is_kept() {
        let mut state = State::new(None);
        state.save(&resume("a")).unwrap();
        assert!(state.load().unwrap().is_none());
        state.clear().unwrap();
    }
}
