//! Which relay processes use this storage.
//!
//! One relay is to route for a region. During a deploy there are two for a moment, which nobody prevents; but two that go on serving
//! must not go unnoticed, since a phone at one cannot reach a desktop at the other. So each process has a row in storage, which its
//! [`Heartbeat`] renews and takes away at the end, and which tells it of the others in the same statement. What it was told last is in
//! [`KnownProcesses`], for the admin listener: no routing depends on it. Operations page, "Drain and deploy".

mod core;
mod heartbeat;

pub use heartbeat::{Heartbeat, Renewal};

use crate::{clock, store::LiveProcess};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The processes that were alive when storage was last asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenProcesses {
    /// How long ago that was; none before the first answer.
    pub age: Option<Duration>,
    /// They, oldest first, this one among them. `last_seen` counts until now.
    pub live: Vec<LiveProcess>,
}

impl SeenProcesses {
    /// How many of them serve, and how many are leaving.
    pub fn by_phase(&self) -> (usize, usize) {
        let draining = self.live.iter().filter(|process| process.record.is_draining).count();
        (self.live.len() - draining, draining)
    }
}

/// What this process knows of them; clones are handles on the same.
#[derive(Clone, Debug, Default)]
pub struct KnownProcesses(Arc<Mutex<Option<Answer>>>);

#[derive(Clone, Debug)]
struct Answer {
    at: Instant,
    live: Vec<LiveProcess>,
}

impl KnownProcesses {
    /// What is known now.
    pub fn seen(&self) -> SeenProcesses {
        let Some(Answer { at, mut live }) = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone() else {
            return SeenProcesses::default();
        };
        let age = clock::now().saturating_duration_since(at);
        for process in &mut live {
            process.last_seen += age;
        }
        SeenProcesses { age: Some(age), live }
    }

    fn replace(&self, at: Instant, live: Vec<LiveProcess>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Answer { at, live });
    }
}
