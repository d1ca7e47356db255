//! Tokens of an issuer: its keys come late, rotate, cannot be had, and sockets do not depend on them once they are open.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use crate::support::{
    PATIENCE,
    account::Account,
    issuer::{Answer, Issuer, tls_file},
    raw_socket::{RawOptions, RawSocket},
    relay_process::RelayProcess,
    scale::scaled,
    signing_keys::{P256_A, P256_B, RSA_A, SigningKey},
    token::epoch_s,
    wire::registered,
};
use futures_util::future::join_all;
use relay_protocol::device::Role;
use serde_json::{Value, json};
use std::{net::SocketAddr, time::Duration};
use tokio::time::{Instant, sleep};

const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// What the relay tolerates between clocks, see `JWT_LEEWAY`.
const LEEWAY_S: i64 = 30;

/// A token of this account.
fn token(account: &Account, key: SigningKey, kid: Option<&str>, expires_in_s: i64) -> String {
    key.sign(kid, &json!({"sub": account.user, "exp": epoch_s() + expires_in_s}))
}

fn options(account: &Account, token: &str) -> RawOptions {
    RawOptions::device_link(&account.address, token, Role::Desktop, None)
}

/// The status of a call with this token, its `Retry-After`, and its body.
async fn call(relay: &RelayProcess, token: &str) -> (u16, Option<String>, Value) {
    call_at(relay.ready().public, token).await
}

async fn call_at(relay: SocketAddr, token: &str) -> (u16, Option<String>, Value) {
    let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().unwrap();
    let url = format!("http://{relay}/api/devices");
    let answer = client.get(url).bearer_auth(token).send().await.unwrap();
    let retry_after = answer.headers().get("Retry-After").map(|value| value.to_str().unwrap().to_owned());
    (answer.status().as_u16(), retry_after, answer.json().await.unwrap())
}

async fn status(relay: &RelayProcess, token: &str) -> u16 {
    call(relay, token).await.0
}

async fn until_status(relay: &RelayProcess, token: &str, wanted: u16) {
    let deadline = Instant::now() + PATIENCE;
    while status(relay, token).await != wanted {
        assert!(Instant::now() < deadline, "never {wanted}");
        sleep(POLL_INTERVAL).await;
    }
}

async fn until_logged(relay: &RelayProcess, text: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !relay.log().contains(text) {
        assert!(Instant::now() < deadline, "{text:?} was never logged");
        sleep(POLL_INTERVAL).await;
    }
}

