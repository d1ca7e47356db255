//! A TCP proxy inside the test: a network that can stall, hold a FIN, cut or reset, while neither side closes anything.

use socket2::SockRef;
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinHandle,
};

/// What the network does, to every connection at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// Forwards bytes and FINs both ways.
    Works,
    /// Forwards bytes; a FIN is held until the network works again.
    HoldsFins,
    /// Forwards nothing and closes nothing. What was read before is delivered once it works again.
    Stalls,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Cut,
    Reset,
}

#[derive(Clone, Copy, Debug)]
struct Mode {
    network: Network,
    /// Counts the calls of `cut` and `reset`: a connection ends when it differs from what it started with.
    generation: u64,
    end: End,
}

/// Forwards to one server. Dropping it cuts everything.
pub struct StallProxy {
    address: SocketAddr,
    mode: watch::Sender<Mode>,
    accepting: JoinHandle<()>,
    connections: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl StallProxy {
    pub async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (mode, watched) = watch::channel(Mode { network: Network::Works, generation: 0, end: End::Cut });
        let connections = Arc::new(Mutex::new(Vec::new()));
        let tasks = Arc::clone(&connections);
        let accepting = tokio::spawn(async move {
            loop {
                let (client, _from) = listener.accept().await.expect("a loopback listener accepts");
                let watched = watched.clone();
                // Taken before the server can see the connection: a test that has seen it there can cut it.
                let generation = watched.borrow().generation;
                let task = tokio::spawn(async move {
                    // A server that is gone is a client whose connection ends at once.
                    if let Ok(server) = TcpStream::connect(server).await {
                        forward_both_ways(client, server, watched, generation).await;
                    }
                });
                tasks.lock().unwrap().push(task);
            }
        });
        StallProxy { address, mode, accepting, connections }
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn set(&self, network: Network) {
        self.mode.send_modify(|mode| mode.network = network);
    }

    /// Ends every connection of this moment as a process that exits would: a FIN to both sides, and a RST after it where bytes
    /// were left unread. Also while stalled.
    pub fn cut(&self) {
        self.end(End::Cut);
    }

    /// Ends every connection of this moment with a RST to both sides. Also while stalled.
    pub fn reset(&self) {
        self.end(End::Reset);
    }

    fn end(&self, end: End) {
        self.mode.send_modify(|mode| {
            mode.generation += 1;
            mode.end = end;
        });
    }
}

impl Drop for StallProxy {
    fn drop(&mut self) {
        self.accepting.abort();
        for task in self.connections.lock().unwrap().drain(..) {
            task.abort();
        }
    }
}

async fn forward_both_ways(client: TcpStream, server: TcpStream, mut mode: watch::Receiver<Mode>, generation: u64) {
    for stream in [&client, &server] {
        stream.set_nodelay(true).unwrap();
    }
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    let mut up = Direction { from: client_read, to: server_write, mode: mode.clone() };
    let mut down = Direction { from: server_read, to: client_write, mode: mode.clone() };
    let ended = tokio::select! {
        _ = async { tokio::join!(up.forward(), down.forward()) } => None,
        changed = mode.wait_for(|mode| mode.generation != generation) => changed.ok().map(|mode| mode.end),
    };
    if ended == Some(End::Reset) {
        for stream in [up.from.as_ref(), down.from.as_ref()] {
            // A linger of zero turns the close into a RST; a socket that has ended already takes no option.
            let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
        }
        // Dropping a write half on its own would send a FIN first.
        up.to.forget();
        down.to.forget();
    }
}

struct Direction {
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    mode: watch::Receiver<Mode>,
}

impl Direction {
    /// Until the end of stream has been handed on, or either side has failed.
    async fn forward(&mut self) {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            self.until(|network| network != Network::Stalls).await;
            let read = tokio::select! {
                read = self.from.read(&mut buffer) => read.unwrap_or(0),
                () = until(&mut self.mode, |network| network == Network::Stalls) => continue,
            };
            if read == 0 {
                self.until(|network| network == Network::Works).await;
                let _ = self.to.shutdown().await;
                return;
            }
            self.until(|network| network != Network::Stalls).await;
            if self.to.write_all(&buffer[..read]).await.is_err() {
                return;
            }
        }
    }

    async fn until(&mut self, accepts: impl Fn(Network) -> bool) {
        until(&mut self.mode, accepts).await;
    }
}

async fn until(mode: &mut watch::Receiver<Mode>, accepts: impl Fn(Network) -> bool) {
    if mode.wait_for(|mode| accepts(mode.network)).await.is_err() {
        // The proxy is being dropped, and this task with it.
        std::future::pending::<()>().await;
    }
}
