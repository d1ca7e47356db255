//! `relay drain`: has a running relay leave.

use super::{CliError, access::AdminAccess, explain::api_error, help_end, print};
use crate::limits::DRAIN_WATCH_INTERVAL;
use relay_actors::clock;
use relay_endpoints::admin::{Admin, ApiError, DrainProgress};
use serde_json::json;
use std::{
    io::{self, IsTerminal, Write},
    time::Duration,
};

/// Flags of `relay drain`.
#[derive(clap::Args, Debug)]
#[command(after_help = help_end(&["relay drain --wait", "relay drain --wait --exit-after-drain --admin-url http://127.0.0.1:9090"]))]
pub struct Args {
    /// Where and as whom
    #[command(flatten)]
    pub access: AdminAccess,
    /// Wait until it is drained, and tell on standard error how far it is
    #[arg(long)]
    pub wait: bool,
    /// Have the process end once it is drained; without this it stays, and refuses everybody, until SIGTERM
    #[arg(long)]
    pub exit_after_drain: bool,
    /// Print the progress as JSON
    #[arg(long)]
    pub json: bool,
}

/// Begins the drain, waits for its end if asked to, and prints how far it is.
///
/// # Errors
/// The relay refused, cannot be reached, or was lost while it was waited for.
pub async fn run(args: &Args) -> Result<(), CliError> {
    let admin = args.access.client()?;
    let begun = admin.drain(args.exit_after_drain).await.map_err(|error| api_error(&error, &args.access.admin_url))?;
    let last = if args.wait { wait(&admin, begun, args).await? } else { begun };
    if args.json { print(format_args!("{}\n", json!(last))) } else { print(format_args!("{last}\n")) }
}

/// The progress at the end: that of the last look, or that of a process which has ended behind it.
async fn wait(admin: &Admin, begun: DrainProgress, args: &Args) -> Result<DrainProgress, CliError> {
    let (asked, elapsed_before) = (clock::now(), Duration::from_millis(begun.elapsed_ms));
    let mut seen = begun;
    let mut line = ProgressLine::default();
    while !seen.is_drained() {
        line.show(&seen);
        tokio::time::sleep(DRAIN_WATCH_INTERVAL).await;
        seen = match admin.drain(args.exit_after_drain).await {
            Ok(progress) => progress,
            // It was asked to end, and answers until it does: what the last look counted has gone with it.
            Err(ApiError::Unreachable(_)) if args.exit_after_drain => DrainProgress::ended(elapsed_before + asked.elapsed()),
            Err(error) => {
                line.end();
                return Err(api_error(&error, &args.access.admin_url));
            }
        };
    }
    line.end();
    Ok(seen)
}

/// Standard error while a drain is waited for: one line that changes on a terminal, a line for each phase elsewhere.
#[derive(Default)]
struct ProgressLine {
    phase: String,
    width: usize,
}

impl ProgressLine {
    fn show(&mut self, progress: &DrainProgress) {
        let (mut output, text) = (io::stderr(), progress.to_string());
        // Nobody is left to tell when standard error is gone.
        if output.is_terminal() {
            let _ = write!(output, "\r{text:width$}", width = self.width);
            self.width = text.len();
        } else if self.phase != progress.phase {
            let _ = writeln!(output, "{text}");
        }
        self.phase.clone_from(&progress.phase);
    }

    fn end(&self) {
        if self.width > 0 {
            let _ = writeln!(io::stderr());
        }
    }
}
