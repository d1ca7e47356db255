//! `relay push`: whether phones can be reached.

use super::{CliError, access::AdminAccess, explain::api_error, help_end, print, table::printable};
use relay_endpoints::admin::{ApiError, PushVerdict};
use relay_protocol::id::DeviceId;
use serde_json::json;

/// What to do.
#[derive(clap::Subcommand, Debug)]
pub enum Command {
    /// Have a running relay send one alert to one phone, and show what Apple or Google says to it
    Test(Test),
}

/// Flags of `relay push test`.
#[derive(clap::Args, Debug)]
#[command(after_help = help_end(&["relay push test --device a2d1c7f4-3b6e-4d0a-9c55-6e1f7b8d9e12"]))]
pub struct Test {
    /// Where and as whom
    #[command(flatten)]
    pub access: AdminAccess,
    /// The phone, of whatever account
    #[arg(long, value_name = "UUID")]
    pub device: DeviceId,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs one.
///
/// # Errors
/// The relay refused or cannot be reached, or the provider did not take the push.
pub async fn run(command: &Command) -> Result<(), CliError> {
    let Command::Test(args) = command;
    let told = args.access.client()?.test_push(args.device).await.map_err(|error| explain(&error, args))?;
    if args.json {
        print(format_args!("{}\n", json!(told)))?;
    } else if told.verdict == "sent" {
        print(format_args!("{}\n", as_text(&told)))?;
    }
    // A script sees by the exit code whether the phone was reached; people read why not where errors stand.
    match told.verdict.as_str() {
        "sent" => Ok(()),
        "retry" => Err(CliError::TryLater(as_text(&told))),
        _ => Err(CliError::Failed(as_text(&told))),
    }
}

fn explain(error: &ApiError, args: &Test) -> CliError {
    let explained = api_error(error, &args.access.admin_url);
    let hint = match error {
        ApiError::Refused { error: refusal, .. } if refusal.code == "pushTokenNotFound" => {
            "the app claims one with PUT /api/devices/push-token; `relay device push-token` does the same by hand"
        }
        ApiError::Refused { error: refusal, .. } if refusal.code == "pushNotConfigured" => {
            "`relay serve --help` lists the flags of each provider, and docs/push.md goes through them"
        }
        ApiError::Refused { .. } | ApiError::Unreachable(_) | ApiError::NotSecure(_) | ApiError::Unexpected { .. } => return explained,
    };
    CliError::Failed(format!("{explained}\n{hint}"))
}

fn as_text(told: &PushVerdict) -> String {
    let (provider, verdict) = (printable(&told.provider), printable(&told.verdict));
    let reason = told.reason.as_deref().map(printable).unwrap_or_default();
    match (told.verdict.as_str(), &told.id) {
        ("sent", Some(id)) => format!("{provider}: sent, as {}", printable(id)),
        ("sent", None) => format!("{provider}: sent"),
        ("tokenDead", _) => format!("{provider}: the token reaches nobody any more: {reason}\nopen the app, which claims a new one"),
        ("refused", _) => format!("{provider}: refused: {reason}\ndocs/push.md says what each reason means"),
        ("retry", _) => format!("{provider}: not now: {reason}\nthis can pass: try again"),
        _ => format!("{provider}: {verdict}: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(verdict: &str, id: Option<&str>, reason: Option<&str>) -> String {
        let own = |text: Option<&str>| text.map(str::to_owned);
        as_text(&PushVerdict { provider: "apns".to_owned(), verdict: verdict.to_owned(), id: own(id), reason: own(reason) })
    }

    #[test]
    fn each_verdict_says_what_to_do_next() {
        assert_eq!(told("sent", Some("1-2"), None), "apns: sent, as 1-2");
        assert_eq!(told("sent", None, None), "apns: sent");
        assert!(told("tokenDead", None, Some("Unregistered")).ends_with("Unregistered\nopen the app, which claims a new one"));
        assert!(told("refused", None, Some("TopicDisallowed")).contains("refused: TopicDisallowed\ndocs/push.md"));
        assert!(told("retry", None, Some("busy")).ends_with("busy\nthis can pass: try again"));
        assert_eq!(told("newer", None, Some("\u{1b}[2J")), "apns: newer: \u{fffd}[2J");
    }
}
