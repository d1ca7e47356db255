//! C03: a desktop that takes every request and answers none. Each request ends exactly once, and nothing of it is left.
//!
//! What is left of requests shows in the bounds: they are filled to the last request again and again, so that one record too many
//! would refuse a request that must be taken.

use super::{Message, Peer, assert_pair_works, pair, request, wait_for_connections};
use crate::support::{
    account::Account,
    raw_socket::Frame,
    relay_process::RelayProcess,
    scale::scaled,
    wire::{Before, KIB},
};
use relay_protocol::limits::{PENDING_PER_CLIENT_MAX, PENDING_PER_DESKTOP_MAX, PENDING_PER_USER_MAX};
use std::collections::BTreeSet;

/// Phones of each desktop, and desktops, that fill every bound of an account at once.
const PHONES: usize = PENDING_PER_DESKTOP_MAX / PENDING_PER_CLIENT_MAX;
const DESKTOPS: usize = PENDING_PER_USER_MAX / PENDING_PER_DESKTOP_MAX;
/// Requests over its bound that each phone sends in each wave.
const TOO_MANY: usize = 6;
/// A deadline long enough for a phone to send its wave before the first of it expires. With it a phone stays under the rate limit
/// of the defaults, which is on.
const FLAGS: [&str; 3] = ["--pending-default=1s", "--rate-burst=300", "--rate-per-second=150"];
/// What the allocator may keep; 50,000 records would be several times as much.
const RSS_MARGIN_KIB: u64 = 16 * KIB as u64;

fn ids(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("\"{prefix} {number}\"")).collect()
}

async fn send_all(phone: &mut Peer, ids: &[String]) {
    let frames: Vec<u8> = ids.iter().flat_map(|id| Frame::text(&request(id, "system.ping", "")).encode()).collect();
    phone.socket.write(&frames).await;
}

/// As many requests as one phone may have open, all with its desktop.
async fn open_all(phone: &mut Peer, desktop: &mut Peer, prefix: &str) -> (Vec<String>, Vec<Message>) {
    let ids = ids(prefix, PENDING_PER_CLIENT_MAX);
    send_all(phone, &ids).await;
    let mut asked = Vec::new();
    for id in &ids {
        asked.push(desktop.next_request().await);
        assert_eq!(asked.last().unwrap().field("id"), id);
    }
    (ids, asked)
}

/// The next answers are the refusals of these requests, each once.
async fn each_is_refused(phone: &mut Peer, ids: &[String], code: i64) {
    let mut left: BTreeSet<&str> = ids.iter().map(String::as_str).collect();
    while !left.is_empty() {
        let message = phone.next().await;
        message.assert_refused(message.field("id"), code, true);
        assert!(left.remove(message.field("id")), "a second answer, or one to nothing: {:?}", message.fields);
    }
}

/// Sends waves and expects of each that what fits the bound expires and the rest is refused at once.
async fn waves(mut phone: Peer, phone_number: usize, waves: usize) -> Peer {
    for wave in 0..waves {
        let ids = ids(&format!("{phone_number} {wave}"), PENDING_PER_CLIENT_MAX + TOO_MANY);
        send_all(&mut phone, &ids).await;
        let (fit, over) = ids.split_at(PENDING_PER_CLIENT_MAX);
        each_is_refused(&mut phone, over, -32020).await;
        each_is_refused(&mut phone, fit, -32012).await;
    }
    phone
}

