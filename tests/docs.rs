//! Keeps the documents true: what they name is in the source tree, what they show is read as stated, their tables are the code's.
//!
//! Tables are found by the heading above them, inbound examples by the words behind ```` ```json ````.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use clap::Parser;
use relay::{
    cli::Cli,
    config::{ByteSize, Period},
    http::{
        admin::metrics::{ProcessFigures, Scraped},
        error::ApiError,
        handshakes::TooMany,
    },
};
use relay_actors::{
    counters::{Counters, Tally},
    drain::Phase,
    processes::SeenProcesses,
    readings::Readings,
};
use relay_endpoints::{
    desktop::router::HandlerError,
    frame::{OutgoingResponse, encode, kind},
};
use relay_protocol::{
    close::CloseReason,
    compatibility::{CheckAnswer, Decision, Descriptor, Policy},
    desktop_error::{DesktopError, ErrorClass},
    envelope::Inbound,
    error::{BoundScope, FrameError, RegisterError, RpcRefusal},
    event::{Event, NotSent},
    identity::{Scope, Scopes},
    limits, params,
    push::Provider,
    rpc::Request,
    version::Version,
};
use serde_json::value::RawValue;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const SOURCE_FOLDERS: [&str; 6] = ["actors", "bench", "endpoints", "protocol", "src", "tests"];
const UUID: &str = "a11ce000-0000-4000-8000-000000000001";
const PHONE_ROUTE: &str = "0f8fad5b-d9cb-469f-a165-70867728950e::a2d1c7f4-3b6e-4d0a-9c55-6e1f7b8d9e12";

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Paths below a folder of the tree that end with this.
fn files(folder: &str, ending: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from(ROOT).join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().ends_with(ending) {
                found.push(path.strip_prefix(ROOT).unwrap().to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    found
}

fn documents() -> Vec<String> {
    let mut documents = files("docs", ".md");
    documents.extend(["README.md", "CONTRIBUTING.md", "deploy/README.md", "bench/README.md"].map(str::to_owned));
    documents
}

/// The text below a heading, up to the next one of its level.
fn section<'a>(text: &'a str, heading: &str) -> &'a str {
    let start = text.find(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("there is no {heading}"));
    let rest = &text[start + heading.len() + 2..];
    let level = heading.split(' ').next().unwrap();
    &rest[..rest.find(&format!("\n{level} ")).unwrap_or(rest.len())]
}

/// Cells of all tables in this text, without their head lines.
fn table_rows(text: &str) -> Vec<Vec<&str>> {
    let mut rows = Vec::new();
    let lines: Vec<&str> = text.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        let is_head = lines.get(index + 1).is_some_and(|next| next.starts_with("| ---"));
        if line.starts_with('|') && !line.starts_with("| ---") && !is_head {
            rows.push(line.trim_matches('|').split('|').map(str::trim).collect());
        }
    }
    assert!(!rows.is_empty());
    rows
}

/// What stands in single backticks, outside of fenced blocks.
fn quoted(text: &str) -> Vec<&str> {
    let outside = text.split("```").step_by(2);
    outside.flat_map(|part| part.split('`').skip(1).step_by(2)).collect()
}

fn bare(cell: &str) -> &str {
    cell.trim_matches('`')
}

fn has_word(text: &str, word: &str) -> bool {
    let is_part = |character: Option<char>| character.is_some_and(|character| character.is_alphanumeric() || character == '_');
    text.match_indices(word).any(|(at, _)| !is_part(text[..at].chars().next_back()) && !is_part(text[at + word.len()..].chars().next()))
}

/// How many variants an enum has in its source: what its list must be as long as.
fn variant_count(path: &str, name: &str) -> usize {
    let source = read(path);
    let start = source.find(&format!("pub enum {name} {{")).unwrap();
    let body = &source[start..start + source[start..].find("\n}").unwrap()];
    let is_variant = |line: &&str| line.strip_prefix("    ").is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_uppercase()));
    body.lines().filter(is_variant).count()
}

fn yes_or_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

/// The first two cells of each row.
fn code_and_retryable(heading: &str) -> Vec<(String, String)> {
    let protocol = read("docs/protocol.md");
    table_rows(section(&protocol, heading)).iter().map(|row| (bare(row[0]).to_owned(), row[1].to_owned())).collect()
}

