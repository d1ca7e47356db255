//! `relay desktop` and `relay phone` as a script sees them: stdout, stderr and exit codes, against a server that speaks the relay's
//! frames and does what each test needs.

use crate::support::PATIENCE;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::process::{Output, Stdio};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    process::{Child, Command},
    time::timeout,
};
use tokio_tungstenite::{WebSocketStream, accept_async, tungstenite::Message};

const PHONE: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7";
pub(super) const DESKTOP: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

pub(super) fn client(url: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_relay"));
    for (name, _value) in std::env::vars_os().filter(|(name, _value)| name.to_string_lossy().starts_with("RELAY_")) {
        command.env_remove(name);
    }
    command.args(args).env("RELAY_URL", url).env("RELAY_TOKEN", "t").stdin(Stdio::null()).kill_on_drop(true);
    command
}

pub(super) fn phone_command(url: &str, rest: &[&str]) -> Command {
    client(url, &[&["phone", "--device", PHONE, "--desktop", DESKTOP], rest].concat())
}

pub(super) fn phone(url: &str, call: &[&str]) -> Command {
    phone_command(url, &[&["call"], call].concat())
}

pub(super) async fn output(mut command: Command) -> Output {
    timeout(PATIENCE, command.output()).await.expect("the command ends").unwrap()
}

pub(super) fn texts(output: &Output) -> (i32, &str, &str) {
    (output.status.code().unwrap(), std::str::from_utf8(&output.stdout).unwrap(), std::str::from_utf8(&output.stderr).unwrap())
}

pub(super) struct Server {
    pub(super) listener: TcpListener,
    pub(super) url: String,
}

pub(super) type Socket = WebSocketStream<TcpStream>;

