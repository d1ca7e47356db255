//! What keeps strangers out and secrets in, shown on the real binary.
//!
//! | module | shows |
//! | --- | --- |
//! | `tls` | the public listener under TLS: versions, renewal, stalled peers, handshakes that do not end |
//! | `origins` | who opens a socket is decided by the token alone |
//! | `redaction` | what comes out while markers stand in every secret and payload |
//! | `noise` | health and other accounts beside an account at line rate |

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

#[path = "../support/mod.rs"]
mod support;

mod noise;
mod origins;
mod redaction;
mod tls;

use std::net::SocketAddr;
use support::PATIENCE;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// A request with these header lines, each ended, to this address.
async fn exchange(address: SocketAddr, request_line: &str, headers: &str, body: &str) -> String {
    let request = format!("{request_line} HTTP/1.1\r\nHost: relay\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len());
    answer(TcpStream::connect(address).await.unwrap(), &request).await
}

/// What comes back for these bytes: all of it, or the head where a websocket opens.
async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> String {
    let exchanged = timeout(PATIENCE, async {
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !(answer.starts_with(b"HTTP/1.1 101") && answer.windows(4).any(|window| window == b"\r\n\r\n")) {
            if stream.read_buf(&mut answer).await.unwrap() == 0 {
                break;
            }
        }
        answer
    });
    String::from_utf8_lossy(&exchanged.await.expect("an answer comes")).into_owned()
}
