//! Open requests: what one id stands for, and how many there may be.

use super::{Message, Peer, assert_all_reconnecting, pair, request};
use crate::support::{account::Account, relay_process::RelayProcess};
use futures_util::future::join_all;
use serde_json::json;

const BODY: &str = r#","params":{"a":1},"idempotencyKey":"k""#;

/// C02 among others: a second request under an open id is refused, and the first keeps its answer.
#[tokio::test(flavor = "multi_thread")]
async fn an_open_id_is_refused_and_the_first_request_keeps_its_answer() {
    let relay = RelayProcess::start(&[]).await;
    let (_account, mut phone, mut desktop) = pair(&relay).await;
    phone.request("\"x\"", "session.create", BODY).await;
    let first = desktop.next_request().await;
    // The same again, however the id is written, and under another trace.
    for id in [r#""x""#, r#"" x\t""#, r#""\u0078""#] {
        phone.request(id, "session.create", BODY).await;
        phone.next().await.assert_refused(id, -32021, false);
    }
    phone.socket.text(&request("\"x\"", "session.create", BODY).replace("4bf92f", "5bf92f")).await;
    phone.next().await.assert_refused("\"x\"", -32021, false);
    phone.request("\"x\"", "session.create", &format!(r#"{BODY},"tracestate":"a=1""#)).await;
    phone.next().await.assert_refused("\"x\"", -32021, false);
    for (method, more) in [
        ("session.delete", BODY),
        ("session.create", r#","params":{"a":2},"idempotencyKey":"k""#),
        ("session.create", r#","idempotencyKey":"k""#),
        ("session.create", r#","params":null,"idempotencyKey":"k""#),
        ("session.create", r#","params":{"a":1},"idempotencyKey":"K""#),
        ("system.ping", ""),
    ] {
        phone.request("\" x\"", method, more).await;
        phone.next().await.assert_refused("\" x\"", -32022, false);
    }
    // Ids that only look alike are other ids.
    for id in [r#""X""#, r#""x x""#, r#""x\u0000""#] {
        phone.request(id, "session.create", BODY).await;
        assert_eq!(desktop.next_request().await.field("id"), id);
    }
    desktop.answer(&first, r#""result":"first""#).await;
    let answer = phone.next().await;
    assert_eq!((answer.field("id"), answer.field("result")), ("\"x\"", "\"first\""));
    phone.request("\"x\"", "system.ping", "").await;
    assert_eq!(desktop.next_request().await.value("method"), "system.ping", "after its answer the id is free");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_id_at_one_desktop_is_one_request_whoever_asks() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 2, 2).await;
    let (mut desktop, mut other_desktop) = (Peer::desktop(&account, 0).await, Peer::desktop(&account, 1).await);
    let (mut phone, mut other_phone) = (Peer::phone(&account, 0, 0).await, Peer::phone(&account, 1, 0).await);
    let mut second_route = Peer::phone(&account, 0, 1).await;
    let stranger = Account::new(&relay, 1, 1).await;
    let (mut strange_desktop, mut strange_phone) = (Peer::desktop(&stranger, 0).await, Peer::phone(&stranger, 0, 0).await);

    phone.request("\"x\"", "system.ping", "").await;
    let first = desktop.next_request().await;
    // The very same request of another phone is another request.
    other_phone.request("\"x\"", "system.ping", "").await;
    other_phone.next().await.assert_refused("\"x\"", -32022, false);
    // Other desktops know nothing of it.
    for (phone, desktop) in [(&mut second_route, &mut other_desktop), (&mut strange_phone, &mut strange_desktop)] {
        phone.request("\"x\"", "system.ping", "").await;
        let request = desktop.next_request().await;
        desktop.answer(&request, r#""result":"its own""#).await;
        assert_eq!(phone.next().await.field("result"), "\"its own\"");
    }
    desktop.answer(&first, r#""result":"first""#).await;
    assert_eq!(phone.next().await.field("result"), "\"first\"");
    other_phone.request("\"x\"", "system.ping", "").await;
    let second = desktop.next_request().await;
    assert_ne!(second.field("clientId"), first.field("clientId"));
    desktop.answer(&second, r#""result":"second""#).await;
    assert_eq!(other_phone.next().await.field("result"), "\"second\"");
}

/// Opens requests that the desktop holds.
async fn open(phone: &mut Peer, desktop: &mut Peer, name: &str, count: usize) -> Vec<Message> {
    let mut held = Vec::new();
    for number in 0..count {
        phone.request(&format!("\"{name}{number}\""), "system.ping", "").await;
        held.push(desktop.next_request().await);
    }
    held
}

/// One more request is too many: it is refused, and the refusal says by which bound.
async fn assert_full(phone: &mut Peer, scope: &str, limit: usize) {
    phone.request("\"more\"", "system.ping", "").await;
    let refused = phone.next().await;
    refused.assert_refused("\"more\"", -32020, true);
    let data = refused.value("error")["data"].take();
    assert_eq!(data, json!({"retryable": true, "scope": scope, "limit": limit, "current": limit}));
}

/// An answer makes room for exactly one request.
async fn assert_room_for_one(phone: &mut Peer, desktop: &mut Peer) {
    phone.request("\"room\"", "system.ping", "").await;
    assert_eq!(desktop.next_request().await.field("id"), "\"room\"");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_phone_may_have_64_open_requests() {
    let relay = RelayProcess::start(&[]).await;
    let (_account, mut phone, mut desktop) = pair(&relay).await;
    let held = open(&mut phone, &mut desktop, "a", 64).await;
    assert_full(&mut phone, "client", 64).await;
    // What is wrong with a request is said before there being no room for it.
    phone.request("\"a0\"", "system.ping", "").await;
    phone.next().await.assert_refused("\"a0\"", -32021, false);
    phone.request("\"a0\"", "system.listModels", "").await;
    phone.next().await.assert_refused("\"a0\"", -32022, false);
    // Progress makes no room.
    desktop.answer(&held[0], r#""result":1,"isFinal":false"#).await;
    phone.next().await;
    assert_full(&mut phone, "client", 64).await;
    desktop.answer(&held[0], r#""result":1"#).await;
    phone.next().await;
    assert_room_for_one(&mut phone, &mut desktop).await;
    assert_full(&mut phone, "client", 64).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_desktop_may_have_128_open_requests_of_all_phones() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 2, 3).await;
    let (mut desktop, mut other) = (Peer::desktop(&account, 0).await, Peer::desktop(&account, 1).await);
    let mut held = Vec::new();
    let mut phones = Vec::new();
    for (index, count) in [(0, 50), (1, 50), (2, 28)] {
        let mut phone = Peer::phone(&account, index, 0).await;
        held.extend(open(&mut phone, &mut desktop, &format!("phone {index} "), count).await);
        phones.push(phone);
    }
    for phone in &mut phones {
        assert_full(phone, "desktop", 128).await;
    }
    let mut elsewhere = Peer::phone(&account, 0, 1).await;
    open(&mut elsewhere, &mut other, "elsewhere", 1).await;
    desktop.answer(&held[0], r#""error":{"code":1}"#).await;
    phones[0].next().await;
    assert_room_for_one(&mut phones[2], &mut desktop).await;
    assert_full(&mut phones[0], "desktop", 128).await;
}

/// An account with so many desktops, whose first four hold as many open requests as an account may have; and their sockets.
async fn full_account(relay: &RelayProcess, desktops: usize) -> (Account, Vec<Peer>, Vec<Peer>) {
    let account = Account::new(relay, desktops, 2).await;
    let (mut desktops, mut phones) = (Vec::new(), Vec::new());
    for index in 0..4 {
        let mut desktop = Peer::desktop(&account, index).await;
        for number in 0..2 {
            let mut phone = Peer::phone(&account, number, index).await;
            open(&mut phone, &mut desktop, &format!("phone {number} "), 64).await;
            phones.push(phone);
        }
        desktops.push(desktop);
    }
    (account, desktops, phones)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_may_have_512_open_requests() {
    let relay = RelayProcess::start(&[]).await;
    let (account, mut desktops, mut phones) = full_account(&relay, 5).await;
    let mut fifth = Peer::desktop(&account, 4).await;
    let mut phone = Peer::phone(&account, 0, 4).await;
    assert_full(&mut phone, "user", 512).await;
    let stranger = Account::new(&relay, 1, 1).await;
    let (mut strange_desktop, mut strange_phone) = (Peer::desktop(&stranger, 0).await, Peer::phone(&stranger, 0, 0).await);
    open(&mut strange_phone, &mut strange_desktop, "stranger", 1).await;
    // A desktop that goes takes its 128 with it.
    drop(desktops.pop());
    let ids: Vec<String> = (0..64).map(|number| format!("\"phone 0 {number}\"")).collect();
    assert_all_reconnecting(&mut phones[6], &ids.iter().map(String::as_str).collect::<Vec<_>>()).await;
    open(&mut phone, &mut fifth, "fifth", 64).await;
    assert_full(&mut phone, "client", 64).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_may_have_4096_open_requests_of_all_accounts() {
    let relay = RelayProcess::start(&[]).await;
    let mut accounts = join_all((0..8).map(|_| full_account(&relay, 4))).await;
    let (_stranger, mut strange_phone, mut strange_desktop) = pair(&relay).await;
    assert_full(&mut strange_phone, "process", 4_096).await;
    assert_full(&mut accounts[0].2[0], "process", 4_096).await;
    // A desktop that goes gives all of its 128 places back, a final answer one.
    let (_, desktops, phones) = &mut accounts[7];
    drop(desktops.pop());
    let ids: Vec<String> = (0..64).map(|number| format!("\"phone 1 {number}\"")).collect();
    assert_all_reconnecting(&mut phones[7], &ids.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let held = open(&mut strange_phone, &mut strange_desktop, "strange ", 64).await;
    let (_other, mut other_phone, mut other_desktop) = pair(&relay).await;
    open(&mut other_phone, &mut other_desktop, "other ", 64).await;
    let (_last, mut last_phone, mut last_desktop) = pair(&relay).await;
    assert_full(&mut last_phone, "process", 4_096).await;
    strange_desktop.answer(&held[0], r#""result":1"#).await;
    strange_phone.next().await;
    assert_room_for_one(&mut last_phone, &mut last_desktop).await;
    assert_full(&mut last_phone, "process", 4_096).await;
}
