//! C07: only the first final answer of the connection that was asked gets through, and only to the phone that asked.

use super::{Peer, assert_pair_works, json_string, pair};
use crate::support::{account::Account, relay_process::RelayProcess};

/// Tries to answer the request `"open"` of `client` in every way, as a peer that was not asked.
async fn inject(peer: &mut Peer, client: &str) {
    for outcome in [r#""result":"injected""#, r#""result":"injected","isFinal":false"#, r#""error":{"code":-1,"message":"injected"}"#] {
        peer.respond(client, "\"open\"", outcome).await;
    }
    peer.fence().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_from_a_peer_that_was_not_asked_changes_nothing() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 2, 2).await;
    let (mut asked, mut not_asked) = (Peer::desktop(&account, 0).await, Peer::desktop(&account, 1).await);
    let (mut phone, mut other_phone) = (Peer::phone(&account, 0, 0).await, Peer::phone(&account, 1, 0).await);
    let stranger = Account::new(&relay, 1, 1).await;
    let mut strange_desktop = Peer::desktop(&stranger, 0).await;
    let mut strange_phone = Peer::phone(&stranger, 0, 0).await;

    phone.request("\"open\"", "system.ping", "").await;
    let request = asked.next_request().await;
    let client = request.field("clientId").to_owned();
    inject(&mut not_asked, &client).await;
    inject(&mut strange_desktop, &client).await;
    // A phone may answer nothing at all.
    other_phone.respond(&client, "\"open\"", r#""result":"injected""#).await;
    let refused = other_phone.next().await;
    assert_eq!((refused.kind.as_str(), refused.field("code")), ("error", "\"wrongRole\""));

    // The desktop that was asked may still name the wrong phone, or another request.
    let route = |phone: usize, desktop: usize| json_string(&format!("{}::{}", account.phones[phone], account.desktops[desktop]));
    let nobody = json_string(&format!("{}::{}", stranger.phones[0], account.desktops[0]));
    for client in [&route(1, 0), &route(0, 1), &nobody, "\"\"", "\"nobody\"", &json_string(&account.phones[0].to_string())] {
        inject(&mut asked, client).await;
    }
    asked.respond(&client, "\"another\"", r#""result":"injected""#).await;

    asked.answer(&request, r#""result":"first""#).await;
    asked.answer(&request, r#""result":"second""#).await;
    asked.answer(&request, r#""error":{"code":-1}"#).await;
    let answer = phone.next().await;
    assert_eq!((answer.field("id"), answer.field("result")), ("\"open\"", "\"first\""), "the only one that counts");
    assert_pair_works(&mut phone, &mut asked, "answers after the first").await;
    assert_pair_works(&mut other_phone, &mut asked, "answers of another phone's request").await;
    assert_pair_works(&mut strange_phone, &mut strange_desktop, "answers across accounts").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_is_the_same_in_any_case() {
    let relay = RelayProcess::start(&[]).await;
    let (_account, mut phone, mut desktop) = pair(&relay).await;
    phone.request("\"a\"", "system.ping", "").await;
    let request = desktop.next_request().await;
    desktop.respond(&request.field("clientId").to_uppercase(), "\"a\"", r#""result":1"#).await;
    assert_eq!(phone.next().await.field("result"), "1", "device ids are UUIDs, in any case on the wire");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_connection_of_the_desktop_cannot_answer_for_an_earlier_one() {
    let relay = RelayProcess::start(&[]).await;
    let (account, mut phone, mut old) = pair(&relay).await;
    phone.request("\"a\"", "system.ping", "").await;
    let request = old.next_request().await;
    let mut new = Peer::desktop(&account, 0).await;
    phone.next().await.assert_refused("\"a\"", -32011, true);
    new.answer(&request, r#""result":"too late""#).await;
    assert_pair_works(&mut phone, &mut new, "answers for an earlier connection").await;
    // The same id is asked again: the answer of the connection that has it now is the one that counts.
    phone.request("\"a\"", "system.ping", "").await;
    let again = new.next_request().await;
    new.answer(&again, r#""result":"new""#).await;
    assert_eq!(phone.next().await.field("result"), "\"new\"");
}