#[test]
fn every_path_and_name_of_where_exists() {
    let where_ = read("docs/where.md");
    for row in table_rows(&where_) {
        let [rule, code, tests] = row[..] else { panic!("{row:?}") };
        for (cell, is_test) in [(code, false), (tests, true)] {
            let mut source = None;
            let mut names = 0;
            for token in quoted(cell) {
                if token.contains('/') || token.ends_with(".toml") {
                    source = Some((token, read(token)));
                    continue;
                }
                let (path, text) = source.as_ref().unwrap_or_else(|| panic!("{rule}: {token} has no file"));
                let there = match is_test {
                    true if path.ends_with(".mjs") => text.contains(&format!("\"{token}\"")),
                    true => text.contains(&format!("fn {token}(")),
                    false => has_word(text, token),
                };
                assert!(there, "{rule}: {path} has no {token}");
                names += 1;
            }
            assert!(source.is_some() && (names > 0 || !is_test), "{rule}: no {}", if is_test { "test" } else { "code" });
        }
    }
}

/// Tests over sockets are where a rule is seen to hold, so none of their files may be missing, nor a case that a test names.
#[test]
fn every_test_file_and_case_over_sockets_has_a_row() {
    let where_ = read("docs/where.md");
    let paths = ["device_lane", "command_line", "deploy"].iter().flat_map(|folder| files(&format!("tests/{folder}"), ".rs"));
    let scripts = files("tests/admin_page", ".test.mjs");
    for path in scripts.iter().filter(|path| !path.contains("node_modules")) {
        assert!(where_.contains(&format!("`{path}`")), "{path} has no row");
    }
    for path in paths.chain(["tests/traps.rs".to_owned()]) {
        let text = read(&path);
        if text.contains("test]\n") || text.contains("#[tokio::test(") {
            assert!(where_.contains(&format!("`{path}`")), "{path} has no row");
        }
    }
    let rows = table_rows(section(&where_, "## Cases from the field"));
    for path in ["tests", "actors"].iter().flat_map(|folder| files(folder, ".rs")).filter(|path| path != "tests/docs.rs") {
        let text = read(&path);
        let words =
            text.lines().filter(|line| line.trim_start().starts_with("//")).flat_map(|line| line.split(|c: char| !c.is_alphanumeric()));
        let is_case = |word: &&str| word.len() == 3 && word.starts_with('C') && word[1..].chars().all(|c| c.is_ascii_digit());
        for case in words.filter(is_case) {
            assert!(rows.iter().any(|row| row[0].starts_with(&format!("{case} "))), "{path}: {case} has no row");
        }
    }
}

#[test]
fn paths_and_names_of_the_other_documents_exist() {
    let paths: Vec<String> = SOURCE_FOLDERS.iter().flat_map(|folder| files(folder, ".rs")).collect();
    // Not this file, which would find its own words.
    let source: String = paths.iter().filter(|path| *path != "tests/docs.rs").map(|path| read(path)).collect();
    for document in documents() {
        let text = read(&document);
        for token in quoted(&text) {
            let is_path = token.split_once('/').is_some_and(|(folder, rest)| SOURCE_FOLDERS.contains(&folder) && !rest.contains(' '));
            if is_path {
                let beside = Path::new(ROOT).join(&document).with_file_name(token);
                assert!(Path::new(ROOT).join(token).exists() || beside.exists(), "{document}: there is no {token}");
            }
            let is_name = token.split("::").all(|part| part.len() > 2 && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'));
            if document == "docs/architecture.md" && is_name {
                for part in token.split("::") {
                    assert!(has_word(&source, part), "{document}: nothing is named {part}");
                }
            }
        }
    }
}

#[test]
fn links_between_documents_resolve() {
    let mut links = 0;
    for document in documents() {
        let text = read(&document);
        let folder = Path::new(ROOT).join(&document).parent().unwrap().to_owned();
        for target in text.split("](").skip(1).map(|rest| &rest[..rest.find(')').unwrap()]) {
            if !target.starts_with("https://") {
                assert!(folder.join(target).exists(), "{document}: {target} leads nowhere");
                links += 1;
            }
        }
    }
    assert!(links > 10);
}

#[test]
fn inbound_examples_are_read_as_stated() {
    let protocol = read("docs/protocol.md");
    let mut seen = BTreeSet::new();
    for block in protocol.split("\n```json ").skip(1) {
        let (stated, rest) = block.split_once('\n').unwrap();
        let text = &rest[..rest.find("\n```").unwrap()];
        let Some(stated) = stated.strip_prefix("inbound: ") else {
            let frame: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).unwrap();
            assert!(stated == "outbound" && frame.len() == 2 && frame["type"].is_string() && frame["payload"].is_object(), "{text}");
            continue;
        };
        let read = match Inbound::parse(text.to_owned().into()) {
            Ok(Inbound::Ping) => "ping".to_owned(),
            Ok(Inbound::Register(register)) => {
                let claim = register.claim(relay_protocol::device::Role::Mobile, None, Ok(&Version::new(1, 7)));
                assert!(claim.is_ok(), "{text}");
                "register".to_owned()
            }
            Ok(Inbound::Request(Request::Call(_))) => "request".to_owned(),
            Ok(Inbound::Request(Request::Refused { refusal, .. })) => format!("refusal {}", refusal.code()),
            Ok(Inbound::Response(_)) => "response".to_owned(),
            Ok(Inbound::Event(_)) => "event".to_owned(),
            Err(error) => format!("error {}", error.code()),
        };
        assert_eq!(read, stated, "{text}");
        seen.insert(read);
    }
    for kind in ["ping", "register", "request", "response", "event"] {
        assert!(seen.contains(kind), "no example of {kind}");
    }
}

