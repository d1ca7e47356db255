//! The two listeners: bind, announce, serve until told to stop, stop in order.
//!
//! Order of a stop: the ready file goes, both listeners stop accepting, calls being answered get [`STOP_TIMEOUT`].

use crate::{
    config::{ListenAddress, ServeConfig},
    http::{Api, Mount, admin_routes, body::end_unread, default_headers, public_routes},
    limits::{
        ACCEPT_BACKLOG, ADMIN_CONNECTIONS_MAX, CONNECTIONS_PER_WORKER_MAX, DESCRIPTORS_PER_CONNECTION, DESCRIPTORS_RESERVED,
        DISCONNECT_TIMEOUT, STOP_TIMEOUT,
    },
    ready_file::{Announced, ReadyFile, ReadyFileError},
};
use actix_web::{App, HttpServer, dev::Extensions, http::KeepAlive, middleware::from_fn, web};
use relay_protocol::id::RelayInstanceId;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;
use std::{any::Any, fmt, future::Future, io, net::SocketAddr, num::NonZero, sync::Arc, thread::available_parallelism};

/// Sees each public connection before its first byte.
pub type OnConnect = Arc<dyn Fn(&dyn Any, &mut Extensions) + Send + Sync>;

/// What the listeners serve.
pub struct Parts {
    /// For handlers.
    pub api: Api,
    /// Mounts the websocket route on the public listener.
    pub device_link: Mount,
    /// Sees each public connection.
    pub on_connect: OnConnect,
    /// Of the public listener; none where it speaks plain HTTP.
    pub tls: Option<rustls::ServerConfig>,
}

/// What a serving process says about itself, in the ready file and to [`run`]'s caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Serving {
    /// The public listener's address, with the port in use.
    pub public: SocketAddr,
    /// The admin listener's address, with the port in use.
    pub admin: SocketAddr,
    /// This process, as clients know it.
    pub relay_instance_id: RelayInstanceId,
    /// This process, as the system knows it.
    pub pid: u32,
}

/// Why serving did not start or ended.
#[derive(Debug)]
pub enum ServeError {
    /// A listener could not have its address.
    Bind {
        /// The flag that changes it.
        flag: &'static str,
        /// The address.
        address: ListenAddress,
        /// What the system said.
        error: io::Error,
    },
    /// The ready file could not be written or removed.
    ReadyFile(ReadyFileError),
    /// A listener failed while serving.
    Listener(io::Error),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServeError::Bind { flag, address, error } => {
                write!(f, "cannot listen on {address}: {error}; choose another address with {flag} HOST:PORT (port 0 picks a free one)")
            }
            ServeError::ReadyFile(error) => error.fmt(f),
            ServeError::Listener(error) => write!(f, "a listener failed: {error}"),
        }
    }
}

impl std::error::Error for ServeError {}

