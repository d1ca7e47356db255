//! `relay phone`: what a phone does, from a terminal.

mod watch;

use super::{
    CliError,
    access::Access,
    explain::{Who, open_error},
    help_end, print,
};
use crate::{
    config::Period,
    limits::{DESKTOP_TOKEN_TTL, OWN_TOKEN_TTL, PHONE_WAIT, PHONE_WAIT_BACKOFF},
};
use relay_endpoints::{
    address::RelayAddress,
    backoff::Backoff,
    frame::{Outcome, RpcError},
    link::{ConnectError, LinkOptions, OpenError},
    phone::{CallError, Phone, PhoneOptions, Request, Step},
};
use relay_protocol::{contract, device::Role, error::RpcRefusal, id::DeviceId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::{
    fmt::Display,
    io::{Write, stderr},
};
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

/// Act as a phone: call a method of a desktop, or watch one of its sessions
#[derive(clap::Args, Debug)]
#[command(after_help = help_end(&["\
relay phone --user 0f8fad5b-d9cb-469f-a165-70867728950e \\
--device 7c9e6679-7425-40de-944b-e07fc1f90ae7 \\
--desktop de5c0000-0000-4000-8000-000000000003 \\
call system.ping"]))]
pub struct Args {
    /// Device ID of the phone, as `relay device add` printed it
    #[arg(long, value_name = "UUID")]
    device: DeviceId,
    /// Device ID of the desktop to talk to
    #[arg(long, value_name = "UUID")]
    desktop: DeviceId,
    /// Keep trying for this long while the relay asks to try later, or the desktop of a call is offline or reconnecting
    #[arg(long, global = true, value_name = "DURATION", default_value_t = Period(PHONE_WAIT))]
    wait: Period,
    /// Print {"id":…,"result":…} or {"id":…,"error":…} instead of a call's bare result; what watch prints is JSON anyway
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
    Watch(watch::Args),
}

/// Call one method and print its result exactly as it came
#[derive(clap::Args, Debug)]
#[command(after_help = help_end(&["\
relay phone --user 0f8fad5b-d9cb-469f-a165-70867728950e \\
--device 7c9e6679-7425-40de-944b-e07fc1f90ae7 \\
--desktop de5c0000-0000-4000-8000-000000000003 \\
call session.get '{\"sessionId\":\"s-1\"}' --wait 30s"]))]
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
    #[arg(long, value_name = "DURATION")]
    timeout: Option<Period>,
}

fn json(text: &str) -> Result<Box<RawValue>, String> {
    RawValue::from_string(text.to_owned()).map_err(|error| format!("not JSON: {error}"))
}

/// Connects, does what the subcommand says, and ends.
///
/// # Errors
/// There is no token to be had, the relay or the desktop refused, or no answer came.
pub async fn run(args: Args) -> Result<(), CliError> {
    let ttl = match &args.command {
        PhoneCommand::Call(_) => OWN_TOKEN_TTL,
        // Shown again whenever it reconnects.
        PhoneCommand::Watch(_) => DESKTOP_TOKEN_TTL,
    };
    let token = args.access.bearer(ttl)?;
    let url = args.access.url;
    let options = PhoneOptions::new(LinkOptions::phone(url.clone(), token, args.desktop), args.device);
    let who = Who { role: Role::Mobile, device: args.device, target: Some(args.desktop) };
    let dialer = Dialer { options, url, who, patience: Patience::new(args.wait) };
    match args.command {
        PhoneCommand::Call(call) => run_call(call, args.json, dialer).await,
        PhoneCommand::Watch(watch) => watch::run(watch, dialer).await,
    }
}

