//! The generator against the floor, over real sockets. What is asserted is that every byte came back; never how fast.

use relay_bench::{
    Error, big,
    event::{Stamp, Stream},
    fanout, floor, frame, idle,
    link::{self, Incoming, Opening, Window},
    peer::Peer,
    rpc, slow, storm,
    target::{Kin, Target},
};
use std::{net::SocketAddr, process::Stdio, time::Duration};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpListener,
    process::Command,
};

/// Long enough for some round trips on any machine.
const SECONDS: f64 = 0.3;

/// A floor on the test's own runtime; it ends with it.
async fn start_floor() -> Target {
    let listener = floor::listen(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
    let addr = listener.local_addr().expect("an address");
    tokio::spawn(floor::accept(listener));
    Target { addr, kin: Kin::Floor }
}

fn calls(pairs: u32, window: u16, size: usize) -> rpc::Options {
    rpc::Options { pairs, window, size, result_size: None, secs: SECONDS, warm: 0.0, rate: None }
}

#[tokio::test]
async fn closed_loop_round_trips_are_right_on_every_pair() {
    let target = start_floor().await;
    let (report, recorder) = rpc::run(&target, Some(std::process::id()), &calls(5, 3, 200)).await.expect("a report");
    recorder.judge().expect("every answer was right");
    assert!(report.value("round_trips").is_some_and(|count| count >= 15.0), "{report}");
    assert_eq!(report.value("params_bytes"), Some(200.0));
    for measured in ["p50_us", "p99_us", "round_trips_per_s", "server_cpu_s_per_1k", "rss_mib"] {
        assert!(report.value(measured).is_some_and(|value| value > 0.0), "{measured}\n{report}");
    }
}

#[tokio::test]
async fn bodies_too_large_to_be_gathered_arrive_whole() {
    let target = start_floor().await;
    let options = rpc::Options { result_size: Some(300_000), ..calls(2, 2, 70_000) };
    let (report, recorder) = rpc::run(&target, None, &options).await.expect("a report");
    recorder.judge().expect("every answer was right");
    assert_eq!((report.value("params_bytes"), report.value("result_bytes")), (Some(70_000.0), Some(300_000.0)));
    assert!(report.value("round_trips").is_some_and(|count| count >= 4.0), "{report}");
    assert_eq!(report.value("server_cpu_s"), None, "no pid was given");
}

#[tokio::test]
async fn open_loop_calls_are_all_answered() {
    let target = start_floor().await;
    let options = rpc::Options { rate: Some(200.0), ..calls(4, 1, 64) };
    let (report, recorder) = rpc::run(&target, None, &options).await.expect("a report");
    recorder.judge().expect("every answer was right");
    assert_eq!(report.value("unanswered"), Some(0.0), "{report}");
    assert!(recorder.count() > 0, "{report}");
}

#[tokio::test]
async fn a_storm_registers_every_device() {
    let target = start_floor().await;
    let (report, recorder) = storm::run(&target, None, &storm::Options { devices: 101, lanes: 20 }).await.expect("a report");
    recorder.judge().expect("all registered");
    assert_eq!(recorder.count(), 101, "{report}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_is_given_up() {
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let target = Target { addr: silent.local_addr().expect("an address"), kin: Kin::Floor };
    let outcome = target.connect(Peer::desktop(0)).await;
    assert!(matches!(outcome, Err(Error::TooSlow { step: "registration" })));
}

#[tokio::test]
async fn a_server_that_refuses_the_upgrade_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let target = Target { addr: listener.local_addr().expect("an address"), kin: Kin::Floor };
    tokio::spawn(async move {
        let (mut stream, _peer) = listener.accept().await.expect("a connection");
        stream.write_all(b"HTTP/1.1 503 Service Unavailable\r\n\r\n").await.expect("written");
        let mut rest = Vec::new();
        let _until_closed = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut rest).await;
    });
    let Err(error) = target.connect(Peer::phone(0)).await else { panic!("a refusal was taken for a connection") };
    assert_eq!(error.to_string(), "websocket upgrade refused: HTTP/1.1 503 Service Unavailable");
}

#[tokio::test]
async fn a_message_reaches_the_other_end_of_its_own_room_only() {
    let target = start_floor().await;
    let mut phone = target.connect(Peer::phone(1)).await.expect("a connection");
    let mut desktop = target.connect(Peer::desktop(1)).await.expect("a connection");
    let mut stranger = target.connect(Peer::desktop(2)).await.expect("a connection");
    phone.sender.send(b"to the desktop".to_vec()).await.expect("sent");
    assert_eq!(desktop.receiver.receive().await, Incoming::Message("to the desktop".into()));
    // The stranger's next message is its own room's, so the other one did not go there.
    let mut friend = target.connect(Peer::phone(2)).await.expect("a connection");
    friend.sender.send(b"to the stranger".to_vec()).await.expect("sent");
    assert_eq!(stranger.receiver.receive().await, Incoming::Message("to the stranger".into()));
}