/// Takes requests and answers none; the last ones, to be answered too late.
async fn take(mut desktop: Peer, count: usize) -> (Peer, Vec<Message>) {
    let mut last = Vec::new();
    for _ in 0..count {
        if last.len() == PENDING_PER_DESKTOP_MAX {
            last.clear();
        }
        last.push(desktop.next_request().await);
    }
    (desktop, last)
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_waves_of_requests_that_nobody_answers_expire_once_each() {
    // 2,048 requests, or 50,000.
    let count = scaled(4, 98);
    let mut relay = RelayProcess::start(&FLAGS).await;
    let account = Account::new(&relay, DESKTOPS, PHONES).await;
    let (mut desktops, mut phones) = (Vec::new(), Vec::new());
    for desktop in 0..DESKTOPS {
        desktops.push(tokio::spawn(take(Peer::desktop(&account, desktop).await, count * PENDING_PER_DESKTOP_MAX)));
        for phone in 0..PHONES {
            phones.push(Peer::phone(&account, phone, desktop).await);
        }
    }
    let before = Before::of(&relay).await;
    let mut running = Vec::new();
    for (name, phone) in phones.into_iter().enumerate() {
        running.push(tokio::spawn(waves(phone, name, count)));
    }
    let mut phones = Vec::new();
    for phone in running {
        phones.push(phone.await.unwrap());
    }
    let mut kept = Vec::new();
    for (number, desktop) in desktops.into_iter().enumerate() {
        // Every request that was taken was forwarded, once. Its answer comes too late for all of them.
        let (mut desktop, late) = desktop.await.unwrap();
        for request in &late {
            desktop.answer(request, r#""result":"too late""#).await;
        }
        for (name, phone) in phones[PHONES * number..PHONES * (number + 1)].iter_mut().enumerate() {
            assert_pair_works(phone, &mut desktop, "late answers").await;
            open_all(phone, &mut desktop, &format!("last {name}")).await;
        }
        kept.push(desktop);
    }
    before.all_well(&mut relay, RSS_MARGIN_KIB).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_a_phone_that_has_gone_expire_all_the_same() {
    let mut relay = RelayProcess::start(&FLAGS).await;
    let account = Account::new(&relay, 1, 2).await;
    let mut desktop = Peer::desktop(&account, 0).await;
    let mut other = Peer::phone(&account, 1, 0).await;
    let before = Before::of(&relay).await;
    for wave in 0..scaled(3, 200) {
        let mut phone = Peer::phone(&account, 0, 0).await;
        let (ids, _) = open_all(&mut phone, &mut desktop, &format!("{wave}")).await;
        phone.socket.reset();
        wait_for_connections(&relay, &account, 2).await;
        if wave % 2 == 1 {
            // Back before the deadline: its records were kept, and end at its new socket.
            let mut back = Peer::phone(&account, 0, 0).await;
            back.request("\"more\"", "system.ping", "").await;
            back.next().await.assert_refused("\"more\"", -32020, true);
            each_is_refused(&mut back, &ids, -32012).await;
            back.fence().await;
            continue;
        }
        // What was asked later expires later.
        other.request("\"later\"", "system.ping", "").await;
        assert_eq!(desktop.next_request().await.field("id"), "\"later\"");
        other.next().await.assert_refused("\"later\"", -32012, true);
        // Back after the deadline: nothing waits for it, and nothing is in its way.
        let mut back = Peer::phone(&account, 0, 0).await;
        back.fence().await;
        let (_, asked) = open_all(&mut back, &mut desktop, &format!("{wave}")).await;
        for request in &asked {
            desktop.answer(request, r#""result":1"#).await;
            assert_eq!(back.next().await.field("result"), "1");
        }
    }
    before.all_well(&mut relay, RSS_MARGIN_KIB).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_to_a_desktop_that_goes_are_answered_then_and_not_again_at_their_deadline() {
    let mut relay = RelayProcess::start(&FLAGS).await;
    let (account, mut phone, mut desktop) = pair(&relay).await;
    let before = Before::of(&relay).await;
    for wave in 0..scaled(3, 200) {
        let (ids, asked) = open_all(&mut phone, &mut desktop, &format!("{wave}")).await;
        desktop.socket.reset();
        each_is_refused(&mut phone, &ids, -32011).await;
        desktop = Peer::desktop(&account, 0).await;
        // Its answers belong to a connection that is no more. What is asked now expires later than what was asked before.
        desktop.answer(&asked[0], r#""result":"late""#).await;
        phone.request("\"later\"", "system.ping", "").await;
        assert_eq!(desktop.next_request().await.field("id"), "\"later\"");
        let expired = phone.next().await;
        expired.assert_refused("\"later\"", -32012, true);
    }
    assert_pair_works(&mut phone, &mut desktop, "at the end").await;
    before.all_well(&mut relay, RSS_MARGIN_KIB).await;
}
