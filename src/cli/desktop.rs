//! `relay desktop`: a sample desktop, or the demo desktop with state of its own, until Ctrl-C.

use super::{
    CliError,
    access::Access,
    explain::{Who, why_away},
    help_end,
};
use crate::{
    config::Period,
    limits::{CONFIGURED_DURATION_MAX, DESKTOP_DETACHED_WAIT, DESKTOP_TOKEN_TTL},
    signals::EndSignals,
};
use relay_endpoints::{
    compatibility::this_program,
    desktop::{
        Cause, DemoTimeline, Desktop, DesktopOptions, Handler, SampleRouter, State,
        demo::{Demo, DemoOptions, PACE_DEFAULT},
    },
    link::LinkOptions,
};
use relay_protocol::{device::Role, id::DeviceId};
use std::{
    io::{Write, stdout},
    path::PathBuf,
};
use tokio::{task::JoinSet, time::timeout};

/// Folder of demo desktops in the data directory, one for each device.
const DEMO_FOLDER: &str = "demo-desktops";

/// Run a sample desktop that phones can call, until Ctrl-C
///
/// It answers system.ping, and echoes the params of every other method. With --demo it is a small but real desktop instead: sessions
/// with timelines, an outbox that made-up agents answer, files below one folder. It reconnects by itself.
#[derive(clap::Args, Debug)]
#[command(after_help = help_end(&["\
relay desktop --user 0f8fad5b-d9cb-469f-a165-70867728950e \\
--device de5c0000-0000-4000-8000-000000000003",
"\
relay desktop --user 0f8fad5b-d9cb-469f-a165-70867728950e \\
--device de5c0000-0000-4000-8000-000000000003 --demo-timeline 200ms",
"\
relay desktop --user 0f8fad5b-d9cb-469f-a165-70867728950e \\
--device de5c0000-0000-4000-8000-000000000003 --demo --files ."]))]
pub struct Args {
    /// Device ID of the desktop, as `relay device add` printed it
    #[arg(long, value_name = "UUID")]
    device: DeviceId,
    /// Name that it sends when it registers; the relay shows the one of `relay device add`
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// While a phone watches a session, send a made-up timeline of it, a step each INTERVAL (1s if none is given): a draft that grows
    /// and is replaced, numbered entries, and now and then an event demo:tick
    #[arg(long, value_name = "INTERVAL", num_args = 0..=1, default_missing_value = "1s", value_parser = interval)]
    demo_timeline: Option<Period>,
    /// Be a desktop with sessions, timelines, an outbox and made-up agents, whose state outlives it
    #[arg(long, conflicts_with = "demo_timeline")]
    demo: bool,
    /// Folder of the demo's state, made if there is none [default: demo-desktops/DEVICE in the data directory]
    #[arg(long, value_name = "DIR", requires = "demo")]
    data: Option<PathBuf>,
    /// Folder whose files the demo lets phones read; none without it
    #[arg(long, value_name = "DIR", requires = "demo")]
    files: Option<PathBuf>,
    /// Time between two words of the demo's agents
    #[arg(long, value_name = "INTERVAL", requires = "demo", value_parser = interval, default_value_t = Period(PACE_DEFAULT))]
    demo_pace: Period,
    /// Where and as whom
    #[command(flatten)]
    access: Access,
}

