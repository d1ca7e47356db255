//! Desktops that go away with requests open, or do not take what is sent to them.

use super::{Peer, assert_all_reconnecting, assert_pair_works, pair, registered};
use crate::support::{
    PATIENCE,
    account::Account,
    desktop_process::{signal, start_desktop_process},
    raw_socket::{Frame, RawOptions, RawSocket},
    relay_process::RelayProcess,
};
use relay_protocol::device::Role;
use std::time::Duration;
use tokio::time::Instant;

/// Opens requests `"0"` and so on that the desktop gets and does not answer.
async fn open(phone: &mut Peer, desktop: &mut Peer, ids: &[&str]) {
    for id in ids {
        phone.request(id, "system.ping", "").await;
        assert_eq!(desktop.next_request().await.field("id"), *id);
    }
}

#[derive(Clone, Copy, Debug)]
enum Death {
    Reset,
    Fin,
    InsideFrame,
    ClosingHandshake,
    ProtocolViolation,
}

async fn die(desktop: Peer, death: Death) -> Option<RawSocket> {
    let mut socket = desktop.socket;
    match death {
        Death::Reset => {
            socket.reset();
            return None;
        }
        Death::Fin => socket.finish_writing().await,
        Death::InsideFrame => {
            socket.half_frame(&Frame::text("{\"type\":\"rpc.response\""), 9).await;
            socket.finish_writing().await;
        }
        Death::ClosingHandshake => socket.frame(&Frame::close(1000, "")).await,
        Death::ProtocolViolation => socket.frame(&Frame { mask: None, ..Frame::text("x") }).await,
    }
    // Kept open: the end of its input alone must be enough.
    Some(socket)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_desktop_that_dies_answers_all_its_requests_at_once() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 2, 2).await;
    let mut other = Peer::desktop(&account, 1).await;
    let mut elsewhere = Peer::phone(&account, 0, 1).await;
    open(&mut elsewhere, &mut other, &["\"a\""]).await;
    let (mut first, mut second) = (Peer::phone(&account, 0, 0).await, Peer::phone(&account, 1, 0).await);
    for death in [Death::Reset, Death::Fin, Death::InsideFrame, Death::ClosingHandshake, Death::ProtocolViolation] {
        let mut desktop = Peer::desktop(&account, 0).await;
        open(&mut first, &mut desktop, &["\"a\"", "\" b\\u0062 \"", "\"c\""]).await;
        open(&mut second, &mut desktop, &["\"d\"", "\"e\""]).await;
        let _kept = die(desktop, death).await;
        assert_all_reconnecting(&mut first, &["\"a\"", "\" b\\u0062 \"", "\"c\""]).await;
        assert_all_reconnecting(&mut second, &["\"d\"", "\"e\""]).await;
        // While it is expected back nothing is queued for it: each request is refused at once.
        for phone in [&mut first, &mut second] {
            phone.request("\"meanwhile\"", "system.ping", "").await;
            assert_all_reconnecting(phone, &["\"meanwhile\""]).await;
        }
        let mut back = Peer::desktop(&account, 0).await;
        assert_pair_works(&mut first, &mut back, &format!("back after {death:?}")).await;
        assert_pair_works(&mut second, &mut back, &format!("back after {death:?}")).await;
    }
    elsewhere.request("\"a\"", "system.ping", "").await;
    elsewhere.next().await.assert_refused("\"a\"", -32021, false);
    assert_pair_works(&mut elsewhere, &mut other, "another desktop's requests stay open").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_desktop_that_is_replaced_answers_all_its_requests_at_once() {
    let relay = RelayProcess::start(&[]).await;
    let (account, mut phone, mut old) = pair(&relay).await;
    for _ in 0..3 {
        open(&mut phone, &mut old, &["\"a\"", "\"b\""]).await;
        let mut new = Peer::desktop(&account, 0).await;
        assert_all_reconnecting(&mut phone, &["\"a\"", "\"b\""]).await;
        // Without a gap: the new connection serves at once.
        assert_pair_works(&mut phone, &mut new, "after a replacement").await;
        assert_eq!(old.socket.closed(PATIENCE).await, Some((4002, "replaced".to_owned())));
        old = new;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_desktop_that_stays_away_is_offline_after_the_wait() {
    let grace = Duration::from_millis(600);
    let relay = RelayProcess::start(&["--reconnect-grace", "600ms"]).await;
    let (account, mut phone, mut desktop) = pair(&relay).await;
    open(&mut phone, &mut desktop, &["\"a\""]).await;
    let died = Instant::now();
    desktop.socket.reset();
    assert_all_reconnecting(&mut phone, &["\"a\""]).await;
    // Ask without a pause: -32011 up to some moment, and -32010 from then on.
    let offline = loop {
        phone.request("\"b\"", "system.ping", "").await;
        let refused = phone.next().await;
        if refused.code() != -32011 {
            break refused;
        }
        refused.assert_refused("\"b\"", -32011, true);
        assert!(died.elapsed() < PATIENCE, "the wait ends");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    offline.assert_refused("\"b\"", -32010, true);
    assert_eq!(offline.value("error")["message"], "Desktop is offline");
    assert!(died.elapsed() >= grace, "not before the wait is over");
    phone.request("\"b\"", "system.ping", "").await;
    phone.next().await.assert_refused("\"b\"", -32010, true);
    let mut back = Peer::desktop(&account, 0).await;
    assert_pair_works(&mut phone, &mut back, "a desktop may come back at any time").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_desktop_process_that_is_killed_answers_all_its_requests() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 1).await;
    let mut process = start_desktop_process(&account).await;
    let mut phone = Peer::phone(&account, 0, 0).await;
    phone.request("\"warm\"", "system.ping", "").await;
    assert_eq!(phone.next().await.value("result")["ok"], true);

    // Stopped, it takes requests into the kernel's buffers and answers none.
    signal(&process, "STOP").await;
    let ids = ["\"a\"", "\"b\"", "\"c\""];
    for id in ids {
        phone.request(id, "system.ping", "").await;
        // Asked again, it shows that it is open: forwarded, and not answered.
        phone.request(id, "system.ping", "").await;
        phone.next().await.assert_refused(id, -32021, false);
    }
    process.kill().await.unwrap();
    assert_all_reconnecting(&mut phone, &ids).await;
    phone.request("\"d\"", "system.ping", "").await;
    assert_all_reconnecting(&mut phone, &["\"d\""]).await;
    let _back = start_desktop_process(&account).await;
    phone.request("\"d\"", "system.ping", "").await;
    assert_eq!(phone.next().await.value("result")["ok"], true);
}

/// A desktop that reads nothing: what does not fit its lane is refused, and only that.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_finds_the_desktops_lane_full_is_not_forwarded() {
    let relay = RelayProcess::start(&["--max-message", "256KiB", "--outbound-limit", "512KiB"]).await;
    let account = Account::new(&relay, 1, 1).await;
    let mut options = RawOptions::device_link(&account.address, &account.token, Role::Desktop, None);
    options.receive_buffer_bytes = Some(4 * 1024);
    let mut desktop = Peer { socket: registered(&options, account.desktops[0]).await };
    let mut phone = Peer::phone(&account, 0, 0).await;

    // Whether one was forwarded is known at once: a second request under the first one's id is answered behind any refusal. A lane
    // that stays full for a second ends its connection, so no more is sent than it takes to fill it.
    let params = format!(r#","params":"{}""#, "p".repeat(200 * 1024));
    let (mut forwarded, mut refused) = (Vec::new(), Vec::new());
    while refused.len() < 2 {
        let id = format!("\"{}\"", forwarded.len() + refused.len());
        phone.request(&id, "system.ping", &params).await;
        phone.request("\"0\"", "system.ping", "").await;
        let mut message = phone.next().await;
        if message.field("id") == "\"0\"" {
            forwarded.push(id);
        } else {
            message.assert_refused(&id, -32023, true);
            refused.push(id);
            message = phone.next().await;
        }
        message.assert_refused("\"0\"", -32022, false);
        assert!(forwarded.len() < 64, "64 requests do not fit");
    }
    assert!(forwarded.len() >= 2, "two fit the lane alone: {forwarded:?}");

    // Once it reads it gets the others, in order and whole, and the refused ones can be sent again.
    for id in &forwarded {
        let request = desktop.next_request().await;
        assert_eq!((request.field("id"), request.field("params").len()), (id.as_str(), 200 * 1024 + 2));
        desktop.answer(&request, r#""result":1"#).await;
    }
    for id in &forwarded {
        assert_eq!(phone.next().await.field("id"), *id);
    }
    for id in &refused {
        phone.request(id, "system.ping", &params).await;
        assert_eq!(desktop.next_request().await.field("id"), id);
    }
}
