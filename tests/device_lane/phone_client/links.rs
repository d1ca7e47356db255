//! How a phone comes by its connection, and when it gives up.

use super::{Rig, SESSION, hear, until, until_ready};
use crate::support::PATIENCE;
use relay_endpoints::{
    frame::Resume,
    phone::{
        Client, Request,
        client::{Failure, MemoryStore, Status},
    },
};
use serde_json::json;
use tokio::time::timeout;

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_the_relay_does_not_know_is_replaced_by_a_new_one() {
    let rig = Rig::start(&[]).await;
    let mut desktop = rig.desktop().await;
    let unknown = Resume { session_id: "0f8fad5b-d9cb-469f-a165-70867728950e".parse().unwrap(), resume_token: "x".repeat(43) };
    let client = Client::start(rig.options(), MemoryStore::new(Some(unknown)));
    let (mut status, mut registered) = (client.status(), client.registered());
    assert_eq!(hear(&mut desktop).await, "system.ping");
    until_ready(&mut status).await;
    let first = registered.borrow_and_update().clone().unwrap();
    assert!(!first.resumed);
    rig.lose_phone(&mut status).await;
    rig.let_back(&mut status).await;
    let second = registered.borrow_and_update().clone().unwrap();
    assert!(second.resumed && second.resume == first.resume, "the new one goes on");
    client.close().await;

    // The session outlives its process, too.
    let client = Client::connect(rig.options(), MemoryStore::new(Some(second.resume))).await.unwrap();
    let mut registered = client.registered();
    assert!(registered.wait_for(Option::is_some).await.unwrap().as_ref().unwrap().resumed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_phone_whose_place_was_taken_does_not_fight_for_it() {
    let rig = Rig::start(&[]).await;
    let mut desktop = rig.desktop().await;
    let former = rig.client();
    let (mut former_status, call) = (former.status(), former.call(Request::new("session.list")).unwrap());
    super::request(&mut desktop, "system.ping").await;
    super::request(&mut desktop, "session.list").await;
    let successor = rig.client();
    let mut status = successor.status();
    let ended = until(&mut former_status, Status::is_over).await;
    assert!(ended.to_string().contains("4002 replaced"), "{ended}");
    assert!(matches!(timeout(PATIENCE, call.result()).await.unwrap(), Err(Failure::Ended(_))));
    assert_eq!(hear(&mut desktop).await, "system.ping");
    until_ready(&mut status).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_out_is_the_end_and_a_close_gives_the_lease_back() {
    let rig = Rig::start(&[]).await;
    let mut desktop = rig.desktop().await;
    let client = rig.client();
    let mut status = client.status();
    let _watch = client.watch(SESSION);
    while hear(&mut desktop).await != "run.chatLoad" {}
    until_ready(&mut status).await;
    timeout(PATIENCE, client.close()).await.unwrap();
    assert_eq!(hear(&mut desktop).await, "unwatched");
    assert!(matches!(*status.borrow_and_update(), Status::Closed));

    let client = rig.client();
    let mut status = client.status();
    assert_eq!(hear(&mut desktop).await, "system.ping");
    until_ready(&mut status).await;
    assert_eq!(rig.account.log_out(&json!({"deviceId": rig.account.phones[0]})).await, 204);
    let ended = until(&mut status, Status::is_over).await;
    assert!(ended.to_string().contains("1008"), "{ended}");
}
