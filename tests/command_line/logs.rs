//! The relay's log: one line per registered socket's end, and nothing that is somebody's own.

use crate::support::{
    PATIENCE,
    account::Account,
    raw_socket::{Frame, RawOptions, RawSocket},
    relay_process::RelayProcess,
    running_desktop::RunningDesktop,
    token::TEST_SECRET,
};
use relay_endpoints::{
    devices::NewDevice,
    phone::{Phone, Request, Step},
};
use relay_protocol::{device::Role, id::DeviceId};
use serde_json::{Value, json, value::RawValue};
use std::time::Duration;
use tokio::time::{Instant, sleep};

async fn registered(account: &Account) -> (RawSocket, String) {
    let options = RawOptions::device_link(&account.address, &account.token, Role::Desktop, None);
    let mut socket = RawSocket::open(&options).await;
    let answer = socket.register(account.desktops[0]).await;
    (socket, answer["connectionId"].as_str().unwrap().to_owned())
}

/// The lines about the end of this connection.
fn ends(relay: &RelayProcess, connection: &str) -> Vec<Value> {
    let lines = relay.log();
    let lines = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["connection"] == connection && line["message"] != "registered").collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_each_registered_socket_is_told_once_with_its_reason() {
    let relay = RelayProcess::start(&["--log-format", "json"]).await;
    let account = Account::new(&relay, 1, 0).await;
    let mut ended = Vec::new();

    let (mut goodbye, connection) = registered(&account).await;
    goodbye.frame(&Frame::close(1000, "")).await;
    goodbye.closed(PATIENCE).await;
    ended.push((connection, "closedByPeer"));

    let (reset, connection) = registered(&account).await;
    reset.reset();
    // A next registration that came before the end is seen would replace it.
    until_told(&relay, &connection).await;
    ended.push((connection, "connectionLost"));

    let (mut replaced, connection) = registered(&account).await;
    ended.push((connection, "replaced"));
    let (mut binary, connection) = registered(&account).await;
    assert_eq!(replaced.closed(PATIENCE).await.unwrap().0, 4002);
    binary.frame(&Frame::new(2, "x")).await;
    binary.closed(PATIENCE).await;
    ended.push((connection, "binary"));

    let (mut forgotten, connection) = registered(&account).await;
    account.devices().forget(account.desktops[0]).await.unwrap();
    forgotten.closed(PATIENCE).await;
    ended.push((connection, "deviceForgotten"));

    are_told(&relay, &account, &ended).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_says_that_it_stops_before_its_sockets_end() {
    let mut relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 0).await;
    let (mut socket, connection) = registered(&account).await;
    relay.signal("TERM");
    assert_eq!(socket.closed(PATIENCE).await.unwrap().0, 1012);
    assert!(relay.exited().await.success());
    let log = relay.log();
    let place = |text: &str| log.find(text).unwrap_or_else(|| panic!("no {text} in {log}"));
    let closed = log.rfind(&connection).unwrap();
    assert!(place("stopping") < closed && closed < place("stopped"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_silent_socket_is_told_once() {
    let relay = RelayProcess::start(&["--log-format", "json", "--heartbeat-interval", "200ms", "--silence-timeout", "1s"]).await;
    let account = Account::new(&relay, 1, 0).await;
    let (mut silent, connection) = registered(&account).await;
    assert_eq!(silent.closed(PATIENCE).await.unwrap().0, 4004);
    are_told(&relay, &account, &[(connection, "silent")]).await;
}

async fn until_told(relay: &RelayProcess, connection: &str) {
    let deadline = Instant::now() + PATIENCE;
    while ends(relay, connection).is_empty() {
        assert!(Instant::now() < deadline, "{}", relay.log());
        sleep(Duration::from_millis(10)).await;
    }
}

async fn are_told(relay: &RelayProcess, account: &Account, ended: &[(String, &str)]) {
    for (connection, _) in ended {
        until_told(relay, connection).await;
    }
    for (connection, reason) in ended {
        let lines = ends(relay, connection);
        let [line] = lines.as_slice() else { panic!("{lines:?}") };
        assert_eq!((&line["level"], &line["message"], &line["reason"]), (&json!("INFO"), &json!("closed"), &json!(reason)));
        assert_eq!((&line["user"], &line["route"]), (&json!(account.user), &json!(account.desktops[0])));
    }
}

/// C90 for API keys: in whatever way one is used, well or badly, it is in no answer but the first, and in no line.
#[tokio::test(flavor = "multi_thread")]
async fn an_api_key_is_in_no_log_and_no_answer() {
    let relay = RelayProcess::start(&["--log", "trace"]).await;
    let account = Account::new(&relay, 1, 1).await;
    let key = account.api_key("rpc").await;
    let unknown = format!("rk_{}", "Unknown".repeat(7)).split_at(46).0.to_owned();
    let malformed = "rk_marker-of-a-malformed-key".to_owned();
    let mut answers = String::new();

    let own = account.with_token(&key.api_key);
    let (mut socket, _) = registered(&own).await;
    socket.text(&json!({"type": key.api_key, "payload": {}}).to_string()).await;
    answers += &socket.next_text().await;
    let phone = RawOptions::device_link(&own.address, &own.token, Role::Mobile, Some(own.desktops[0]));
    let mut phone = RawSocket::open(&phone).await;
    phone.register(own.phones[0]).await;
    let request = json!({"id": "a", "method": "session.get", "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"});
    phone.text(&json!({"type": "rpc.request", "payload": request}).to_string()).await;
    answers += &phone.next_text().await;
    assert!(answers.contains("-32027") && answers.contains("unknownMessageType"), "{answers}");

    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut call = async |token: &str, statuses: [u16; 3]| {
        for (path, status) in ["/api/devices", "/api/api-keys", "/ws/device-link"].into_iter().zip(statuses) {
            let answer = client.get(account.address.http(path)).bearer_auth(token).send().await.unwrap();
            assert_eq!(answer.status(), status, "{path}");
            answers += &format!("{:?} {}", answer.headers().clone(), answer.text().await.unwrap());
        }
    };
    call(&key.api_key, [403, 403, 400]).await;
    account.api_keys().revoke(key.shown.api_key_id).await.unwrap();
    for token in [&key.api_key, &unknown, &malformed] {
        call(token, [401, 401, 400]).await;
    }
    assert_eq!(socket.closed(PATIENCE).await.unwrap().0, 1008);

    let log = relay.log();
    assert!(log.contains("TRACE") && log.contains("api key made") && log.contains("api key revoked"), "the log is as detailed as it gets");
    for secret in [&key.api_key[3..], &unknown[3..], &malformed[3..]] {
        let line = log.lines().find(|line| line.contains(secret));
        assert!(line.is_none(), "{secret}: {}", line.unwrap_or_default());
        assert!(!answers.contains(secret), "{secret}: {answers}");
    }
}

const DEVICE_NAME: &str = "marker-of-the-device-name";
const SOCKET_NAME: &str = "marker-of-the-socket-name";
const PARAMS: &str = "marker-of-the-params";
const RESULT: &str = "marker-of-the-result";
const RESUME_TOKEN: &str = "marker-of-the-resume-token";
const BAD_TOKEN: &str = "marker-of-the-bad-token";
const BAD_FRAME: &str = "marker-of-the-bad-frame";

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_is_somebodys_own_is_logged_at_any_level() {
    let relay = RelayProcess::start(&["--log", "trace"]).await;
    let mut account = Account::new(&relay, 1, 1).await;
    let named = NewDevice {
        device_id: None,
        role: Role::Desktop,
        device_name: DEVICE_NAME.to_owned(),
        platform: "linux".to_owned(),
        app_version: "1".to_owned(),
        relay_eligible: None,
    };
    let named: DeviceId = account.devices().register(&named).await.unwrap().device_id;
    account.desktops.insert(0, named);
    account.devices().list().await.unwrap();

    let answer = |_request, replies: relay_endpoints::desktop::Replies| async move {
        let result = RawValue::from_string(json!({"text": RESULT}).to_string()).unwrap();
        replies.result(&result).await.unwrap();
    };
    let (desktop, desktop_registered) = RunningDesktop::start(account.desktop(0), answer).await;
    let phone = Phone::connect(account.phone(0, 0)).await.unwrap();
    let phone_token = phone.registered().resume.resume_token.clone();
    let params = RawValue::from_string(json!({"text": PARAMS}).to_string()).unwrap();
    let mut call = phone.start(Request { params: Some(params), ..Request::new("session.get") }).await.unwrap();
    let Step::Final(result) = call.next().await.unwrap() else { panic!("no progress was sent") };
    assert!(result.get().contains(RESULT));

    // Frames that are refused, a resume that fails, and a token that does not hold.
    let options = RawOptions::device_link(&account.address, &account.token, Role::Desktop, None);
    let mut socket = RawSocket::open(&options).await;
    for frame in [json!(BAD_FRAME).to_string(), json!({"type": BAD_FRAME, "payload": {}}).to_string(), format!("{{{BAD_FRAME}")] {
        socket.text(&frame).await;
        socket.next_text().await;
    }
    let resume = json!({"type": "register", "payload": {
        "deviceId": account.desktops[1], "relayProtocolVersion": "1.7", "deviceName": SOCKET_NAME,
        "sessionId": account.desktops[1], "resumeToken": RESUME_TOKEN,
    }});
    socket.text(&resume.to_string()).await;
    assert!(socket.next_text().await.contains("invalidResume"));
    let refused = RawOptions::device_link(&account.address, BAD_TOKEN, Role::Desktop, None);
    assert!(RawSocket::try_open(&refused).await.is_err_and(|answer| answer.contains("401")));

    desktop.stop().await;
    drop((phone, socket));
    sleep(Duration::from_millis(100)).await;
    let log = relay.log();
    assert!(log.contains("TRACE") && log.contains("registered"), "the log is as detailed as it gets");
    let signature = account.token.rsplit('.').next().unwrap();
    for secret in [
        DEVICE_NAME,
        SOCKET_NAME,
        PARAMS,
        RESULT,
        RESUME_TOKEN,
        BAD_TOKEN,
        BAD_FRAME,
        TEST_SECRET,
        signature,
        &phone_token,
        &desktop_registered.resume.resume_token,
        &relay.admin_token(),
    ] {
        let line = log.lines().find(|line| line.contains(secret));
        assert!(line.is_none(), "{secret}: {}", line.unwrap_or_default());
    }
}
