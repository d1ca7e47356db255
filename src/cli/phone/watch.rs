//! `relay phone … watch`: the timeline of one session as lines of JSON, until Ctrl-C.

use super::{Absence, Dialer, tell};
use crate::{
    cli::{CliError, explain::why_away, help_end},
    config::Period,
    signals::EndSignals,
};
use relay_endpoints::{
    frame::{Event, Registered},
    phone::{
        Client, NoEvent,
        client::{Status, Watch},
    },
};
use relay_protocol::{event::BaseSession, limits::SESSION_ID_BYTES_MAX};
use std::{
    io::{self, ErrorKind},
    pin::pin,
};
use tokio::{
    io::{AsyncWriteExt, Stdout, stdout},
    time::sleep,
};

/// Watch one session of the desktop and print each event as a line of JSON, until Ctrl-C
///
/// What the desktop sends of that session's timeline is printed, and so are its other events and the presence of the account's desktops.
/// It reconnects by itself.
#[derive(clap::Args, Debug)]
#[command(after_help = help_end(&["\
relay phone --user 0f8fad5b-d9cb-469f-a165-70867728950e \\
--device 7c9e6679-7425-40de-944b-e07fc1f90ae7 \\
--desktop de5c0000-0000-4000-8000-000000000003 \\
watch s-1 --for 30s"]))]
pub(super) struct Args {
    /// The session: its appSessionId
    #[arg(value_parser = session)]
    session: String,
    /// End after this long, such as 30s
    #[arg(long = "for", value_name = "DURATION")]
    duration: Option<Period>,
}

fn session(text: &str) -> Result<String, String> {
    match BaseSession::read(text) {
        // Sent as it was typed.
        Some(_) => Ok(text.to_owned()),
        None => Err(format!("a session has a name of 1 to {SESSION_ID_BYTES_MAX} bytes, blanks around it not counted")),
    }
}

/// Why a watch ends that could go on.
enum Stop {
    Asked,
    TimeIsOver(Period),
}

/// Watches until it is told to stop, or nobody reads what it prints.
///
/// # Errors
/// The relay refused in a way that trying again does not mend, or there was no connection when the time was over.
pub(super) async fn run(args: Args, mut dialer: Dialer) -> Result<(), CliError> {
    let mut signals = EndSignals::catch().map_err(CliError::failed)?;
    let over = async {
        match args.duration {
            Some(duration) => {
                sleep(duration.0).await;
                duration
            }
            None => std::future::pending().await,
        }
    };
    let mut stop = pin!(async {
        tokio::select! {
            () = signals.next() => Stop::Asked,
            duration = over => Stop::TimeIsOver(duration),
        }
    });
    let client = tokio::select! {
        stop = &mut stop => return stopped(&stop, false),
        client = dialer.connect() => client?,
    };
    let watch = client.watch_with(&args.session, None);
    let outcome = tokio::select! {
        stop = &mut stop => stopped(&stop, client.status().borrow().is_connected()),
        outcome = show(&client, watch, &args.session, &dialer) => outcome,
    };
    client.close().await;
    outcome
}

fn stopped(stop: &Stop, is_watching: bool) -> Result<(), CliError> {
    match stop {
        Stop::TimeIsOver(duration) if !is_watching => Err(CliError::TryLater(format!("not connected when {duration} were over"))),
        Stop::TimeIsOver(_) | Stop::Asked => Ok(()),
    }
}