/// What the other side receives of the inbound examples, and the example of an error frame.
#[test]
fn outbound_examples_are_what_the_code_writes() {
    let protocol = read("docs/protocol.md");
    let example = |heading: &str, number: usize| {
        let block = section(&protocol, heading).split("\n```json ").nth(number).unwrap();
        let (_, rest) = block.split_once('\n').unwrap();
        rest[..rest.find("\n```").unwrap()].to_owned()
    };
    let json = |text: &[u8]| serde_json::from_slice::<serde_json::Value>(text).unwrap();
    let told = |heading| json(example(heading, 2).as_bytes());
    let inbound = |heading| Inbound::parse(example(heading, 1).into()).unwrap();

    let Inbound::Request(Request::Call(call)) = inbound("### rpc.request") else { panic!("no request") };
    let forwarded = told("### rpc.request");
    let client = forwarded["payload"]["clientId"].as_str().unwrap().parse().unwrap();
    assert_eq!(json(&call.forward(&client, UUID.parse().unwrap()).to_bytes()), forwarded);

    let Inbound::Response(response) = inbound("### rpc.response") else { panic!("no response") };
    assert_eq!(response.client, Some(client));
    assert_eq!(json(&response.deliver("\"request-101\"").to_bytes()), told("### rpc.response"));

    let Inbound::Event(Event::Timeline(frame)) = inbound("### event: chat:stream") else { panic!("no timeline frame") };
    let shown = told("### event: chat:stream");
    let source = shown["payload"]["sourceDeviceId"].as_str().unwrap().parse().unwrap();
    assert_eq!(json(&frame.forward(source).to_bytes()), shown);

    assert_eq!(json(&FrameError::WrongRole.to_text().to_bytes()), json(example("### error", 1).as_bytes()));
}

#[test]
fn the_table_of_the_contract_is_the_manifest() {
    let protocol = read("docs/protocol.md");
    let rows = table_rows(section(&protocol, "## The contract"));
    let listed: BTreeSet<&str> = rows.iter().flat_map(|row| quoted(row[0])).collect();
    let manifest: serde_json::Map<String, serde_json::Value> = serde_json::from_str(relay_protocol::contract::MANIFEST).unwrap();
    assert_eq!(listed, manifest.keys().map(String::as_str).collect());
}

/// Each answer of the three tables stands there as a whole frame, one a line.
#[test]
fn every_answer_has_an_example() {
    let request = "\"request-101\"";
    let registration = RegisterError::all(Version::new(1, 7)).into_iter().map(|error| error.to_text());
    let refusals = RpcRefusal::ALL.into_iter().map(|refusal| {
        match refusal {
            RpcRefusal::InvalidRequest(_) => RpcRefusal::InvalidRequest("traceparent is required"),
            RpcRefusal::InsufficientScope { .. } => {
                RpcRefusal::InsufficientScope { required: Scopes::NONE.with(Scope::Rpc).with(Scope::Write) }
            }
            RpcRefusal::InvalidParams(_) => RpcRefusal::InvalidParams(params::SHAPE),
            RpcRefusal::TooManyPending { .. } => RpcRefusal::TooManyPending { scope: BoundScope::Client, limit: 64, current: 64 },
            other @ (RpcRefusal::RateLimited
            | RpcRefusal::MethodNotFound
            | RpcRefusal::IdempotencyKeyRequired
            | RpcRefusal::AuthorityChanging
            | RpcRefusal::DesktopReconnecting
            | RpcRefusal::DesktopOffline
            | RpcRefusal::DuplicateRequest
            | RpcRefusal::ConflictingRequest
            | RpcRefusal::DesktopMoved
            | RpcRefusal::Expired) => other,
        }
        .to_text(request)
    });
    let frame_errors = FrameError::ALL.into_iter().map(|error| {
        match error {
            FrameError::InvalidPayload(_) => FrameError::InvalidPayload("unknown field `id`".into()),
            FrameError::InvalidEvent(_) => FrameError::InvalidEvent("only the relay sends events of this name"),
            other
            @ (FrameError::UnknownMessageType | FrameError::NotRegistered | FrameError::AlreadyRegistered | FrameError::WrongRole) => other,
        }
        .to_text()
    });
    let protocol = read("docs/protocol.md");
    for (heading, answers) in [
        ("## Frame errors", frame_errors.collect::<Vec<_>>()),
        ("## Registration errors", registration.collect()),
        ("## Refusals of requests", refusals.collect()),
    ] {
        let (_, rest) = section(&protocol, heading).split_once("\n```jsonl outbound\n").unwrap();
        let written: Vec<String> = answers.iter().map(|answer| String::from_utf8(answer.to_bytes()).unwrap()).collect();
        assert_eq!(rest[..rest.find("```").unwrap()].lines().collect::<Vec<_>>(), written, "{heading} wants\n{}", written.join("\n"));
    }
}

