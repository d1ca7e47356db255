//! Where a phone keeps what its next process resumes with. iOS has its keychain for that; whoever has the token can take the session.

use crate::frame::Resume;
use std::{convert::Infallible, error::Error};

/// Keeps the session of one phone and desktop. Called from the client's task, so it must not take long.
///
/// A store that fails costs a registration without a token at the worst, so the client notes the failure and goes on.
pub trait ResumeStore: Send + 'static {
    /// Why it could not.
    type Error: Error;

    /// What was saved last, if anything.
    ///
    /// # Errors
    /// It cannot be read.
    fn load(&mut self) -> Result<Option<Resume>, Self::Error>;

    /// Takes the place of what was saved before.
    ///
    /// # Errors
    /// It cannot be kept.
    fn save(&mut self, resume: &Resume) -> Result<(), Self::Error>;

    /// Forgets what was saved: the account was logged out, or the device forgotten.
    ///
    /// # Errors
    /// It may still be there.
    fn clear(&mut self) -> Result<(), Self::Error>;
}

/// Keeps the session as long as the client lives.
#[derive(Debug, Default)]
pub struct MemoryStore(Option<Resume>);

impl MemoryStore {
    /// With what to resume at first.
    pub fn new(resume: Option<Resume>) -> Self {
        MemoryStore(resume)
    }
}

impl ResumeStore for MemoryStore {
    type Error = Infallible;

    fn load(&mut self) -> Result<Option<Resume>, Infallible> {
        Ok(self.0.clone())
    }

    fn save(&mut self, resume: &Resume) -> Result<(), Infallible> {
        self.0 = Some(resume.clone());
        Ok(())
    }

    fn clear(&mut self) -> Result<(), Infallible> {
        self.0 = None;
        Ok(())
    }
}
