//! The signals that ask a process to end: SIGTERM, SIGINT, and SIGHUP, which a terminal sends when it goes.

use std::{fs, future::pending, io};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGHUP, signal 1, in a signal set of proc(5).
const HANGUP_BIT: u64 = 1;

/// Catches them for as long as the process lives.
pub struct EndSignals {
    terminate: Signal,
    interrupt: Signal,
    /// None in a process that is to outlive its terminal.
    hangup: Option<Signal>,
}

impl EndSignals {
    /// Starts to catch them; from now on none ends the process by itself.
    ///
    /// # Errors
    /// The system refused.
    pub fn catch() -> io::Result<Self> {
        let hangup = if ignores_hangup() { None } else { Some(signal(SignalKind::hangup())?) };
        Ok(EndSignals { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())?, hangup })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        let EndSignals { terminate, interrupt, hangup } = self;
        let hung_up = async {
            match hangup {
                Some(hangup) => hangup.recv().await,
                None => pending().await,
            }
        };
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hung_up => {}
        }
    }

    /// Waits for somebody who insists: the next SIGTERM or SIGINT. A SIGHUP is no sign of impatience, since the kernel and the shell may
    /// each send one, and systemd sends one behind its SIGTERM if told to.
    pub async fn insisted(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Whether this process was started to ignore hangups, as `nohup` does it. Where the system does not tell, nothing is changed about it.
fn ignores_hangup() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    ignored.is_none_or(|set| set & HANGUP_BIT != 0)
}
