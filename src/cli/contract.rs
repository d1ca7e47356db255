//! `relay contract`: whether every copy of the method contract says the same.

use super::{
    CliError, help_end, print,
    table::{columns, printable},
};
use crate::{
    contract::{Format, Manifest, Report, check_names},
    limits::CONTRACT_FILE_BYTES_MAX,
};
use clap::Subcommand;
use serde_json::{Value, json};
use std::{
    fmt::Write,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

/// The commands under `relay contract`.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Compare every copy of the method contract with the manifest, and name each difference
    Check(CheckArgs),
}

/// Flags of `relay contract check`.
#[derive(clap::Args, Debug)]
#[command(after_help = help_end(&[
    "relay contract check",
    "relay contract check --swift ios/RpcMethod.swift \\\n--kotlin android/RpcMethod.kt",
]))]
pub struct CheckArgs {
    /// The manifest that counts [default: the one that this program is built with]
    #[arg(long, value_name = "FILE")]
    pub manifest: Option<PathBuf>,
    /// Swift source with a phone's enum; its raw values are compared
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub swift: Vec<PathBuf>,
    /// Kotlin source with a phone's enum class; its entries' strings are compared
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub kotlin: Vec<PathBuf>,
    /// JSON array with a phone's methods
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub list: Vec<PathBuf>,
    /// Name of the enums
    #[arg(long = "enum", value_name = "NAME", default_value = "RpcMethod")]
    pub enum_name: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs a command under `relay contract`.
///
/// # Errors
/// A copy differs or is not understood, or a file cannot be read.
pub fn run(command: &Command) -> Result<(), CliError> {
    match command {
        Command::Check(args) => check(args),
    }
}

fn check(args: &CheckArgs) -> Result<(), CliError> {
    let mut reports = Vec::new();
    let (name, manifest) = match &args.manifest {
        Some(path) => (path.display().to_string(), Manifest::read(&read("manifest", path)?)),
        None => ("manifest".to_owned(), Manifest::compiled_in()),
    };
    match (manifest, Manifest::of_relay()) {
        (Ok(manifest), Ok(relay)) => {
            reports.push((name, manifest.check()));
            reports.push(("relay".to_owned(), manifest.compare(&relay)));
            for (flag, format, paths) in
                [("swift", Format::Swift, &args.swift), ("kotlin", Format::Kotlin, &args.kotlin), ("list", Format::List, &args.list)]
            {
                for path in paths {
                    let report = check_names(&manifest, format, &read(flag, path)?, &args.enum_name);
                    reports.push((path.display().to_string(), report));
                }
            }
        }
        (Err(problem), _) => reports.push((name, problem.into())),
        (_, Err(problem)) => reports.push(("relay".to_owned(), problem.into())),
    }
    let differing = reports.iter().filter(|(_, report)| !report.differences.is_empty()).count();
    print(if args.json { format!("{}\n", as_json(&reports)) } else { as_text(&reports) })?;
    match differing {
        0 => Ok(()),
        differing => Err(CliError::failed(format_args!("{differing} of {} do not agree with the manifest", reports.len()))),
    }
}

fn read(flag: &str, path: &Path) -> Result<String, CliError> {
    let problem = |problem: &dyn std::fmt::Display| CliError::usage(format_args!("--{flag} {}: {problem}", path.display()));
    let mut text = String::new();
    let file = File::open(path).map_err(|error| problem(&error))?;
    file.take(CONTRACT_FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| problem(&error))?;
    if text.len() as u64 > CONTRACT_FILE_BYTES_MAX {
        return Err(problem(&format_args!("it has more than {CONTRACT_FILE_BYTES_MAX} bytes")));
    }
    Ok(text)
}

/// A line for each difference, as compilers write theirs, below a table of the copies.
fn as_text(reports: &[(String, Report)]) -> String {
    let rows = reports.iter().map(|(name, report)| {
        let methods = report.methods.map_or_else(|| "-".to_owned(), |methods| methods.to_string());
        let result = match (report.methods, report.differences.len()) {
            (None, _) => "not understood".to_owned(),
            (Some(_), 0) => "agrees".to_owned(),
            (Some(_), 1) => "1 difference".to_owned(),
            (Some(_), count) => format!("{count} differences"),
        };
        [printable(name), methods, result]
    });
    let mut text = columns(["COPY", "METHODS", "RESULT"], rows);
    for (name, report) in reports {
        for difference in &report.differences {
            let line = difference.line.map(|line| format!(":{line}")).unwrap_or_default();
            let place = difference.place.as_ref().map(|place| format!("{place}: ")).unwrap_or_default();
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{}", printable(&format!("{name}{line}: {place}{}", difference.what)));
        }
    }
    text
}

fn as_json(reports: &[(String, Report)]) -> Value {
    let copies = reports.iter().map(|(name, report)| json!({ "copy": name, "methods": report.methods, "differences": report.differences }));
    json!({ "agree": reports.iter().all(|(_, report)| report.differences.is_empty()), "copies": copies.collect::<Vec<_>>() })
}
