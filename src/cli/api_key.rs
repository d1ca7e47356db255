//! `relay api-key`: an account's API keys, over the public API.

use super::{
    CliError,
    access::Access,
    explain::api_error,
    help_end, print,
    table::{columns, printable},
};
use crate::limits::OWN_TOKEN_TTL;
use clap::Subcommand;
use relay_endpoints::api_keys::{ApiKey, ApiKeys, NewApiKey};
use relay_protocol::{id::ApiKeyId, identity::Scopes};
use serde_json::json;

/// The commands under `relay api-key`.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Make a key and print it; it is shown only now
    Create(Create),
    /// List the account's keys, without their secrets
    List(List),
    /// Revoke a key: the sockets that it opened are closed, their sessions end
    Revoke(Revoke),
}

/// Flags of `relay api-key create`.
#[derive(clap::Args, Debug)]
#[command(after_help = help_end(&["\
relay api-key create --user 0f8fad5b-d9cb-469f-a165-70867728950e \\
--scopes rpc,read --name dashboard"]))]
pub struct Create {
    /// Where and as whom
    #[command(flatten)]
    pub access: Access,
    /// What it allows: rpc (device sockets), read, write
    #[arg(long, value_name = "LIST", value_parser = scopes)]
    pub scopes: Scopes,
    /// Name for people
    #[arg(long)]
    pub name: Option<String>,
    /// Print key and id as JSON
    #[arg(long)]
    pub json: bool,
}

/// Flags of `relay api-key list`.
#[derive(clap::Args, Debug)]
#[command(after_help = help_end(&["relay api-key list --user 0f8fad5b-d9cb-469f-a165-70867728950e --json"]))]
pub struct List {
    /// Where and as whom
    #[command(flatten)]
    pub access: Access,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Flags of `relay api-key revoke`.
#[derive(clap::Args, Debug)]
#[command(after_help = help_end(&["\
relay api-key revoke --user 0f8fad5b-d9cb-469f-a165-70867728950e \\
--id 9b2f0c66-5a1d-4b7e-8f3a-2d0f6c1e7a54"]))]
pub struct Revoke {
    /// Where and as whom
    #[command(flatten)]
    pub access: Access,
    /// The key's id, as `relay api-key list` shows it
    #[arg(long, value_name = "UUID")]
    pub id: ApiKeyId,
}

fn scopes(text: &str) -> Result<Scopes, String> {
    let scopes: Scopes = text.parse().map_err(|error: relay_protocol::identity::NotAScope| error.to_string())?;
    if scopes.is_empty() { Err(format!("name at least one of {}", Scopes::ALL)) } else { Ok(scopes) }
}

/// Makes the call and prints its outcome.
///
/// # Errors
/// The server refused or cannot be reached.
pub async fn run(command: &Command) -> Result<(), CliError> {
    match command {
        Command::Create(args) => create(args).await,
        Command::List(args) => list(args).await,
        Command::Revoke(args) => revoke(args).await,
    }
}

/// The key stands alone on standard output, for `RELAY_TOKEN=$(relay api-key create …)`.
async fn create(args: &Create) -> Result<(), CliError> {
    let new = NewApiKey { name: args.name.clone(), scopes: args.scopes };
    let created = client(&args.access)?.create(&new).await.map_err(|error| api_error(&error, &args.access.url))?;
    if args.json {
        return print(format_args!("{}\n", json!(created)));
    }
    eprintln!("API key {} allows {}. Keep it: it is not shown again.", created.shown.api_key_id, created.shown.scopes);
    print(format_args!("{}\n", created.api_key))
}

async fn list(args: &List) -> Result<(), CliError> {
    let keys = client(&args.access)?.list().await.map_err(|error| api_error(&error, &args.access.url))?;
    if args.json { print(format_args!("{}\n", json!({"apiKeys": keys}))) } else { print(table(&keys)) }
}

async fn revoke(args: &Revoke) -> Result<(), CliError> {
    client(&args.access)?.revoke(args.id).await.map_err(|error| api_error(&error, &args.access.url))?;
    print(format_args!("{} is revoked\n", args.id))
}

fn client(access: &Access) -> Result<ApiKeys, CliError> {
    ApiKeys::new(access.url.clone(), access.bearer(OWN_TOKEN_TTL)?).map_err(CliError::failed)
}

fn table(keys: &[ApiKey]) -> String {
    let cells = |key: &ApiKey| {
        let name = key.name.as_deref().unwrap_or_default();
        [key.api_key_id.to_string(), key.scopes.to_string(), printable(&key.created_at), printable(name)]
    };
    columns(["API KEY", "SCOPES", "CREATED", "NAME"], keys.iter().map(cells))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_named_and_at_least_one() {
        assert_eq!(scopes("read,rpc").unwrap().to_string(), "rpc,read");
        for (text, told) in [("", "at least one of rpc,read,write"), ("admin", "\"admin\" is no scope"), ("rpc read", "is no scope")] {
            let error = scopes(text).unwrap_err();
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}
