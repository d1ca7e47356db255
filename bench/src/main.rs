//! `relay-bench`: the load generator on its own.

use clap::Parser;
use relay_bench::cli;
use std::process::ExitCode;

/// Load generator for the relay, and the floor to compare it with
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: cli::Command,
}

fn main() -> ExitCode {
    match cli::execute(Arguments::parse().command, &[]) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("relay-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
