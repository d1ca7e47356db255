//! The signals that ask a process to end: SIGTERM and SIGINT.

use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Catches them for as long as the process lives.
pub struct EndSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl EndSignals {
    /// Starts to catch them; from now on neither ends the process by itself.
    ///
    /// # Errors
    /// The system refused.
    pub fn catch() -> io::Result<Self> {
        Ok(EndSignals { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
