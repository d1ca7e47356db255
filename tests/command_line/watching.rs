//! `relay phone … watch` and `relay desktop --demo-timeline`: against a server that does what each test needs, and through a relay.

use crate::{
    clients::{DESKTOP, Server, Socket, client, output, payload, phone_command, send, texts},
    support::{
        PATIENCE,
        account::Account,
        desktop_process::{desktop_command, signal},
        relay_process::RelayProcess,
        stall_proxy::StallProxy,
    },
};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::process::Stdio;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader, Lines},
    process::{Child, ChildStderr, ChildStdout, Command},
    time::timeout,
};
use tokio_tungstenite::tungstenite::Message;

fn watch(url: &str, args: &[&str]) -> Command {
    phone_command(url, &[&["watch"], args].concat())
}

fn interest(session: &str, active: bool) -> Value {
    json!({"eventType": "chat:timeline-interest", "payload": {"appSessionId": session, "active": active}})
}

async fn line(lines: &mut Lines<BufReader<impl AsyncRead + Unpin>>) -> String {
    timeout(PATIENCE, lines.next_line()).await.expect("a line comes").unwrap().expect("the command goes on")
}

/// A watching command and what it says.
struct Watching {
    process: Child,
    stdout: Lines<BufReader<ChildStdout>>,
    stderr: Lines<BufReader<ChildStderr>>,
}

impl Watching {
    fn start(mut command: Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(process.stdout.take().unwrap()).lines();
        let stderr = BufReader::new(process.stderr.take().unwrap()).lines();
        Watching { process, stdout, stderr }
    }

    async fn event(&mut self) -> Value {
        serde_json::from_str(&line(&mut self.stdout).await).unwrap()
    }

    /// The next event of the session's timeline with this kind.
    async fn timeline(&mut self, kind: &str) -> Value {
        loop {
            let event = self.event().await;
            if event["eventType"] == "chat:stream" && event["payload"]["kind"] == kind {
                return event;
            }
        }
    }

    async fn told(&mut self) -> String {
        line(&mut self.stderr).await
    }

    async fn code(&mut self) -> i32 {
        timeout(PATIENCE, self.process.wait()).await.expect("it ends").unwrap().code().unwrap()
    }
}