async fn run_call(args: CallArgs, as_json: bool, mut dialer: Dialer) -> Result<(), CliError> {
    let request = args.into_request();
    let mut phone = None;
    loop {
        // Between two attempts the link may end; nothing is open on it then.
        let live = match phone.take().filter(|phone: &Phone| phone.ended().is_none()) {
            Some(phone) => phone,
            None => dialer.connect().await?,
        };
        let called = call(&live, request.clone(), as_json).await;
        if let Ok(Called::Refused { refusal, .. }) = &called
            && is_desktop_away(refusal)
            && dialer.patience.wait(refusal).await
        {
            phone = Some(live);
            continue;
        }
        live.close().await;
        match called? {
            Called::Done => return Ok(()),
            Called::Refused { id, refusal } => {
                if as_json {
                    print(format_args!("{}\n", to_json(&Answer::error(&id, &refusal))))?;
                }
                return Err(refused(&refusal));
            }
        }
    }
}

/// What a phone needs to connect, and for how long it tries.
struct Dialer {
    options: PhoneOptions,
    url: RelayAddress,
    who: Who,
    patience: Patience,
}

impl Dialer {
    /// Connects, and tries again while the relay refuses for now and there is patience.
    async fn connect(&mut self) -> Result<Phone, CliError> {
        loop {
            match Phone::connect(self.options.clone()).await {
                Ok(phone) => return Ok(phone),
                Err(error) if is_refused_for_now(&error) && self.patience.wait(&error).await => {}
                Err(error) => return Err(open_error(&error, &self.url, self.who)),
            }
        }
    }
}

/// Tells somebody at the terminal. Nobody is left to tell when standard error is gone.
fn tell(text: impl Display) {
    let _ = writeln!(stderr(), "{text}");
}

/// How long to go on trying, and how often.
struct Patience {
    wait: Period,
    until: Instant,
    backoff: Backoff,
    announced: bool,
}

impl Patience {
    fn new(wait: Period) -> Self {
        Patience { wait, until: Instant::now() + wait.0, backoff: Backoff::new(PHONE_WAIT_BACKOFF), announced: false }
    }

    /// Waits before the next attempt, the last of which is made when the time is over. False: it is over. The first wait says why.
    async fn wait(&mut self, why: &impl Display) -> bool {
        let now = Instant::now();
        if now >= self.until {
            return false;
        }
        if !self.announced {
            tell(format_args!("{}; trying again for up to {}", why.to_string().trim_end_matches('.'), self.wait));
            self.announced = true;
        }
        sleep_until(self.until.min(now + self.backoff.next_wait(&mut rand::rng()))).await;
        true
    }
}

/// The relay is there and says that it may take the registration later. One that is not there is no reason to keep somebody waiting
/// at a terminal.
fn is_refused_for_now(error: &OpenError) -> bool {
    let answered = match error {
        OpenError::Connect(ConnectError::Refused { .. }) | OpenError::Register(_) => true,
        OpenError::Connect(
            ConnectError::Unreachable(_)
            | ConnectError::NotSecure(_)
            | ConnectError::UnusableToken
            | ConnectError::TimedOut
            | ConnectError::Handshake(_),
        ) => false,
    };
    answered && error.retryable()
}

/// The desktop may have been started a moment ago, or is coming back.
fn is_desktop_away(error: &RpcError) -> bool {
    [RpcRefusal::DesktopOffline, RpcRefusal::DesktopReconnecting].iter().any(|refusal| error.code == i64::from(refusal.code()))
}

impl CallArgs {
    /// The request, the same at each attempt: one that the desktop lost on the way may have run, so a mutation keeps its key.
    fn into_request(self) -> Request {
        let is_mutation = contract::find(&self.method).is_some_and(|method| method.mutation);
        let idempotency_key = self.idempotency_key.or_else(|| is_mutation.then(|| Uuid::new_v4().to_string()));
        Request { params: self.params, idempotency_key, deadline: self.timeout.map(|timeout| timeout.0), ..Request::new(self.method) }
    }
}

/// How a call ended that was answered.
enum Called {
    /// With a result, which is printed.
    Done,
    /// With an error.
    Refused { id: String, refusal: RpcError },
}

