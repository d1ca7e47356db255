//! Whether the process has begun to leave: set once, read by whoever would take on something new.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

/// The drain of one process; clones are handles on the same one. Cores get it with their configuration, so a test has its own.
#[derive(Clone, Debug, Default)]
pub struct Drain(Arc<AtomicBool>);

impl Drain {
    /// Begins it; there is no way back.
    pub fn begin(&self) {
        self.0.store(true, Relaxed);
    }

    /// Whether it has begun.
    pub fn has_begun(&self) -> bool {
        self.0.load(Relaxed)
    }
}
