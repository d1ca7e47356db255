//! `relay phone`: what a phone does, from a terminal.

mod state;
mod watch;

use super::{
    CliError,
    access::Access,
    explain::{Who, open_error, why_away},
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
    phone::{
        Client, ClientOptions, PhoneOptions, Request, Step,
        client::{Failure, ResumeStore, Retries, Status},
    },
};
use relay_protocol::{contract, device::Role, error::RpcRefusal, id::DeviceId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use state::State;
use std::{
    fmt::Display,
    io::{Write, stderr},
    path::PathBuf,
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
    /// Keep the session in this file, and go on with the one that is there: whoever can read it can take the session
    #[arg(long, global = true, value_name = "FILE")]
    state: Option<PathBuf>,
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
    let phone = PhoneOptions::new(LinkOptions::phone(url.clone(), token, args.desktop), args.device);
    let who = Who { role: Role::Mobile, device: args.device, target: Some(args.desktop) };
    let mut state = State::new(args.state);
    state.load().map_err(CliError::failed)?;
    // Who sits at a terminal waits as long as asked, and sees what the relay says as it comes.
    let options = ClientOptions { retries: Retries::NONE, verifies: false, ..ClientOptions::new(phone) };
    let dialer = Dialer { options, state, url, who, patience: Patience::new(args.wait) };
    match args.command {
        PhoneCommand::Call(call) => run_call(call, args.json, dialer).await,
        PhoneCommand::Watch(watch) => watch::run(watch, dialer).await,
    }
}

async fn run_call(args: CallArgs, as_json: bool, mut dialer: Dialer) -> Result<(), CliError> {
    let client = dialer.connect().await?;
    let outcome = call_patiently(&client, &args.into_request(), as_json, &mut dialer).await;
    client.close().await;
    outcome
}

/// Calls until there is an answer, or no patience with a desktop that is away.
async fn call_patiently(client: &Client, request: &Request, as_json: bool, dialer: &mut Dialer) -> Result<(), CliError> {
    loop {
        let id = Uuid::new_v4().to_string();
        let failure = match call(client, Request { id: Some(id.clone()), ..request.clone() }, dialer).await {
            Ok(result) if as_json => return print(format_args!("{}\n", to_json(&Answer::result(&id, &result)))),
            Ok(result) => return print(format_args!("{}\n", result.get())),
            Err(failure) => failure,
        };
        let Some(refusal) = failure.refusal() else { return Err(unanswered(&failure, dialer)) };
        if is_desktop_away(refusal) && dialer.patience.wait(refusal).await {
            continue;
        }
        if as_json {
            print(format_args!("{}\n", to_json(&Answer::error(&id, refusal))))?;
        }
        return Err(refused(refusal));
    }
}

/// One call. It outlives its connection, which is told.
async fn call(client: &Client, request: Request, dialer: &Dialer) -> Result<Box<RawValue>, Failure> {
    let mut call = client.call(request)?;
    let (mut status, mut absence) = (client.status(), Absence::default());
    loop {
        tokio::select! {
            biased;
            step = call.next() => match step? {
                Step::Progress(Outcome::Result(progress)) => tell(format_args!("progress: {progress}")),
                Step::Progress(Outcome::Error(error)) => tell(format_args!("progress: {}", error.raw())),
                Step::Final(result) => return Ok(result),
            },
            Ok(()) = status.changed() => if let Status::Reconnecting { cause, .. } = &*status.borrow_and_update() {
                absence.tell(&why_away(cause, &dialer.url, dialer.who), "an answer can still come");
            },
        }
    }
}

/// What a phone needs to connect, and for how long it tries.
struct Dialer {
    options: ClientOptions,
    state: State,
    url: RelayAddress,
    who: Who,
    patience: Patience,
}

impl Dialer {
    /// Connects, and tries again while the relay refuses for now and there is patience. From then on the phone comes back by itself.
    async fn connect(&mut self) -> Result<Client, CliError> {
        loop {
            match Client::connect(self.options.clone(), self.state.clone()).await {
                Ok(client) => return Ok(client),
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

/// Tells of a connection that is gone: one line a change. An attempt that failed like the one before is no change.
#[derive(Default)]
struct Absence {
    told: String,
}

impl Absence {
    fn tell(&mut self, why: &str, outlook: &str) {
        // A hint's second line would make two lines of one change.
        let line = format!("not connected: {}; {outlook}", why.replace('\n', "; "));
        if line != self.told {
            tell(&line);
            self.told = line;
        }
    }
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

fn unanswered(failure: &Failure, dialer: &Dialer) -> CliError {
    match failure {
        Failure::DesktopOffline(refusal)
        | Failure::DesktopReconnecting(refusal)
        | Failure::RelayTimedOut(refusal)
        | Failure::Refused(refusal) => refused(refusal),
        Failure::NotSent(_) => CliError::TryLater(failure.to_string()),
        Failure::TimedOut(_) => CliError::TimedOut(format!("{failure}; whether the method ran is unknown")),
        Failure::ReplyLost => CliError::TryLater(format!("{failure}; whether the method ran is unknown")),
        Failure::Ended(cause) => {
            CliError::TryLater(format!("{}; whether the method ran is unknown", why_away(cause, &dialer.url, dialer.who)))
        }
        Failure::Closed | Failure::TooManyCalls | Failure::DuplicateId => CliError::failed(failure),
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
