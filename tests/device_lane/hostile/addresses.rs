//! How often an address may knock. Loopback is exempt, so these tests stand behind a trusted proxy that is on loopback.

use crate::support::{
    PATIENCE,
    account::Account,
    raw_socket::{Frame, RawOptions, RawSocket, Received, opcode},
    relay_process::RelayProcess,
    token::token_for,
    wire::{eventually, next_of, payload_field, registered, request, response},
};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

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

/// Nobody proves who they are when they ask whether they are compatible.
#[tokio::test(flavor = "multi_thread")]
async fn compatibility_checks_take_from_the_bucket_of_their_address_whatever_they_carry() {
    let relay = RelayProcess::start(&[PROXY, "--handshake-burst-per-address=5", "--handshakes-per-address=1"]).await;
    let account = Account::new(&relay, 1, 0).await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let check = async |hop: &str, token: &str| {
        let request = client.post(format!("http://{}/public/compatibility/check", relay.ready().public)).bearer_auth(token);
        request.header("X-Forwarded-For", hop).body("{}").send().await.unwrap()
    };
    let token = token_for(account.user);
    for token in [&token, "bad"].into_iter().cycle().take(4) {
        assert_eq!(check("198.51.100.7", token).await.status(), 200);
    }
    eventually("checks are refused", async || {
        let refused = check("198.51.100.7", &token).await;
        refused.status() == 429 && refused.headers()["retry-after"] == "1"
    })
    .await;
    assert_eq!(attempt(&forwarded(&with_bad_token(&account.raw_desktop()), "198.51.100.7")).await, 429, "the same bucket");
    assert_eq!(check("198.51.100.8", "bad").await.status(), 200);
}

/// C86: phones behind one address that come and go with their sessions, and beside them, all the while, somebody who tries tokens.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_bad_tokens_locks_no_phone_out_that_shares_its_address() {
    const ACCOUNTS: usize = 10;
    const PHONES: usize = 3;
    /// As often as people look at their phones in a busy minute.
    const RETURNS: usize = 12;
    let relay = RelayProcess::start(&[PROXY, "--handshake-burst-per-address=50", "--handshakes-per-address=5"]).await;
    let mut accounts = Vec::new();
    for _ in 0..ACCOUNTS {
        accounts.push(Account::new(&relay, 1, PHONES).await);
    }
    let hop = "198.51.100.7";
    let bad = forwarded(&with_bad_token(&accounts[0].raw_desktop()), hop);
    let (limited, mut flooded) = watch::channel(0);
    let flood = tokio::spawn(async move {
        loop {
            match RawSocket::try_open(&bad).await.err().expect("no upgrade").to_ascii_lowercase() {
                answer if answer.starts_with("http/1.1 429 ") => {
                    assert!(answer.contains("\r\nretry-after: 1\r\n"), "it says when: {answer}");
                    limited.send_modify(|count| *count += 1);
                }
                answer => assert!(answer.starts_with("http/1.1 401 "), "{answer}"),
            }
        }
    });
    timeout(PATIENCE, flooded.wait_for(|count| *count >= 50)).await.expect("the flood is limited").unwrap();
    let phones = accounts.iter().flat_map(|account| account.phones.iter().map(move |phone| (account.raw_phone(), *phone)));
    let phones = phones.map(|(options, phone)| async move {
        let options = forwarded(&options, hop);
        let mut socket = RawSocket::open(&options).await;
        let before = socket.register(phone).await;
        for _ in 0..RETURNS {
            // It goes to the background: the connection is lost.
            socket.reset();
            socket = RawSocket::open(&options).await;
            let resume = json!({"deviceId": phone, "relayProtocolVersion": "1.7", "sessionId": before["sessionId"],
                "resumeToken": before["resumeToken"]});
            socket.text(&json!({"type": "register", "payload": resume}).to_string()).await;
            let answer = next_of(&mut socket, "resumed").await;
            assert_eq!(payload_field(&answer, "sessionId"), before["sessionId"].to_string());
        }
    });
    join_all(phones).await;
    assert!(!flood.is_finished() && *flooded.borrow_and_update() > 50, "it went on all the while");
    flood.abort();
}

/// C85: each connection has a full bucket, whether it resumes or not, and so has each of ten at once; what bounds them all is how many
/// the account may open. Who answers is not starved by it.
#[tokio::test(flavor = "multi_thread")]
async fn phones_that_come_back_for_fresh_buckets_get_as_many_as_their_account_may_open() {
    const BURST: usize = 10;
    const HANDSHAKES: usize = 10;
    let flags = ["--handshake-burst-per-address=10", "--handshakes-per-address=1", "--rate-burst=10", "--rate-per-second=1"];
    let relay = RelayProcess::start(&[&[PROXY][..], &flags].concat()).await;
    let account = Account::new(&relay, 1, 10).await;
    // From an address of its own, as machines at home are for phones on the road.
    let mut desktop = registered(&account.raw_desktop(), account.desktops[0]).await;
    let (options, start) = (forwarded(&account.raw_phone(), "198.51.100.7"), Instant::now());
    let (mut opened, mut delivered, mut sessions) = (0, 0, vec![None; account.phones.len()]);
    let mut sockets = Vec::new();
    for attempt in 0..50 {
        let index = attempt % account.phones.len();
        let Ok(mut socket) = RawSocket::try_open(&options).await else { continue };
        opened += 1;
        let mut register = json!({"deviceId": account.phones[index], "relayProtocolVersion": "1.7"});
        if let Some(resume) = sessions[index].take() {
            register.as_object_mut().unwrap().extend::<serde_json::Map<String, Value>>(resume);
        }
        socket.text(&json!({"type": "register", "payload": register}).to_string()).await;
        let answer: Value = serde_json::from_str(&socket.next_text().await).unwrap();
        let resume = ["sessionId", "resumeToken"].map(|field| (field.to_owned(), answer["payload"][field].clone()));
        sessions[index] = (index % 2 == 0).then(|| resume.into_iter().collect());
        for number in 0..=BURST {
            socket.text(&request(&format!("{attempt}-{number}"), "1")).await;
        }
        // What came after the burst is refused by the relay; what came before it is answered by the desktop.
        loop {
            let next = tokio::select! { biased; asked = desktop.next_text() => Ok(asked), told = socket.next_text() => Err(told) };
            match next {
                Ok(asked) if asked.starts_with(r#"{"type":"rpc.request""#) => {
                    delivered += 1;
                    desktop.text(&response(&asked, "2")).await;
                }
                Err(told) if told.contains("-32028") => break,
                Ok(_) | Err(_) => {}
            }
        }
        sockets.push(socket);
    }
    let passed = usize::try_from(start.elapsed().as_secs()).unwrap() + 1;
    assert!((HANDSHAKES..=HANDSHAKES + passed).contains(&opened), "{opened} of 50 were opened in {passed} s");
    let stated = opened * (BURST + passed);
    assert!((opened..=stated).contains(&delivered), "{delivered} requests over {opened} connections");
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
