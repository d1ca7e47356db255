//! `relay desktop`: the sample desktop router, until Ctrl-C.

use super::{
    CliError,
    access::Access,
    client::{EXIT_NOT_CONNECTED, Who, explain},
};
use crate::limits::DESKTOP_TOKEN_TTL;
use relay_endpoints::{
    desktop::{Cause, Desktop, DesktopOptions, SampleRouter, State},
    link::LinkOptions,
};
use relay_protocol::{close::CloseReason, device::Role, id::DeviceId};
use std::{
    io::{Write, stdout},
    process::ExitCode,
};
use tokio::signal::{
    ctrl_c,
    unix::{SignalKind, signal},
};

/// Run a sample desktop that phones can call, until Ctrl-C
///
/// It answers system.ping, and echoes the params of every other method. It reconnects by itself.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Example:
  relay desktop --device 0f8fad5b-d9cb-469f-a165-70867728950e

Exit codes:
  0  stopped by Ctrl-C or SIGTERM
  2  wrong usage
  3  refused in a way that trying again does not mend")]
pub struct Args {
    /// Device ID of the desktop, as `relay device add` printed it
    #[arg(long, value_name = "ID")]
    device: DeviceId,
    /// Name that the relay shows for this connection
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Where and as whom
    #[command(flatten)]
    access: Access,
}

/// Runs until it is asked to stop. One line on stdout for each change.
///
/// # Errors
/// There is no token, and no secret to make one with.
pub async fn run(args: Args) -> Result<ExitCode, CliError> {
    // Made once; the desktop shows it again whenever it reconnects.
    let token = args.access.bearer(DESKTOP_TOKEN_TTL)?;
    let url = args.access.url;
    let who = Who { role: Role::Desktop, device: args.device, target: None };
    let mut options = DesktopOptions::new(LinkOptions::desktop(url.clone(), token), args.device);
    options.device_name = args.name;
    let why = |cause: &Cause| match cause {
        Cause::Open(error) => explain(error, &url, who),
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
    Ok(match Desktop::new(options, SampleRouter).run_until(asked_to_stop(), print_state).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(cause) => {
            eprintln!("relay desktop: {}", why(&cause));
            if let Cause::Ended(ended) = &cause
                && ended.code() == CloseReason::Replaced.code()
            {
                eprintln!("another program registered {} and took its place", who.device);
            }
            ExitCode::from(EXIT_NOT_CONNECTED)
        }
    })
}

/// Ctrl-C or SIGTERM.
async fn asked_to_stop() {
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut signal) => signal.recv().await,
            Err(_not_available) => std::future::pending().await,
        }
    };
    let interrupted = async {
        if ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        _ = terminated => {}
        () = interrupted => {}
    }
}
