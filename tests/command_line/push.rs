//! `relay device push-token` and `relay push test`: what they print and how they end, with a provider that says each thing.

use crate::{
    Server, USER, finish, relay,
    support::{
        data_dir::DataDir,
        push_server::{KeyFiles, PushServer, Reply, TokenEndpoint, push_flags},
    },
    text,
};
use serde_json::{Value, json};
use std::{
    io::Write,
    process::{Output, Stdio},
};

/// Runs the command with this on its standard input.
fn with_input(directory: &DataDir, arguments: &[&str], input: &str) -> Output {
    let mut command = relay(directory);
    let mut process = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    process.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    process.wait_with_output().unwrap()
}

fn code_and_error(output: &Output) -> (i32, &str) {
    (output.status.code().unwrap(), text(&output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_claims_a_token_by_hand_and_sees_what_the_provider_says() {
    let (apple, google, tokens) = (PushServer::start().await, PushServer::start().await, TokenEndpoint::start().await);
    let keys = KeyFiles::new();
    let flags = push_flags(&keys, &apple.url(), &google.url(), &tokens.url());
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let directory = DataDir::new();
    let server = Server::start(&directory, &flags);
    let at = ["--user", USER, "--url", &server.url];
    let device = |arguments: &[&str]| finish(&directory, &[&["device"], arguments, &at].concat());
    let added = device(&["add", "--role", "mobile", "--name", "Phone", "--json"]);
    let phone = serde_json::from_slice::<Value>(&added.stdout).unwrap()["deviceId"].as_str().unwrap().to_owned();
    let claim = |input: &str| {
        let arguments = [&["device", "push-token", "--device", &phone, "--provider", "apns"][..], &at].concat();
        with_input(&directory, &arguments, input)
    };
    let test =
        |more: &[&str]| finish(&directory, &[&["push", "test", "--device", &phone, "--admin-url", &server.admin_url], more].concat());

    let without = test(&[]);
    let (code, told) = code_and_error(&without);
    assert!(code == 1 && told.contains("pushTokenNotFound") && told.contains("relay device push-token"), "{told}");
    let wrong = claim("to/ken");
    assert_eq!(code_and_error(&wrong), (2, "error: standard input is no push token: it has characters that stand in none\n"));
    let long = claim(&"t".repeat(5_000));
    assert_eq!(code_and_error(&long), (2, "error: standard input is no push token: it is longer than 4096 bytes\n"));
    let claimed = claim("toKen\n");
    assert_eq!((claimed.status.code(), text(&claimed.stdout)), (Some(0), &*format!("{phone} has claimed it\n")));

    let sent = test(&[]);
    assert_eq!((sent.status.code(), text(&sent.stdout)), (Some(0), "apns: sent, as EC1BF194\n"), "{}", text(&sent.stderr));
    let seen = apple.seen(1).await;
    assert_eq!((seen[0].path.as_str(), seen[0].header("apns-push-type")), ("/3/device/toKen", "alert"));
    let json: Value = serde_json::from_slice(&test(&["--json"]).stdout).unwrap();
    assert_eq!(json, json!({"provider": "apns", "verdict": "sent", "id": "EC1BF194"}));
    for (reply, code, says) in [
        (Reply::reason(400, "TopicDisallowed"), 1, "apns: refused: TopicDisallowed"),
        (Reply::reason(400, "BadDeviceToken"), 1, "the token reaches nobody any more: BadDeviceToken"),
        (Reply::reason(503, "Shutdown"), 3, "apns: not now: Shutdown"),
    ] {
        apple.will_say(reply);
        let output = test(&[]);
        let (ended, told) = code_and_error(&output);
        assert!(ended == code && told.contains(says), "{ended}: {told}");
    }
    assert_eq!(test(&[]).status.code(), Some(0), "a test takes no token away");

    let cleared = device(&["push-token", "--device", &phone, "--clear"]);
    assert_eq!((cleared.status.code(), text(&cleared.stdout)), (Some(0), &*format!("{phone} has no push token\n")));
    assert_eq!(test(&[]).status.code(), Some(1));
    assert_eq!(server.end("-TERM"), Some(0));
}

#[test]
fn a_phone_of_a_provider_that_is_not_set_up_is_not_tested() {
    let directory = DataDir::new();
    let server = Server::start(&directory, &[]);
    let at = ["--user", USER, "--url", &server.url];
    let added = finish(&directory, &[&["device", "add", "--role", "mobile", "--name", "Phone", "--json"][..], &at].concat());
    let phone = serde_json::from_slice::<Value>(&added.stdout).unwrap()["deviceId"].as_str().unwrap().to_owned();
    let arguments = [&["device", "push-token", "--device", &phone, "--provider", "fcm"][..], &at].concat();
    assert_eq!(with_input(&directory, &arguments, "toKen").status.code(), Some(0));
    let output = finish(&directory, &["push", "test", "--device", &phone, "--admin-url", &server.admin_url]);
    let (code, told) = code_and_error(&output);
    assert!(code == 1 && told.contains("not set up for fcm") && told.contains("docs/push.md"), "{told}");
    assert_eq!(server.end("-TERM"), Some(0));
}

/// What is wrong with a key is told before anything is opened, and nothing of the key is.
#[test]
fn a_key_that_cannot_be_used_ends_the_start_and_is_named() {
    let directory = DataDir::new();
    let keys = KeyFiles::new();
    let (key, account) = (keys.apns().display().to_string(), keys.fcm("https://oauth2.example/token").display().to_string());
    let ids = ["--apns-key-id", "KEY0000001", "--apns-team-id", "TEAM000001", "--apns-topic", "org.example.app"];
    for (flags, told) in [
        ([&["--apns-key", &account][..], &ids].concat(), "--apns-key"),
        ([&["--apns-key", "nowhere.p8"][..], &ids].concat(), "nowhere.p8: No such file"),
        (vec!["--apns-key", &key], "--apns-key-id must be given with --apns-key"),
        ([&["--apns-key", &key][..], &ids[..4]].concat(), "--apns-topic must name the app's bundle id"),
        (vec!["--apns-key", &key, "--apns-key-id", "short"], "--apns-key-id must be ten capital letters and digits"),
        (vec!["--fcm-service-account", &key], "not the JSON file of a service account"),
        (vec!["--push-log", "--fcm-service-account", &account], "--push-log sends nothing"),
    ] {
        let output = finish(&directory, &[&["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"], &flags[..]].concat());
        let (code, error) = code_and_error(&output);
        assert!(code == 2 && error.contains(told) && !error.contains("PRIVATE"), "{flags:?}: {code} {error}");
    }
}
