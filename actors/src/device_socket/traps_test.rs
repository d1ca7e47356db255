//! The kept TCP connection: what the kernel was told, and that it ends a connection whose owner stands still.

use super::tcp::TcpHandle;
use relay_protocol::limits::UNSENT_BYTES_MAX;
use socket2::SockRef;
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(7);

#[actix::test]
async fn trap_1_the_kernel_is_told_the_limit_and_the_kept_handle_ends_the_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (client, accepted) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
    let (mut client, (mut accepted, _)) = (client.unwrap(), accepted.unwrap());
    let handle = TcpHandle::keep(&accepted, UNACKNOWLEDGED_MAX).unwrap();
    assert_eq!(SockRef::from(&accepted).tcp_user_timeout().unwrap(), Some(UNACKNOWLEDGED_MAX));
    assert_eq!(SockRef::from(&accepted).tcp_notsent_lowat().unwrap(), UNSENT_BYTES_MAX);

    // The owner does nothing at all; both sides find the end nevertheless.
    handle.shut_down();
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    assert_eq!(accepted.read(&mut [0]).await.unwrap(), 0);
    assert!(accepted.write_all(b"x").await.is_err());
    // Once more, or after the end, does no harm.
    handle.shut_down();
}

#[actix::test]
async fn trap_1_what_is_no_tcp_connection_is_not_kept() {
    assert!(TcpHandle::keep(&"a string", UNACKNOWLEDGED_MAX).is_err());
}