/// Runs until it is asked to stop. One line on stdout for each change.
///
/// # Errors
/// There is no token to be had, the demo's state cannot be used, or the relay refused in a way that trying again does not mend.
pub async fn run(args: Args) -> Result<(), CliError> {
    // Made once; the desktop shows it again whenever it reconnects.
    let token = args.access.bearer(DESKTOP_TOKEN_TTL)?;
    let mut options = DesktopOptions::new(LinkOptions::desktop(args.access.url.clone(), token), args.device);
    options.device_name.clone_from(&args.name);
    options.descriptor = Some(this_program());
    if !args.demo {
        let desktop = Desktop::new(options, SampleRouter);
        let timeline = args.demo_timeline.map(|every| DemoTimeline::default().run(desktop.publisher(), every.0));
        // It ends with the desktop, whose publisher it has.
        let _timeline = timeline.map(tokio::spawn);
        return serve(desktop, &args).await;
    }
    let demo = Demo::open(demo_options(&args)?).map_err(CliError::failed)?;
    let router = demo.router();
    let detached = router.detached();
    let desktop = Desktop::new(options, router);
    let mut agents = JoinSet::new();
    agents.spawn(demo.work(desktop.publisher()));
    let served = serve(desktop, &args).await;
    // What must finish gets a moment, and is cut off then as by a crash; the agents go on at the next start.
    let _ = timeout(DESKTOP_DETACHED_WAIT, detached.finished()).await;
    served
}

fn demo_options(args: &Args) -> Result<DemoOptions, CliError> {
    let default = || args.access.signing.data_dir.join(DEMO_FOLDER).join(args.device.to_string());
    Ok(DemoOptions {
        user: args.access.account()?,
        data: args.data.clone().unwrap_or_else(default),
        files: args.files.clone(),
        pace: args.demo_pace.0,
    })
}

/// Runs a desktop until a signal asks it to stop.
async fn serve<H: Handler>(desktop: Desktop<H>, args: &Args) -> Result<(), CliError> {
    let url = &args.access.url;
    let who = Who { role: Role::Desktop, device: args.device, target: None };
    let mut last_line = String::new();
    let print_state = |state: &State| {
        let line = match state {
            State::Registered(registered) => {
                let session = if registered.resumed { "session resumed" } else { "new session" };
                format!("registered desktop {} at {url} (connection {}, {session})", who.device, registered.connection_id)
            }
            // A hint's second line would make two lines of one change.
            State::Waiting { cause, .. } => format!("not connected: {}; trying again", why_away(cause, url, who).replace('\n', "; ")),
        };
        // An attempt that failed like the one before changes nothing.
        if line != last_line {
            // A reader that went away is no reason to stop serving phones.
            let _ = writeln!(stdout(), "{line}");
            last_line = line;
        }
    };
    let mut signals = EndSignals::catch().map_err(CliError::failed)?;
    let refused = |cause: Cause| CliError::refused(cause.retryable(), why_away(&cause, url, who));
    desktop.run_until(signals.next(), print_state).await.map_err(refused)
}

fn interval(text: &str) -> Result<Period, String> {
    let interval: Period = text.parse().map_err(|error: humantime::DurationError| error.to_string())?;
    if interval.0.is_zero() || interval.0 > CONFIGURED_DURATION_MAX {
        return Err(format!("it is longer than zero and at most {}", Period(CONFIGURED_DURATION_MAX)));
    }
    Ok(interval)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        desktop: Args,
    }

    fn parse(rest: &[&str]) -> Result<Option<Period>, clap::Error> {
        let start = ["relay", "--token", "t", "--device", "0f8fad5b-d9cb-469f-a165-70867728950e"];
        Cli::try_parse_from(start.iter().chain(rest)).map(|cli| cli.desktop.demo_timeline)
    }

    #[test]
    fn the_demo_timeline_has_an_interval_that_is_no_zero() {
        assert_eq!(parse(&[]).unwrap(), None);
        assert_eq!(parse(&["--demo-timeline"]).unwrap(), Some("1s".parse().unwrap()));
        assert_eq!(parse(&["--demo-timeline", "--name", "n"]).unwrap(), Some("1s".parse().unwrap()));
        assert_eq!(parse(&["--demo-timeline", "20ms"]).unwrap(), Some("20ms".parse().unwrap()));
        for wrong in ["0s", "soon", "99999999999y"] {
            assert_eq!(parse(&["--demo-timeline", wrong]).unwrap_err().exit_code(), 2, "{wrong}");
        }
    }
}
