//! The README's tour of the demo desktop, typed as it stands.

use crate::{
    RELAY, Server,
    printed::Shell,
    support::{PATIENCE, data_dir::DataDir},
};
use serde_json::{Value, json};
use std::{fs::File, path::Path};
use tokio::{process::Command, time::timeout};

#[tokio::test(flavor = "multi_thread")]
async fn the_tour_of_the_readme_works_as_it_stands() {
    let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let section = readme.split("\n## A desktop to build a phone against\n").nth(1).unwrap();
    let block = section.split("```sh\n").nth(1).unwrap().split("\n```").next().unwrap();
    let block = block.replace("cargo run --release --", RELAY);
    let directory = DataDir::new();
    let server = Server::start(&directory, &[]);
    let output = |name: &str| File::create(directory.path().join(name)).unwrap();
    let mut command = Command::new("sh");
    // To files, since the desktop keeps the streams open for as long as it runs.
    command.current_dir(directory.path()).env_clear().env("RELAY_URL", &server.url).args(["-ec", &block]);
    command.stdout(output("stdout")).stderr(output("stderr"));
    let mut shell = Shell::start(command);
    let status = timeout(PATIENCE, shell.process.wait()).await.expect("the block ends").unwrap();
    let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
    let (stdout, stderr) = (read("stdout"), read("stderr"));
    assert!(status.success(), "{status}\n{stdout}\n{stderr}");

    // The desktop's own line and those about devices are none.
    let printed: Vec<Value> = stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let (events, answers): (Vec<&Value>, Vec<&Value>) = printed.iter().partition(|printed| printed["eventType"].is_string());
    let [first, submitted, again, last] = answers[..] else { panic!("{stdout}") };
    assert_eq!((&first["historyRevision"], first["entries"].as_array().unwrap().len()), (&json!(120), 2));
    assert_eq!(submitted["receipt"], json!({"queueId": "queue-201", "operationId": "operation-201"}));
    assert_eq!(again, submitted, "one key, one answer");
    let entries: Vec<_> = last["entries"].as_array().unwrap().iter().map(|entry| (&entry["sequence"], &entry["kind"])).collect();
    assert_eq!(entries, [(&json!(121), &json!("userMessage")), (&json!(122), &json!("agentMessage"))]);
    assert!(events.iter().any(|event| event["payload"]["kind"] == "draft"), "{stdout}");
    assert_eq!(server.end("-TERM"), Some(0));
}
