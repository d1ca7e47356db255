//! `relay phone`: what a phone does, from a terminal.

use super::{
    CliError,
    access::Access,
    client::{EXIT_NOT_CONNECTED, Who, explain},
};
use crate::limits::OWN_TOKEN_TTL;
use relay_endpoints::{
    frame::{Outcome, RpcError},
    link::LinkOptions,
    phone::{CallError, Phone, PhoneOptions, Request, Step},
};
use relay_protocol::{device::Role, id::DeviceId};
use serde::Serialize;
use serde_json::value::RawValue;
use std::{
    io::{Write, stdout},
    process::ExitCode,
    time::Duration,
};

/// Exit code: the desktop or the relay answered an error.
const EXIT_REFUSED: u8 = 1;
/// Exit code: wrong usage, as clap has it.
const EXIT_USAGE: u8 = 2;
/// Exit code: no answer in time.
const EXIT_TIMED_OUT: u8 = 4;

/// Act as a phone: call a method of a desktop
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Example:
  relay phone --device 7c9e6679-7425-40de-944b-e07fc1f90ae7 \\
      --desktop 0f8fad5b-d9cb-469f-a165-70867728950e call system.ping")]
pub struct Args {
    /// Device ID of the phone, as `relay device add` printed it
    #[arg(long, value_name = "ID")]
    device: DeviceId,
    /// Device ID of the desktop to talk to
    #[arg(long, value_name = "ID")]
    desktop: DeviceId,
    /// Print {"id":…,"result":…} or {"id":…,"error":…} instead of the bare result
    #[arg(long, global = true)]
    json: bool,
    /// Where and as whom
    #[command(flatten)]
    access: Access,
    #[command(subcommand)]
    command: PhoneCommand,
}

#[derive(clap::Subcommand, Debug)]
enum PhoneCommand {
    Call(CallArgs),
}

/// Call one method and print its result exactly as it came
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  relay phone --device ID --desktop ID call system.ping
  relay phone --device ID --desktop ID call session.get '{\"sessionId\":\"s-1\"}'

Exit codes:
  0  a result, on stdout
  1  the desktop or the relay answered an error
  2  wrong usage, or PARAMS that are not JSON
  3  could not connect or register, or lost the connection
  4  no answer in time")]
struct CallArgs {
    /// Method of the contract, such as system.ping
    method: String,
    /// Params: any JSON
    #[arg(value_parser = json, allow_negative_numbers = true)]
    params: Option<Box<RawValue>>,
    /// Key of a mutation, to repeat an uncertain one; made up where the contract demands one
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// How long to wait for the answer, such as 5s; the default is the method's own
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    timeout: Option<Duration>,
}

fn json(text: &str) -> Result<Box<RawValue>, String> {
    RawValue::from_string(text.to_owned()).map_err(|error| format!("not JSON: {error}"))
}

/// Connects, does what the subcommand says, and ends.
///
/// # Errors
/// There is no token, and no secret to make one with.
pub async fn run(args: Args) -> Result<ExitCode, CliError> {
    let token = args.access.bearer(OWN_TOKEN_TTL)?;
    let url = args.access.url;
    let options = PhoneOptions::new(LinkOptions::phone(url.clone(), token, args.desktop), args.device);
    let phone = match Phone::connect(options).await {
        Ok(phone) => phone,
        Err(error) => {
            let who = Who { role: Role::Mobile, device: args.device, target: Some(args.desktop) };
            eprintln!("relay phone: {}", explain(&error, &url, who));
            return Ok(ExitCode::from(EXIT_NOT_CONNECTED));
        }
    };
    match args.command {
        PhoneCommand::Call(call_args) => Ok(call(&phone, call_args, args.json).await),
    }
}

