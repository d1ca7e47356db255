//! The commands that `relay serve` prints, typed as they stand.

use crate::{
    Server, finish,
    support::{PATIENCE, data_dir::DataDir},
    text,
};
use serde_json::Value;
use std::{fs::File, process::Stdio};
use tokio::{process::Command, time::timeout};

#[test]
fn the_printed_device_commands_work_as_they_stand_and_stay_the_same() {
    let directory = DataDir::new();
    let server = Server::start(&directory, &[]);
    assert_eq!(server.commands().len(), 5, "{:?}", server.start_up_text);
    for _first_and_again in 0..2 {
        for command in server.commands().iter().filter(|command| command.contains(" device add ")) {
            let ran = std::process::Command::new("sh").current_dir(directory.path()).env_clear().args(["-c", command]).output().unwrap();
            assert!(ran.status.success(), "{command}: {}", text(&ran.stderr));
        }
    }
    let user = server.commands()[0].split(' ').skip_while(|word| *word != "--user").nth(1).unwrap().to_owned();
    let list = finish(&directory, &["device", "list", "--user", &user, "--url", &server.url, "--json"]);
    let list: Value = serde_json::from_slice(&list.stdout).unwrap();
    let names: Vec<&Value> = list["devices"].as_array().unwrap().iter().map(|device| &device["deviceName"]).collect();
    assert_eq!(names, ["Demo desktop", "Demo phone"]);

    let ids_of = |server: &Server| {
        let words = server.commands().join(" ");
        words.split(' ').filter(|word| word.parse::<relay_protocol::id::DeviceId>().is_ok()).map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    let first = ids_of(&server);
    assert_eq!(server.end("-TERM"), Some(0));
    assert!(!directory.path().join("ready.json").exists());
    let server = Server::start(&directory, &[]);
    assert_eq!(ids_of(&server), first);
    assert_eq!(server.end("-INT"), Some(0));
}

/// A shell in a process group of its own, whose background jobs end with it.
pub(super) struct Shell {
    pub(super) process: tokio::process::Child,
    group: String,
}

impl Shell {
    pub(super) fn start(mut command: Command) -> Self {
        let process = command.process_group(0).stdin(Stdio::null()).spawn().unwrap();
        // The first process of a group gives it its id.
        let group = format!("-{}", process.id().unwrap());
        Shell { process, group }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // What the shell left running is in there. The kill fails if all have ended.
        let _ = std::process::Command::new("kill").args(["-KILL", "--", &self.group]).stderr(Stdio::null()).status();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_printed_commands_typed_as_one_block_get_system_ping_answered_and_show_a_timeline() {
    let directory = DataDir::new();
    let server = Server::start(&directory, &[]);
    let block = server.commands().join("\n");
    let output = |name: &str| File::create(directory.path().join(name)).unwrap();
    let mut command = Command::new("sh");
    // To files, since the desktop keeps the streams open for as long as it runs.
    command.current_dir(directory.path()).env_clear().args(["-c", &block]).stdout(output("stdout")).stderr(output("stderr"));
    let mut shell = Shell::start(command);
    let status = timeout(PATIENCE, shell.process.wait()).await.expect("the block ends").unwrap();
    let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
    let (stdout, stderr) = (read("stdout"), read("stderr"));
    assert!(status.success(), "{status}\n{stdout}\n{stderr}");
    // The desktop's own lines and the table of devices are none.
    let printed: Vec<Value> = stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let (answer, events) = printed.split_first().unwrap_or_else(|| panic!("{stdout}"));
    assert_eq!((&answer["ok"], &answer["service"]), (&Value::Bool(true), &Value::from("desktop-relay")), "{stdout}");
    let drafts = events.iter().filter(|event| event["eventType"] == "chat:stream" && event["payload"]["kind"] == "draft").count();
    assert!((3..=6).contains(&drafts), "a second lies between two: {stdout}");
    assert_eq!(server.end("-TERM"), Some(0));
}
