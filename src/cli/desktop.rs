//! `relay desktop`: the sample desktop router, until Ctrl-C.

use super::{
    CliError,
    access::Access,
    explain::{Who, why_not_open},
    help_end,
};
use crate::{limits::DESKTOP_TOKEN_TTL, signals::EndSignals};
use relay_endpoints::{
    desktop::{Cause, Desktop, DesktopOptions, SampleRouter, State},
    link::LinkOptions,
};
use relay_protocol::{close::CloseReason, device::Role, id::DeviceId};
use std::io::{Write, stdout};

/// Run a sample desktop that phones can call, until Ctrl-C
///
/// It answers system.ping, and echoes the params of every other method. It reconnects by itself.
#[derive(clap::Args, Debug)]
#[command(after_help = help_end(&["\
relay desktop --user 0f8fad5b-d9cb-469f-a165-70867728950e \\
--device de5c0000-0000-4000-8000-000000000003"]))]
pub struct Args {
    /// Device ID of the desktop, as `relay device add` printed it
    #[arg(long, value_name = "UUID")]
    device: DeviceId,
    /// Name that it sends when it registers; the relay shows the one of `relay device add`
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Where and as whom
    #[command(flatten)]
    access: Access,
}

/// Runs until it is asked to stop. One line on stdout for each change.
///
/// # Errors
/// There is no token to be had, or the relay refused in a way that trying again does not mend.
pub async fn run(args: Args) -> Result<(), CliError> {
    // Made once; the desktop shows it again whenever it reconnects.
    let token = args.access.bearer(DESKTOP_TOKEN_TTL)?;
    let url = args.access.url;
    let who = Who { role: Role::Desktop, device: args.device, target: None };
    let mut options = DesktopOptions::new(LinkOptions::desktop(url.clone(), token), args.device);
    options.device_name = args.name;
    let why = |cause: &Cause| match cause {
        Cause::Open(error) => why_not_open(error, &url, who),
        Cause::Ended(ended) if ended.code() == CloseReason::Replaced.code() => {
            format!("{ended}\nanother program registered {} and took its place", who.device)
        }
        Cause::Ended(ended) => ended.to_string(),
    };
    let mut last_line = String::new();
    let print_state = |state: &State| {
        let line = match state {
            State::Registered(registered) => {
                let session = if registered.resumed { "session resumed" } else { "new session" };
                format!("registered desktop {} at {url} (connection {}, {session})", who.device, registered.connection_id)
            }
            // A hint's second line would make two lines of one change.
            State::Waiting { cause, .. } => format!("not connected: {}; trying again", why(cause).replace('\n', "; ")),
        };
        // An attempt that failed like the one before changes nothing.
        if line != last_line {
            // A reader that went away is no reason to stop serving phones.
            let _ = writeln!(stdout(), "{line}");
            last_line = line;
        }
    };
    let mut signals = EndSignals::catch().map_err(CliError::failed)?;
    let desktop = Desktop::new(options, SampleRouter);
    desktop.run_until(signals.next(), print_state).await.map_err(|cause| CliError::refused(cause.retryable(), why(&cause)))
}