#[test]
fn the_frame_error_table_is_the_code() {
    assert_eq!(FrameError::ALL.len(), variant_count("protocol/src/error.rs", "FrameError"));
    let expected: Vec<_> = FrameError::ALL.iter().map(|error| (error.code().to_owned(), "no".to_owned())).collect();
    assert_eq!(code_and_retryable("## Frame errors"), expected);
    for error in FrameError::ALL {
        let frame = String::from_utf8(error.to_text().to_bytes()).unwrap();
        assert!(frame.ends_with("\"retryable\":false}}"), "{frame}");
    }
}

#[test]
fn the_registration_error_table_is_the_code() {
    let all = RegisterError::all(Version::new(1, 7));
    assert_eq!(all.len(), variant_count("protocol/src/error.rs", "RegisterError"));
    let expected: Vec<_> = all.iter().map(|error| (error.code().to_owned(), yes_or_no(error.retryable()).to_owned())).collect();
    assert_eq!(code_and_retryable("## Registration errors"), expected);
}

#[test]
fn the_refusal_table_is_the_code() {
    assert_eq!(RpcRefusal::ALL.len(), variant_count("protocol/src/error.rs", "RpcRefusal"));
    let expected: Vec<_> =
        RpcRefusal::ALL.iter().map(|refusal| (refusal.code().to_string(), yes_or_no(refusal.retryable()).to_owned())).collect();
    assert_eq!(code_and_retryable("## Refusals of requests"), expected);
    let protocol = read("docs/protocol.md");
    for refusal in [RpcRefusal::DesktopReconnecting, RpcRefusal::DesktopOffline] {
        assert!(protocol.contains(&format!("| {} | yes | \"{}\" |", refusal.code(), refusal.message())), "{refusal:?}");
    }
}

#[test]
fn the_table_of_desktop_errors_is_the_code() {
    assert_eq!(DesktopError::ALL.len(), variant_count("protocol/src/desktop_error.rs", "DesktopError"));
    let repeat = |error: DesktopError| match error.class() {
        ErrorClass::Terminal => "same answer",
        ErrorClass::Ambiguous => "-32051",
        ErrorClass::Retryable => "runs",
    };
    let protocol = read("docs/protocol.md");
    let desktop = section(&protocol, "## What a desktop does");
    let errors = section(desktop, "### Desktop errors");
    let told: Vec<_> = table_rows(errors).iter().map(|row| (row[0].to_owned(), bare(row[1]), row[2], row[3])).collect();
    let written = |error: DesktopError| (error.code().to_string(), error.name(), yes_or_no(error.is_retryable()), repeat(error));
    assert_eq!(told, DesktopError::ALL.map(written));

    let client = RawValue::from_string(format!("\"{PHONE_ROUTE}\"")).unwrap();
    let id = RawValue::from_string("\"request-101\"".to_owned()).unwrap();
    let examples = [HandlerError::busy(), HandlerError::timed_out(), HandlerError::snake_case()].map(|error| {
        let error = error.to_rpc();
        let response = OutgoingResponse { client_id: &client, id: &id, result: None, error: Some(&error), is_final: true };
        encode(kind::RPC_RESPONSE, &response)
    });
    let (_, rest) = errors.split_once("\n```jsonl outbound\n").unwrap();
    assert_eq!(rest[..rest.find("```").unwrap()].lines().collect::<Vec<_>>(), examples);
}

