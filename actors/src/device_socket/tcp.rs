//! The kept TCP connection of a socket, taken when it was accepted.

use actix_tls::accept::rustls_0_23::TlsStream;
use relay_protocol::limits::UNSENT_BYTES_MAX;
use socket2::{SockRef, Socket};
use std::{any::Any, io, net::Shutdown, os::fd::AsFd, time::Duration};
use tokio::net::TcpStream;

/// A second descriptor of an accepted connection: good for ending it while the server's own is out of reach.
#[derive(Debug)]
pub struct TcpHandle(Socket);

impl TcpHandle {
    /// Keeps the connection, plain or under TLS, that `HttpServer::on_connect` shows, and has the kernel end it when sent bytes stay unacknowledged for
    /// `unacknowledged_max`: a peer that vanished while something is on its way to it. The kernel takes little ahead of what it can
    /// send, and tells soon when it has sent some: by default it waits until a third of a buffer of megabytes is free, and a peer that
    /// reads slowly would look like one that does not read.
    ///
    /// # Errors
    /// When the process is out of descriptors, or this is no TCP connection.
    pub fn keep(connection: &dyn Any, unacknowledged_max: Duration) -> io::Result<Self> {
        let under_tls = || connection.downcast_ref::<TlsStream<TcpStream>>().map(|stream| stream.get_ref().0);
        let stream = connection.downcast_ref::<TcpStream>().or_else(under_tls);
        let stream = stream.ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, "not a TCP connection"))?;
        let socket = SockRef::from(stream);
        socket.set_tcp_user_timeout(Some(unacknowledged_max))?;
        socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
        Ok(TcpHandle(stream.as_fd().try_clone_to_owned()?.into()))
    }

    /// Ends the connection both ways.
    pub(super) fn shut_down(&self) {
        if let Err(error) = self.0.shutdown(Shutdown::Both) {
            // Already gone; that is what was wanted.
            tracing::trace!(%error, "tcp connection had ended");
        }
    }
}
