//! Switches that cannot be: either nothing was changed, or the exit code says that it was. Devices never hang between two processes.

use crate::{
    stage::Stage,
    support::{PATIENCE, data_dir::DataDir, postgres::Server},
    units::Outcome,
};

const NOTHING_CHANGED: i32 = 1;
const WRONG_USE: i32 = 2;
const HALFWAY: i32 = 3;

async fn stage() -> Stage {
    Stage::start(DataDir::with_sqlite()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_process_that_does_not_get_ready_changes_nothing_and_is_ended() {
    let stage = stage().await;
    let mut pair = stage.pair().await;
    // Nobody listens there, and the relay waits 30 s for its database.
    stage.add_variable("green", "RELAY_DATABASE_URL=postgres://user:password@127.0.0.1:1/database");
    let (code, said) = stage.run(&["--ready-timeout", "1", "switch"]).await;
    assert_eq!(code, NOTHING_CHANGED, "{said}");
    assert!(said.contains("green was not ready within 1 s: silent, HAProxy: DOWN"), "{said}");
    assert!(said.ends_with("nothing was changed\n"), "{said}");
    pair.works().await;
    assert_eq!((stage.in_use().await.as_str(), stage.file().as_str()), ("blue", "in-use blue\n"));
    assert!(stage.units.runs("blue") && !stage.units.runs("green"));
    assert_eq!(stage.status("blue").await.unwrap()["drain"]["phase"], "serving");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_command_that_fails_changes_nothing() {
    let stage = stage().await;
    let mut pair = stage.pair().await;
    stage.units.set("start green", Outcome::Fails);
    let (code, said) = stage.run(&["switch"]).await;
    assert_eq!(code, NOTHING_CHANGED, "{said}");
    assert!(said.contains("green could not be started"), "{said}");
    pair.works().await;
    assert_eq!(stage.in_use().await, "blue");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_wrong_admin_token_nothing_is_started() {
    let stage = stage().await;
    let mut pair = stage.pair().await;
    stage.add_variable("blue", "RELAY_ADMIN_TOKEN=another-token-of-thirty-two-bytes-or-more");
    let (code, said) = stage.run(&["switch"]).await;
    assert_eq!(code, NOTHING_CHANGED, "{said}");
    assert!(said.contains("blue does not tell how it is") && said.contains("unauthorized"), "{said}");
    assert!(!said.contains("another-token"), "{said}");
    pair.works().await;
    assert_eq!(stage.units.seen(), ["start blue"]);
}

/// There is no way back from a drain, and the new one is ready: the old one goes with what it still has, before anybody is routed.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_process_that_does_not_answer_is_ended_before_the_new_one_is_routed_to() {
    // A process that is frozen in a write holds the lock of the embedded database, and nobody can start beside it.
    let stage = Stage::start(DataDir::with_postgres(Server::shared())).await;
    let mut pair = stage.pair().await;
    stage.units.signal("blue", "STOP");
    let (code, said) = stage.run(&["switch"]).await;
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("blue does not answer; ending it"), "{said}");
    assert_eq!(pair.phone.closed(PATIENCE).await, None, "its socket ended with its process");
    assert_eq!(stage.in_use().await, "green");
    stage.pair().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_that_takes_too_long_ends_with_the_process() {
    let stage = stage().await;
    let mut pair = stage.pair().await;
    // What it says of itself is right, and its drain fails: the program is another one for this.
    let relay = stage.program("if [ \"$1\" = drain ]; then exec sleep 60; fi");
    let (code, said) = stage.run(&["--relay", &relay, "--drain-timeout", "1", "switch"]).await;
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("blue did not drain; ending it"), "{said}");
    // SIGTERM drains as well, so the clients were told after all.
    assert_eq!(pair.phone.closed(PATIENCE).await, Some((1012, "relayDraining".to_owned())));
    assert_eq!(stage.in_use().await, "green");
    stage.pair().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_process_that_cannot_be_ended_is_not_routed_around() {
    let stage = stage().await;
    stage.units.set("stop blue", Outcome::Fails);
    let relay = stage.program("if [ \"$1\" = drain ]; then exit 1; fi");
    let (code, said) = stage.run(&["--relay", &relay, "switch"]).await;
    assert_eq!(code, HALFWAY, "{said}");
    assert!(said.contains("blue could not be ended") && said.contains("run it again"), "{said}");
    assert_eq!(stage.in_use().await, "blue", "it may hold sockets");
    stage.units.set("stop blue", Outcome::Works);
    let (code, said) = stage.run(&["switch"]).await;
    assert_eq!((code, stage.in_use().await.as_str()), (0, "green"), "{said}");
    stage.pair().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_use_is_told_and_does_nothing() {
    let stage = stage().await;
    for (arguments, told) in [
        (&[][..], "say switch or status"),
        (&["deploy"], "say switch or status"),
        (&["switch", "red"], "switch takes blue, green or nothing"),
        (&["status", "blue"], "status takes nothing else"),
        (&["--colour", "blue", "switch"], "there is no option --colour"),
        (&["switch", "--start"], "switch takes blue, green or nothing"),
        (&["--start"], "--start needs a value"),
        (&["--drain-timeout", "90s", "switch"], "whole number of seconds"),
        (&["--env-dir", "/nowhere", "switch"], "/nowhere/blue.env cannot be read"),
    ] {
        let (code, said) = stage.run(arguments).await;
        assert_eq!(code, WRONG_USE, "{arguments:?}: {said}");
        assert!(said.contains(told), "{arguments:?}: {said}");
    }
    let (code, said) = stage.run(&["--proxy-socket", "/nowhere", "switch"]).await;
    assert_eq!(code, NOTHING_CHANGED, "{said}");
    assert!(said.contains("HAProxy cannot be asked at /nowhere"), "{said}");
    let (code, help) = stage.run(&["--help"]).await;
    assert_eq!(code, 0);
    assert!(help.contains("Example: blue-green switch"), "{help}");
    assert_eq!(stage.units.seen(), ["start blue"]);
}
