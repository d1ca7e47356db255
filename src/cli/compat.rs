//! `relay compat`: the compatibility rules, over the admin listener.

use super::{
    CliError,
    access::AdminAccess,
    explain::api_error,
    help_end, print,
    table::{columns, printable},
};
use clap::Subcommand;
use relay_endpoints::admin::CompatibilityRule;
use relay_protocol::{
    compatibility::{RuleId, RuleKind, RuleSpec},
    device::Role,
};
use serde_json::json;

/// The commands under `relay compat`.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// List the rules, oldest first
    List(List),
    /// Add a rule; relays use it once those that they have read are older than their --policy-cache
    Add(Box<Add>),
    /// Remove a rule
    Remove(Remove),
}

/// Flags of `relay compat list`.
#[derive(clap::Args, Debug)]
#[command(after_help = help_end(&["relay compat list --json"]))]
pub struct List {
    /// Where and as whom
    #[command(flatten)]
    pub access: AdminAccess,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Flags of `relay compat add`.
#[derive(clap::Args, Debug)]
#[command(after_help = help_end(&["\
relay compat add --kind minimum --client mobile --platform ios \\
--min-app-version 2.0", "\
relay compat add --kind block --client desktop \\
--min-app-version 1.4 --max-app-version 1.4.2", "\
relay compat add --kind pair --client mobile --min-app-version 3 \\
--pair-min-app-version 2.1"]))]
pub struct Add {
    /// Where and as whom
    #[command(flatten)]
    pub access: AdminAccess,
    /// minimum (demands a lowest version), block (refuses a range), pair (demands a lowest version of the other side)
    #[arg(long)]
    pub kind: RuleKind,
    /// Whose versions it is about: desktop, mobile
    #[arg(long, value_name = "ROLE")]
    pub client: Role,
    /// Platform, in any letter case [default: every one]
    #[arg(long)]
    pub platform: Option<String>,
    /// What a minimum demands; else the first version of the range [default: open]
    #[arg(long, value_name = "VERSION")]
    pub min_app_version: Option<String>,
    /// The last version of the range [default: open]
    #[arg(long, value_name = "VERSION")]
    pub max_app_version: Option<String>,
    /// The lowest version of the other side that a pair demands
    #[arg(long, value_name = "VERSION")]
    pub pair_min_app_version: Option<String>,
    /// The lowest relay protocol version, of every client that registers
    #[arg(long, value_name = "VERSION")]
    pub minimum_relay_protocol_version: Option<String>,
    /// What refused clients show [default: the relay's text]
    #[arg(long, value_name = "TEXT")]
    pub message: Option<String>,
    /// Print the rule as JSON
    #[arg(long)]
    pub json: bool,
}

/// Flags of `relay compat remove`.
#[derive(clap::Args, Debug)]
#[command(after_help = help_end(&["relay compat remove --id 3"]))]
pub struct Remove {
    /// Where and as whom
    #[command(flatten)]
    pub access: AdminAccess,
    /// The rule's id, as `relay compat list` shows it
    #[arg(long, value_name = "NUMBER")]
    pub id: RuleId,
}

/// Makes the call and prints its outcome.
///
/// # Errors
/// The rule cannot be one, or the relay refused or cannot be reached.
pub async fn run(command: &Command) -> Result<(), CliError> {
    match command {
        Command::List(args) => list(args).await,
        Command::Add(args) => add(args).await,
        Command::Remove(args) => remove(args).await,
    }
}

async fn list(args: &List) -> Result<(), CliError> {
    let rules = args.access.client()?.compatibility_rules().await.map_err(|error| api_error(&error, &args.access.admin_url))?;
    if args.json { print(format_args!("{}\n", json!({"rules": rules}))) } else { print(table(&rules)) }
}

async fn add(args: &Add) -> Result<(), CliError> {
    let rule = RuleSpec {
        kind: args.kind,
        client: args.client,
        platform: args.platform.clone(),
        min_app_version: args.min_app_version.clone(),
        max_app_version: args.max_app_version.clone(),
        pair_min_app_version: args.pair_min_app_version.clone(),
        minimum_relay_protocol_version: args.minimum_relay_protocol_version.clone(),
        message: args.message.clone(),
    };
    rule.validate().map_err(CliError::usage)?;
    let added = args.access.client()?.add_compatibility_rule(&rule).await.map_err(|error| api_error(&error, &args.access.admin_url))?;
    if args.json { print(format_args!("{}\n", json!(added))) } else { print(format_args!("rule {} is added\n", added.id)) }
}

async fn remove(args: &Remove) -> Result<(), CliError> {
    args.access.client()?.remove_compatibility_rule(args.id).await.map_err(|error| api_error(&error, &args.access.admin_url))?;
    print(format_args!("rule {} is removed\n", args.id))
}

fn table(rules: &[CompatibilityRule]) -> String {
    let shown = |text: &Option<String>| text.as_deref().map_or_else(|| "-".to_owned(), printable);
    let cells = |CompatibilityRule { id, rule, created_at: _ }: &CompatibilityRule| {
        [
            id.to_string(),
            rule.kind.to_string(),
            rule.client.to_string(),
            shown(&rule.platform),
            shown(&rule.min_app_version),
            shown(&rule.max_app_version),
            shown(&rule.pair_min_app_version),
            shown(&rule.minimum_relay_protocol_version),
            shown(&rule.message),
        ]
    };
    columns(["ID", "KIND", "CLIENT", "PLATFORM", "MIN", "MAX", "PAIR MIN", "PROTOCOL", "MESSAGE"], rules.iter().map(cells))
}