#[test]
fn the_limits_of_a_desktop_are_the_code() {
    macro_rules! values {
        ($($form:ident: $($name:ident),*;)*) => { [$($((stringify!($name), $form(limits::desktop::$name)),)*)*] };
    }
    let size = |bytes| ByteSize(bytes).to_string();
    let period = |duration| Period(duration).to_string();
    let count = |count: usize| count.to_string();
    let values = values! {
        count: LIGHT_PERMITS, HEAVY_PERMITS;
        period: PERMIT_WAIT, DISPATCH, DISPATCH_LOAD, CODEX_TIMELINE_LOAD, QUEUE_REPLY;
        count: IDEMPOTENCY_KEY_BYTES_MAX, RECONCILE_SESSIONS_MAX;
        size: RECONCILE_RESULT_BYTES_MAX;
        count: RECONCILE_OUTBOX_ENTRIES_MAX;
        size: COMMAND_OUTPUT_PAGE_BYTES_MAX, READ_BINARY_BYTES_MAX;
        count: RUNNING_CLAIMS_MAX, CLAIM_WAITERS_MAX, FINISHED_CLAIMS_MAX, CLAIM_ROWS_MAX;
        period: CLAIM_LEASE, CLAIM_KEPT;
        size: KEPT_REPLY_BYTES_MAX;
    };
    let in_source = read("protocol/src/limits/desktop.rs").lines().filter(|line| line.starts_with("pub const ")).count();
    assert_eq!(values.len(), in_source);
    let protocol = read("docs/protocol.md");
    let rows = table_rows(section(section(&protocol, "## What a desktop does"), "### Desktop limits"));
    let told: Vec<_> = rows.iter().map(|row| (bare(row[1]), row[2].to_owned())).collect();
    assert_eq!(told, values);
}

#[test]
fn the_close_table_is_the_code() {
    assert_eq!(CloseReason::ALL.len(), variant_count("protocol/src/close.rs", "CloseReason"));
    let protocol = read("docs/protocol.md");
    let rows = table_rows(section(&protocol, "## Close codes"));
    let told: Vec<_> = rows.iter().map(|row| (row[0].to_owned(), bare(row[1]), row[2])).collect();
    let expected: Vec<_> =
        CloseReason::ALL.iter().map(|reason| (reason.code().to_string(), reason.text(), yes_or_no(reason.allows_resume()))).collect();
    assert_eq!(told, expected);
}

/// What a client does goes by the code alone.
#[test]
fn the_page_for_clients_says_what_to_do_after_every_close_and_every_refusal_that_may_be_repeated() {
    let clients = read("docs/clients.md");
    let rows = table_rows(section(&clients, "## What to do when"));
    let advice = |code: String| rows.iter().find(|row| has_word(row[0], &code)).unwrap_or_else(|| panic!("nothing about {code}"));
    for reason in CloseReason::ALL {
        let stays_away = advice(reason.code().to_string())[1].starts_with("stay away");
        assert_eq!(stays_away, !reason.allows_resume() || reason == CloseReason::Replaced, "{reason:?}");
    }
    for refusal in RpcRefusal::ALL.iter().filter(|refusal| refusal.retryable()) {
        assert_eq!(advice(refusal.code().to_string()).len(), 3, "{refusal:?}");
    }
}

#[test]
fn the_http_error_table_is_the_code() {
    let all = [
        ApiError::TokenMissing,
        ApiError::TokenInvalid,
        ApiError::TokenExpired,
        ApiError::InsufficientScope(Scope::Rpc),
        ApiError::AccountTokenRequired,
        ApiError::KeysUnavailable,
        ApiError::InvalidPayload(String::new()),
        ApiError::InvalidDeviceId,
        ApiError::PayloadTooLarge,
        ApiError::BodyTimeout,
        ApiError::DeviceNotFound,
        ApiError::NotAPhone,
        ApiError::DeviceOwnershipFailed,
        ApiError::TooManyDevices,
        ApiError::ApiKeyNotFound,
        ApiError::TooManyApiKeys,
        ApiError::PushTokenNotFound,
        ApiError::PushNotConfigured(Provider::Apns),
        ApiError::CompatibilityRuleNotFound,
        ApiError::TooManyCompatibilityRules,
        ApiError::PolicyUnavailable,
        ApiError::ConnectionNotFound,
        ApiError::NotFound,
        ApiError::MethodNotAllowed { allow: "" },
        ApiError::UpgradeRequired,
        ApiError::TooManyHandshakes(TooMany { retry_after: Duration::from_secs(1) }),
        ApiError::StorageUnavailable,
        ApiError::RouterUnavailable,
        ApiError::RelayDraining,
    ];
    assert_eq!(all.len(), variant_count("src/http/error.rs", "ApiError"));
    let row = |error: &ApiError| [format!("`{}`", error.code()), error.status().as_u16().to_string(), yes_or_no(error.retryable()).into()];
    let expected: BTreeSet<[String; 3]> = all.iter().map(row).collect();
    let protocol = read("docs/protocol.md");
    let http = section(&protocol, "## HTTP calls");
    let rows = table_rows(&http[http.find("| code |").unwrap()..]);
    let told: BTreeSet<[String; 3]> = rows.iter().map(|row| [row[0].to_owned(), row[1].to_owned(), row[2].to_owned()]).collect();
    assert_eq!(told, expected);
    assert_eq!(rows.len(), told.len(), "no row stands there twice");
}

