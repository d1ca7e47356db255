//! A plain way in to a relay that speaks TLS: sockets that write their frames by hand go through here as they are.

use super::relay_process::RelayProcess;
use relay_endpoints::address::RelayAddress;
use rustls::{
    ClientConfig, RootCertStore, SupportedProtocolVersion,
    client::Resumption,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
    version::{TLS12, TLS13},
};
use std::{io, net::SocketAddr, path::Path, sync::Arc};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpSocket, TcpStream},
    task::JoinHandle,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// The kernel holds little for a peer that does not read.
const RECEIVE_BUFFER_BYTES: u32 = 4_096;

/// How a client speaks TLS.
#[derive(Clone)]
pub struct TlsClient {
    config: Arc<ClientConfig>,
}

impl TlsClient {
    /// Speaks each version, and trusts the certificates in this file only.
    pub fn trusting(file: &Path) -> Self {
        Self::speaking(file, &[&TLS13, &TLS12], &["http/1.1"])
    }

    /// The same with these versions, and these protocols to choose from.
    pub fn speaking(file: &Path, versions: &[&'static SupportedProtocolVersion], protocols: &[&str]) -> Self {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(file).unwrap() {
            roots.add(certificate.unwrap()).unwrap();
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider())).with_protocol_versions(versions).unwrap();
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        // A session that is resumed shows no certificate.
        config.resumption = Resumption::disabled();
        TlsClient { config: Arc::new(config) }
    }

    /// Connects and shakes hands.
    pub async fn connect(&self, address: SocketAddr) -> io::Result<TlsStream<TcpStream>> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
        let stream = socket.connect(address).await?;
        stream.set_nodelay(true)?;
        TlsConnector::from(self.config.clone()).connect(ServerName::from(address.ip()), stream).await
    }
}

/// Listens until it is dropped; connections that came through it stay.
pub struct TlsTunnel {
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl TlsTunnel {
    /// To the public listener of this relay.
    pub async fn start(relay: &RelayProcess, client: TlsClient) -> Self {
        let relay = relay.ready().public;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepting = tokio::spawn(async move {
            loop {
                let (mut plain, _) = listener.accept().await.unwrap();
                plain.set_nodelay(true).unwrap();
                let client = client.clone();
                tokio::spawn(async move {
                    let mut tls = client.connect(relay).await.expect("the relay speaks TLS");
                    // Either side may reset.
                    let _ = copy_bidirectional(&mut plain, &mut tls).await;
                });
            }
        });
        TlsTunnel { address, accepting }
    }

    pub fn address(&self) -> RelayAddress {
        format!("http://{}", self.address).parse().unwrap()
    }
}

impl Drop for TlsTunnel {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}