/// Serves until `stop` is done. `on_ready` is called once both listeners accept.
///
/// # Errors
/// An address is not to be had, a listener fails, or the ready file cannot be written.
pub async fn run(
    config: &ServeConfig,
    parts: Parts,
    stop: impl Future<Output = ()>,
    on_ready: impl FnOnce(&Serving),
) -> Result<(), ServeError> {
    let ready_file = config.ready_file.as_deref().map(ReadyFile::prepare).transpose().map_err(ServeError::ReadyFile)?;
    let relay_instance_id = parts.api.relay.instance_id();
    let api = web::Data::new(parts.api);

    let (public_api, device_link, on_connect) = (api.clone(), parts.device_link, parts.on_connect);
    let workers = available_parallelism().map_or(1, NonZero::get);
    let connections = connections_per_worker(raise_descriptor_limit(), workers);
    let public = HttpServer::new(move || {
        App::new()
            .wrap(from_fn(end_unread))
            .wrap(default_headers())
            .configure(|routes| public_routes(routes, public_api.clone(), &device_link))
    })
    .workers(workers)
    .max_connections(connections)
    // Handshakes in progress have no bound of their own: with the server's 256, as many peers that say nothing would shut everybody out.
    .max_connection_rate(connections)
    .tls_handshake_timeout(config.request_head_timeout.0)
    .tcp_nodelay(true)
    .backlog(ACCEPT_BACKLOG)
    // The server times the head of a connection's first request only, so a connection ends behind its first answer; what was sent
    // whole behind that request is answered too.
    .keep_alive(KeepAlive::Disabled)
    .client_request_timeout(config.request_head_timeout.0)
    .client_disconnect_timeout(DISCONNECT_TIMEOUT)
    .shutdown_timeout(STOP_TIMEOUT.as_secs())
    .disable_signals()
    .on_connect(move |connection, extensions| on_connect(connection, extensions));
    let public = match parts.tls {
        Some(tls) => public.bind_rustls_0_23(config.listen.to_string(), tls),
        None => public.bind(config.listen.to_string()),
    }
    .map_err(|error| ServeError::Bind { flag: "--listen", address: config.listen.clone(), error })?;

    let admin = HttpServer::new(move || {
        App::new().wrap(from_fn(end_unread)).wrap(default_headers()).configure(|routes| admin_routes(routes, api.clone()))
    })
    .workers(1)
    .max_connections(ADMIN_CONNECTIONS_MAX)
    .tcp_nodelay(true)
    .client_request_timeout(config.request_head_timeout.0)
    .shutdown_timeout(STOP_TIMEOUT.as_secs())
    .disable_signals()
    .bind(config.admin_listen.to_string())
    .map_err(|error| ServeError::Bind { flag: "--admin-listen", address: config.admin_listen.clone(), error })?;

    let serving = Serving {
        public: first_address(&public.addrs())?,
        admin: first_address(&admin.addrs())?,
        relay_instance_id,
        pid: std::process::id(),
    };
    let (public, admin) = (public.run(), admin.run());
    let (public_handle, admin_handle) = (public.handle(), admin.handle());
    let mut servers = actix_web::rt::spawn(async move { tokio::try_join!(public, admin).map(|_| ()) });

    let announced = ready_file.map(|file| file.announce(&serving)).transpose().map_err(ServeError::ReadyFile)?;
    tracing::info!(public = %serving.public, admin = %serving.admin, instance = %serving.relay_instance_id, "serving");
    on_ready(&serving);

    let ended = tokio::select! {
        ended = &mut servers => ended,
        () = stop => {
            let withdrawn = announced.map(Announced::withdraw).transpose().map_err(ServeError::ReadyFile);
            tokio::join!(public_handle.stop(true), admin_handle.stop(true));
            withdrawn?;
            servers.await
        }
    };
    ended.map_err(|failed| ServeError::Listener(io::Error::other(failed)))?.map_err(ServeError::Listener)?;
    tracing::info!("stopped");
    Ok(())
}

/// Raises the process's limit of open files as far as it may by itself; how many it may open now, none for any number.
fn raise_descriptor_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    match setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        Ok(()) => limit.maximum,
        Err(_refused) => limit.current,
    }
}

/// Connections that each worker takes before further ones wait in the kernel. There are descriptors for all of them, so accepting
/// never fails for want of one, and operators can still connect.
fn connections_per_worker(descriptors: Option<u64>, workers: usize) -> usize {
    let connections = descriptors.map(|descriptors| descriptors.saturating_sub(DESCRIPTORS_RESERVED) / DESCRIPTORS_PER_CONNECTION);
    let connections = connections.and_then(|connections| usize::try_from(connections).ok()).unwrap_or(usize::MAX);
    (connections / workers).clamp(1, CONNECTIONS_PER_WORKER_MAX)
}

