//! The public listener under TLS.

use super::answer;
use crate::support::{
    PATIENCE,
    account::Account,
    data_dir::DataDir,
    issuer::tls_file,
    metrics::Scrape,
    raw_socket::{Frame, RawOptions, RawSocket, Received, opcode},
    relay_process::RelayProcess,
    scale::scaled,
    tls_tunnel::{TlsClient, TlsTunnel},
    token::{TEST_SECRET, fresh_user},
    wire::{KIB, connection_of, eventually, next_of, registered, request, response, round_trip},
};
use relay_actors::clock::EpochMs;
use rustls::version::{TLS12, TLS13};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};
use tokio::{
    process::Command,
    time::{Instant, timeout},
};

const LIVEZ: &str = "GET /livez HTTP/1.1\r\nHost: relay\r\n\r\n";

/// A frozen peer is ended 2 s after its close, and a listener gives connections that are left another 2 s.
const DRAINED_WITHIN: Duration = Duration::from_secs(10);

/// A certificate and its key in files that can be exchanged.
struct Pair {
    directory: tempfile::TempDir,
}

impl Pair {
    fn of(name: &str) -> Self {
        let pair = Pair { directory: tempfile::tempdir().unwrap() };
        pair.write("cert.pem", &format!("{name}.pem"));
        pair.write("key.pem", &format!("{name}.key"));
        pair
    }

    fn path(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }

    /// As certificate tools do it: a new file takes the place of the one before it.
    fn write(&self, file: &str, of: &str) {
        fs::copy(tls_file(of), self.path("new")).unwrap();
        fs::rename(self.path("new"), self.path(file)).unwrap();
    }
}

