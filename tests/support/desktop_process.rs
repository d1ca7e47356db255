//! The shipped `relay desktop` as a process of its own, which can be stopped and killed.

use super::{PATIENCE, account::Account};
use std::process::Stdio;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    time::timeout,
};

/// The command, untouched by the environment of whoever runs the tests.
pub fn desktop_command(account: &Account) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_relay"));
    for (name, _value) in std::env::vars_os().filter(|(name, _value)| name.to_string_lossy().starts_with("RELAY_")) {
        command.env_remove(name);
    }
    command
        .args(["desktop", "--device", &account.desktops[0].to_string(), "--url", &account.address.to_string()])
        .env("RELAY_TOKEN", &account.token)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

/// The account's first desktop, registered.
pub async fn start_desktop_process(account: &Account) -> Child {
    registered(desktop_command(account)).await
}

/// A desktop of any kind, started and registered.
pub async fn registered(mut command: Command) -> Child {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    timeout(PATIENCE, stdout.read_line(&mut line)).await.expect("the desktop registers").unwrap();
    assert!(line.starts_with("registered desktop "), "{line}");
    child
}

/// Sends a signal by name, such as `STOP`.
pub async fn signal(process: &Child, name: &str) {
    let id = process.id().expect("it runs").to_string();
    assert!(Command::new("kill").args([&format!("-{name}"), &id]).status().await.unwrap().success());
}