#[test]
fn the_table_of_decisions_is_the_code() {
    let protocol = read("docs/protocol.md");
    let rows = table_rows(section(&protocol, "## Compatibility check"));
    let told: Vec<&str> = rows.iter().map(|row| bare(row[0])).collect();
    let decisions: Vec<Decision> = told.iter().map(|word| serde_json::from_value((*word).into()).unwrap()).collect();
    assert!(decisions.is_sorted_by(|one, next| (*one as u8) < *next as u8), "{told:?}");
    assert_eq!(decisions.len(), variant_count("protocol/src/compatibility.rs", "Decision"));
}

/// The example's rules are not shown, so only its form is the code's.
#[test]
fn the_examples_of_a_check_are_what_the_code_reads_and_writes() {
    let protocol = read("docs/protocol.md");
    let blocks: Vec<&str> = section(&protocol, "## Compatibility check").split("```\n").collect();
    let asked: BTreeMap<String, Descriptor> = serde_json::from_str(blocks[1]).unwrap();
    let shown: CheckAnswer = serde_json::from_str(blocks[3]).unwrap();
    let written = Policy::new([]).unwrap().check(asked.get("desktop"), asked.get("mobile"));
    assert_eq!(CheckAnswer { policy_version: written.policy_version.clone(), ..shown }, written);
}

#[test]
fn the_reasons_why_no_alert_is_sent_are_the_code() {
    let protocol = read("docs/protocol.md");
    let rows = table_rows(section(&protocol, "### event: agent:notification-result"));
    let told: Vec<(&str, bool)> = rows.iter().map(|row| (bare(row[0]), row[1] == "yes")).collect();
    let words = NotSent::ALL.map(|reason| (reason.as_str(), reason == NotSent::Duplicate));
    assert_eq!(told, [&[("none", true)][..], &words].concat());
    assert_eq!(NotSent::ALL.len(), variant_count("protocol/src/event/notification.rs", "NotSent"));
}

#[test]
fn the_limits_table_is_the_code() {
    macro_rules! values {
        ($($form:ident: $($name:ident),*;)*) => { [$($((stringify!($name), $form(limits::$name)),)*)*] };
    }
    let size = |bytes| ByteSize(bytes).to_string();
    let small_size = |bytes: u32| ByteSize(bytes.try_into().unwrap()).to_string();
    let period = |duration| Period(duration).to_string();
    let count = |count: usize| count.to_string();
    let small = |count: u32| count.to_string();
    let large = |count: u64| count.to_string();
    let values = values! {
        size: MESSAGE_BYTES_MAX, ENVELOPE_BYTES_MAX, UNREGISTERED_MESSAGE_BYTES_MAX;
        small: FRAGMENTS_MAX;
        period: MESSAGE_GROWTH_INTERVAL_MAX, MESSAGE_DURATION_MAX, CLOSE_LINGER;
        small: RATE_BURST, RATE_PER_SECOND;
        size: GLANCE_BYTES_MAX;
        count: RPC_ID_BYTES_MAX, PENDING_PER_PROCESS_MAX, PENDING_PER_DESKTOP_MAX, PENDING_PER_CLIENT_MAX, PENDING_PER_USER_MAX;
        count: SYNC_HISTORY_SESSIONS_MAX, SESSION_ID_BYTES_MAX;
        count: EVENT_NAME_BYTES_MAX, TIMELINE_KEY_BYTES_MAX;
        period: TIMELINE_INTEREST_TTL, TIMELINE_INTEREST_RENEWAL;
        large: HISTORY_REVISION_MAX;
        period: PENDING_DEFAULT, PENDING_LOAD, PENDING_OUTBOX;
        small: DEVICES_PER_ACCOUNT_MAX, PRESENCE_HISTORY_MAX, PRESENCE_PAGE_DEFAULT, PRESENCE_PAGE_MAX;
        period: RECONNECT_GRACE, RESUME_TTL;
        period: REGISTER_TIMEOUT, HEARTBEAT_INTERVAL, SILENCE_TIMEOUT;
        size: OUTBOUND_BYTES_MAX, OUTBOUND_TOTAL_BYTES_MAX, INBOUND_TOTAL_BYTES_MAX;
        period: SATURATED_AFTER;
        small_size: UNSENT_BYTES_MAX;
        period: EVENT_FLUSH_INTERVAL;
        size: EVENT_FLUSH_BYTES, EVENT_LANE_BYTES_MAX;
        count: PUSH_TOKEN_BYTES_MAX, PUSH_APP_ID_BYTES_MAX;
        count: NOTIFICATION_ID_BYTES_MAX, NOTIFICATION_TITLE_CHARS_MAX, NOTIFICATION_BODY_CHARS_MAX;
        period: NOTIFICATION_ID_MEMORY, POLICY_CACHE;
    };
    let in_source = read("protocol/src/limits.rs").lines().filter(|line| line.starts_with("pub const ")).count();
    assert_eq!(values.len(), in_source);

    let (protocol, config) = (read("docs/protocol.md"), read("src/config.rs"));
    let rows = table_rows(section(&protocol, "## Limits and deadlines"));
    let told: Vec<_> = rows.iter().map(|row| (bare(row[1]), row[2].to_owned())).collect();
    assert_eq!(told, values);
    for row in rows {
        let (name, flag) = (bare(row[1]), bare(row[3]));
        let default = [format!("(limits::{name}))]"), format!("= limits::{name})]")].iter().find_map(|form| config.split(form).nth(1));
        let default = default.map(|rest| rest.trim_start().split(':').next().unwrap());
        let field = (!flag.is_empty()).then(|| format!("pub {}", flag.trim_start_matches('-').replace('-', "_")));
        assert_eq!(default, field.as_deref(), "the flag of {name}");
    }
}

