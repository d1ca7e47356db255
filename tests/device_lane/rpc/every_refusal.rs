//! Every refusal there is, provoked: a new variant does not compile here until somebody shows how a phone comes to see it.

use super::{Message, Peer, assert_pair_works, pair, request};
use crate::support::{
    PATIENCE,
    account::Account,
    raw_socket::{Frame, RawOptions, RawSocket},
    relay_process::RelayProcess,
    wire::registered,
};
use relay_protocol::{device::Role, error::RpcRefusal, limits::PENDING_PER_CLIENT_MAX};

/// Deadlines of one class are short, and lanes small.
const FLAGS: [&str; 3] = ["--pending-load=100ms", "--max-message=256KiB", "--outbound-limit=512KiB"];
/// As large as a request may be here, in bytes of params.
const LARGE: usize = 200 * 1024;

/// What a phone came to see.
enum Told {
    Answer(Message),
    /// No answer to the request, which was not forwarded, but this close of its socket.
    Close(u16, String),
}

/// Has a phone of a fresh account send requests of which the first answer is this refusal.
async fn provoke(relay: &RelayProcess, refusal: &RpcRefusal) -> Told {
    let (account, mut phone, mut desktop) = pair(relay).await;
    let answer = match refusal {
        RpcRefusal::RateLimited => {
            let relay = RelayProcess::start(&["--rate-burst=5", "--rate-per-second=1"]).await;
            let (_account, mut phone, _desktop) = pair(&relay).await;
            let ping = Frame::text(r#"{"type":"ping","payload":{}}"#).encode();
            phone.socket.write(&[ping.repeat(5), Frame::text(&request("\"x\"", "system.ping", "")).encode()].concat()).await;
            phone.next_response().await
        }
        RpcRefusal::InvalidRequest(_) => refused(&mut phone, "system.ping", r#","idempotencyKey":7"#).await,
        RpcRefusal::MethodNotFound => refused(&mut phone, "no.such", "").await,
        RpcRefusal::IdempotencyKeyRequired => refused(&mut phone, "session.create", "").await,
        RpcRefusal::InsufficientScope { .. } => {
            let bearer = account.with_token(&account.api_key("rpc,read").await.api_key);
            refused(&mut Peer::phone(&bearer, 0, 0).await, "session.create", "").await
        }
        RpcRefusal::InvalidParams(_) => refused(&mut phone, "session.syncHistoryState", r#","params":{},"idempotencyKey":"k""#).await,
        RpcRefusal::AuthorityChanging => return replaced_before_it_asks(&account, phone, desktop).await,
        RpcRefusal::DesktopReconnecting => {
            phone.request("\"x\"", "system.ping", "").await;
            desktop.next_request().await;
            desktop.socket.reset();
            phone.next().await
        }
        RpcRefusal::DesktopOffline => {
            account.devices().forget(account.desktops[0]).await.unwrap();
            refused(&mut phone, "system.ping", "").await
        }
        RpcRefusal::DuplicateRequest => {
            phone.request("\"x\"", "system.ping", "").await;
            refused(&mut phone, "system.ping", "").await
        }
        RpcRefusal::ConflictingRequest => {
            phone.request("\"x\"", "system.ping", "").await;
            refused(&mut phone, "system.ping", r#","params":1"#).await
        }
        RpcRefusal::TooManyPending { .. } => {
            for number in 0..PENDING_PER_CLIENT_MAX {
                phone.request(&format!("\"{number}\""), "system.ping", "").await;
            }
            refused(&mut phone, "system.ping", "").await
        }
        RpcRefusal::DesktopMoved => {
            let _frozen = frozen_desktop(&account).await;
            let params = format!(r#","params":"{}""#, "p".repeat(LARGE));
            // More than the kernel's buffers and the lane hold together.
            for number in 0..PENDING_PER_CLIENT_MAX {
                phone.request(&format!("\"{number}\""), "system.ping", &params).await;
            }
            phone.next().await
        }
        RpcRefusal::Expired => {
            phone.request("\"x\"", "run.chatLoad", "").await;
            desktop.next_request().await;
            phone.next().await
        }
    };
    Told::Answer(answer)
}

async fn refused(phone: &mut Peer, method: &str, more: &str) -> Message {
    phone.request("\"x\"", method, more).await;
    phone.next().await
}

/// The account's desktop, on a connection that reads nothing more.
async fn frozen_desktop(account: &Account) -> RawSocket {
    let mut options = RawOptions::device_link(&account.address, &account.token, Role::Desktop, None);
    options.receive_buffer_bytes = Some(4 * 1024);
    registered(&options, account.desktops[0]).await
}

/// The close that a replaced connection is sent comes before any answer to what it still sends.
async fn replaced_before_it_asks(account: &Account, mut phone: Peer, mut desktop: Peer) -> Told {
    let mut newer = Peer::phone(account, 0, 0).await;
    phone.socket.try_write(&Frame::text(&request("\"x\"", "system.ping", "")).encode(), PATIENCE).await;
    let (code, text) = phone.socket.closed(PATIENCE).await.expect("a replaced socket is closed");
    assert_pair_works(&mut newer, &mut desktop, "what a replaced connection asks").await;
    Told::Close(code, text)
}

impl Peer {
    /// The next response; pongs before it are passed over.
    async fn next_response(&mut self) -> Message {
        loop {
            let message = self.next().await;
            if message.kind == "rpc.response" {
                return message;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_refusal_of_a_request_is_seen_by_a_phone() {
    let relay = RelayProcess::start(&FLAGS).await;
    for refusal in RpcRefusal::ALL {
        match provoke(&relay, &refusal).await {
            Told::Answer(answer) => answer.assert_refused(answer.field("id"), refusal.code().into(), refusal.retryable()),
            Told::Close(code, text) => assert_eq!((code, text.as_str()), (4002, "replaced"), "{refusal:?}"),
        }
    }
}
