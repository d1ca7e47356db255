//! `relay-bench`: the load generator on its own.

use clap::{CommandFactory, FromArgMatches, Parser};
use relay_bench::cli::{self, Front};
use std::process::ExitCode;

/// Load generator for the relay, and the floor to compare it with
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: cli::Command,
}

fn main() -> ExitCode {
    let command_line = cli::with_examples(Arguments::command(), |example| format!("Example: relay-bench {example}"));
    let arguments = Arguments::from_arg_matches(&command_line.get_matches()).unwrap_or_else(|error| error.exit());
    match cli::execute(arguments.command, Front::Alone) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("relay-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
