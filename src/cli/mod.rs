//! The command line: one module per command.
//!
//! Standard output carries what a command was asked for, standard error everything else. How a command ended is a [`CliError`] or
//! success, and [`EXIT_CODES`] is the one table of exit codes.

pub mod access;
pub mod api_key;
pub mod bench;
pub mod compat;
pub mod contract;
pub mod demo;
pub mod desktop;
pub mod device;
pub mod drain;
mod explain;
pub mod log_level;
pub mod migrate;
pub mod phone;
pub mod push;
pub mod serve;
pub mod status;
mod table;
pub mod token;
pub mod welcome;

use crate::{config::Settings, wiring::StorageError};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::{
    fmt::{self, Display},
    io::{self, Write},
    process::ExitCode,
};

/// The exit codes, as every `--help` ends.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed or refused: the same command would fail again
  2  wrong use or configuration
  3  no connection, or refused for now: the same command may succeed later
  4  no answer in time: whether the method ran is unknown";

/// A self-hosted relay: phones call desktops over it
#[derive(Parser, Debug)]
#[command(name = "relay", version, propagate_version = true, max_term_width = 120, after_help = help_end(&["relay serve"]))]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run the relay until SIGTERM or Ctrl-C, which drain it first; a second signal ends it at once
    Serve(Box<serve::Args>),
    /// Have a running relay leave: nothing new is taken on, work in progress ends, every socket is told to go
    Drain(drain::Args),
    /// Show what a running relay is, holds and does
    Status(status::Args),
    /// Show what a running relay logs, or change it until the process ends
    LogLevel(log_level::Args),
    /// Print an account token (JWT), made with the relay's own secret
    Token(token::Args),
    /// Add, list and forget an account's devices
    #[command(subcommand, after_help = help_end(&["relay device list --user 0f8fad5b-d9cb-469f-a165-70867728950e"]))]
    Device(device::Command),
    /// Make, list and revoke an account's API keys, each with scopes
    #[command(name = "api-key", subcommand, after_help = help_end(&["relay api-key list --user 0f8fad5b-d9cb-469f-a165-70867728950e"]))]
    ApiKey(api_key::Command),
    /// List, add and remove the rules about which client versions may be used
    #[command(subcommand, after_help = help_end(&["relay compat list"]))]
    Compat(compat::Command),
    /// Try out whether phones can be reached by push
    #[command(subcommand, after_help = help_end(&["relay push test --device a2d1c7f4-3b6e-4d0a-9c55-6e1f7b8d9e12"]))]
    Push(push::Command),
    /// Apply missing migrations to the database and list all of them; `serve` does the same at its start
    Migrate(migrate::Args),
    /// Run a sample desktop that phones can call, until Ctrl-C
    Desktop(desktop::Args),
    /// Do what a phone does: call a desktop, watch one of its sessions
    Phone(phone::Args),
    /// Hold every copy of the method contract against the manifest
    #[command(subcommand, after_help = help_end(&["relay contract check"]))]
    Contract(contract::Command),
    /// Measure what a relay costs, beside the least that any relay costs here (the floor)
    #[command(subcommand, after_help = help_end(&["relay bench rpc --pairs 50 --window 4 --size 200"]))]
    Bench(bench::Command),
}

/// What a command's `--help` ends with: examples, ready to type, and the exit codes. A line of an example must fit a terminal with
/// room to spare, since a longer one is broken where no shell expects it.
pub fn help_end(examples: &[&str]) -> String {
    let examples: String = examples.iter().map(|example| format!("  {}\n", example.replace('\n', "\n      "))).collect();
    format!("{EXAMPLES}\n{examples}\n{EXIT_CODES}")
}

/// Heads the examples of a help text.
const EXAMPLES: &str = "Examples:";

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
    /// It failed, or was refused for good: exit code 1.
    Failed(String),
    /// It was used or configured wrongly: exit code 2.
    Usage(String),
    /// The relay or the desktop cannot be reached, asks to try later, or was lost: exit code 3.
    TryLater(String),
    /// A call's answer did not come in time: exit code 4.
    TimedOut(String),
}

impl CliError {
    /// A failure that tells this.
    pub fn failed(problem: impl Display) -> Self {
        CliError::Failed(problem.to_string())
    }

    /// A data directory that cannot be used. The text names the file; this adds the flag.
    pub fn data_dir(problem: impl Display) -> Self {
        CliError::Failed(format!("{problem}\nanother data directory is chosen with --data-dir"))
    }

    /// A storage that cannot be opened; for the embedded one this adds the flag.
    pub fn storage(error: &StorageError) -> Self {
        match error {
            StorageError::Config(error) => CliError::usage(error),
            StorageError::Embedded(error) => CliError::data_dir(error),
            StorageError::Server(error) => CliError::failed(error),
        }
    }

    /// A wrong use that tells this.
    pub fn usage(problem: impl Display) -> Self {
        CliError::Usage(problem.to_string())
    }