/// A relay with this pair.
async fn relay_with(certificate: &Path, key: &Path, flags: &[&str]) -> RelayProcess {
    let tls = ["--tls-cert", certificate.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    RelayProcess::start(&[&tls, flags].concat()).await
}

async fn relay(flags: &[&str]) -> RelayProcess {
    relay_with(&tls_file("issuer.pem"), &tls_file("issuer.key"), flags).await
}

fn trusting(name: &str) -> TlsClient {
    TlsClient::trusting(&tls_file(name))
}

async fn is_answered(relay: &RelayProcess, client: &TlsClient) -> bool {
    match timeout(PATIENCE, client.connect(relay.ready().public)).await.expect("a handshake ends") {
        Ok(stream) => answer(stream, LIVEZ).await.starts_with("HTTP/1.1 200"),
        Err(_) => false,
    }
}

/// A command of the binary that trusts this authority.
fn command(relay: &RelayProcess, authority: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_relay"));
    command.env_clear().env("SSL_CERT_FILE", tls_file(authority)).env("RELAY_JWT_SECRET", TEST_SECRET);
    command.env("RELAY_URL", format!("https://{}", relay.ready().public));
    command.args(args).stdin(Stdio::null()).kill_on_drop(true);
    command
}

async fn output(mut command: Command) -> Output {
    timeout(PATIENCE, command.output()).await.expect("the command ends").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_relays_own_clients_call_over_https_and_wss_those_whom_they_trust() {
    let relay = relay(&[]).await;
    let user = fresh_user().to_string();
    let mut devices = Vec::new();
    for role in ["desktop", "mobile"] {
        let add = ["device", "add", "--user", &user, "--role", role, "--name", "n", "--json"];
        let added = output(command(&relay, "issuer-ca.pem", &add)).await;
        assert!(added.status.success(), "{added:?}");
        devices.push(serde_json::from_slice::<Value>(&added.stdout).unwrap()["deviceId"].as_str().unwrap().to_owned());
    }
    let mut desktop = command(&relay, "issuer-ca.pem", &["desktop", "--user", &user, "--device", &devices[0]]);
    let mut desktop = desktop.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let call = ["phone", "--user", &user, "--device", &devices[1], "--desktop", &devices[0], "call", "system.ping"];
    let called = output(command(&relay, "issuer-ca.pem", &call)).await;
    assert!(called.status.success(), "{called:?}");
    desktop.kill().await.unwrap();

    for args in [&call[..], &["device", "list", "--user", &user]] {
        let refused = output(command(&relay, "other-ca.pem", args)).await;
        let text = String::from_utf8(refused.stderr).unwrap();
        assert!(!refused.status.success() && text.contains("invalid peer certificate: UnknownIssuer"), "{text}");
        assert!(text.contains("SSL_CERT_FILE") && !text.contains("relay serve"), "{text}");
    }
    assert!(relay.printed().contains(&format!("clients    https://{}", relay.ready().public)), "{}", relay.printed());
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_1_2_and_1_3_are_spoken_and_nothing_but_http_1_1_is_agreed_on() {
    let relay = relay(&[]).await;
    let authority = tls_file("issuer-ca.pem");
    for version in [&TLS12, &TLS13] {
        let client = TlsClient::speaking(&authority, &[version], &["h2", "http/1.1"]);
        let stream = client.connect(relay.ready().public).await.unwrap();
        let agreed = (stream.get_ref().1.protocol_version(), stream.get_ref().1.alpn_protocol());
        assert_eq!(agreed, (Some(version.version), Some(&b"http/1.1"[..])));
        let answer = answer(stream, LIVEZ).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    assert!(is_answered(&relay, &TlsClient::speaking(&authority, &[&TLS13], &[])).await);
    assert!(!is_answered(&relay, &TlsClient::speaking(&authority, &[&TLS13], &["h2"])).await);
    assert!(!is_answered(&relay, &trusting("other-ca.pem")).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_pair_is_used_without_a_restart_a_broken_one_is_not_and_open_sockets_live_on() {
    let pair = Pair::of("issuer");
    let relay = relay_with(&pair.path("cert.pem"), &pair.path("key.pem"), &[]).await;
    let (former, renewed) = (trusting("issuer-ca.pem"), trusting("renewed.pem"));
    let tunnel = TlsTunnel::start(&relay, former.clone()).await;
    let account = Account::at(tunnel.address(), 1, 1).await;
    let mut desktop = registered(&account.raw_desktop(), account.desktops[0]).await;
    let mut phone = registered(&account.raw_phone(), account.phones[0]).await;
    let told = |text: &str| relay.log().matches(text).count();

    // The certificate is there, its key is not yet.
    pair.write("cert.pem", "renewed.pem");
    eventually("the fault is told", async || told("the new tls certificate cannot be used") == 1).await;
    assert!(is_answered(&relay, &former).await && !is_answered(&relay, &renewed).await);
    pair.write("key.pem", "renewed.key");
    eventually("the pair is renewed", async || told("tls certificate renewed") == 1).await;
    assert!(is_answered(&relay, &renewed).await && !is_answered(&relay, &former).await);
    round_trip(&mut phone, &mut desktop, "of the former certificate").await;

    // Another fault, told once however often the files are looked at, and in use stays what was.
    fs::remove_file(pair.path("key.pem")).unwrap();
    eventually("the next fault is told", async || told("the new tls certificate cannot be used") == 2).await;
    assert!(is_answered(&relay, &renewed).await);
    pair.write("cert.pem", "issuer.pem");
    pair.write("key.pem", "issuer.key");
    eventually("the pair is renewed again", async || told("tls certificate renewed") == 2).await;
    assert!(is_answered(&relay, &former).await && !is_answered(&relay, &renewed).await);
    assert_eq!(told("cannot be used"), 2);
    round_trip(&mut phone, &mut desktop, "of the certificate before that").await;
}

/// Its actor stands still: only the kept descriptor can end the connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_reads_nothing_under_tls_is_retired_and_its_connection_ended() {
    const REPLIES: usize = 64;
    let relay = relay(&["--max-message", "256KiB", "--outbound-limit", "1MiB"]).await;
    let tunnel = TlsTunnel::start(&relay, trusting("issuer-ca.pem")).await;
    let account = Account::at(tunnel.address(), 1, 2).await;
    let mut desktop = registered(&account.raw_desktop(), account.desktops[0]).await;
    let mut other = registered(&account.raw_phone(), account.phones[1]).await;
    round_trip(&mut other, &mut desktop, "before").await;
    let descriptors = relay.descriptors();
    let frozen = RawOptions { receive_buffer_bytes: Some(4_096), ..account.raw_phone() };
    let mut frozen = registered(&frozen, account.phones[0]).await;
    let result = format!("\"{}\"", "r".repeat(240 * KIB));
    let mut requests = Vec::new();
    for index in 0..REPLIES {
        frozen.text(&request(&format!("frozen-{index}"), "1")).await;
        requests.push(next_of(&mut desktop, "rpc.request").await);
    }
    for request in requests {
        let reply = response(&request, &result);
        let header = Frame { mask: Some([0; 4]), ..Frame::header_only(opcode::TEXT, reply.len() as u64) };
        desktop.write(&[&header.encode(), reply.as_bytes()].concat()).await;
    }
    let mut trips = 0;
    eventually("the frozen phone is gone", async || {
        trips += 1;
        round_trip(&mut other, &mut desktop, &format!("beside-{trips}")).await;
        connection_of(&relay, account.user, account.phones[0]).await.is_none()
    })
    .await;
    eventually("its descriptors are given back", async || relay.descriptors() <= descriptors).await;
    assert!(!relay.log().contains("cannot be ended from outside"), "{}", relay.log());
    let taken = frozen.discard(usize::MAX, PATIENCE).await;
    assert!(taken < REPLIES * result.len(), "all {taken} bytes came: it was not frozen");
}

/// Beside a peer that reads nothing, and connections whose handshake has not ended.
#[tokio::test(flavor = "multi_thread")]
async fn a_drain_under_tls_tells_everybody_who_reads_and_ends_in_time() {
    const LARGE: usize = 16 * 1024 * KIB;
    let mut relay = relay(&[]).await;
    let tunnel = TlsTunnel::start(&relay, trusting("issuer-ca.pem")).await;
    let account = Account::at(tunnel.address(), 2, 2).await;
    let mut desktop = registered(&account.raw_desktop(), account.desktops[1]).await;
    let _frozen = registered(&account.raw_desktop(), account.desktops[0]).await;
    let mut phone = registered(&account.raw_phone(), account.phones[0]).await;
    let mut unregistered = RawSocket::open(&account.raw_phone()).await;
    let _no_handshake = RawSocket::connect(relay.ready().public, None).await;
    phone.text(&request("large", &format!("{:?}", "x".repeat(LARGE)))).await;
    eventually("it waits for the frozen desktop", async || {
        let frozen = connection_of(&relay, account.user, account.desktops[0]).await.unwrap();
        frozen["queuedBytes"].as_u64().unwrap() > KIB as u64 * KIB as u64
    })
    .await;
    let begun = Instant::now();
    relay.signal("TERM");
    for socket in [&mut desktop, &mut phone, &mut unregistered] {
        assert_eq!(socket.closed(PATIENCE).await, Some((1012, "relayDraining".to_owned())));
    }
    assert_eq!(relay.exited().await.code(), Some(0));
    assert!(begun.elapsed() < DRAINED_WITHIN, "it took {:?}", begun.elapsed());
    assert!(!relay.log().contains("still open"), "{}", relay.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn handshakes_that_do_not_end_shut_nobody_out() {
    // More than the server has in progress at once on all its workers unless told otherwise: 256 on each.
    let workers = std::thread::available_parallelism().unwrap().get();
    let silent_count = 300 * workers.min(scaled(4, 16));
    let relay = relay(&["--request-head-timeout", "10m"]).await;
    let mut silent = Vec::new();
    for _ in 0..silent_count {
        silent.push(RawSocket::connect(relay.ready().public, None).await);
    }
    eventually("all are accepted", async || relay.descriptors() > silent_count).await;
    for _ in 0..2 * workers {
        assert!(is_answered(&relay, &trusting("issuer-ca.pem")).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handshake_that_does_not_end_is_ended() {
    // Longer than the three seconds that the server allows by itself.
    const TIMEOUT: Duration = Duration::from_secs(4);
    let relay = relay(&["--request-head-timeout", "4s"]).await;
    assert!(is_answered(&relay, &trusting("issuer-ca.pem")).await);
    let descriptors = relay.descriptors();
    let unfinished = async |sent: &[u8]| {
        let begun = Instant::now();
        let mut socket = RawSocket::connect(relay.ready().public, None).await;
        socket.write(sent).await;
        let end = socket.read(PATIENCE).await;
        assert!(matches!(end, Received::End | Received::Reset), "{end:?}");
        assert!(begun.elapsed() >= TIMEOUT * 9 / 10, "ended after {:?}", begun.elapsed());
    };
    // Nothing, and the header of a ClientHello with a part of it.
    tokio::join!(unfinished(b""), unfinished(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"));
    eventually("descriptors go", async || relay.descriptors() <= descriptors).await;
    assert!(is_answered(&relay, &trusting("issuer-ca.pem")).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_http_to_a_tls_port_and_tls_to_a_plain_port_harm_nobody() {
    let (secure, plain) = (relay(&[]).await, RelayProcess::start(&[]).await);
    for _ in 0..20 {
        let mut socket = RawSocket::connect(secure.ready().public, None).await;
        socket.write(LIVEZ.as_bytes()).await;
        // An alert, and the end.
        assert!(socket.discard(usize::MAX, PATIENCE).await < 32);
        let refused = timeout(PATIENCE, trusting("issuer-ca.pem").connect(plain.ready().public)).await;
        assert!(refused.expect("a plain port ends it").is_err());
    }
    assert!(is_answered(&secure, &trusting("issuer-ca.pem")).await);
    let socket = tokio::net::TcpStream::connect(plain.ready().public).await.unwrap();
    assert!(answer(socket, LIVEZ).await.starts_with("HTTP/1.1 200"));
    for relay in [&secure, &plain] {
        assert!(!relay.log().contains("WARN"), "{}", relay.log());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pair_that_cannot_be_used_starts_nothing_and_is_not_shown() {
    let (certificate, key, other) = (tls_file("issuer.pem"), tls_file("issuer.key"), tls_file("renewed.key"));
    let absent = Path::new("/nowhere/cert.pem");
    for (args, expected) in [
        (vec![("--tls-cert", certificate.as_path())], "--tls-cert needs --tls-key"),
        (vec![("--tls-key", key.as_path())], "--tls-key needs --tls-cert"),
        (vec![("--tls-cert", absent), ("--tls-key", &key)], "--tls-cert /nowhere/cert.pem: No such file"),
        (vec![("--tls-cert", &certificate), ("--tls-key", &other)], "not the key of the first certificate"),
        (vec![("--tls-cert", &certificate), ("--tls-key", &certificate)], "there is no private key in it"),
    ] {
        let directory = DataDir::new();
        let mut command = Command::new(env!("CARGO_BIN_EXE_relay"));
        command.env_clear().current_dir(directory.path()).args(["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
        command.args(args.iter().flat_map(|(flag, path)| [Path::new(flag), *path])).kill_on_drop(true);
        let ended = output(command).await;
        let text = format!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        assert!(!ended.status.success() && text.contains(expected), "{text}");
        for file in [&key, &other] {
            assert!(!fs::read_to_string(file).unwrap().lines().any(|line| !line.starts_with('-') && text.contains(line)), "{text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_expires_soon_is_warned_of_and_its_end_is_a_metric() {
    const END: &str = "relay_tls_certificate_expiry_seconds";
    const WARNING: &str = "the tls certificate expires soon";
    let pair = Pair::of("issuer");
    let arguments = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=a", "-days", "3"];
    let mut openssl = Command::new("openssl");
    openssl.args(arguments).arg("-keyout").arg(pair.path("key.pem")).arg("-out").arg(pair.path("cert.pem"));
    let made = output(openssl).await;
    assert!(made.status.success(), "{made:?}");
    let relay = relay_with(&pair.path("cert.pem"), &pair.path("key.pem"), &[]).await;
    let left = Scrape::of(&relay).await.get(END) - EpochMs::now().0 as f64 / 1_000.0;
    assert!(left > 3.0 * 86_400.0 - 60.0 && left <= 3.0 * 86_400.0, "{left} s");
    let told = || relay.log().matches(WARNING).count();
    eventually("it is told of", async || told() == 1).await;

    pair.write("cert.pem", "issuer.pem");
    pair.write("key.pem", "issuer.key");
    eventually("its end is that of the new one", async || Scrape::of(&relay).await.get(END) > 4e9).await;
    assert_eq!(told(), 1);
    let plain = RelayProcess::start(&[]).await;
    assert!(!Scrape::of(&plain).await.has(END));
}