#[tokio::test]
async fn a_room_stays_while_somebody_is_on_the_way_into_it() {
    let target = start_floor().await;
    let mut former = target.connect(Peer::desktop(1)).await.expect("a connection");
    let opening = Opening { addr: target.addr, path: "/1/desktop", headers: &[], spread: 0, window: Window::Wide };
    let (mut sender, mut receiver) = link::open(opening).await.expect("a socket that has not registered");
    former.sender.close().await;
    assert_eq!(former.receiver.receive().await, Incoming::Closed, "it has left the room");
    sender.send(b"registration".to_vec()).await.expect("sent");
    assert!(matches!(receiver.receive().await, Incoming::Message(_)));
    let mut phone = target.connect(Peer::phone(1)).await.expect("a connection");
    phone.sender.send(b"to the desktop".to_vec()).await.expect("sent");
    let received = tokio::time::timeout(Duration::from_secs(10), receiver.receive()).await;
    assert_eq!(received.expect("the room was forgotten"), Incoming::Message("to the desktop".into()));
}

#[tokio::test]
async fn the_last_message_before_a_goodbye_still_arrives() {
    let target = start_floor().await;
    let mut phone = target.connect(Peer::phone(1)).await.expect("a connection");
    for _ in 0..20 {
        let mut desktop = target.connect(Peer::desktop(1)).await.expect("a connection");
        desktop.sender.send(b"last words".to_vec()).await.expect("sent");
        desktop.sender.close().await;
        drop(desktop);
        assert_eq!(phone.receiver.receive().await, Incoming::Message("last words".into()));
    }
}

#[tokio::test]
async fn calls_that_nobody_answers_spoil_the_run() {
    let target = start_floor().await;
    // Other desktops keep taking the room over and answer nothing, so the phone's calls are lost on the way.
    let options = rpc::Options { rate: Some(500.0), ..calls(1, 1, 64) };
    let usurp = async {
        let mut newest;
        loop {
            newest = target.connect(Peer::desktop(0)).await.expect("a connection");
            tokio::time::sleep(Duration::from_millis(10)).await;
            drop(newest);
        }
    };
    let outcome = tokio::select! {
        outcome = rpc::run(&target, None, &options) => outcome,
        never = usurp => never,
    };
    let (report, _recorder) = outcome.expect("a report");
    assert!(report.value("unanswered").is_some_and(|count| count > 0.0), "{report}");
}

#[tokio::test]
async fn wrong_answers_spoil_the_run() {
    let target = start_floor().await;
    let options = rpc::Options { rate: Some(500.0), ..calls(1, 1, 64) };
    let answer_wrongly = async {
        loop {
            let mut usurper = target.connect(Peer::desktop(0)).await.expect("a connection");
            // The run's own desktop may come after this one and get the calls; then it is time to take the room again.
            let received = tokio::time::timeout(Duration::from_millis(10), usurper.receiver.receive()).await;
            let Ok(Incoming::Message(call)) = received else { continue };
            usurper.sender.send(frame::response(&call, "{}").expect("a call has an id")).await.expect("sent");
        }
    };
    let outcome = tokio::select! {
        outcome = rpc::run(&target, None, &options) => outcome,
        never = answer_wrongly => never,
    };
    let (_report, recorder) = outcome.expect("a report");
    let Err(error @ Error::Unclean { .. }) = recorder.judge() else { panic!("a run with wrong answers was believed") };
    assert!(error.to_string().contains("wrong answer"), "{error}");
}

#[tokio::test]
async fn idle_pairs_stay_connected() {
    let target = start_floor().await;
    let options = idle::Options { pairs: 3, hold: 0.1, settle: 0.1 };
    let (report, recorder) = idle::run(&target, Some(std::process::id()), &options).await.expect("a report");
    assert_eq!(report.value("errors"), Some(0.0), "{report}");
    assert_eq!(recorder.timeouts(), 0);
}

fn frames(rate: Option<f64>) -> fanout::Options {
    fanout::Options { phones: 3, size: 300, rate, secs: SECONDS, warm: 0.0 }
}

#[tokio::test]
async fn every_frame_reaches_every_phone_that_watches() {
    let target = start_floor().await;
    let (report, recorder) = fanout::run(&target, Some(std::process::id()), &frames(Some(3_000.0))).await.expect("a report");
    recorder.judge().expect("nothing was lost");
    // The i-th frame is due at i / (rate / phones), so the span holds this many of them, for each phone.
    assert_eq!(recorder.count(), 900);
    assert_eq!((report.value("lost"), report.value("payload_bytes"), report.value("rate")), (Some(0.0), Some(300.0), Some(3_000.0)));
    for measured in ["delivered_per_s", "p50_us", "p99_us", "server_cpu_s_per_1m", "rss_mib"] {
        assert!(report.value(measured).is_some_and(|value| value > 0.0), "{measured}\n{report}");
    }
}

