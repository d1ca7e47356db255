//! A switch that is killed anywhere, with all that it runs, is finished by running it again; one that is interrupted cleans up.

use crate::{
    stage::Stage,
    support::{PATIENCE, data_dir::DataDir, wire::eventually},
    units::Outcome,
};
use std::process::{Child, Command};

const NOTHING_CHANGED: i32 = 1;
const HALFWAY: i32 = 3;

async fn stage() -> Stage {
    Stage::start(DataDir::with_sqlite()).await
}

/// A signal to the script and to all that it runs.
fn signal(script: &Child, name: &str) {
    let group = format!("-{}", script.id());
    assert!(Command::new("kill").args([&format!("-{name}"), "--", &group]).status().unwrap().success());
}

fn end(mut script: Child) -> (Option<i32>, String) {
    let code = script.wait().unwrap().code();
    let said = std::io::read_to_string(script.stderr.take().unwrap()).unwrap();
    (code, said)
}

/// Green is in use and works, blue is gone.
async fn is_at_green(stage: &Stage) {
    assert_eq!((stage.in_use().await.as_str(), stage.file().as_str()), ("green", "in-use green\n"));
    assert!(stage.units.runs("green") && !stage.units.runs("blue"));
    stage.pair().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_the_new_one_starts() {
    let stage = stage().await;
    let mut pair = stage.pair().await;
    stage.units.set("start green", Outcome::Hangs);
    let script = stage.script(&["switch"]).spawn().unwrap();
    eventually("green runs", async || stage.units.seen().contains(&"start green".to_owned())).await;
    signal(&script, "KILL");
    end(script);
    pair.works().await;
    assert_eq!(stage.in_use().await, "blue");
    stage.units.set("start green", Outcome::Works);
    let (code, said) = stage.run(&["switch"]).await;
    assert_eq!(code, 0, "{said}");
    assert_eq!(pair.phone.closed(PATIENCE).await, Some((1012, "relayDraining".to_owned())));
    is_at_green(&stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_the_old_one_drains() {
    let stage = stage().await;
    let mut pair = stage.pair().await;
    let relay = stage.program("if [ \"$1\" = drain ]; then \"$RELAY_PROGRAM\" drain; exec sleep 60; fi");
    let script = stage.script(&["--relay", &relay, "--drain-timeout", "60", "switch"]).spawn().unwrap();
    assert_eq!(pair.phone.closed(PATIENCE).await, Some((1012, "relayDraining".to_owned())));
    let green = stage.instance("green").await;
    signal(&script, "KILL");
    end(script);
    assert_eq!(stage.in_use().await, "blue");
    let (code, said) = stage.run(&["switch"]).await;
    assert_eq!(code, 0, "{said}");
    assert_eq!(stage.instance("green").await, green, "nobody waits for another start");
    is_at_green(&stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_when_the_new_one_is_in_use_and_the_old_one_not_ended() {
    for again in [&["switch"][..], &["switch", "green"]] {
        let stage = stage().await;
        stage.units.set("stop blue", Outcome::Fails);
        let (code, said) = stage.run(&["switch"]).await;
        assert_eq!(code, HALFWAY, "{said}");
        assert!(said.contains("blue could not be ended; green is in use and serves"), "{said}");
        let mut pair = stage.pair().await;
        stage.units.set("stop blue", Outcome::Works);
        let (code, said) = stage.run(again).await;
        assert_eq!(code, 0, "{said}");
        pair.works().await;
        is_at_green(&stage).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_before_the_drain_it_ends_what_it_started() {
    let stage = stage().await;
    let mut pair = stage.pair().await;
    stage.units.set("start green", Outcome::Hangs);
    let script = stage.script(&["switch"]).spawn().unwrap();
    eventually("green runs", async || stage.units.seen().contains(&"start green".to_owned())).await;
    let (code, said) = stage.run(&["switch"]).await;
    assert_eq!(code, NOTHING_CHANGED, "{said}");
    assert!(said.contains("another blue-green runs"), "{said}");
    signal(&script, "TERM");
    let (code, said) = end(script);
    assert_eq!(code, Some(NOTHING_CHANGED), "{said}");
    assert!(said.contains("interrupted") && said.ends_with("nothing was changed\n"), "{said}");
    assert!(stage.units.runs("blue") && !stage.units.runs("green"));
    pair.works().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_behind_it_it_says_that_nobody_is_served() {
    let stage = stage().await;
    let mut pair = stage.pair().await;
    let relay = stage.program("if [ \"$1\" = drain ]; then \"$RELAY_PROGRAM\" drain; exec sleep 60; fi");
    let script = stage.script(&["--relay", &relay, "--drain-timeout", "60", "switch"]).spawn().unwrap();
    assert_eq!(pair.phone.closed(PATIENCE).await, Some((1012, "relayDraining".to_owned())));
    signal(&script, "TERM");
    let (code, said) = end(script);
    assert_eq!(code, Some(HALFWAY), "{said}");
    assert!(said.contains("nobody is served now"), "{said}");
    assert!(stage.units.runs("green"), "it is what the next run routes to");
    let (code, said) = stage.run(&["switch"]).await;
    assert_eq!(code, 0, "{said}");
    is_at_green(&stage).await;
}
