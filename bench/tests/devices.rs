//! What the generator asks of the relay over HTTP before sockets open, against a scripted server.

use relay_bench::{
    Error,
    peer::Peer,
    target::{Kin, Target},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

const CREATED: &str = "HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}";
const CREATED_AND_CLOSED: &str = "HTTP/1.1 201 Created\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}";

/// Reads one request with its body.
async fn read_request(stream: &mut TcpStream) -> String {
    let mut request = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).expect("a length");
            if body.len() == length.parse::<usize>().expect("a number") {
                return text;
            }
        }
        assert_ne!(stream.read_buf(&mut request).await.expect("a request"), 0, "closed inside a request: {text}");
    }
}

async fn scripted() -> (TcpListener, Target) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let addr = listener.local_addr().expect("an address");
    (listener, Target { addr, kin: Kin::Relay { jwt_secret: "0123456789abcdef0123456789abcdef".into() } })
}

#[tokio::test]
async fn each_peer_gets_its_device_row() {
    let (listener, target) = scripted().await;
    let peers = [Peer::desktop(0), Peer::phone(0)];
    let serve = async {
        let mut requests = Vec::new();
        // The two lanes each bring one request.
        let (mut first, _) = listener.accept().await.expect("a connection");
        let (mut second, _) = listener.accept().await.expect("a connection");
        for stream in [&mut first, &mut second] {
            requests.push(read_request(stream).await);
            stream.write_all(CREATED.as_bytes()).await.expect("answered");
        }
        requests
    };
    let (prepared, mut requests) = tokio::join!(target.prepare(&peers), serve);
    prepared.expect("all rows were created");
    requests.sort_by_key(|request| request.contains(r#""role":"mobile""#));
    for (peer, request) in peers.into_iter().zip(&requests) {
        assert!(request.starts_with("POST /api/devices HTTP/1.1\r\n"), "{request}");
        assert!(request.contains("Authorization: Bearer ey"), "{request}");
        assert!(request.contains(&peer.device()), "{request}");
    }
}

#[tokio::test]
async fn a_connection_is_kept_until_the_server_closes_it() {
    let (listener, target) = scripted().await;
    // One row more than there are lanes, so that one lane has two to create.
    let peers: Vec<Peer> = (0..9).map(Peer::desktop).collect();
    let serve = async {
        let mut streams = Vec::new();
        for _ in 0..8 {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            read_request(&mut stream).await;
            streams.push(stream);
        }
        let mut kept = streams.pop().expect("eight of them");
        kept.write_all(CREATED.as_bytes()).await.expect("answered");
        let ninth = read_request(&mut kept).await;
        kept.write_all(CREATED_AND_CLOSED.as_bytes()).await.expect("answered");
        for stream in &mut streams {
            stream.write_all(CREATED_AND_CLOSED.as_bytes()).await.expect("answered");
        }
        ninth
    };
    let (prepared, ninth) = tokio::join!(target.prepare(&peers), serve);
    prepared.expect("all rows were created");
    assert!(ninth.contains(&Peer::desktop(8).device()), "{ninth}");
}

#[tokio::test]
async fn a_refused_row_ends_the_run_with_the_server_s_words() {
    let (listener, target) = scripted().await;
    let serve = async {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        read_request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 409 Conflict\r\ncontent-length: 23\r\n\r\n{\"deviceOwnershipFailed").await.expect("answered");
        stream
    };
    let peers = [Peer::desktop(0)];
    let (prepared, _stream) = tokio::join!(target.prepare(&peers), serve);
    let Err(Error::Refused { answer, .. }) = prepared else { panic!("a refusal was taken for success") };
    assert_eq!(answer, r#"409 {"deviceOwnershipFailed"#);
}
