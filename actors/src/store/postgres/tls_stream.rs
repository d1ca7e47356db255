//! What tokio-postgres wants of a TLS implementation, by tokio-rustls.
//!
//! Without channel binding: it protects a password against a server that is not who it says, and where that matters the certificate
//! is verified. The published adapter computes it, for the price of a second ASN.1 stack.

use rustls::{
    ClientConfig,
    pki_types::{InvalidDnsNameError, ServerName},
};
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::{TlsConnector, client};

#[derive(Clone)]
pub(super) struct Connector(pub(super) Arc<ClientConfig>);

/// The handshake with one server.
pub(super) struct Handshake {
    connector: TlsConnector,
    /// None on a socket of the file system, where no server offers TLS.
    server: Option<ServerName<'static>>,
}

pub(super) struct EncryptedStream<S>(client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Connector {
    type Stream = EncryptedStream<S>;
    type TlsConnect = Handshake;
    type Error = InvalidDnsNameError;

    /// Called before it is known whether the server wants TLS, with an empty name where there is none.
    fn make_tls_connect(&mut self, host: &str) -> Result<Handshake, InvalidDnsNameError> {
        let server = if host.is_empty() { None } else { Some(ServerName::try_from(host.to_owned())?) };
        Ok(Handshake { connector: TlsConnector::from(Arc::clone(&self.0)), server })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Handshake {
    type Stream = EncryptedStream<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<EncryptedStream<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let server = self.server.ok_or_else(|| io::Error::other("the server has no name to verify"))?;
            self.connector.connect(server, stream).await.map(EncryptedStream)
        })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for EncryptedStream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for EncryptedStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for EncryptedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
