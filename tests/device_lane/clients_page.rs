//! The programs of docs/clients.md, as they stand there: a third-party websocket client on either side of a real relay, and the crate's own
//! clients against those.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]
use crate::support::{PATIENCE, account::Account, relay_process::RelayProcess};
use serde_json::Value;
use std::{fs, path::Path, process::Stdio};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
    time::timeout,
};

/// The page's Python block that begins with this file's name, written into the folder.
fn program(folder: &TempDir, name: &str) -> std::path::PathBuf {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/clients.md")).unwrap();
    let begin = page.split(&format!("\n```python\n# {name}\n")).nth(1).unwrap_or_else(|| panic!("the page has no {name}"));
    let path = folder.path().join(name);
    fs::write(&path, begin.split("\n```").next().unwrap()).unwrap();
    path
}

/// What all programs of the page read.
fn with_environment(mut command: Command, account: &Account) -> Command {
    command
        .env_clear()
        .env("RELAY", account.address.http("").trim_end_matches('/'))
        .env("TOKEN", &account.token)
        .env("DESKTOP", account.desktops[0].to_string())
        .env("PHONE", account.phones[0].to_string())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

/// Python with what `tests/clients/requirements.txt` names, which `./dev test` has installed.
fn python(program: &Path, account: &Account) -> Command {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let python = target.join("python/bin/python");
    assert!(python.exists(), "{} is not there; ./dev test installs it", python.display());
    let mut command = Command::new(python);
    command.arg(program);
    with_environment(command, account)
}

/// One of the page's Rust programs, which are built beside the tests.
fn rust(name: &str, folder: &TempDir, account: &Account) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_relay")).with_file_name("examples").join(name);
    let mut command = with_environment(Command::new(program), account);
    command.env("ACCOUNT", account.user.to_string()).env("KEYS", folder.path().join("keys.db"));
    command
}

/// Starts the desktop, and has the phone do what it does: the lines that it printed.
async fn phone_calls_desktop(mut desktop: Command, mut phone: Command) -> Vec<String> {
    let mut desktop = desktop.stdout(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(desktop.stdout.take().unwrap()).lines();
    let line = timeout(PATIENCE, told.next_line()).await.expect("the desktop registers").unwrap();
    assert_eq!(line.as_deref(), Some("registered"));

    let phone = timeout(PATIENCE, phone.output()).await.expect("the phone ends").unwrap();
    let (stdout, stderr) = (String::from_utf8(phone.stdout).unwrap(), String::from_utf8(phone.stderr).unwrap());
    assert_eq!((stderr.as_str(), phone.status.code()), ("", Some(0)), "{stdout}");
    stdout.lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_programs_of_the_page_call_each_other_and_one_watches_the_other() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 1).await;
    let folder = tempfile::tempdir().unwrap();
    let (desktop, phone) = (program(&folder, "desktop.py"), program(&folder, "phone.py"));
    let desktops = [python(&desktop, &account), rust("desktop", &folder, &account)];
    for desktop in desktops {
        let printed = phone_calls_desktop(desktop, python(&phone, &account)).await;
        let [online, ping, first, again, timeline] = &printed[..] else { panic!("{printed:?}") };
        assert_eq!([online, ping], ["registered; the desktop is online", "ping: True"]);
        assert_eq!([first, again], ["rename: {'renamed': 1}"; 2], "the second one has the key of the first");
        assert!(timeline.starts_with("timeline: step "), "{timeline}");
    }
    let desktops = [python(&desktop, &account), rust("desktop", &folder, &account)];
    for desktop in desktops {
        let printed = phone_calls_desktop(desktop, rust("phone", &folder, &account)).await;
        let [ping, first, again, timeline] = &printed[..] else { panic!("{printed:?}") };
        // As the desktop wrote them, in whatever language.
        let behind = |line: &str, word: &str| serde_json::from_str::<Value>(line.strip_prefix(word).unwrap()).unwrap();
        assert_eq!(behind(ping, "ping: ")["ok"], true);
        assert_eq!(first, again, "the second one has the key of the first");
        assert!(behind(first, "rename: ")["renamed"].is_u64(), "{first}");
        assert!(behind(timeline, "timeline: ")["text"].as_str().unwrap().starts_with("step "), "{timeline}");
    }
}
