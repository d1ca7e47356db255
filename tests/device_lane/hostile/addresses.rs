//! How often an address may knock. Loopback is exempt, so these tests stand behind a trusted proxy that is on loopback.

use crate::support::{
    PATIENCE,
    account::Account,
    raw_socket::{Frame, RawOptions, RawSocket, Received, opcode},
    relay_process::RelayProcess,
    scale::scaled,
    wire::{eventually, registered},
};
use serde_json::Value;
use tokio::time::Instant;

const PROXY: &str = "--trusted-proxies=127.0.0.1/32";

/// As the proxy on loopback forwards it.
fn forwarded(options: &RawOptions, hops: &str) -> RawOptions {
    let mut options = options.clone();
    options.headers.push(("X-Forwarded-For".to_owned(), hops.to_owned()));
    options
}

fn with_bad_token(options: &RawOptions) -> RawOptions {
    let mut options = options.clone();
    options.headers[0].1 = "Bearer bad".to_owned();
    options
}

/// The status of an upgrade attempt.
async fn attempt(options: &RawOptions) -> u16 {
    match RawSocket::try_open(options).await {
        Ok(_) => 101,
        Err(answer) => answer["HTTP/1.1 ".len()..][..3].parse().unwrap(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_has_its_burst_and_is_told_when_to_come_back() {
    let relay = RelayProcess::start(&[PROXY, "--handshake-burst-per-address=5", "--handshakes-per-address=1"]).await;
    let account = Account::new(&relay, 1, 0).await;
    let (desktop, start) = (account.raw_desktop(), Instant::now());
    let bad = with_bad_token(&desktop);
    let mut judged = 0;
    // What stands in front of the client's own address is the client's invention.
    while attempt(&forwarded(&bad, &format!("203.0.113.{judged}, 198.51.100.7"))).await == 401 {
        judged += 1;
    }
    assert!((5..=5 + start.elapsed().as_secs()).contains(&judged), "{judged} attempts were judged");
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let call = async |path: &str, hop: &str| {
        let request = client.get(format!("http://{}{path}", relay.ready().public)).bearer_auth("bad");
        request.header("X-Forwarded-For", hop).send().await.unwrap()
    };
    let refused = call("/ws/device-link", "198.51.100.7").await;
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &"1".parse().unwrap()));
    let error: Value = refused.json().await.unwrap();
    assert_eq!((&error["error"]["code"], &error["error"]["retryable"]), (&"tooManyHandshakes".into(), &true.into()));

    // Nobody else is refused: another address, the proxy itself, and who has a valid token.
    for options in [forwarded(&bad, "198.51.100.8"), bad.clone()] {
        assert_eq!(attempt(&options).await, 401);
    }
    registered(&forwarded(&desktop, "198.51.100.7"), account.desktops[0]).await;
    // What is no upgrade, and calls without a valid token, take from one bucket too.
    for (path, status) in [("/ws/device-link", 400), ("/api/devices", 401)].into_iter().cycle().take(4) {
        assert_eq!(call(path, "198.51.100.9").await.status().as_u16(), status);
    }
    eventually("calls are refused too", async || call("/api/devices", "198.51.100.9").await.status() == 429).await;
    eventually("a token comes back", async || attempt(&forwarded(&bad, "198.51.100.7")).await == 401).await;
}

/// C86: phones behind one address that come and go, and somebody beside them who tries tokens.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_bad_tokens_locks_no_phone_out_that_shares_its_address() {
    let relay = RelayProcess::start(&[PROXY, "--handshake-burst-per-address=20", "--handshakes-per-address=5"]).await;
    let mut accounts = Vec::new();
    for _ in 0..10 {
        accounts.push(Account::new(&relay, 1, 3).await);
    }
    let hop = "198.51.100.7";
    let bad = forwarded(&with_bad_token(&accounts[0].raw_desktop()), hop);
    let flood = tokio::spawn(async move {
        let mut limited = 0;
        loop {
            limited += usize::from(attempt(&bad).await == 429);
            if limited >= 50 {
                return;
            }
        }
    });
    tokio::time::timeout(PATIENCE, flood).await.expect("the flood is limited").unwrap();
    // Three phones of an account stay within its burst.
    for _ in 0..scaled(2, 6) {
        for account in &accounts {
            for phone in &account.phones {
                registered(&forwarded(&account.raw_phone(), hop), *phone).await;
            }
        }
    }
}

/// C85: a full bucket for each new connection, but only so many connections.
#[tokio::test(flavor = "multi_thread")]
async fn reconnecting_buys_no_more_messages_than_the_handshakes_allow() {
    const MESSAGES: usize = 10;
    let flags = [PROXY, "--handshake-burst-per-address=5", "--handshakes-per-address=1", "--rate-burst=10", "--rate-per-second=1"];
    let relay = RelayProcess::start(&flags).await;
    let account = Account::new(&relay, 1, 1).await;
    let (options, start) = (forwarded(&account.raw_phone(), "198.51.100.7"), Instant::now());
    let (mut opened, mut answered) = (0, 0);
    for _ in 0..50 {
        let Ok(mut socket) = RawSocket::try_open(&options).await else { continue };
        opened += 1;
        // A message each, and one more than the burst; each that was taken is answered.
        let ping = Frame::text(r#"{"type":"ping","payload":{}}"#).encode();
        socket.write(&ping.repeat(MESSAGES + 1)).await;
        socket.frame(&Frame::close(1000, "")).await;
        loop {
            match socket.read(PATIENCE).await {
                Received::Frame { opcode: opcode::TEXT, .. } => answered += 1,
                Received::Frame { .. } => {}
                Received::End | Received::EndInsideFrame | Received::Reset | Received::Nothing => break,
            }
        }
    }
    let passed = usize::try_from(start.elapsed().as_secs()).unwrap() + 1;
    assert!((5..=5 + passed).contains(&opened), "{opened} of 50 were opened in {passed} s");
    assert!(answered <= opened * MESSAGES + passed, "{answered} messages over {opened} connections");
}