/// The newcomer's two commands, and the five of "Try it".
#[test]
fn the_commands_of_the_readme_are_the_ones_that_run() {
    let (readme, dev, ci) = (read("README.md"), read("dev"), read(".ci/run"));
    let set_up = section(&readme, "## Two commands");
    for (command, script, line) in
        [("cargo run --release -- serve", &dev, "exec cargo run --release -- serve \"$@\""), ("./dev test", &ci, "step ./dev test")]
    {
        assert!(set_up.lines().any(|line| line.split('#').next().unwrap().trim() == command), "{command}");
        assert!(script.lines().any(|there| there.trim() == line), "{line}");
    }
    let version = read("Cargo.toml").lines().find_map(|line| Some(line.strip_prefix("rust-version = \"")?.trim_matches('"').to_owned()));
    assert!(set_up.contains(&format!("Rust {} or newer", version.unwrap())));

    let tried = section(&readme, "## Try it");
    let commands: Vec<_> = tried.lines().filter_map(|line| line.strip_prefix("cargo run --release -- ")).collect();
    assert_eq!(commands.len(), 5);
    for command in commands {
        let filled = command.trim_end_matches(" &").replace('…', UUID).replace("'Demo ", "'Demo-");
        let parsed = Cli::try_parse_from(std::iter::once("relay").chain(filled.split(' ')));
        assert!(parsed.is_ok(), "{command}: {}", parsed.unwrap_err());
    }
}

#[test]
fn the_words_of_contributing_are_those_of_the_script() {
    let (contributing, dev) = (read("CONTRIBUTING.md"), read("dev"));
    let told: BTreeSet<String> = table_rows(section(&contributing, "## Words")).iter().map(|row| bare(row[0]).to_owned()).collect();
    let known = dev.lines().filter_map(|line| line.strip_prefix("word_")?.split_once("()"));
    let known: BTreeSet<String> = known.map(|(word, _)| format!("./dev {word}")).collect();
    assert_eq!(told, known);
}

/// Lines of INFO and above in the relay's source: level and text. Each is written on one line of source, its text last.
fn log_lines_of_the_source() -> Vec<(String, String)> {
    let mut lines = Vec::new();
    for path in ["src", "actors/src"].iter().flat_map(|folder| files(folder, ".rs")) {
        for line in read(&path).lines() {
            let Some((level, rest)) = line.split_once("tracing::").and_then(|(_, rest)| rest.split_once("!(")) else { continue };
            if !["info", "warn", "error"].contains(&level) {
                continue;
            }
            let text = rest.rsplit('"').nth(1).unwrap_or_else(|| panic!("{path}: {line}"));
            lines.push((level.to_uppercase(), text.to_owned()));
        }
    }
    lines
}

#[test]
fn log_lines_of_the_runbook_are_those_of_the_source() {
    let runbook = read("docs/runbook.md");
    let mut told = Vec::new();
    for row in table_rows(section(&runbook, "## Logs")) {
        let mut level = "";
        for (index, part) in row[0].split('`').enumerate() {
            match index % 2 {
                0 => level = part.split([',', ' ']).rfind(|word| !word.is_empty()).unwrap_or(level),
                _ => told.push((level.to_owned(), part.to_owned())),
            }
        }
    }
    let written = log_lines_of_the_source();
    let is_of = |told: &(String, String), written: &(String, String)| told.0 == written.0 && written.1.starts_with(&told.1);
    for line in &told {
        assert!(written.iter().any(|written| is_of(line, written)), "no line says {line:?}");
    }
    for line in &written {
        assert!(told.iter().any(|told| is_of(told, line)), "the runbook does not name {line:?}");
    }
}