    /// A refusal that tells this: whether the one who refused says that the same may succeed later decides the exit code.
    pub fn refused(retryable: bool, problem: impl Display) -> Self {
        if retryable { CliError::TryLater(problem.to_string()) } else { CliError::Failed(problem.to_string()) }
    }

    /// See [`EXIT_CODES`].
    pub fn exit_code(&self) -> u8 {
        match self {
            CliError::Failed(_) => 1,
            CliError::Usage(_) => 2,
            CliError::TryLater(_) => 3,
            CliError::TimedOut(_) => 4,
        }
    }
}

impl Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CliError::Failed(problem) | CliError::Usage(problem) | CliError::TryLater(problem) | CliError::TimedOut(problem) => {
                f.write_str(problem)
            }
        }
    }
}

impl std::error::Error for CliError {}

/// Runs the command that this process was started with.
pub fn main() -> ExitCode {
    match parse().and_then(|cli| run(cli.command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody is left to tell when standard error is gone too.
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

/// Reads the command line and, below that of `relay serve`, its configuration file. Wrong flags end the process, with clap's text and
/// exit code 2.
fn parse() -> Result<Cli, CliError> {
    let given = Cli::command().get_matches();
    let file = given.subcommand_matches(serve::NAME).map(serve::file).transpose()?.flatten();
    let matches = match &file {
        Some(file) => Cli::command().mut_subcommand(serve::NAME, |serve| file.below(serve)).get_matches(),
        None => given,
    };
    let mut cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    if let (Command::Serve(args), Some(flags)) = (&mut cli.command, matches.subcommand_matches(serve::NAME)) {
        args.settings = Settings::of(flags, file.as_ref());
    }
    Ok(cli)
}

fn run(command: Command) -> Result<(), CliError> {
    match command {
        Command::Serve(args) => serve::run(&args),
        Command::Drain(args) => block_on(drain::run(&args)),
        Command::Status(args) => block_on(status::run(&args)),
        Command::LogLevel(args) => block_on(log_level::run(&args)),
        Command::Token(args) => token::run(&args),
        Command::Device(command) => block_on(device::run(&command)),
        Command::Compat(command) => block_on(compat::run(&command)),
        Command::Push(command) => block_on(push::run(&command)),
        Command::Migrate(args) => block_on(migrate::run(&args)),
        Command::ApiKey(command) => block_on(api_key::run(&command)),
        Command::Desktop(args) => block_on(desktop::run(args)),
        Command::Phone(args) => block_on(phone::run(args)),
        Command::Contract(command) => contract::run(&command),
        Command::Bench(command) => bench::run(command),
    }
}

/// Runs a client command on a small runtime of its own.
fn block_on(work: impl Future<Output = Result<(), CliError>>) -> Result<(), CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliError::failed)?;
    let outcome = runtime.block_on(work);
    // A write to a standard output that nobody reads must not keep the process.
    runtime.shutdown_background();
    outcome
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

    fn each(command: &mut clap::Command, check: &mut impl FnMut(&mut clap::Command)) {
        command.build();
        check(command);
        for child in command.get_subcommands_mut().filter(|child| child.get_name() != "help") {
            each(child, check);
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_help_shows_examples_that_parse_and_the_exit_codes() {
        let mut checked = 0;
        each(&mut Cli::command(), &mut |command| {
            let help = command.clone().term_width(80).render_help().to_string();
            assert!(help.contains(EXIT_CODES), "{help}");
            let (_, after) = help.split_once(EXAMPLES).unwrap_or_else(|| panic!("{help}"));
            let shown: Vec<&str> = after.lines().skip(1).map_while(|line| line.strip_prefix("  ")).collect();
            // A shell takes these lines for one.
            let examples = shown.join("\n").replace("\\\n", "");
            assert!(!examples.is_empty(), "{help}");
            let name = command.get_bin_name().unwrap_or("relay").to_owned();
            for example in examples.lines() {
                let words = welcome::testing::words(example);
                assert!(name.split(' ').all(|word| words.iter().any(|other| other == word)), "{example} shows {name}");
                Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{example}: {error}"));
            }
            checked += 1;
        });
        assert!(checked >= 29, "{checked}");
    }

    #[test]
    fn the_table_of_exit_codes_has_each_code_once() {
        let text = String::new;
        let ends = [CliError::Failed(text()), CliError::Usage(text()), CliError::TryLater(text()), CliError::TimedOut(text())];
        let codes: Vec<String> = [0].into_iter().chain(ends.map(|end| end.exit_code())).map(|code| code.to_string()).collect();
        let listed: Vec<&str> = EXIT_CODES.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(listed, codes);
    }

    #[test]
    fn no_help_text_shows_a_secret_of_the_environment() {
        each(&mut Cli::command(), &mut |command| {
            for argument in command.get_arguments() {
                let name = argument.get_id().as_str();
                if name.contains("secret") || name.contains("token") || name == "database_url" {
                    assert!(argument.is_hide_env_values_set(), "{} --{name}", command.get_name());
                }
            }
        });
    }
}
