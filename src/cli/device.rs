//! `relay device`: an account's devices, over the public API.

use super::{
    CliError,
    access::Access,
    explain::api_error,
    help_end, print,
    table::{columns, printable},
};
use crate::limits::OWN_TOKEN_TTL;
use clap::Subcommand;
use relay_endpoints::devices::{Device, Devices, NewDevice};
use relay_protocol::{
    device::{Presence, Role},
    id::DeviceId,
    limits::PUSH_TOKEN_BYTES_MAX,
    push::{AppId, Environment, Malformed, Provider, PushAddress},
};
use serde_json::json;
use std::io::{self, Read};

/// The commands under `relay device`.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Register a device, or update the one that has this id
    Add(Add),
    /// List the account's devices with their presence
    List(List),
    /// Claim a push token for a phone, as its app does, or take it away
    PushToken(PushToken),
    /// Forget a device: its sockets are closed, its sessions end
    Forget(Forget),
}

/// Flags of `relay device add`.
#[derive(clap::Args, Debug)]
#[command(after_help = help_end(&["\
relay device add --user 0f8fad5b-d9cb-469f-a165-70867728950e \\
--role desktop --name Workshop"]))]
pub struct Add {
    /// Where and as whom
    #[command(flatten)]
    pub access: Access,
    /// desktop (answers calls) or mobile (makes them)
    #[arg(long, value_name = "ROLE")]
    pub role: Role,
    /// Name for people
    #[arg(long)]
    pub name: String,
    /// The device's id [default: a new one]
    #[arg(long, value_name = "UUID")]
    pub device: Option<DeviceId>,
    /// Operating system, for compatibility rules
    #[arg(long, default_value = std::env::consts::OS)]
    pub platform: String,
    /// Version of its application, for compatibility rules
    #[arg(long, value_name = "VERSION", default_value = env!("CARGO_PKG_VERSION"))]
    pub app_version: String,
    /// Print the device as JSON
    #[arg(long)]
    pub json: bool,
}

