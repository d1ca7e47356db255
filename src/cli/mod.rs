//! The command line: one module per command.
//!
//! Standard output carries what a command was asked for, standard error everything else. Exit codes are the same for all:
//! [`EXIT_CODES`].

pub mod access;
mod client;
pub mod demo;
pub mod desktop;
pub mod device;
pub mod migrate;
pub mod phone;
pub mod serve;
pub mod token;
pub mod welcome;

use clap::{Parser, Subcommand};
use std::{
    fmt::{self, Display},
    io::{self, Write},
    process::ExitCode,
};

/// The exit codes, as every `--help` ends.
pub const EXIT_CODES: &str =
    "Exit codes: 0 done, 1 failed or refused, 2 wrong use or configuration, 3 the server cannot be reached or asks to try later";

/// A self-hosted relay: phones call desktops over it
#[derive(Parser, Debug)]
#[command(name = "relay", version, propagate_version = true, max_term_width = 120, after_help = EXIT_CODES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run the relay until SIGTERM or Ctrl-C; a second signal ends it at once
    Serve(serve::Args),
    /// Print an account token (JWT), made with the relay's own secret
    Token(token::Args),
    /// Add, list and forget an account's devices
    #[command(subcommand)]
    Device(device::Command),
    /// Apply missing migrations to the database and list all of them; `serve` does the same at its start
    Migrate(migrate::Args),
    /// Run a sample desktop that phones can call, until Ctrl-C
    Desktop(desktop::Args),
    /// Do what a phone does: call a desktop
    Phone(phone::Args),
}

/// What a command's `--help` ends with.
pub fn help_end(example: &str) -> String {
    format!("Example: {example}\n\n{EXIT_CODES}")
}

#[cfg(test)]
impl Cli {
    /// The configuration of `relay serve` with these flags.
    pub(crate) fn serve_config(flags: &[&str]) -> crate::config::ServeConfig {
        let command = Cli::try_parse_from(["relay", "serve"].iter().chain(flags)).unwrap().command;
        let Command::Serve(args) = command else { panic!("{command:?}") };
        args.config
    }
}

/// Why a command ends without success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CliError {
    /// It failed, or the server refused: exit code 1.
    Failed(String),
    /// It was used or configured wrongly: exit code 2.
    Usage(String),
    /// The server cannot be reached, or asks to try later: exit code 3.
    TryLater(String),
}

impl CliError {
    /// A failure that tells this.
    pub fn failed(problem: impl Display) -> Self {
        CliError::Failed(problem.to_string())
    }

    /// A wrong use that tells this.
    pub fn usage(problem: impl Display) -> Self {
        CliError::Usage(problem.to_string())
    }

    /// See [`EXIT_CODES`].
    pub fn exit_code(&self) -> u8 {
        match self {
            CliError::Failed(_) => 1,
            CliError::Usage(_) => 2,
            CliError::TryLater(_) => 3,
        }
    }
}

impl Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CliError::Failed(problem) | CliError::Usage(problem) | CliError::TryLater(problem) => f.write_str(problem),
        }
    }
}

impl std::error::Error for CliError {}

/// Runs the command that this process was started with.
pub fn main() -> ExitCode {
    // Wrong flags end here, with clap's text and exit code 2.
    let cli = Cli::parse();
    match run(cli.command) {
        Ok(code) => code,
        Err(error) => {
            // Nobody is left to tell when standard error is gone too.
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(command: Command) -> Result<ExitCode, CliError> {
    match command {
        Command::Serve(args) => serve::run(&args)?,
        Command::Token(args) => token::run(&args)?,
        Command::Device(command) => block_on(device::run(&command))?,
        Command::Migrate(args) => migrate::run(&args)?,
        Command::Desktop(args) => return block_on(desktop::run(args)),
        Command::Phone(args) => return block_on(phone::run(args)),
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a client command on a small runtime of its own.
///
/// # Errors
/// The command's, or the runtime cannot start.
pub fn block_on<T>(work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliError::failed)?.block_on(work)
}

/// Writes to standard output. A reader that left early, like `head`, is no failure.
///
/// # Errors
/// Standard output cannot be written for another reason.
pub fn print(text: impl Display) -> Result<(), CliError> {
    let mut output = io::stdout().lock();
    match write!(output, "{text}").and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(CliError::failed(format!("standard output: {error}"))),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn each(command: &mut clap::Command, check: &mut impl FnMut(&mut clap::Command)) {
        command.build();
        for child in command.get_subcommands_mut().filter(|child| child.get_name() != "help") {
            check(child);
            each(child, check);
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example_that_parses() {
        let mut checked = 0;
        each(&mut Cli::command(), &mut |command| {
            if command.has_subcommands() {
                return;
            }
            let end = command.get_after_help().unwrap_or_else(|| panic!("{}", command.get_name())).to_string();
            let example = end.lines().find_map(|line| line.strip_prefix("Example: ")).unwrap_or_else(|| panic!("{end}"));
            Cli::try_parse_from(example.split(' ')).unwrap_or_else(|error| panic!("{example}: {error}"));
            assert!(end.contains(EXIT_CODES), "{end}");
            checked += 1;
        });
        assert!(checked >= 6, "{checked}");
    }

    #[test]
    fn no_help_text_shows_a_secret_of_the_environment() {
        each(&mut Cli::command(), &mut |command| {
            for argument in command.get_arguments() {
                let name = argument.get_id().as_str();
                if name.contains("secret") || name.contains("token") {
                    assert!(argument.is_hide_env_values_set(), "{} --{name}", command.get_name());
                }
            }
        });
    }
}
