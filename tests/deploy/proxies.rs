//! The examples of docs/proxies.md and the configuration in `deploy/haproxy/`, each in front of a relay. Four minutes of theirs are a
//! second here, and thirty seconds of the relay's pings a third of one.

use crate::{
    programs::{Proxy, adapted, own_address, read},
    stage,
    support::{
        PATIENCE,
        account::Account,
        raw_socket::{Frame, RawSocket, Received, opcode},
        relay_process::RelayProcess,
        wire::{MIB, next_of, payload_field, registered, request_of, response, round_trip},
    },
};
use futures_util::future::join_all;
use std::{fs, net::SocketAddr, time::Duration};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket},
    sync::mpsc,
    time::{Instant, timeout},
};

const IDLE_LIMIT: Duration = Duration::from_secs(1);
/// The same in the words of the proxies.
const IDLE_LIMIT_TEXT: &str = "1s";
/// As the examples have it.
const REAL_LIMIT: &str = "4m";
/// Behind the proxies' limit without a ping, and three times that with pings.
const IDLENESS: Duration = Duration::from_secs(3);
const PINGS: [&str; 2] = ["--heartbeat-interval=300ms", "--silence-timeout=10s"];
const NO_PINGS: [&str; 2] = ["--heartbeat-interval=60s", "--silence-timeout=61s"];
/// The largest message that a client may send.
const LARGEST: usize = 32 * MIB;

#[derive(Clone, Copy, Debug)]
enum Example {
    Haproxy,
    Nginx,
    BlueGreen,
}

struct Running {
    address: SocketAddr,
    _proxy: Proxy,
    _directory: TempDir,
}

/// The block of this language on the page.
fn block(language: &str) -> String {
    let page = read("docs/proxies.md");
    let blocks: Vec<&str> = page.split(&format!("\n```{language}\n")).skip(1).collect();
    assert_eq!(blocks.len(), 1, "the page has one example of {language}");
    blocks[0].split("\n```").next().unwrap().to_owned() + "\n"
}

impl Example {
    const ALL: [Example; 3] = [Example::Haproxy, Example::Nginx, Example::BlueGreen];

    /// In front of this relay, with this in place of the four minutes.
    async fn start(self, relay: SocketAddr, idle_limit: &str) -> Running {
        let directory = tempfile::Builder::new().prefix("relay-proxy-").tempdir().unwrap();
        let address = SocketAddr::from((own_address(), 8080));
        let (relay, path) = (relay.to_string(), directory.path().display());
        let haproxy = [
            ("maxconn 50000", "maxconn 100"),
            ("timeout tunnel 4m", &format!("timeout tunnel {idle_limit}")),
            (":443 ssl crt /etc/haproxy/relay.pem alpn http/1.1", &address.to_string()),
            ("127.0.0.1:8787", &relay),
        ];
        let proxy = match self {
            Example::Haproxy => Proxy::haproxy(directory.path(), &adapted(&block("haproxy"), &haproxy), address).await,
            Example::BlueGreen => {
                let configuration = adapted(&stage::haproxy_here(directory.path()), &haproxy);
                fs::write(directory.path().join("relay.map"), read("deploy/haproxy/relay.map")).unwrap();
                Proxy::haproxy(directory.path(), &configuration, address).await
            }
            Example::Nginx => {
                let server = adapted(
                    &block("nginx"),
                    &[
                        ("    ssl_certificate     /etc/nginx/relay.pem;\n    ssl_certificate_key /etc/nginx/relay.key;\n", ""),
                        ("listen 443 ssl;", &format!("listen {address};")),
                        ("127.0.0.1:8787", &relay),
                        ("proxy_read_timeout 4m;", &format!("proxy_read_timeout {idle_limit};")),
                        ("proxy_send_timeout 4m;", &format!("proxy_send_timeout {idle_limit};")),
                    ],
                );
                let folders: String =
                    ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|kind| format!("{kind}_temp_path {path}/{kind};\n")).concat();
                let whole = format!("worker_processes 1;\npid {path}/pid;\nevents {{}}\nhttp {{\naccess_log off;\n{folders}{server}}}\n");
                Proxy::nginx(directory.path(), &whole, address).await
            }
        };
        Running { address, _proxy: proxy, _directory: directory }
    }
}

/// A desktop and a phone by way of the proxy, when it knows that the relay is there.
async fn pair(proxy: &Running) -> (RawSocket, RawSocket) {
    let deadline = Instant::now() + PATIENCE;
    while stage::get(proxy.address, "/readyz").await.is_none_or(|(status, _)| status != 200) {
        assert!(Instant::now() < deadline, "the proxy does not reach the relay");
    }
    let account = Account::at(format!("http://{}", proxy.address).parse().unwrap(), 1, 1).await;
    let desktop = registered(&account.raw_desktop(), account.desktops[0]).await;
    (desktop, registered(&account.raw_phone(), account.phones[0]).await)
}