async fn pings(socket: &mut RawSocket) {
    socket.text(r#"{"type":"ping","payload":{}}"#).await;
    assert_eq!(socket.next_text().await, r#"{"type":"pong","payload":{}}"#);
}

#[tokio::test(flavor = "multi_thread")]
async fn until_the_keys_have_come_their_tokens_are_to_be_tried_again() {
    let mut issuer = Issuer::away();
    let relay = RelayProcess::start(&["--jwks", &issuer.url()]).await;
    let account = Account::new(&relay, 1, 0).await;
    let token = token(&account, RSA_A, Some("a"), 3600);

    let (status, retry_after, body) = call(&relay, &token).await;
    assert_eq!((status, retry_after.as_deref()), (503, Some("1")));
    assert_eq!((&body["error"]["code"], &body["error"]["retryable"]), (&json!("keysUnavailable"), &json!(true)));
    let refusal = RawSocket::try_open(&options(&account, &token)).await.err().unwrap();
    assert!(refusal.starts_with("HTTP/1.1 503") && refusal.to_lowercase().contains("retry-after"), "{refusal}");
    assert!(RawSocket::try_open(&options(&account, &account.token)).await.is_ok(), "a secret needs no issuer");
    until_logged(&relay, "WARN relay::http::auth::jwks: the keys of account tokens cannot be read").await;

    issuer.publish(&[RSA_A.jwk("a")]);
    issuer.come_up();
    until_status(&relay, &token, 200).await;
    let _socket = registered(&options(&account, &token), account.desktops[0]).await;
    until_logged(&relay, "can be read again").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn however_many_unknown_keys_are_named_the_issuer_is_asked_once() {
    let issuer = Issuer::start(Answer::Keys(vec![P256_A.jwk("a")]));
    let relay = RelayProcess::start(&["--jwks", &issuer.url()]).await;
    let account = Account::new(&relay, 1, 0).await;
    until_status(&relay, &token(&account, P256_A, Some("a"), 3600), 200).await;
    assert_eq!(issuer.requests(), 1, "tokens that came before the keys waited for the same read");

    let unknown: Vec<String> =
        (0..scaled(100, 1000)).map(|index| token(&account, P256_B, Some(&format!("unknown-{index}")), 3600)).collect();
    let answers = join_all(unknown.iter().map(|token| status(&relay, token))).await;
    assert!(answers.iter().all(|status| *status == 401), "{answers:?}");
    assert_eq!(issuer.requests(), 2);
    assert_eq!((status(&relay, &unknown[0]).await, issuer.requests()), (401, 2), "nor again soon");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_is_noticed_and_a_socket_outlives_its_tokens_expiry_and_its_key() {
    let issuer = Issuer::start(Answer::Keys(vec![P256_A.jwk("old")]));
    let relay = RelayProcess::start(&["--jwks", &issuer.url()]).await;
    let account = Account::new(&relay, 1, 0).await;
    // Long enough to open the socket on a slow machine, short enough to see it expire.
    let old = token(&account, P256_A, Some("old"), 5 - LEEWAY_S);
    let lasting = token(&account, P256_A, Some("old"), 3600);
    let mut socket = registered(&options(&account, &old), account.desktops[0]).await;
    until_status(&relay, &old, 401).await;
    assert_eq!(status(&relay, &lasting).await, 200, "the token has expired, not its key");

    issuer.publish(&[P256_B.jwk("new")]);
    assert_eq!(status(&relay, &token(&account, P256_B, Some("new"), 3600)).await, 200);
    assert_eq!(status(&relay, &lasting).await, 401);
    pings(&mut socket).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issuer_that_fails_later_leaves_its_keys_in_use() {
    let issuer = Issuer::start(Answer::Keys(vec![P256_A.jwk("a")]));
    let relay = RelayProcess::start(&["--jwks", &issuer.url()]).await;
    let account = Account::new(&relay, 1, 0).await;
    let (known, unknown) = (token(&account, P256_A, Some("a"), 3600), token(&account, P256_B, Some("b"), 3600));
    until_status(&relay, &known, 200).await;
    issuer.set(Answer::other("500 Internal Server Error", "{}"));
    assert_eq!(status(&relay, &unknown).await, 503, "who knows whether the key exists");
    assert_eq!(status(&relay, &known).await, 200);
    issuer.publish(&[P256_A.jwk("a")]);
    until_status(&relay, &unknown, 401).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_set_of_keys_is_told_and_bounded() {
    let elsewhere = Issuer::start(Answer::Keys(vec![P256_A.jwk("a")]));
    for (answer, logged) in [
        (Answer::other("404 Not Found", "{}"), "answered 404"),
        (Answer::other(&format!("302 Found\r\nLocation: {}", elsewhere.url()), ""), "answered 302"),
        (Answer::other("200 OK", "<html>"), "not a JWK set"),
        (Answer::other("200 OK", &json!({"keys": vec![json!({}); 101]}).to_string()), "101 keys"),
        (Answer::Endless, "larger than 1048576 bytes"),
    ] {
        is_told_and_gets_over(answer, logged).await;
    }
    assert_eq!(elsewhere.requests(), 0, "a redirect is not followed");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issuer_that_does_not_answer_holds_its_tokens_only_and_not_for_long() {
    is_told_and_gets_over(Answer::Silence, "no answer within 5 s").await;
}

/// A relay that starts with this answer says so, and takes the issuer's tokens once it gets a better one.
async fn is_told_and_gets_over(answer: Answer, logged: &str) {
    let issuer = Issuer::start(answer);
    let relay = RelayProcess::start(&["--jwks", &issuer.url()]).await;
    let account = Account::new(&relay, 0, 0).await;
    let token = token(&account, P256_A, Some("a"), 3600);
    let waiting = {
        let (address, token) = (relay.ready().public, token.clone());
        tokio::spawn(async move { call_at(address, &token).await.0 })
    };
    assert_eq!(status(&relay, &account.token).await, 200, "{logged}: others are served meanwhile");
    assert_eq!(waiting.await.unwrap(), 503, "{logged}");
    until_logged(&relay, logged).await;
    issuer.publish(&[P256_A.jwk("a")]);
    until_status(&relay, &token, 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_https_issuer_must_have_a_certificate_of_a_trusted_authority() {
    let issuer = Issuer::start_tls(Answer::Keys(vec![P256_A.jwk("a")]));
    for (authority, expected) in [("other-ca.pem", 503), ("issuer-ca.pem", 200)] {
        let roots = tls_file(authority);
        let environment = [("SSL_CERT_FILE", roots.to_str().unwrap())];
        let relay = RelayProcess::start_in(&environment, &["--jwks", &issuer.url()]).await;
        let account = Account::new(&relay, 0, 0).await;
        let token = token(&account, P256_A, Some("a"), 3600);
        assert_eq!(status(&relay, &token).await, expected, "{authority}");
        if expected == 503 {
            until_logged(&relay, "invalid peer certificate").await;
        }
    }
    assert_eq!(issuer.requests(), 1, "nothing was asked of the one that is not trusted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_without_kid_is_taken_while_one_key_fits() {
    let issuer = Issuer::start(Answer::Keys(vec![P256_A.bare_jwk(), RSA_A.jwk("r")]));
    let relay = RelayProcess::start(&["--jwks", &issuer.url()]).await;
    let account = Account::new(&relay, 0, 0).await;
    for (key, kid, expected) in
        [(P256_A, None, 200), (RSA_A, None, 200), (RSA_A, Some("r"), 200), (P256_B, None, 401), (P256_A, Some("r"), 401)]
    {
        assert_eq!(status(&relay, &token(&account, key, kid, 3600)).await, expected, "{kid:?}");
    }
}
