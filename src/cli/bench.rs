//! `relay bench`: the load generator (`bench/`), with this program as the relay that it measures.

use super::{CliError, help_end};
use clap::{ArgMatches, Error, FromArgMatches, Subcommand};
use relay_bench::cli::{self, Front};

/// The commands under `relay bench`: those of the generator, whose help ends like every other of this program.
#[derive(Debug)]
pub struct Command(cli::Command);

impl FromArgMatches for Command {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        cli::Command::from_arg_matches(matches).map(Command)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl Subcommand for Command {
    fn augment_subcommands(command: clap::Command) -> clap::Command {
        with_help(cli::Command::augment_subcommands(command))
    }

    fn augment_subcommands_for_update(command: clap::Command) -> clap::Command {
        with_help(cli::Command::augment_subcommands_for_update(command))
    }

    fn has_subcommand(name: &str) -> bool {
        cli::Command::has_subcommand(name)
    }
}

fn with_help(commands: clap::Command) -> clap::Command {
    cli::with_examples(commands, |example| help_end(&[&format!("relay bench {example}")]))
}

/// Measures, and prints the report.
///
/// # Errors
/// It could not be measured, or some of its calls failed.
pub fn run(command: Command) -> Result<(), CliError> {
    cli::execute(command.0, Front::Relay).map_err(|error| CliError::refused(error.is_connection_lost(), error))
}