/// The client gives its lease back and says goodbye, and the server lets it go.
async fn until_goodbye(socket: &mut Socket) {
    assert_eq!(payload(socket).await, interest("s 1", false));
    let goodbye = timeout(PATIENCE, socket.next()).await.unwrap().unwrap().unwrap();
    assert!(matches!(goodbye, Message::Close(Some(frame)) if u16::from(frame.code) == 1000));
    assert!(socket.next().await.is_none_or(|message| message.is_err()));
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_printed_as_they_came_and_a_lost_lease_is_taken_again() {
    let server = Server::start().await;
    let mut watching = Watching::start(watch(&server.url, &["s 1"]));
    let mut socket = server.accept_registered().await;
    assert_eq!(payload(&mut socket).await, interest("s 1", true));
    assert_eq!(watching.told().await, "watching session \"s 1\"");
    let event = format!(r#"{{"eventType":"chat:stream","sourceDeviceId":"{DESKTOP}","payload":{{ "b":1.0e2, "a":"\ud800\/" }}}}"#);
    send(&mut socket, &format!(r#"{{"type":"event","payload":{event}}}"#)).await;
    assert_eq!(line(&mut watching.stdout).await, event);

    drop(socket);
    let told = watching.told().await;
    assert!(told.starts_with("not connected: the connection was lost: ") && told.ends_with("; trying again"), "{told}");
    let mut socket = server.accept_registered().await;
    assert_eq!(payload(&mut socket).await, interest("s 1", true));
    assert_eq!(watching.told().await, "watching session \"s 1\"");
    send(&mut socket, r#"{"type":"event","payload":{"eventType":"device-status","payload":{}}}"#).await;
    assert_eq!(line(&mut watching.stdout).await, r#"{"eventType":"device-status","payload":{}}"#);

    signal(&watching.process, "INT").await;
    until_goodbye(&mut socket).await;
    assert_eq!(watching.code().await, 0);
    assert_eq!((watching.stdout.next_line().await.unwrap(), watching.stderr.next_line().await.unwrap()), (None, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_ends_with_its_time_or_its_reader() {
    let server = Server::start().await;
    let serving = async {
        let mut socket = server.accept_registered().await;
        assert_eq!(payload(&mut socket).await, interest("s 1", true));
        until_goodbye(&mut socket).await;
    };
    let (printed, ()) = tokio::join!(output(watch(&server.url, &["s 1", "--for", "300ms"])), serving);
    assert_eq!(texts(&printed), (0, "", "watching session \"s 1\"\n"));

    // Accepted by the system, answered by nobody.
    let printed = output(watch(&server.url, &["s 1", "--for", "300ms"])).await;
    assert_eq!(texts(&printed), (3, "", "error: not connected when 300ms were over\n"));
    let _unanswered = server.listener.accept().await.unwrap();

    let mut watching = Watching::start(watch(&server.url, &["s 1"]));
    let mut socket = server.accept_registered().await;
    assert_eq!(payload(&mut socket).await, interest("s 1", true));
    drop(watching.stdout);
    send(&mut socket, r#"{"type":"event","payload":{"eventType":"x","payload":{}}}"#).await;
    until_goodbye(&mut socket).await;
    assert_eq!(timeout(PATIENCE, watching.process.wait()).await.unwrap().unwrap().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_takes_its_time_costs_neither_the_connection_nor_the_way_out() {
    let server = Server::start().await;
    let mut watching = Watching::start(watch(&server.url, &["s 1"]));
    let mut socket = server.accept_registered().await;
    assert_eq!(payload(&mut socket).await, interest("s 1", true));
    // Much more than a pipe takes, in more events than are kept.
    let event = json!({"type": "event", "payload": {"eventType": "x", "payload": {"text": "x".repeat(1_000)}}}).to_string();
    for _event in 0..3_000 {
        send(&mut socket, &event).await;
    }
    socket.send(Message::Ping(vec![1].into())).await.unwrap();
    let pong = timeout(PATIENCE, socket.next()).await.expect("it reads on").unwrap().unwrap();
    assert!(matches!(pong, Message::Pong(_)), "{pong:?}");
    signal(&watching.process, "INT").await;
    until_goodbye(&mut socket).await;
    assert_eq!(watching.code().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_told_where_it_is_missing() {
    const SENT: usize = 3_000;
    let server = Server::start().await;
    let mut watching = Watching::start(watch(&server.url, &["s 1"]));
    let mut socket = server.accept_registered().await;
    for number in 0..SENT {
        let event = json!({"type": "event", "payload": {"eventType": "x", "payload": {"n": number, "text": "x".repeat(1_000)}}});
        send(&mut socket, &event.to_string()).await;
    }
    assert_eq!(watching.told().await, "watching session \"s 1\"");
    let (mut next, mut missing) = (0, 0);
    while next < SENT {
        let number = usize::try_from(watching.event().await["payload"]["n"].as_u64().unwrap()).unwrap();
        assert!(number >= next, "{number} after {next}");
        missing += number - next;
        next = number + 1;
    }
    let mut told = 0;
    while told < missing {
        let line = watching.told().await;
        let count = line.strip_suffix(" events are missing here: they came faster than they were taken");
        told += count.unwrap_or_else(|| panic!("{line}")).parse::<usize>().unwrap();
    }
    assert!(missing > 0 && told == missing, "{told} of {missing}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_trying_again_cannot_mend_ends_a_watch() {
    let server = Server::start().await;
    for args in [&[][..], &["  "][..], &["::skills-agent"][..], &["s", "--for", "soon"][..]] {
        assert_eq!(texts(&output(watch(&server.url, args)).await).0, 2, "{args:?}");
    }
    let refuse = async {
        let mut socket = server.accept().await;
        payload(&mut socket).await;
        send(&mut socket, r#"{"type":"error","payload":{"code":"deviceNotFound","message":"m","retryable":false}}"#).await;
        socket
    };
    let (printed, _socket) = tokio::join!(output(watch(&server.url, &["s"])), refuse);
    assert_eq!(texts(&printed).0, 1);
    assert!(texts(&printed).2.starts_with("error: deviceNotFound: m\n"), "{}", texts(&printed).2);

    let refuse = async {
        let mut socket = server.accept_registered().await;
        payload(&mut socket).await;
        send(&mut socket, r#"{"type":"error","payload":{"code":"unknownMessageType","message":"m","retryable":false}}"#).await;
        // Until the client leaves.
        while socket.next().await.is_some_and(|message| message.is_ok()) {}
    };
    let (printed, ()) = tokio::join!(output(watch(&server.url, &["s"])), refuse);
    let (code, _stdout, stderr) = texts(&printed);
    assert_eq!(code, 1);
    assert!(stderr.ends_with("error: the relay refused to let this phone watch: unknownMessageType: m\n"), "{stderr}");

    let replace = async {
        let mut socket = server.accept_registered().await;
        let frame = tokio_tungstenite::tungstenite::protocol::CloseFrame { code: 4002.into(), reason: "replaced".into() };
        socket.send(Message::Close(Some(frame))).await.unwrap();
        while socket.next().await.is_some_and(|message| message.is_ok()) {}
    };
    let (printed, ()) = tokio::join!(output(watch(&server.url, &["s"])), replace);
    let (code, _stdout, stderr) = texts(&printed);
    assert!(code == 1 && stderr.contains("4002 replaced\nanother program registered"), "{code} {stderr}");

    let url = server.url.clone();
    drop(server);
    assert_eq!(texts(&output(watch(&url, &["s"])).await).0, 3, "nothing listens there");
}

/// The account's first phone, which watches `s-1` of the first desktop.
fn watch_as(account: &Account) -> Command {
    let (phone, desktop) = (account.phones[0].to_string(), account.desktops[0].to_string());
    let mut command = client(&account.address.to_string(), &["phone", "--device", &phone, "--desktop", &desktop, "watch", "s-1"]);
    command.env("RELAY_TOKEN", &account.token);
    command
}

fn demo_desktop(account: &Account) -> Child {
    desktop_command(account).args(["--demo-timeline", "10ms"]).stdout(Stdio::null()).spawn().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_phone_sees_the_demo_timeline_of_its_desktop_and_sees_it_go_on_after_a_restart_of_either() {
    let mut relay = RelayProcess::start(&[]).await;
    let proxy = StallProxy::start(relay.ready().public).await;
    let mut account = Account::new(&relay, 1, 1).await;
    account.address = format!("http://{}", proxy.address()).parse().unwrap();
    let desktop = demo_desktop(&account);
    let mut watching = Watching::start(watch_as(&account));
    assert!(watching.told().await.starts_with(&format!("watching session \"s-1\" of desktop {}, which is ", account.desktops[0])));

    let draft = watching.timeline("draft").await;
    assert_eq!(draft["sourceDeviceId"], account.desktops[0].to_string());
    let fields = draft["payload"].as_object().unwrap();
    assert_eq!(fields.keys().collect::<Vec<_>>(), ["appSessionId", "kind", "text", "timelineKey"], "the generation stays with the relay");
    assert_eq!((&fields["appSessionId"], &fields["timelineKey"]), (&json!("s-1"), &json!("demo:draft")));
    let number = |entry: &Value| {
        assert!(entry["payload"].get("timelineKey").is_none(), "{entry}");
        let text = entry["payload"]["text"].as_str().unwrap();
        text.strip_prefix("entry ").unwrap().split(':').next().unwrap().parse::<u64>().unwrap()
    };
    let first = number(&watching.timeline("entry").await);
    assert_eq!(number(&watching.timeline("entry").await), first + 1, "entries do not replace each other");
    while watching.event().await["eventType"] != "demo:tick" {}

    // Another desktop process learns of the lease when it registers, and begins anew.
    drop(desktop);
    while watching.event().await["payload"]["status"] != "reconnecting" {}
    let desktop = demo_desktop(&account);
    while number(&watching.timeline("entry").await) != 1 {}

    // Another relay process knows no lease: the phone takes it again, under a new generation, with which the timeline begins anew.
    relay.kill();
    let relay = RelayProcess::start_on(relay.data_dir(), &[]).await;
    proxy.lead_to(relay.ready().public);
    assert!(watching.told().await.starts_with("not connected: "));
    while !watching.told().await.starts_with("watching session ") {}
    while number(&watching.timeline("entry").await) != 1 {}
    drop(desktop);
    signal(&watching.process, "INT").await;
    while watching.stdout.next_line().await.unwrap().is_some() {}
    assert_eq!(watching.code().await, 0);
}
