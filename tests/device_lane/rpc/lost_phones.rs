//! Phones that lose their socket with requests open: an answer follows the route, and what comes in the gap is lost.

use super::{Peer, assert_pair_works, pair, wait_for_connections};
use crate::support::{
    account::Account,
    raw_socket::{RawOptions, RawSocket},
    relay_process::RelayProcess,
    stall_proxy::StallProxy,
};
use relay_protocol::device::Role;
use serde_json::{Value, json};

/// How a phone comes to have another socket.
#[derive(Clone, Copy, Debug)]
enum Way {
    Cut,
    Reset,
    Resumed,
    Replaced,
}

/// Opens a phone's socket through the proxy; the registration's answer, for a resume.
async fn connect(account: &Account, resume: Option<&Value>) -> (Peer, Value) {
    let options = RawOptions::device_link(&account.address, &account.token, Role::Mobile, Some(account.desktops[0]));
    let mut socket = RawSocket::open(&options).await;
    let Some(session) = resume else {
        let answer = socket.register(account.phones[0]).await;
        return (Peer { socket }, answer);
    };
    let payload = json!({
        "deviceId": account.phones[0], "relayProtocolVersion": "1.7",
        "sessionId": session["sessionId"], "resumeToken": session["resumeToken"],
    });
    socket.text(&json!({"type": "register", "payload": payload}).to_string()).await;
    let mut phone = Peer { socket };
    let resumed = phone.next().await;
    assert_eq!((resumed.kind.as_str(), resumed.value("sessionId")), ("resumed", session["sessionId"].clone()));
    (phone, Value::Null)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_goes_to_the_phones_next_socket() {
    let relay = RelayProcess::start(&[]).await;
    for way in [Way::Cut, Way::Reset, Way::Resumed, Way::Replaced] {
        let mut account = Account::new(&relay, 1, 1).await;
        let mut desktop = Peer::desktop(&account, 0).await;
        let proxy = StallProxy::start(relay.ready().public).await;
        account.address = format!("http://{}", proxy.address()).parse().unwrap();
        let (mut old, session) = connect(&account, None).await;
        for id in ["\" a\\u0061 \"", "\"b\""] {
            old.request(id, "system.ping", "").await;
        }
        let (first, second) = (desktop.next_request().await, desktop.next_request().await);
        match way {
            Way::Cut | Way::Resumed => proxy.cut(),
            Way::Reset => proxy.reset(),
            Way::Replaced => {}
        }
        if !matches!(way, Way::Replaced) {
            wait_for_connections(&relay, &account, 1).await;
        }
        let (mut phone, _) = connect(&account, matches!(way, Way::Resumed).then_some(&session)).await;
        // Its requests are open under their ids: the route is the same.
        phone.request("\"b\"", "system.ping", "").await;
        phone.next().await.assert_refused("\"b\"", -32021, false);
        desktop.answer(&first, r#""result":0,"isFinal":false"#).await;
        assert_eq!(phone.next().await.field("result"), "0", "{way:?}: progress goes there too");
        desktop.answer(&second, r#""error":{"code":7}"#).await;
        assert_eq!(phone.next().await.field("error"), r#"{"code":7}"#, "{way:?}");
        desktop.answer(&first, r#""result":1"#).await;
        let answer = phone.next().await;
        assert_eq!((answer.field("id"), answer.field("result")), ("\" a\\u0061 \"", "1"), "{way:?}");
        assert_pair_works(&mut phone, &mut desktop, &format!("{way:?}")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_while_the_phone_is_away_is_lost_and_ends_the_request() {
    let relay = RelayProcess::start(&[]).await;
    let (account, mut phone, mut desktop) = pair(&relay).await;
    for id in ["\"a\"", "\"b\"", "\"c\""] {
        phone.request(id, "system.ping", "").await;
    }
    let (a, b, c) = (desktop.next_request().await, desktop.next_request().await, desktop.next_request().await);
    phone.socket.reset();
    wait_for_connections(&relay, &account, 1).await;
    desktop.answer(&a, r#""result":"in the gap""#).await;
    desktop.answer(&b, r#""error":{"code":7}"#).await;
    desktop.answer(&c, r#""result":"in the gap","isFinal":false"#).await;
    desktop.fence().await;

    let mut phone = Peer::phone(&account, 0, 0).await;
    assert_pair_works(&mut phone, &mut desktop, "nothing is kept for a phone that was away").await;
    desktop.answer(&a, r#""result":"too late""#).await;
    // Final answers ended their requests, so the ids are free; progress did not.
    for id in ["\"a\"", "\"b\""] {
        phone.request(id, "system.ping", "").await;
        assert_eq!(desktop.next_request().await.field("id"), id);
    }
    phone.request("\"c\"", "system.ping", "").await;
    phone.next().await.assert_refused("\"c\"", -32021, false);
    desktop.answer(&c, r#""result":"the end""#).await;
    assert_eq!(phone.next().await.field("result"), "\"the end\"");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_phone_that_was_away_hears_nothing_of_a_desktop_that_died_meanwhile() {
    let relay = RelayProcess::start(&[]).await;
    let (account, mut phone, mut desktop) = pair(&relay).await;
    phone.request("\"a\"", "system.ping", "").await;
    desktop.next_request().await;
    phone.socket.reset();
    wait_for_connections(&relay, &account, 1).await;
    desktop.socket.reset();
    wait_for_connections(&relay, &account, 0).await;
    let mut phone = Peer::phone(&account, 0, 0).await;
    let mut desktop = Peer::desktop(&account, 0).await;
    assert_pair_works(&mut phone, &mut desktop, "the refusal was for the old socket").await;
    phone.request("\"a\"", "system.ping", "").await;
    assert_eq!(desktop.next_request().await.field("id"), "\"a\"", "the id is free");
}

/// One phone may hold a route to each desktop; an answer goes to the route that asked, not to the other socket of the phone.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_does_not_stray_to_the_phones_other_route() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 2, 1).await;
    let (mut desktop, mut other_desktop) = (Peer::desktop(&account, 0).await, Peer::desktop(&account, 1).await);
    let (mut phone, mut other_route) = (Peer::phone(&account, 0, 0).await, Peer::phone(&account, 0, 1).await);
    phone.request("\"a\"", "system.ping", "").await;
    let asked = desktop.next_request().await;
    phone.socket.reset();
    wait_for_connections(&relay, &account, 3).await;
    desktop.answer(&asked, r#""result":"in the gap""#).await;
    desktop.fence().await;
    assert_pair_works(&mut other_route, &mut other_desktop, "another route's answer").await;
}