/// Prints what comes. Ends well when standard output has no reader any longer.
async fn show(client: &Client, mut watch: Watch, session: &str, dialer: &Dialer) -> Result<(), CliError> {
    let (mut refusals, mut registered, mut status) = (client.refusals(), client.registered(), client.status());
    let mut output = stdout();
    let mut absence = Absence::default();
    loop {
        tokio::select! {
            // What came over a connection is told before its end.
            biased;
            Ok(()) = refusals.changed() => if let Some(refusal) = &*refusals.borrow_and_update() {
                return Err(CliError::refused(refusal.retryable, format!("the relay refused to let this phone watch: {refusal}")));
            },
            Ok(()) = registered.changed() => if let Some(registered) = &*registered.borrow_and_update() {
                absence = Absence::default();
                tell(watching(session, registered));
            },
            event = watch.next() => match event {
                Ok(event) => match print_line(&mut output, &event).await {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
                    Err(error) => return Err(CliError::failed(format!("standard output: {error}"))),
                },
                Err(NoEvent::Missed(count)) => tell(format_args!("{count} events are missing here: they came faster than they were taken")),
                Err(NoEvent::Ended) => return ended(&status.borrow(), dialer),
            },
            Ok(()) = status.changed() => if let Status::Reconnecting { cause, .. } = &*status.borrow_and_update() {
                absence.tell(&why_away(cause, &dialer.url, dialer.who), "trying again");
            },
        }
    }
}

/// Why there will be no more events.
fn ended(status: &Status, dialer: &Dialer) -> Result<(), CliError> {
    match status {
        Status::Ended(cause) => Err(CliError::Failed(why_away(cause, &dialer.url, dialer.who))),
        Status::Connecting
        | Status::Reconnecting { .. }
        | Status::Verifying
        | Status::DesktopReconnecting
        | Status::DesktopOffline
        | Status::Ready
        | Status::HistoryUnavailable(_)
        | Status::Closed => Err(CliError::failed("the phone stopped")),
    }
}

fn watching(session: &str, registered: &Registered) -> String {
    let desktop = registered.target.as_ref().map(|desktop| format!(" of desktop {}, which is {}", desktop.device_id, desktop.status));
    format!("watching session {session:?}{}", desktop.unwrap_or_default())
}

/// Through the runtime's own thread for it: while a reader takes its time, the connection goes on.
async fn print_line(output: &mut Stdout, event: &Event) -> io::Result<()> {
    output.write_all(to_line(event).as_bytes()).await?;
    output.flush().await
}

/// The event as it came, as one line: JSON has line breaks only between its words, where a blank does as well.
fn to_line(event: &Event) -> String {
    let mut line = serde_json::to_string(event).expect("strings and raw JSON serialize");
    if line.contains(['\n', '\r']) {
        line = line.replace(['\n', '\r'], " ");
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_and_its_payload_as_it_came() {
        for (payload, printed) in
            [(r#"{ "b":1.0e2,"a":"\ud800\/\n" }"#, r#"{ "b":1.0e2,"a":"\ud800\/\n" }"#), ("{\r\n\t\"a\":\n[]}", "{  \t\"a\": []}")]
        {
            let text = format!(r#"{{"eventType":"x","sourceDeviceId":"0f8fad5b-d9cb-469f-a165-70867728950e","payload":{payload}}}"#);
            let event: Event = serde_json::from_str(&text).unwrap();
            assert_eq!(to_line(&event), format!("{}\n", text.replace(payload, printed)));
        }
        let event: Event = serde_json::from_str(r#"{"eventType":"device-status","payload":{}}"#).unwrap();
        assert_eq!(to_line(&event), "{\"eventType\":\"device-status\",\"payload\":{}}\n");
    }

    #[test]
    fn a_session_has_a_name() {
        for text in ["", "  ", "::skills-agent"] {
            assert!(session(text).is_err(), "{text:?}");
        }
        assert_eq!(session(" s 1::skills-agent").as_deref(), Ok(" s 1::skills-agent"));
    }

    #[test]
    fn a_time_that_ends_without_a_connection_is_no_success() {
        let second = Stop::TimeIsOver("1s".parse().unwrap());
        assert_eq!(stopped(&second, false).unwrap_err().exit_code(), 3);
        assert_eq!((stopped(&second, true), stopped(&Stop::Asked, false)), (Ok(()), Ok(())));
    }
}