/// Families of `/metrics`: name, type, and labels in their order.
fn metric_families() -> Vec<[String; 3]> {
    let (counters, readings, handshakes_refused) = (Counters::default(), Readings::default(), Tally::new(["other"]));
    let processes = SeenProcesses::default();
    let process = ProcessFigures::read();
    let (counters, readings, processes) = (&counters, &readings, &processes);
    let (phase, handshakes_refused, certificate_end) = (Phase::Serving, &handshakes_refused, Some(Duration::ZERO));
    let scraped = Scraped { counters, readings, phase, processes, handshakes_refused, certificate_end, process };
    let text = scraped.to_text();
    let lines: Vec<&str> = text.lines().collect();
    let head =
        |line: &str| line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')).map(|(name, kind)| [name, kind].map(str::to_owned));
    let families = lines.iter().enumerate().filter_map(|(index, line)| Some((head(line)?, lines[index + 1])));
    let labels = |series: &str| {
        let inside = series.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map_or("", |(inside, _)| inside);
        let names = inside.split(',').filter_map(|label| label.split_once('=')).map(|(name, _)| name).filter(|name| *name != "le");
        names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    };
    families.map(|([name, kind], first)| [name, kind, labels(first)]).collect()
}

#[test]
fn the_metrics_table_is_the_code() {
    let runbook = read("docs/runbook.md");
    let rows = table_rows(section(&runbook, "## Metrics"));
    let told: Vec<[String; 3]> = rows.iter().map(|row| [bare(row[0]), row[1], row[2]].map(str::to_owned)).collect();
    assert_eq!(told, metric_families());
}

/// Metrics that an expression names, as their families.
fn metrics_of(expression: &str) -> Vec<&str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let names = words.filter(|word| word.starts_with("relay_") || word.starts_with("process_"));
    names.map(|name| ["_bucket", "_count", "_sum"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name)).collect()
}

#[test]
fn alerts_and_dashboard_name_families_that_there_are() {
    let families: BTreeSet<String> = metric_families().into_iter().map(|[name, ..]| name).collect();
    let there_are = |expression: &str, named_by: &str| {
        for name in metrics_of(expression) {
            assert!(families.contains(name), "{named_by}: there is no {name}");
        }
    };

    let (alerts, runbook) = (read("deploy/prometheus/alerts.yml"), read("docs/runbook.md"));
    let rules: Vec<&str> = alerts.split("- alert: ").skip(1).collect();
    let sections: BTreeSet<&str> = section(&runbook, "## Alerts").lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let names: BTreeSet<&str> = rules.iter().map(|rule| rule.lines().next().unwrap()).collect();
    assert_eq!(names, sections, "each alert has its section");
    for rule in &rules {
        let name = rule.lines().next().unwrap();
        let (_, rest) = rule.split_once("expr:").unwrap();
        let expression = &rest[..rest.find("labels:\n").unwrap()];
        assert!(name == "RelayDown" || !metrics_of(expression).is_empty(), "{name}");
        there_are(expression, name);
        assert!(rule.contains(&format!("runbook: docs/runbook.md#{}\n", name.to_lowercase())), "{name} leads to its section");
    }

    let dashboard: serde_json::Value = serde_json::from_str(&read("deploy/grafana/dashboard.json")).unwrap();
    let mut shown = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            there_are(expression, panel["title"].as_str().unwrap());
            shown.extend(metrics_of(expression).into_iter().map(str::to_owned));
        }
    }
    let hidden: Vec<_> = families.difference(&shown).collect();
    let not_worth_a_panel = [
        "process_start_time_seconds",
        "process_threads",
        "process_virtual_memory_bytes",
        "relay_open_requests_limit",
        "relay_tls_certificate_expiry_seconds",
    ];
    assert_eq!(hidden, not_worth_a_panel);
}

#[test]
fn files_of_the_runbook_are_those_of_the_source() {
    let runbook = read("docs/runbook.md");
    let source: String = files("src", ".rs").iter().map(|path| read(path)).collect();
    for name in table_rows(section(&runbook, "## Files")).iter().flat_map(|row| quoted(row[0])) {
        // SQLite and the migration lock put something behind the database's name.
        let name = if name.starts_with("relay.db") { "relay.db" } else { name };
        assert!(source.contains(&format!("\"{name}\"")), "no file is named {name}");
    }
}