/// Answers pings and does nothing else: whether the connection is still there at the end.
async fn outlives(socket: &mut RawSocket, length: Duration) -> bool {
    let end = Instant::now() + length;
    loop {
        match socket.read(end.saturating_duration_since(Instant::now())).await {
            Received::Frame { opcode: opcode::PING, payload, .. } => socket.frame(&Frame::new(opcode::PONG, payload)).await,
            Received::Frame { opcode: opcode::TEXT, .. } => {}
            Received::Nothing => return true,
            Received::End | Received::EndInsideFrame | Received::Reset => return false,
            other @ Received::Frame { .. } => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_idle_sockets_live_because_of_pings() {
    let relay = RelayProcess::start(&PINGS).await;
    join_all(Example::ALL.map(async |example| {
        let proxy = example.start(relay.ready().public, IDLE_LIMIT_TEXT).await;
        let (mut desktop, mut phone) = pair(&proxy).await;
        let alive = tokio::join!(outlives(&mut desktop, IDLENESS), outlives(&mut phone, IDLENESS));
        assert_eq!(alive, (true, true), "{example:?}");
        round_trip(&mut phone, &mut desktop, "after").await;
    }))
    .await;
}

/// With the limits as they stand: this test takes its time to make and to check so much.
#[tokio::test(flavor = "multi_thread")]
async fn heavy_the_largest_messages_pass_each_proxy() {
    let relay = RelayProcess::start(&PINGS).await;
    for example in Example::ALL {
        let proxy = example.start(relay.ready().public, REAL_LIMIT).await;
        let (mut desktop, mut phone) = pair(&proxy).await;
        // It passes the proxy twice, once in each direction.
        phone.text(&request_of("large", LARGEST)).await;
        let received = next_of(&mut desktop, "rpc.request").await;
        assert!(received.len() > LARGEST, "{example:?}");
        desktop.text(&response(&received, "1")).await;
        assert_eq!(payload_field(&next_of(&mut phone, "rpc.response").await, "result"), "1", "{example:?}");
    }
}

/// What the test of pings says depends on the limits being there.
#[tokio::test(flavor = "multi_thread")]
async fn without_pings_each_proxy_cuts_what_is_idle() {
    let relay = RelayProcess::start(&NO_PINGS).await;
    join_all(Example::ALL.map(async |example| {
        let proxy = example.start(relay.ready().public, IDLE_LIMIT_TEXT).await;
        let (mut desktop, mut phone) = pair(&proxy).await;
        let begun = Instant::now();
        let alive = tokio::join!(outlives(&mut desktop, IDLENESS), outlives(&mut phone, IDLENESS));
        assert_eq!(alive, (false, false), "{example:?}");
        assert!(begun.elapsed() > IDLE_LIMIT / 2, "{example:?}");
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_relay_is_told_the_clients_address_and_nothing_that_it_invented() {
    // Stands where the relay stands, and shows what comes.
    let relay = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let relay_address = relay.local_addr().unwrap();
    let (heads, mut seen) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = relay.accept().await.unwrap();
            let heads = heads.clone();
            tokio::spawn(async move {
                let head = head(&mut stream).await;
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await.unwrap();
                if !head.starts_with("GET /readyz ") {
                    // The test may have ended.
                    let _ = heads.send(head);
                }
            });
        }
    });
    for example in Example::ALL {
        let proxy = example.start(relay_address, REAL_LIMIT).await;
        let client = TcpSocket::new_v4().unwrap();
        client.bind("127.0.0.9:0".parse().unwrap()).unwrap();
        let mut client = client.connect(proxy.address).await.unwrap();
        let upgrade = "GET /ws/device-link HTTP/1.1\r\nHost: relay\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer token\r\nX-Client-Type: desktop\r\n\
                       X-Forwarded-For: 203.0.113.7\r\nX-Forwarded-For: 203.0.113.8\r\n\r\n";
        client.write_all(upgrade.as_bytes()).await.unwrap();
        let came = timeout(PATIENCE, seen.recv()).await.expect("it is passed on").unwrap().to_ascii_lowercase();
        let values = |name: &str| -> Vec<String> {
            let named = came.lines().filter_map(|line| line.strip_prefix(&format!("{name}: ")));
            named.map(|value| value.trim().to_owned()).collect()
        };
        assert_eq!(values("x-forwarded-for"), ["127.0.0.9"], "{example:?}: {came}");
        for (name, value) in
            [("connection", "upgrade"), ("upgrade", "websocket"), ("authorization", "bearer token"), ("x-client-type", "desktop")]
        {
            assert_eq!(values(name), [value], "{example:?}: {came}");
        }
        assert!(came.starts_with("get /ws/device-link http/1.1\r\n"), "{example:?}: {came}");
    }
}

async fn head(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut bytes).await.unwrap() == 0 {
            break;
        }
    }
    String::from_utf8(bytes).unwrap()
}
