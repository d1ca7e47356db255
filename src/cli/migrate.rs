//! `relay migrate`: brings the database's schema up to date without serving.

use super::{CliError, help_end, print};
use crate::{
    config::{DATA_DIR_DEFAULT, database_settings},
    secrets::{Secret, prepare_data_dir},
    wiring,
};
use relay_actors::store::migrate::MigrationReport;
use serde_json::json;
use std::{fmt::Write, path::PathBuf};

/// Flags of `relay migrate`.
#[derive(clap::Args, Debug)]
#[command(after_help = help_end(&["relay migrate --data-dir ./relay-data", "relay migrate --database-url postgres://relay@localhost/relay"]))]
pub struct Args {
    /// Data directory with the embedded database; made if it is not there
    #[arg(long, env = "RELAY_DATA_DIR", value_name = "PATH", default_value = DATA_DIR_DEFAULT)]
    pub data_dir: PathBuf,
    /// PostgreSQL database to migrate instead, as `relay serve` takes it; waited for as long
    #[arg(long, env = "RELAY_DATABASE_URL", value_name = "URL", hide_env_values = true)]
    pub database_url: Option<Secret>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Migrates, then prints what was there and what is new.
///
/// # Errors
/// The database cannot be used, is not there in time, or a newer relay has used it.
pub async fn run(args: &Args) -> Result<(), CliError> {
    let report = match database_settings(args.database_url.as_ref()).map_err(CliError::usage)? {
        Some(settings) => wiring::migrate_server(&settings).await,
        None => {
            prepare_data_dir(&args.data_dir).map_err(CliError::data_dir)?;
            wiring::migrate_embedded(&args.data_dir)
        }
    };
    let report = report.map_err(|error| CliError::storage(&error))?;
    if args.json { print(format_args!("{}\n", as_json(&report))) } else { print(as_text(&report)) }
}

fn as_json(report: &MigrationReport) -> serde_json::Value {
    let names = |migrations: &[relay_actors::store::migrate::Migration]| migrations.iter().map(ToString::to_string).collect::<Vec<_>>();
    json!({"present": names(&report.present), "applied": names(&report.applied)})
}

fn as_text(report: &MigrationReport) -> String {
    let mut text = String::new();
    let present = report.present.iter().map(|migration| (migration, "present"));
    for (migration, state) in present.chain(report.applied.iter().map(|migration| (migration, "applied"))) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{state}  {migration}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_run_applies_and_the_second_finds() {
        let root = tempfile::tempdir().unwrap();
        let data_dir = root.path().join("relay-data");
        prepare_data_dir(&data_dir).unwrap();
        let first = wiring::migrate_embedded(&data_dir).unwrap();
        let second = wiring::migrate_embedded(&data_dir).unwrap();
        assert!(!first.applied.is_empty() && second.applied.is_empty());
        assert_eq!(as_text(&first).replace("applied", "present"), as_text(&second));
        assert!(as_text(&first).starts_with("applied  0001_"));
        assert_eq!(as_json(&first)["applied"], as_json(&second)["present"]);
    }
}
