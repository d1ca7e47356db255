//! When bytes last came in: silence is the absence of bytes, not of whole messages. A message of 32 MiB over a slow line must
//! not count as silence.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::Instant,
};

/// The time of the last byte, shared between the stream that sees it and the receiver that judges it.
#[derive(Clone, Debug)]
pub(crate) struct LastInbound(Arc<Mutex<Instant>>);

impl LastInbound {
    pub(crate) fn get(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn touch(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }
}

/// A TCP stream that notes when bytes come in.
#[derive(Debug)]
pub(crate) struct Watched {
    stream: TcpStream,
    last: LastInbound,
}

impl Watched {
    /// Counts from now.
    pub(crate) fn new(stream: TcpStream) -> (Self, LastInbound) {
        let last = LastInbound(Arc::new(Mutex::new(Instant::now())));
        (Watched { stream, last: last.clone() }, last)
    }
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.last.touch();
        }
        polled
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