#[tokio::test]
async fn heavy_the_highest_rate_is_searched_for_with_connections_of_each_trial_s_own() {
    let target = start_floor().await;
    let options = fanout::Options { phones: 1, secs: 0.05, ..frames(None) };
    let (report, recorder) = fanout::run(&target, None, &options).await.expect("a report");
    recorder.judge().expect("some rate was kept");
    assert!(report.value("trials").is_some_and(|count| count >= 2.0), "{report}");
    assert!(report.value("rate").is_some_and(|rate| rate > 0.0) && report.value("p99_us").is_some_and(|p99| p99 < 375e3), "{report}");
}

#[tokio::test]
async fn a_frame_out_of_order_spoils_the_run() {
    let target = start_floor().await;
    let options = frames(Some(3_000.0));
    let interfere = async {
        loop {
            let mut usurper = target.connect(Peer::desktop(0)).await.expect("a connection");
            let frame = Stream::new(options.size).stamped(Stamp { number: 7, due_nanos: 0 }).to_vec();
            usurper.sender.send(frame).await.expect("sent");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    // The phones' calls need the run's own desktop, so the other one comes when the frames have begun.
    let late = async {
        tokio::time::sleep(Duration::from_millis(150)).await;
        interfere.await
    };
    let outcome = tokio::select! {
        outcome = fanout::run(&target, None, &options) => outcome,
        never = late => never,
    };
    let (_report, recorder) = outcome.expect("a report");
    let Err(error @ Error::Unclean { .. }) = recorder.judge() else { panic!("a run with frames out of order was believed") };
    assert!(error.to_string().contains("where frame"), "{error}");
}

#[tokio::test]
async fn large_results_arrive_whole_and_their_memory_is_told() {
    let target = start_floor().await;
    let options = big::Options { mib: 1, count: 2, settle: 0.1 };
    let (report, recorder) = big::run(&target, Some(std::process::id()), &options).await.expect("a report");
    recorder.judge().expect("every result was right");
    assert_eq!((report.value("results"), recorder.count()), (Some(2.0), 2));
    for measured in ["mib_per_s", "one_peak_growth_mib", "one_kept_growth_mib", "peak_growth_mib", "kept_growth_mib"] {
        assert!(report.value(measured).is_some(), "{measured}\n{report}");
    }
}

#[tokio::test]
async fn the_floor_is_not_measured_with_phones_that_read_nothing() {
    let target = start_floor().await;
    let options = slow::Options { watching: 1, event_rate: 1.0, event_size: 0, rate: 1.0, rounds: 1, secs: SECONDS, warm: 0.0 };
    let Err(error) = slow::run(&target, None, &options).await else { panic!("the floor has no lanes") };
    assert!(error.to_string().contains("measure a relay"), "{error}");
}

#[tokio::test]
async fn the_binary_measures_a_floor_of_its_own() {
    let program = env!("CARGO_BIN_EXE_relay-bench");
    let mut server = Command::new(program)
        .args(["floor", "--listen", "127.0.0.1:0"])
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the floor starts");
    let mut lines = BufReader::new(server.stderr.take().expect("a pipe")).lines();
    let line = lines.next_line().await.expect("text").expect("a line");
    let addr = line.strip_prefix("floor listening on ").and_then(|rest| rest.split(',').next()).expect("an address");
    let pid = server.id().expect("it runs").to_string();

    let output = Command::new(program)
        .args(["rpc", "--target", "floor", "--addr", addr, "--pid", &pid, "--pairs", "2", "--secs", "0.2", "--warm", "0", "--json"])
        .output()
        .await
        .expect("the generator runs");
    server.kill().await.expect("stopped");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a JSON report");
    assert_eq!(report["target"], "floor");
    assert_eq!(report["errors"], 0);
    assert!(report["round_trips"].as_u64().expect("a count") > 0);
    assert!(report["server_cpu_s"].is_number());
}

#[tokio::test]
async fn comparing_with_a_binary_that_is_no_relay_says_so() {
    let program = env!("CARGO_BIN_EXE_relay-bench");
    let output = Command::new(program)
        .args(["compare", "--relay-binary", program, "--rounds", "1", "--pairs", "1", "--secs", "0.1", "--warm", "0"])
        .output()
        .await
        .expect("it runs");
    assert!(!output.status.success());
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("ended before it was ready"), "{error}");
    assert!(error.contains("unrecognized subcommand 'serve'"), "the log's tail is shown: {error}");
}
