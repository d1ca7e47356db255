//! What the commands that are clients of a running relay have in common: where it is, as whom to speak, and how to explain that
//! it did not work out.

use relay_endpoints::{
    address::RelayAddress,
    link::{ConnectError, OpenError, RegisterError},
};
use relay_protocol::{
    device::Role,
    id::{DeviceId, UserId},
};
use std::{io::ErrorKind, path::PathBuf};

/// Exit code: could not connect or register, or lost the connection.
pub(super) const EXIT_NOT_CONNECTED: u8 = 3;

// No doc comment: clap would take it for the description of the command that this is flattened into.
#[derive(Clone, clap::Args)]
pub(super) struct Connection {
    /// Address of the relay: http:// or ws://
    #[arg(long, env = "RELAY_URL", value_name = "URL", default_value = "http://127.0.0.1:8787")]
    pub(super) url: RelayAddress,
    /// JWT or API key; without one, a token is minted with the secret in the data directory
    #[arg(long, env = "RELAY_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Data directory of the relay, for its secret
    #[arg(long, env = "RELAY_DATA_DIR", value_name = "DIR", default_value = "./relay-data")]
    data_dir: PathBuf,
    /// Account to mint a token for
    #[arg(long, env = "RELAY_USER", value_name = "UUID")]
    user: Option<UserId>,
}

/// The bearer token to use: the one given, else one minted with the local secret.
///
/// # Errors
/// A text for people: there is neither.
pub(super) fn credentials(connection: &Connection) -> Result<String, String> {
    // An empty variable is how scripts unset one.
    if let Some(token) = connection.token.as_deref().filter(|token| !token.is_empty()) {
        return Ok(token.to_owned());
    }
    local_token(connection)
}

/// Mints a token with the data directory's secret.
fn local_token(connection: &Connection) -> Result<String, String> {
    let account = connection.user.map_or_else(|| "its account".to_owned(), |user| user.to_string());
    Err(format!("no token: pass --token (`relay token` mints one for {account}); {} was not looked at", connection.data_dir.display()))
}

/// Who wanted to connect, for the hints.
#[derive(Clone, Copy)]
pub(super) struct Who {
    pub(super) role: Role,
    pub(super) device: DeviceId,
    pub(super) target: Option<DeviceId>,
}

/// Why there is no registered connection, and what to do next: for stderr.
pub(super) fn explain(error: &OpenError, url: &RelayAddress, who: Who) -> String {
    match error {
        OpenError::Connect(error) => explain_connect(error, url),
        OpenError::Register(RegisterError::Refused(refusal)) => match hint(&refusal.code, who) {
            Some(hint) => format!("{refusal}\n{hint}"),
            None if refusal.retryable => format!("{refusal}\nthis can pass: try again"),
            None => refusal.to_string(),
        },
        OpenError::Register(RegisterError::Ended(_) | RegisterError::Malformed(_) | RegisterError::TimedOut) => {
            format!("no registration at {url}: {error}")
        }
    }
}

fn explain_connect(error: &ConnectError, url: &RelayAddress) -> String {
    match error {
        ConnectError::Unreachable(cause) if cause.kind() == ErrorKind::ConnectionRefused => {
            format!("nothing listens at {url}; start one with `relay serve`")
        }
        ConnectError::Refused { status: 401, .. } => format!(
            "unauthorized: {url} does not accept the token (401)\nmint one with `relay token --user UUID`, or name the data directory of that \
             relay with --data-dir"
        ),
        ConnectError::Refused { status: 404, .. } => format!("{url} answers, but is no relay (404)"),
        ConnectError::Unreachable(_)
        | ConnectError::Refused { .. }
        | ConnectError::UnusableToken
        | ConnectError::TimedOut
        | ConnectError::Handshake(_) => format!("no connection to {url}: {error}"),
    }
}

/// The next step after a refused registration, where there is one (device-lane section 3 lists the codes).
fn hint(code: &str, who: Who) -> Option<String> {
    let Who { role, device, target } = who;
    let hint = match code {
        "deviceNotFound" => {
            format!("register it with `relay device add --role {role} --name NAME`; `relay device list` shows what there is")
        }
        "deviceRoleMismatch" => format!("{device} is not registered as {role}; `relay device list` shows the roles"),
        "deviceOwnershipFailed" => format!("{device} belongs to another account; use that account's --token or --user"),
        "deviceNotEligible" => format!("{device} may not use the relay; turn its relay eligibility on"),
        "invalidTargetDesktop" => match target {
            Some(target) => format!("{target} is no desktop of this account; `relay device list` shows what there is"),
            None => "name a desktop of this account".to_owned(),
        },
        "protocolUpdateRequired" => "the relay demands a newer protocol than this program speaks; update it".to_owned(),
        _ => return None,
    };
    Some(hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use relay_endpoints::frame::ErrorFrame;
    use std::io;
    use uuid::Uuid;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        connection: Connection,
    }

    fn who() -> Who {
        Who { role: Role::Desktop, device: DeviceId(Uuid::from_u128(1)), target: None }
    }

    fn explained(error: &OpenError) -> String {
        explain(error, &"ws://127.0.0.1:8787".parse().unwrap(), who())
    }

    fn refused(code: &str, retryable: bool) -> OpenError {
        OpenError::Register(RegisterError::Refused(ErrorFrame { code: code.to_owned(), message: "m".to_owned(), retryable }))
    }

    #[test]
    fn a_relay_that_does_not_run_is_named_with_the_command_that_starts_one() {
        let error = OpenError::Connect(ConnectError::Unreachable(io::Error::from(ErrorKind::ConnectionRefused)));
        assert_eq!(explained(&error), "nothing listens at http://127.0.0.1:8787; start one with `relay serve`");
    }

    #[test]
    fn refusals_start_with_their_code_and_end_with_the_next_step() {
        assert!(explained(&refused("deviceNotFound", false)).starts_with("deviceNotFound: m\n"));
        assert!(explained(&refused("deviceNotFound", false)).contains("relay device add --role desktop"));
        assert!(explained(&refused("deviceLookupUnavailable", true)).ends_with("try again"));
        assert_eq!(explained(&refused("somethingNew", false)), "somethingNew: m");
        let unauthorized = OpenError::Connect(ConnectError::Refused { status: 401, error: None });
        assert!(explained(&unauthorized).contains("relay token"));
    }

    #[test]
    fn a_given_token_is_used_and_an_empty_one_is_none() {
        let given = Cli::try_parse_from(["x", "--token", "t"]).unwrap().connection;
        assert_eq!(credentials(&given).as_deref(), Ok("t"));
        let empty = Cli::try_parse_from(["x", "--token", "", "--data-dir", "/nonexistent"]).unwrap().connection;
        assert!(credentials(&empty).is_err());
    }

    #[test]
    fn tls_addresses_are_a_usage_error() {
        let error = Cli::try_parse_from(["x", "--url", "wss://example.test"]).err().unwrap();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("not supported"));
    }
}