impl Server {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        Server { listener, url }
    }

    pub(super) async fn accept(&self) -> Socket {
        loop {
            let (mut stream, _from) = timeout(PATIENCE, self.listener.accept()).await.expect("a client connects").unwrap();
            let mut first = [0];
            timeout(PATIENCE, stream.peek(&mut first)).await.expect("the client says what it wants").unwrap();
            if first != *b"P" {
                return accept_async(stream).await.unwrap();
            }
            // A desktop's POST asks whether it may connect, which this relay does not know.
            stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await.unwrap();
            // Closed under what it still sends, the answer could be lost.
            let _ = timeout(PATIENCE, stream.read_to_end(&mut Vec::new())).await.expect("the client closes");
        }
    }

    pub(super) async fn accept_registered(&self) -> Socket {
        let mut socket = self.accept().await;
        payload(&mut socket).await;
        let registered = json!({"type": "registered", "payload": {
            "sessionId": PHONE, "resumeToken": "r", "expiresAt": 1, "expiresInMs": 1000, "connectionId": DESKTOP, "relayInstanceId": PHONE,
            "relayProtocolVersion": "1.7"
        }});
        send(&mut socket, &registered.to_string()).await;
        socket
    }

    /// Answers the next call with this text in place of `ID`'s response fields.
    pub(super) async fn answer_call(&self, outcome: &str) {
        let mut socket = self.accept_registered().await;
        let id = payload(&mut socket).await["id"].clone();
        send(&mut socket, &format!(r#"{{"type":"rpc.response","payload":{{"id":{id},{outcome},"isFinal":true}}}}"#)).await;
        // Until the client leaves.
        while socket.next().await.is_some_and(|message| message.is_ok()) {}
    }
}

pub(super) async fn payload(socket: &mut Socket) -> Value {
    let message = timeout(PATIENCE, socket.next()).await.expect("a frame comes").unwrap().unwrap();
    serde_json::from_str::<Value>(message.to_text().unwrap()).unwrap()["payload"].take()
}

pub(super) async fn send(socket: &mut Socket, text: &str) {
    socket.send(Message::text(text)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_is_printed_exactly_as_received() {
    let server = Server::start().await;
    let result = r#"{ "b":1.0e2, "a":"\ud800\/" }"#;
    let outcome = format!(r#""result":{result}"#);
    let (printed, ()) = tokio::join!(output(phone(&server.url, &["session.list", "{}"])), server.answer_call(&outcome));
    assert_eq!(texts(&printed), (0, &*format!("{result}\n"), ""));

    let (printed, ()) = tokio::join!(output(phone(&server.url, &["session.list", "--json"])), server.answer_call(&outcome));
    let (code, stdout, _stderr) = texts(&printed);
    assert_eq!(code, 0);
    assert!(stdout.starts_with(r#"{"id":""#) && stdout.ends_with(&format!("\",\"result\":{result}}}\n")), "{stdout}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answered_error_is_told_with_number_message_and_whether_to_retry() {
    let server = Server::start().await;
    for (error, code, told) in [
        (r#"{"code":-32601,"message":"No such method"}"#, 1, "-32601 No such method (not retryable)"),
        (r#"{"code":-32012,"message":"Too late","data":{"retryable":true}}"#, 3, "-32012 Too late (retryable)"),
    ] {
        let outcome = format!(r#""error":{error}"#);
        let (printed, ()) = tokio::join!(output(phone(&server.url, &["system.ping"])), server.answer_call(&outcome));
        assert_eq!(texts(&printed), (code, "", &*format!("error: {told}\n")));

        let (printed, ()) = tokio::join!(output(phone(&server.url, &["system.ping", "--json"])), server.answer_call(&outcome));
        let (json_code, stdout, _stderr) = texts(&printed);
        assert_eq!(json_code, code);
        assert!(stdout.ends_with(&format!("\",\"error\":{error}}}\n")), "{stdout}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_usage_is_exit_code_2() {
    for call in [&["system.ping", "{not json"][..], &[][..], &["system.ping", "{}", "--timeout", "soon"][..]] {
        assert_eq!(texts(&output(phone("http://127.0.0.1:1", call)).await).0, 2, "{call:?}");
    }
    let printed = output(phone("ftp://127.0.0.1:1", &["system.ping"])).await;
    let (code, _stdout, stderr) = texts(&printed);
    assert_eq!(code, 2);
    assert!(stderr.contains("not ftp://"), "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_registration_is_exit_code_1_and_no_connection_exit_code_3() {
    let server = Server::start().await;
    let url = server.url.clone();
    let refuse = async {
        let mut socket = server.accept().await;
        payload(&mut socket).await;
        send(&mut socket, r#"{"type":"error","payload":{"code":"deviceNotFound","message":"no such device","retryable":false}}"#).await;
        socket
    };
    let (printed, _socket) = tokio::join!(output(phone(&url, &["system.ping"])), refuse);
    let (code, stdout, stderr) = texts(&printed);
    assert_eq!((code, stdout), (1, ""));
    assert!(stderr.starts_with("error: deviceNotFound: no such device\n") && stderr.contains("relay device add"), "{stderr}");

    let unauthorized = async {
        let (mut stream, _from) = server.listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        stream
    };
    let (printed, _stream) = tokio::join!(output(phone(&url, &["system.ping"])), unauthorized);
    let (code, _stdout, stderr) = texts(&printed);
    assert_eq!(code, 1);
    assert!(stderr.contains("unauthorized") && stderr.contains("relay token"), "{stderr}");

    let lose = async {
        let mut socket = server.accept_registered().await;
        payload(&mut socket).await;
    };
    // The connection is made again; the answer was lost with the first one.
    let (printed, ()) = tokio::join!(output(phone(&url, &["system.ping", "--timeout", "1s"])), lose);
    let (code, _stdout, stderr) = texts(&printed);
    assert_eq!(code, 4);
    assert!(stderr.starts_with("not connected: the connection was lost"), "{stderr}");
    assert!(stderr.ends_with("error: no answer within 1 s; whether the method ran is unknown\n"), "{stderr}");

    drop(server);
    let printed = output(phone(&url, &["system.ping"])).await;
    assert_eq!(texts(&printed), (3, "", &*format!("error: nothing listens at {url}; start one with `relay serve`\n")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_was_kept_in_a_file_goes_on_with_the_next_command() {
    let server = Server::start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("session");
    let kept = file.to_str().unwrap();
    let call = ["system.ping", "--state", kept];
    let (printed, ()) = tokio::join!(output(phone(&server.url, &call)), server.answer_call(r#""result":1"#));
    assert_eq!(texts(&printed), (0, "1\n", ""));
    let serve = async {
        let mut socket = server.accept().await;
        let register = payload(&mut socket).await;
        send(&mut socket, r#"{"type":"error","payload":{"code":"deviceNotFound","message":"m","retryable":false}}"#).await;
        register
    };
    let (_printed, register) = tokio::join!(output(phone(&server.url, &call)), serve);
    assert_eq!((&register["sessionId"], &register["resumeToken"]), (&PHONE.into(), &"r".into()));

    std::fs::write(&file, "no session").unwrap();
    let printed = output(phone(&server.url, &call)).await;
    assert_eq!(texts(&printed), (1, "", &*format!("error: {kept} holds no session of a phone; name another file with --state\n")));
}

/// A desktop's answer that comes when the phone has another connection is still the call's.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_goes_on_over_a_lost_connection() {
    let server = Server::start().await;
    let serve = async {
        let mut socket = server.accept_registered().await;
        let id = payload(&mut socket).await["id"].clone();
        drop(socket);
        let mut socket = server.accept_registered().await;
        send(&mut socket, &format!(r#"{{"type":"rpc.response","payload":{{"id":{id},"result":1,"isFinal":true}}}}"#)).await;
        while socket.next().await.is_some_and(|message| message.is_ok()) {}
    };
    let (printed, ()) = tokio::join!(output(phone(&server.url, &["session.list"])), serve);
    let (code, stdout, stderr) = texts(&printed);
    assert_eq!((code, stdout), (0, "1\n"));
    assert!(stderr.starts_with("not connected: the connection was lost") && stderr.ends_with("; an answer can still come\n"), "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_answer_in_time_is_exit_code_4() {
    let server = Server::start().await;
    let (printed, _socket) = tokio::join!(output(phone(&server.url, &["system.ping", "--timeout", "50ms"])), server.accept_registered());
    let (code, stdout, stderr) = texts(&printed);
    assert_eq!((code, stdout), (4, ""));
    assert!(stderr.contains("0.05 s"), "{stderr}");
}

async fn next_line(child: &mut Child, lines: &mut tokio::io::Lines<BufReader<tokio::process::ChildStdout>>) -> String {
    match timeout(PATIENCE, lines.next_line()).await.expect("a line comes").unwrap() {
        Some(line) => line,
        None => panic!("the command ended: {:?}", child.wait().await),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_desktop_prints_one_line_a_change_answers_and_ends_well_on_ctrl_c() {
    let server = Server::start().await;
    let mut child = client(&server.url, &["desktop", "--device", DESKTOP]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let socket = server.accept_registered().await;
    assert!(next_line(&mut child, &mut lines).await.starts_with(&format!("registered desktop {DESKTOP} at {} (", server.url)));
    drop(socket);
    let line = next_line(&mut child, &mut lines).await;
    assert!(line.starts_with("not connected: the connection was lost"), "{line}");

    let mut socket = server.accept_registered().await;
    assert!(next_line(&mut child, &mut lines).await.starts_with("registered desktop"));
    let request = json!({"type": "rpc.request", "payload": {
        "id": "1", "method": "system.ping", "traceparent": "t", "clientId": "c", "userId": PHONE
    }});
    send(&mut socket, &request.to_string()).await;
    assert_eq!(payload(&mut socket).await["result"]["ok"], true);

    let pid = child.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().await.unwrap().success());
    let goodbye = timeout(PATIENCE, socket.next()).await.unwrap().unwrap().unwrap();
    assert!(matches!(goodbye, Message::Close(Some(frame)) if u16::from(frame.code) == 1000));
    assert!(socket.next().await.is_none_or(|message| message.is_err()));
    assert_eq!(timeout(PATIENCE, child.wait()).await.unwrap().unwrap().code(), Some(0));
    assert_eq!(lines.next_line().await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_desktop_that_is_refused_for_good_ends_with_exit_code_1() {
    let server = Server::start().await;
    let refuse = async {
        let mut socket = server.accept().await;
        payload(&mut socket).await;
        send(&mut socket, r#"{"type":"error","payload":{"code":"deviceRoleMismatch","message":"m","retryable":false}}"#).await;
        socket
    };
    let (printed, _socket) = tokio::join!(output(client(&server.url, &["desktop", "--device", DESKTOP])), refuse);
    let (code, stdout, stderr) = texts(&printed);
    assert_eq!((code, stdout), (1, ""));
    assert!(stderr.starts_with("error: deviceRoleMismatch: m\n"), "{stderr}");
}
