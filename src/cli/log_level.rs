//! `relay log-level`: what a running relay logs.

use super::{CliError, access::AdminAccess, explain::api_error, help_end, print, table::printable};
use relay_endpoints::admin::LogFilter;
use serde_json::json;

/// Flags of `relay log-level`.
#[derive(clap::Args, Debug)]
#[command(after_help = help_end(&["relay log-level", "relay log-level info,relay_actors=debug"]))]
pub struct Args {
    /// Log this from now on, until the process ends: a level, or levels by target [default: change nothing]
    pub filter: Option<String>,
    /// Where and as whom
    #[command(flatten)]
    pub access: AdminAccess,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Replaces the filter if one is given, and prints the one in use.
///
/// # Errors
/// The relay refused or cannot be reached.
pub async fn run(args: &Args) -> Result<(), CliError> {
    let admin = args.access.client()?;
    let answer = match &args.filter {
        Some(filter) => admin.replace_log_filter(&LogFilter { filter: filter.clone() }).await,
        None => admin.log_filter().await,
    };
    let in_use = answer.map_err(|error| api_error(&error, &args.access.admin_url))?;
    if args.json { print(format_args!("{}\n", json!(in_use))) } else { print(format_args!("{}\n", printable(&in_use.filter))) }
}