/// A name may stand for several addresses; the first is shown.
fn first_address(addresses: &[SocketAddr]) -> Result<SocketAddr, ServeError> {
    addresses.first().copied().ok_or_else(|| ServeError::Listener(io::Error::other("bound to no address")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cli::Cli,
        http::testing::{ADMIN_TOKEN, ALICE, Fixture, bearer_of, no_device_link},
        tls::{self, PairFiles},
    };
    use actix_tls::accept::rustls_0_23::TlsStream;
    use rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, pem::PemObject},
    };
    use serde_json::{Value, json};
    use std::{cell::Cell, net::TcpListener, path::PathBuf, sync::Mutex, time::Duration};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
        sync::oneshot,
    };
    use tokio_rustls::TlsConnector;

    /// Far longer than an end takes that comes by itself.
    const PATIENCE: Duration = Duration::from_secs(10);

    fn config(flags: &[&str]) -> ServeConfig {
        let free = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
        Cli::serve_config(&[&free, flags].concat())
    }

    fn parts() -> Parts {
        Parts { api: Fixture::new().into_api(), device_link: no_device_link(), on_connect: Arc::new(|_, _| {}), tls: None }
    }

    async fn get(address: SocketAddr, path: &str, authorization: Option<String>) -> (u16, Value) {
        let mut request = reqwest::Client::builder().no_proxy().build().unwrap().get(format!("http://{address}{path}"));
        if let Some(value) = authorization {
            request = request.header("Authorization", value);
        }
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    #[actix_web::test]
    async fn both_listeners_serve_their_own_routes_until_told_to_stop() {
        let directory = tempfile::tempdir().unwrap();
        let ready_file = directory.path().join("ready.json");
        std::fs::write(&ready_file, "of a process before").unwrap();
        let config = config(&["--ready-file", ready_file.to_str().unwrap()]);
        let (ready_sender, ready) = oneshot::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let server = actix_web::rt::spawn(async move {
            run(&config, parts(), async { stopped.await.unwrap() }, |serving| ready_sender.send(serving.clone()).unwrap()).await
        });
        let serving = ready.await.unwrap();

        let announced: Value = serde_json::from_slice(&std::fs::read(&ready_file).unwrap()).unwrap();
        let expected = json!({
            "public": serving.public.to_string(), "admin": serving.admin.to_string(),
            "relayInstanceId": serving.relay_instance_id, "pid": std::process::id(),
        });
        assert_eq!(announced, expected);

        let operator = Some(format!("Bearer {ADMIN_TOKEN}"));
        let account = Some(bearer_of(ALICE).1);
        for address in [serving.public, serving.admin] {
            assert_eq!(get(address, "/livez", None).await.0, 200);
        }
        assert_eq!(get(serving.public, "/api/devices", account.clone()).await, (200, json!({"devices": []})));
        assert_eq!(get(serving.admin, "/api/devices", account).await.0, 404);
        assert_eq!(get(serving.admin, "/admin/connections", operator.clone()).await, (200, json!({"connections": []})));
        assert_eq!(get(serving.public, "/admin/connections", operator).await.0, 404);

        stop.send(()).unwrap();
        server.await.unwrap().unwrap();
        assert!(!ready_file.exists());
        for address in [serving.public, serving.admin] {
            assert!(TcpListener::bind(address).is_ok(), "{address} is free again");
        }
    }

    /// Trap 8 of the architecture: without it small frames wait for the acknowledgement of earlier ones.
    #[actix_web::test]
    async fn trap_8_accepted_sockets_send_small_frames_at_once() {
        for is_secure in [false, true] {
            accepted_socket_sends_at_once(is_secure).await;
        }
    }

    async fn accepted_socket_sends_at_once(is_secure: bool) {
        let accepted: Arc<Mutex<Vec<socket2::Socket>>> = Arc::default();
        let kept = accepted.clone();
        let on_connect: OnConnect = Arc::new(move |connection, _| {
            let under_tls = connection.downcast_ref::<TlsStream<TcpStream>>().map(|stream| stream.get_ref().0);
            let stream = if is_secure { under_tls } else { connection.downcast_ref::<TcpStream>() };
            kept.lock().unwrap().push(socket2::SockRef::from(stream.unwrap()).try_clone().unwrap());
        });
        let file = |name: &str| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/support/tls").join(name);
        let pair = PairFiles { certificate: file("issuer.pem"), key: file("issuer.key") };
        let tls = is_secure.then(|| tls::open(pair).unwrap().0);
        let (config, parts) = (config(&[]), Parts { on_connect, tls, ..parts() });
        let (ready_sender, ready) = oneshot::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let server = actix_web::rt::spawn(async move {
            run(&config, parts, async { stopped.await.unwrap() }, |serving| ready_sender.send(serving.clone()).unwrap()).await
        });
        let serving = ready.await.unwrap();
        // When it has answered, the connection is set up as it will stay.
        if is_secure {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_file(file("issuer-ca.pem")).unwrap()).unwrap();
            let client = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
            let client = client.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots).with_no_client_auth();
            let stream = TcpStream::connect(serving.public).await.unwrap();
            let stream = TlsConnector::from(Arc::new(client)).connect(serving.public.ip().into(), stream);
            let (mut stream, mut answer) = (stream.await.unwrap(), String::new());
            stream.write_all(b"GET /livez HTTP/1.1\r\nHost: relay\r\n\r\n").await.unwrap();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        } else {
            assert_eq!(get(serving.public, "/livez", None).await.0, 200);
        }
        let delays: Vec<bool> = accepted.lock().unwrap().iter().map(|socket| !socket.tcp_nodelay().unwrap()).collect();
        assert_eq!(delays, [false]);
        accepted.lock().unwrap().clear();
        stop.send(()).unwrap();
        server.await.unwrap().unwrap();
    }

    /// Neither silence nor a trickle keeps a connection whose request has been answered.
    #[actix_web::test]
    async fn a_body_that_does_not_end_keeps_no_connection() {
        let (ready_sender, ready) = oneshot::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let server = actix_web::rt::spawn(async move {
            run(&config(&[]), parts(), async { stopped.await.unwrap() }, |serving| ready_sender.send(serving.clone()).unwrap()).await
        });
        let serving = ready.await.unwrap();
        for address in [serving.public, serving.admin] {
            for (path, body) in [
                ("/api/devices", "Transfer-Encoding: chunked\r\n\r\n2\r\nxx\r\n"),
                ("/livez", "Transfer-Encoding: chunked\r\n\r\n"),
                ("/livez", "Content-Length: 1000\r\n\r\nxx"),
            ] {
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream.write_all(format!("POST {path} HTTP/1.1\r\nHost: relay\r\n{body}").as_bytes()).await.unwrap();
                let mut answer = Vec::new();
                let ended = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
                assert!(ended.is_ok() && answer.starts_with(b"HTTP/1.1 4"), "{address} {path} {body:?}");
            }
        }
        stop.send(()).unwrap();
        server.await.unwrap().unwrap();
    }

    #[test]
    fn there_are_descriptors_for_every_connection_that_is_taken() {
        for (descriptors, workers, expected) in [
            (Some(1_024), 2, 224),
            (Some(20_000), 2, 4_968),
            (Some(20_000), 8, 1_242),
            (Some(1_000_000), 2, CONNECTIONS_PER_WORKER_MAX),
            (None, 2, CONNECTIONS_PER_WORKER_MAX),
            (Some(64), 2, 1),
        ] {
            assert_eq!(connections_per_worker(descriptors, workers), expected, "{descriptors:?} for {workers}");
        }
    }

    #[actix_web::test]
    async fn a_taken_address_names_the_flag_that_changes_it() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        for flag in ["--listen", "--admin-listen"] {
            let mut config = config(&[]);
            let listener = if flag == "--listen" { &mut config.listen } else { &mut config.admin_listen };
            *listener = address.parse().unwrap();
            let ready = Cell::new(false);
            let error = run(&config, parts(), std::future::pending(), |_| ready.set(true)).await.unwrap_err().to_string();
            assert!(error.contains(&format!("with {flag} HOST:PORT")) && error.contains(&address), "{error}");
            assert!(!ready.get());
        }
    }
}
