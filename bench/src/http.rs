//! Just enough HTTP/1.1 to post many small JSON bodies over a few connections that are kept.

use crate::{
    error::Error,
    link::{self, Window},
};
use bytes::BytesMut;
use futures_util::future::try_join_all;
use std::{
    net::SocketAddr,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Connections used side by side.
const CONNECTIONS: u32 = 8;

/// One request body with its headers.
pub struct Post {
    /// Headers beside those of the body itself.
    pub headers: Vec<(&'static str, String)>,
    /// JSON text.
    pub body: String,
}

/// Posts `count` bodies to `path`. The first answer outside of 2xx ends it.
pub async fn post_all(addr: SocketAddr, path: &str, count: u32, make: impl Fn(u32) -> Result<Post, Error>) -> Result<(), Error> {
    let next = AtomicU32::new(0);
    let lane = || async {
        let mut kept = None;
        loop {
            let index = next.fetch_add(1, Relaxed);
            if index >= count {
                return Ok::<(), Error>(());
            }
            let mut stream = match kept.take() {
                Some(stream) => stream,
                None => link::connect(addr, index, Window::Wide).await.map_err(Error::io("connect"))?,
            };
            if post(&mut stream, addr, path, make(index)?).await? {
                kept = Some(stream);
            }
        }
    };
    try_join_all((0..CONNECTIONS.min(count)).map(|_lane| lane())).await?;
    Ok(())
}

/// One request and its answer; true when the connection may be used again.
async fn post(stream: &mut TcpStream, addr: SocketAddr, path: &str, post: Post) -> Result<bool, Error> {
    let mut request =
        format!("POST {path} HTTP/1.1\r\nHost: {addr}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n", post.body.len());
    link::push_headers(&mut request, &post.headers);
    request.push_str(&post.body);
    stream.write_all(request.as_bytes()).await.map_err(Error::io("send a request"))?;

    let mut buffer = BytesMut::with_capacity(2048);
    let head = link::read_head(stream, &mut buffer, "an HTTP call").await?;
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let length = header(&head, "content-length").and_then(|value| value.parse::<usize>().ok());
    while buffer.len() < length.unwrap_or_default() {
        if stream.read_buf(&mut buffer).await.map_err(Error::io("read an answer"))? == 0 {
            return Err(Error::Closed { during: "an HTTP call" });
        }
    }
    let status = head.split_whitespace().nth(1).unwrap_or_default();
    if !status.starts_with('2') {
        return Err(Error::Refused {
            step: "device registration over HTTP",
            answer: format!("{status} {}", String::from_utf8_lossy(&buffer)),
        });
    }
    Ok(length.is_some() && header(&head, "connection") != Some("close"))
}

/// A header's value; `head` and `name` in lower case.
fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_found_by_its_whole_name() {
        let head = "http/1.1 201 created\r\nx-content-length: 9\r\ncontent-length: 12\r\n\r\n";
        assert_eq!(header(head, "content-length"), Some("12"));
        assert_eq!(header(head, "content"), None);
        assert_eq!(header(head, "connection"), None);
    }
}
