//! Many calls at once: each gets its own answer, and nobody waits for somebody else's desktop.

use super::{Peer, assert_pair_works, pair};
use crate::support::{account::Account, raw_socket::Received, relay_process::RelayProcess, running_desktop::RunningDesktop, scale::scaled};
use futures_util::future::join_all;
use relay_endpoints::{
    desktop::{Replies, SampleRouter},
    frame::IncomingRequest,
    phone::{Phone, Request, Step},
};
use serde_json::value::RawValue;
use std::{sync::Arc, time::Duration};
use tokio::task::JoinSet;

const CALLS_EACH: usize = 20;

/// Answers with who asked, and what.
async fn name_the_caller(request: IncomingRequest, replies: Replies) {
    let params = request.params.expect("this test sends params");
    let result = format!(r#"{{"user":"{}","client":{},"params":{params}}}"#, request.user_id, request.client_id);
    replies.result(&RawValue::from_string(result).unwrap()).await.unwrap();
}

/// One account's calls, all open at once under ids that every other account uses too.
async fn call_and_check(account: &Account, phone: &Phone) {
    let client = format!("{}::{}", account.phones[0], account.desktops[0]);
    join_all((0..CALLS_EACH).map(async |number| {
        let params = format!(r#"["{}",{number}]"#, account.user);
        let request = Request {
            id: Some(number.to_string()),
            params: Some(RawValue::from_string(params.clone()).unwrap()),
            ..Request::new("system.listModels")
        };
        let result = match phone.start(request).await.unwrap().next().await.unwrap() {
            Step::Final(result) => result,
            Step::Progress(progress) => panic!("{progress:?}"),
        };
        assert_eq!(result.get(), format!(r#"{{"user":"{}","client":"{client}","params":{params}}}"#, account.user));
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_many_accounts_at_once_each_get_their_own_answers() {
    let relay = Arc::new(RelayProcess::start(&[]).await);
    let mut connecting = JoinSet::new();
    for _ in 0..scaled(200, 1_000) {
        let relay = Arc::clone(&relay);
        connecting.spawn(async move {
            let account = Account::new(&relay, 1, 1).await;
            let (desktop, _) = RunningDesktop::start(account.desktop(0), name_the_caller).await;
            let phone = Phone::connect(account.phone(0, 0)).await.unwrap();
            (account, desktop, phone)
        });
    }
    let parties = connecting.join_all().await;
    // Only now, so that all of them call at the same time.
    join_all(parties.iter().map(|(account, _desktop, phone)| call_and_check(account, phone))).await;
}

/// Calls of one account are done while another's are still waiting for a desktop that does not answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_desktop_of_one_account_does_not_delay_another() {
    let relay = RelayProcess::start(&[]).await;
    let (_slow_account, mut slow_phone, mut slow_desktop) = pair(&relay).await;
    // A desktop that holds small requests and has not even read large ones.
    slow_phone.request("\"held\"", "system.ping", "").await;
    let held = slow_desktop.next_request().await;
    let large = format!(r#","params":"{}""#, "p".repeat(1024 * 1024));
    for number in 0..8 {
        slow_phone.request(&format!("\"large {number}\""), "system.ping", &large).await;
    }

    let account = Account::new(&relay, 1, 1).await;
    let (_desktop, _) = RunningDesktop::start(account.desktop(0), SampleRouter).await;
    let phone = Phone::connect(account.phone(0, 0)).await.unwrap();
    for number in 0..50 {
        let params = RawValue::from_string(number.to_string()).unwrap();
        assert_eq!(phone.call("system.listModels", Some(&params), None).await.unwrap().get(), params.get());
    }

    assert_eq!(slow_phone.socket.read(Duration::ZERO).await, Received::Nothing, "the slow desktop has not answered yet");
    for number in 0..8 {
        assert_eq!(slow_desktop.next_request().await.field("id"), format!("\"large {number}\""));
    }
    slow_desktop.answer(&held, r#""result":"slow""#).await;
    assert_eq!(slow_phone.next().await.field("result"), "\"slow\"");
}

/// Neither does it delay another desktop of the same account, nor does one slow request delay the next.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_request_delays_no_other_request() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 2, 1).await;
    let (mut desktop, mut other_desktop) = (Peer::desktop(&account, 0).await, Peer::desktop(&account, 1).await);
    let (mut phone, mut other_route) = (Peer::phone(&account, 0, 0).await, Peer::phone(&account, 0, 1).await);
    let ids = ["\"0\"", "\"1\"", "\"2\"", "\"3\""];
    let mut held = Vec::new();
    for id in ids {
        phone.request(id, "system.ping", "").await;
        held.push(desktop.next_request().await);
    }
    assert_pair_works(&mut other_route, &mut other_desktop, "another desktop").await;
    assert_pair_works(&mut phone, &mut desktop, "a later request").await;
    for index in [2, 0, 3, 1] {
        desktop.answer(&held[index], &format!(r#""result":{index}"#)).await;
        let answer = phone.next().await;
        assert_eq!((answer.field("id"), answer.field("result")), (ids[index], index.to_string().as_str()));
    }
}