/// Flags of `relay device list`.
#[derive(clap::Args, Debug)]
#[command(after_help = help_end(&["relay device list --user 0f8fad5b-d9cb-469f-a165-70867728950e --json"]))]
pub struct List {
    /// Where and as whom
    #[command(flatten)]
    pub access: Access,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Flags of `relay device push-token`.
#[derive(clap::Args, Debug)]
#[command(after_help = help_end(&["\
relay device push-token --user 0f8fad5b-d9cb-469f-a165-70867728950e \\
--device a2d1c7f4-3b6e-4d0a-9c55-6e1f7b8d9e12 --provider fcm"]))]
pub struct PushToken {
    /// Where and as whom
    #[command(flatten)]
    pub access: Access,
    /// The phone
    #[arg(long, value_name = "UUID")]
    pub device: DeviceId,
    /// apns or fcm; the token is read from standard input, where other users of this machine do not see it
    #[arg(long, required_unless_present = "clear")]
    pub provider: Option<Provider>,
    /// production, or sandbox for an app that Xcode has installed; for apns
    #[arg(long, default_value = "production")]
    pub environment: Environment,
    /// The app's bundle id, where the relay serves several apps
    #[arg(long, value_name = "ID")]
    pub app_id: Option<AppId>,
    /// Take the phone's token away instead
    #[arg(long, conflicts_with = "provider")]
    pub clear: bool,
}

/// Flags of `relay device forget`.
#[derive(clap::Args, Debug)]
#[command(after_help = help_end(&["\
relay device forget --user 0f8fad5b-d9cb-469f-a165-70867728950e \\
--device 7c9e6679-7425-40de-944b-e07fc1f90ae7"]))]
pub struct Forget {
    /// Where and as whom
    #[command(flatten)]
    pub access: Access,
    /// The device
    #[arg(long, value_name = "UUID")]
    pub device: DeviceId,
}

/// Makes the call and prints its outcome.
///
/// # Errors
/// The server refused or cannot be reached.
pub async fn run(command: &Command) -> Result<(), CliError> {
    match command {
        Command::Add(args) => add(args).await,
        Command::List(args) => list(args).await,
        Command::PushToken(args) => push_token(args).await,
        Command::Forget(args) => forget(args).await,
    }
}

async fn add(args: &Add) -> Result<(), CliError> {
    let new = NewDevice {
        device_id: args.device,
        role: args.role,
        device_name: args.name.clone(),
        platform: args.platform.clone(),
        app_version: args.app_version.clone(),
        relay_eligible: None,
    };
    let device = client(&args.access)?.register(&new).await.map_err(|error| api_error(&error, &args.access.url))?;
    if args.json {
        print(format_args!("{}\n", json!(device)))
    } else {
        print(format_args!("{} {} is registered\n", device.role, device.device_id))
    }
}

async fn list(args: &List) -> Result<(), CliError> {
    let devices = client(&args.access)?.list().await.map_err(|error| api_error(&error, &args.access.url))?;
    if args.json { print(format_args!("{}\n", json!({"devices": devices}))) } else { print(table(&devices)) }
}

async fn push_token(args: &PushToken) -> Result<(), CliError> {
    let devices = client(&args.access)?;
    let explain = |error: &_| api_error(error, &args.access.url);
    let Some(provider) = args.provider else {
        devices.release_push_token(args.device).await.map_err(|error| explain(&error))?;
        return print(format_args!("{} has no push token\n", args.device));
    };
    // One byte more than the longest token and its line end tells what is none.
    let mut text = String::new();
    let longest = PUSH_TOKEN_BYTES_MAX as u64 + 3;
    io::stdin().take(longest).read_to_string(&mut text).map_err(|error| CliError::failed(format!("standard input: {error}")))?;
    let token = text.trim().parse().map_err(|problem: Malformed| CliError::usage(format!("standard input is no push token: {problem}")))?;
    let address = PushAddress { provider, token, environment: args.environment, app_id: args.app_id.clone() };
    devices.claim_push_token(args.device, &address).await.map_err(|error| explain(&error))?;
    print(format_args!("{} has claimed it\n", args.device))
}

async fn forget(args: &Forget) -> Result<(), CliError> {
    client(&args.access)?.forget(args.device).await.map_err(|error| api_error(&error, &args.access.url))?;
    print(format_args!("{} is forgotten\n", args.device))
}

fn client(access: &Access) -> Result<Devices, CliError> {
    Devices::new(access.url.clone(), access.bearer(OWN_TOKEN_TTL)?).map_err(CliError::failed)
}

fn table(devices: &[Device]) -> String {
    let cells = |device: &Device| {
        [
            device.device_id.to_string(),
            device.role.to_string(),
            device.presence.unwrap_or(Presence::Disconnected).to_string(),
            if device.relay_eligible { "yes" } else { "no" }.to_owned(),
            printable(&device.platform),
            printable(&device.device_name),
        ]
    };
    columns(["DEVICE", "ROLE", "PRESENCE", "ELIGIBLE", "PLATFORM", "NAME"], devices.iter().map(cells))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_lines_up_and_shows_no_control_characters() {
        let device = |id: &str, name: &str, role, presence| Device {
            device_id: id.parse().unwrap(),
            role,
            device_name: name.to_owned(),
            platform: "linux".to_owned(),
            app_version: "1".to_owned(),
            relay_eligible: role == Role::Desktop,
            status: None,
            presence,
        };
        let devices = [
            device("de5c0000-0000-4000-8000-000000000003", "Büro", Role::Desktop, Some(Presence::Reconnecting)),
            device("f0e00000-0000-4000-8000-000000000004", "\u{1b}[2J\u{9b}x", Role::Mobile, None),
        ];
        assert_eq!(
            table(&devices),
            "\
DEVICE                                ROLE     PRESENCE      ELIGIBLE  PLATFORM  NAME
de5c0000-0000-4000-8000-000000000003  desktop  reconnecting  yes       linux     Büro
f0e00000-0000-4000-8000-000000000004  mobile   disconnected  no        linux     \u{fffd}[2J\u{fffd}x
"
        );
        assert_eq!(table(&[]), "DEVICE  ROLE  PRESENCE  ELIGIBLE  PLATFORM  NAME\n");
    }
}
