//! Why a relay did not do what a command asked of it, and what to do next: from the errors of the client library to a [`CliError`].

use super::CliError;
use relay_endpoints::{
    address::RelayAddress,
    devices::ApiError,
    link::{Cause, ConnectError, OpenError, RegisterError},
};
use relay_protocol::{close::CloseReason, device::Role, id::DeviceId};
use std::io::ErrorKind;

/// What helps against a certificate that is not trusted.
const TRUST: &str = "an authority of your own is trusted when SSL_CERT_FILE names its PEM file";

/// Who wanted to connect, for the hints.
#[derive(Clone, Copy)]
pub(super) struct Who {
    pub(super) role: Role,
    pub(super) device: DeviceId,
    pub(super) target: Option<DeviceId>,
}

/// Why an HTTP call failed.
pub(super) fn api_error(error: &ApiError, url: &RelayAddress) -> CliError {
    match error {
        ApiError::Unreachable(_) => CliError::TryLater(format!("{url}: {error}; is `relay serve` running there?")),
        ApiError::NotSecure(_) => CliError::TryLater(format!("{url}: {error}\n{TRUST}")),
        ApiError::Refused { error: refusal, .. } => CliError::refused(refusal.retryable, format!("{url}: {error}")),
        ApiError::Unexpected { .. } => CliError::Failed(format!("{url}: {error}")),
    }
}

/// Why there is no registered connection.
pub(super) fn open_error(error: &OpenError, url: &RelayAddress, who: Who) -> CliError {
    CliError::refused(error.retryable(), why_not_open(error, url, who))
}

/// The same as a text alone.
fn why_not_open(error: &OpenError, url: &RelayAddress, who: Who) -> String {
    match error {
        OpenError::Connect(error) => why_not_connected(error, url),
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

/// Why a client that comes back by itself has no connection.
pub(super) fn why_away(cause: &Cause, url: &RelayAddress, who: Who) -> String {
    match cause {
        Cause::Open(error) => why_not_open(error, url, who),
        Cause::Ended(ended) if ended.code() == CloseReason::Replaced.code() => {
            format!("{ended}\nanother program registered {} and took its place", who.device)
        }
        Cause::Ended(ended) => ended.to_string(),
    }
}

fn why_not_connected(error: &ConnectError, url: &RelayAddress) -> String {
    match error {
        ConnectError::Unreachable(cause) if cause.kind() == ErrorKind::ConnectionRefused => {
            format!("nothing listens at {url}; start one with `relay serve`")
        }
        ConnectError::Refused { status: 401, .. } => format!(
            "unauthorized: {url} does not accept the token (401)\nmint one with `relay token --user UUID`, or name the data directory of \
             that relay with --data-dir"
        ),
        ConnectError::Refused { status: 403, error: Some(refusal) } => {
            format!("{refusal}\na device socket needs a key with the scope rpc; `relay api-key list` shows what each key allows")
        }
        ConnectError::Refused { status: 404, .. } => format!("{url} answers, but is no relay (404)"),
        ConnectError::NotSecure(_) => {
            format!("no connection to {url}: {error}\n{TRUST}")
        }
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
    use relay_endpoints::frame::ErrorFrame;
    use std::io;
    use uuid::Uuid;

    fn who() -> Who {
        Who { role: Role::Desktop, device: DeviceId(Uuid::from_u128(1)), target: None }
    }

    fn explained(error: &OpenError) -> String {
        open_error(error, &"ws://127.0.0.1:8787".parse().unwrap(), who()).to_string()
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
}
