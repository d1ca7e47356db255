//! Registration is visible to routing before its answer is sent: on the byte that carries a desktop's acknowledgement, its phone
//! sends requests, and none is refused.

use super::{accepted, naming, next_answer, open_desktop, open_phone, resume_of};
use crate::support::{
    account::Account,
    raw_socket::{Frame, RawSocket},
    relay_process::RelayProcess,
    scale::scaled,
};
use relay_protocol::{contract, device::Role, id::DeviceId};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const REQUESTS: usize = 50;
const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn rounds() -> usize {
    scaled(40, 500)
}

/// Requests for fifty different methods, as bytes that are ready to be written. The one whose params the relay judges is left out.
fn requests(round: usize) -> Vec<u8> {
    let methods = contract::methods().filter(|method| method.name != "session.syncHistoryState");
    let requests = methods.take(REQUESTS).enumerate().flat_map(|(index, method)| {
        let mut payload = json!({"id": format!("{round}-{index}"), "method": method.name, "traceparent": TRACEPARENT});
        if method.mutation {
            payload["idempotencyKey"] = json!(format!("key-{round}-{index}"));
        }
        Frame::text(&json!({"type": "rpc.request", "payload": payload}).to_string()).encode()
    });
    requests.collect()
}

fn ids(round: usize) -> BTreeSet<String> {
    (0..REQUESTS).map(|index| format!("{round}-{index}")).collect()
}

/// Registers the desktop, lets the phone call on its acknowledgement, and checks that every request came through and back.
async fn round_trip(round: usize, phone: &mut RawSocket, desktop: DeviceId, socket: &mut RawSocket, more: Value) -> Value {
    let calls = requests(round);
    let kind = if more == json!({}) { "registered" } else { "resumed" };
    let answer = accepted(socket, &naming(desktop, more), kind).await;
    phone.write(&calls).await;
    let mut forwarded = BTreeSet::new();
    while forwarded.len() < REQUESTS {
        // A refusal would reach the phone, and nothing would reach the desktop: whichever is first decides.
        let (kind, request) = tokio::select! {
            request = next_answer(socket) => request,
            refusal = next_answer(phone) => panic!("round {round}: refused on the acknowledgement: {refusal:?}"),
        };
        assert_eq!(kind, "rpc.request");
        forwarded.insert(request["id"].as_str().unwrap().to_owned());
        if forwarded.len() == REQUESTS {
            assert_eq!(forwarded, ids(round));
            for id in &forwarded {
                let response = json!({"clientId": request["clientId"], "id": id, "result": {"round": round}});
                super::send(socket, "rpc.response", &response).await;
            }
        }
    }
    let mut answered = BTreeSet::new();
    for _ in 0..REQUESTS {
        let (kind, response) = next_answer(phone).await;
        assert_eq!((kind.as_str(), &response["result"]), ("rpc.response", &json!({"round": round})), "{response}");
        answered.insert(response["id"].as_str().unwrap().to_owned());
    }
    assert_eq!(answered, ids(round));
    answer
}

async fn registered_phone(account: &Account, desktop: DeviceId) -> RawSocket {
    let mut phone = open_phone(account, Some(desktop)).await;
    accepted(&mut phone, &naming(account.phones[0], json!({})), "registered").await;
    phone
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_on_the_byte_of_a_first_acknowledgement_is_routed() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 0, 1).await;
    for round in 0..rounds() {
        let desktop = account.add(Role::Desktop).await;
        let mut phone = registered_phone(&account, desktop).await;
        let mut socket = open_desktop(&account).await;
        round_trip(round, &mut phone, desktop, &mut socket, json!({})).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_on_the_byte_of_a_reconnects_acknowledgement_is_routed() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 1).await;
    let desktop = account.desktops[0];
    let mut more = json!({});
    let mut before: Option<RawSocket> = None;
    for round in 0..rounds() {
        let mut phone = registered_phone(&account, desktop).await;
        let mut socket = open_desktop(&account).await;
        // A cut, a replacement, and both with and without a session, in turn.
        let mut replaced = before.take();
        if round % 2 == 0
            && let Some(old) = replaced.take()
        {
            old.reset();
        }
        let resume = if round % 4 < 2 { more } else { json!({}) };
        let answer = round_trip(round, &mut phone, desktop, &mut socket, resume).await;
        more = resume_of(&answer);
        before = Some(socket);
        drop(replaced);
    }
}
