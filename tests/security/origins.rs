//! C90: no `Origin` opens a socket and none keeps one shut, because nothing that a browser adds by itself proves an account. A page of
//! another origin has the visitor's cookies at best, and they are not looked at; it cannot read an answer either.

use super::exchange;
use crate::support::{account::Account, relay_process::RelayProcess, token::fresh_user};

const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nX-Client-Type: desktop\r\n";

const ORIGINS: [&str; 7] = [
    "",
    "Origin: https://foreign.test\r\n",
    "Origin: null\r\n",
    "Origin: file://\r\n",
    "Origin: https://foreign.test https://relay\r\n",
    "Origin: https://foreign.test\r\nOrigin: https://relay\r\n",
    "Origin: http://relay\r\nSec-Fetch-Site: cross-site\r\n",
];

/// Whatever lets a page of another origin read an answer, or come back with something that was set.
fn assert_for_no_page(answer: &str) {
    let head = answer.split("\r\n\r\n").next().unwrap().to_ascii_lowercase();
    for header in ["access-control-", "set-cookie:", "sec-websocket-protocol:"] {
        assert!(!head.contains(header), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_opens_for_the_bearer_token_whatever_the_origin_and_the_cookies() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 0).await;
    let token = &account.token;
    for origin in ORIGINS {
        for cookie in ["", &format!("Cookie: token={token}; Authorization=Bearer {token}\r\n")] {
            let call = async |headers: &str, target: &str| {
                let headers = format!("{UPGRADE}{origin}{cookie}{headers}");
                let answer = exchange(relay.ready().public, &format!("GET {target}"), &headers, "").await;
                assert_for_no_page(&answer);
                assert!(!answer.contains(token.as_str()), "{answer}");
                answer.split(' ').nth(1).unwrap().to_owned()
            };
            let bearer = format!("Authorization: Bearer {token}\r\n");
            assert_eq!(call(&bearer, "/ws/device-link").await, "101", "{origin:?} {cookie:?}");
            // All that a page can send with a websocket: its address, and subprotocols.
            assert_eq!(call("", "/ws/device-link").await, "401", "{origin:?} {cookie:?}");
            for target in [format!("/ws/device-link?token={token}"), format!("/ws/device-link?access_token={token}&authorization={token}")]
            {
                assert_eq!(call("", &target).await, "401", "{origin:?} {cookie:?}");
            }
            let subprotocol = format!("Sec-WebSocket-Protocol: bearer, {token}\r\n");
            assert_eq!(call(&subprotocol, "/ws/device-link").await, "401", "{origin:?} {cookie:?}");
            assert_eq!(call(&(subprotocol + &bearer), "/ws/device-link").await, "101", "{origin:?} {cookie:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_page_of_another_origin_reads_an_answer_or_may_send_a_token() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 0).await;
    let (user, admin) = (&account.token, &relay.admin_token());
    let page = "Origin: https://foreign.test\r\n";
    for (address, path, token) in [
        (relay.ready().public, "/api/devices", user),
        (relay.ready().public, "/livez", user),
        (relay.ready().admin, "/admin/connections", admin),
    ] {
        let bearer = format!("{page}Connection: close\r\nAuthorization: Bearer {token}\r\n");
        let answered = exchange(address, &format!("GET {path}"), &bearer, "").await;
        assert!(answered.starts_with("HTTP/1.1 200"), "{answered}");
        assert_for_no_page(&answered);
        let asks =
            format!("{page}Connection: close\r\nAccess-Control-Request-Method: GET\r\nAccess-Control-Request-Headers: authorization\r\n");
        let asked = exchange(address, &format!("OPTIONS {path}"), &asks, "").await;
        assert!(asked.starts_with("HTTP/1.1 4"), "{asked}");
        assert_for_no_page(&asked);
        for cookie in [format!("Cookie: token={token}\r\n"), format!("Cookie: Authorization=Bearer {token}\r\n")] {
            let headers = format!("{page}Connection: close\r\n{cookie}");
            let by_cookie = exchange(address, &format!("GET {path}?token={token}"), &headers, "").await;
            assert!(by_cookie.starts_with("HTTP/1.1 401") || path == "/livez", "{by_cookie}");
            assert!(!by_cookie.contains(token.as_str()), "{by_cookie}");
        }
    }
    // A form needs no permission to be sent, and is worth nothing without a token.
    let form = format!("{page}Content-Type: text/plain\r\nConnection: close\r\n");
    let body = format!(r#"{{"user":"{}"}}"#, fresh_user());
    for (address, path) in [(relay.ready().public, "/api/auth/logout"), (relay.ready().public, "/api/devices")] {
        let posted = exchange(address, &format!("POST {path}"), &form, &body).await;
        assert!(posted.starts_with("HTTP/1.1 401"), "{posted}");
    }
}