async fn call(phone: &Phone, request: Request, as_json: bool) -> Result<Called, CliError> {
    let mut call = phone.start(request).await.map_err(|error| unanswered(&error))?;
    loop {
        match call.next().await {
            Ok(Step::Progress(Outcome::Result(progress))) => tell(format_args!("progress: {progress}")),
            Ok(Step::Progress(Outcome::Error(error))) => tell(format_args!("progress: {}", error.raw())),
            Ok(Step::Final(result)) => {
                if as_json {
                    print(format_args!("{}\n", to_json(&Answer::result(call.id(), &result))))?;
                } else {
                    print(format_args!("{}\n", result.get()))?;
                }
                return Ok(Called::Done);
            }
            Err(CallError::Refused(refusal)) => return Ok(Called::Refused { id: call.id().to_owned(), refusal }),
            Err(error) => return Err(unanswered(&error)),
        }
    }
}

fn refused(refusal: &RpcError) -> CliError {
    let retryable = if refusal.retryable { "retryable" } else { "not retryable" };
    let needs = required_scopes(refusal).map(|scopes| format!("; the method needs {scopes}")).unwrap_or_default();
    CliError::refused(refusal.retryable, format!("{} {} ({retryable}){needs}", refusal.code, refusal.message))
}

/// Which scopes a refusal for lack of one asks for.
fn required_scopes(refusal: &RpcError) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Data {
        required_scopes: Vec<String>,
    }
    let data: Data = serde_json::from_str(refusal.data.as_ref()?.get()).ok()?;
    Some(data.required_scopes.join(","))
}

fn unanswered(error: &CallError) -> CliError {
    match error {
        CallError::Refused(refusal) => refused(refusal),
        CallError::Closed(_) => CliError::TryLater(format!("{error}; whether the method ran is unknown")),
        CallError::TimedOut(_) => CliError::TimedOut(format!("{error}; whether the method ran is unknown")),
        CallError::DuplicateId => CliError::failed(error),
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

    fn parse_call(rest: &[&str]) -> CallArgs {
        let PhoneCommand::Call(call) = parse(rest).unwrap().command else { panic!("a call was typed") };
        call
    }

    #[test]
    fn params_are_kept_as_typed() {
        for params in [r#"{ "b":1.0, "a":"\ud800" }"#, "-1", "null", "[]"] {
            assert_eq!(parse_call(&[params]).params.unwrap().get(), params);
        }
        assert!(parse_call(&[]).params.is_none());
    }

    #[test]
    fn params_that_are_not_json_are_a_usage_error() {
        for params in ["", "{", "{'a':1}", "{} {}", "word"] {
            assert_eq!(parse(&[params]).err().unwrap().exit_code(), 2, "{params:?}");
        }
    }

    #[test]
    fn flags_may_stand_after_the_call() {
        let args = parse(&["{}", "--json", "--wait", "1m"]).unwrap();
        assert!(args.json);
        assert_eq!(args.wait, "1m".parse().unwrap());
    }

    #[test]
    fn only_an_absent_desktop_is_waited_for() {
        let error = |code: i32| RpcError::new(i64::from(code), "m");
        assert!(is_desktop_away(&error(-32010)) && is_desktop_away(&error(-32011)));
        for code in [-32012, -32020, -32021, -32023, -32024, -32600, -32601, -32603] {
            assert!(!is_desktop_away(&error(code)), "{code}");
        }
    }

    #[test]
    fn a_mutation_has_one_key_for_all_attempts() {
        let request = |method: &str| {
            let mut call = parse_call(&[]);
            call.method = method.to_owned();
            call.into_request()
        };
        assert!(request("session.create").idempotency_key.is_some());
        assert!(request("session.get").idempotency_key.is_none());
    }

    #[test]
    fn answers_keep_results_and_errors_as_they_came() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        assert_eq!(to_json(&Answer::result("1", &raw(r#"{"a":1.0}"#))), r#"{"id":"1","result":{"a":1.0}}"#);
        let error = RpcError::from_raw(raw(r#"{"code":-32010, "message":"m"}"#));
        assert_eq!(to_json(&Answer::error("1", &error)), r#"{"id":"1","error":{"code":-32010, "message":"m"}}"#);
    }
}