async fn call(phone: &Phone, args: CallArgs, as_json: bool) -> ExitCode {
    let request =
        Request { params: args.params, idempotency_key: args.idempotency_key, deadline: args.timeout, ..Request::new(args.method) };
    let mut call = match phone.start(request).await {
        Ok(call) => call,
        Err(error) => return failed(&error),
    };
    loop {
        match call.next().await {
            Ok(Step::Progress(Outcome::Result(progress))) => eprintln!("progress: {progress}"),
            Ok(Step::Progress(Outcome::Error(error))) => eprintln!("progress: {}", error.raw()),
            Ok(Step::Final(result)) if as_json => return print(&to_json(&Answer::result(call.id(), &result)), ExitCode::SUCCESS),
            Ok(Step::Final(result)) => return print(result.get(), ExitCode::SUCCESS),
            Err(error) => {
                let code = failed(&error);
                return match &error {
                    CallError::Refused(refusal) if as_json => print(&to_json(&Answer::error(call.id(), refusal)), code),
                    CallError::Refused(_) | CallError::Closed(_) | CallError::TimedOut(_) | CallError::DuplicateId => code,
                };
            }
        }
    }
}

/// Says on stderr what went wrong.
fn failed(error: &CallError) -> ExitCode {
    match error {
        CallError::Refused(refusal) => {
            let retryable = if refusal.retryable { "retryable" } else { "not retryable" };
            eprintln!("relay phone: error {}: {} ({retryable})", refusal.code, refusal.message);
            ExitCode::from(EXIT_REFUSED)
        }
        CallError::Closed(ended) => {
            eprintln!("relay phone: {ended}; whether the method ran is unknown");
            ExitCode::from(EXIT_NOT_CONNECTED)
        }
        CallError::TimedOut(_) => {
            eprintln!("relay phone: {error}; whether the method ran is unknown");
            ExitCode::from(EXIT_TIMED_OUT)
        }
        CallError::DuplicateId => {
            eprintln!("relay phone: {error}");
            ExitCode::from(EXIT_USAGE)
        }
    }
}

#[derive(Serialize)]
struct Answer<'a> {
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a RpcError>,
}

impl<'a> Answer<'a> {
    fn result(id: &'a str, result: &'a RawValue) -> Self {
        Answer { id, result: Some(result), error: None }
    }

    fn error(id: &'a str, error: &'a RpcError) -> Self {
        Answer { id, result: None, error: Some(error) }
    }
}

fn to_json(answer: &Answer<'_>) -> String {
    serde_json::to_string(answer).expect("strings and raw JSON serialize")
}

/// One line on stdout. A result that nobody can read is no success.
fn print(line: &str, code: ExitCode) -> ExitCode {
    match writeln!(stdout(), "{line}") {
        Ok(()) => code,
        Err(error) => {
            eprintln!("relay phone: cannot print the answer: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        phone: Args,
    }

    const PHONE: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7";
    const DESKTOP: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

    fn parse(rest: &[&str]) -> Result<Args, clap::Error> {
        let start = ["relay", "--token", "t", "--device", PHONE, "--desktop", DESKTOP, "call", "session.get"];
        Cli::try_parse_from(start.iter().chain(rest)).map(|cli| cli.phone)
    }

    #[test]
    fn params_are_kept_as_typed() {
        for params in [r#"{ "b":1.0, "a":"\ud800" }"#, "-1", "null", "[]"] {
            let PhoneCommand::Call(call) = parse(&[params]).unwrap().command;
            assert_eq!(call.params.unwrap().get(), params);
        }
        let PhoneCommand::Call(call) = parse(&[]).unwrap().command;
        assert!(call.params.is_none());
    }

    #[test]
    fn params_that_are_not_json_are_a_usage_error() {
        for params in ["", "{", "{'a':1}", "{} {}", "word"] {
            assert_eq!(parse(&[params]).err().unwrap().exit_code(), i32::from(EXIT_USAGE), "{params:?}");
        }
    }

    #[test]
    fn json_may_stand_after_the_call() {
        assert!(parse(&["{}", "--json"]).unwrap().json);
    }

    #[test]
    fn answers_keep_results_and_errors_as_they_came() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        assert_eq!(to_json(&Answer::result("1", &raw(r#"{"a":1.0}"#))), r#"{"id":"1","result":{"a":1.0}}"#);
        let error = RpcError::from_raw(raw(r#"{"code":-32010, "message":"m"}"#));
        assert_eq!(to_json(&Answer::error("1", &error)), r#"{"id":"1","error":{"code":-32010, "message":"m"}}"#);
    }
}
