//! A TCP proxy inside the test: a network that can stall, delay, hold a FIN, refuse, cut, reset, tire of idle
//! connections or swallow pings, while neither side closes anything.

#[path = "ping_filter.rs"]
mod ping_filter;

use ping_filter::PingFilter;
use socket2::{Domain, SockRef, Socket, Type};
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

/// Connections that wait to be accepted: as many as any test opens at once.
const LISTEN_BACKLOG: i32 = 4_096;

/// What the network does, to every connection at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// Forwards bytes and FINs both ways.
    Works,
    /// Forwards bytes; a FIN is held until the network works again.
    HoldsFins,
    /// Forwards nothing and closes nothing. What was read before is delivered once it works again.
    Stalls,
    /// Forwards what it reads at once only after this time.
    Delays(Duration),
    /// Forwards, and cuts a connection through which nothing has passed for this long.
    CutsIdle(Duration),
    /// Refuses new connections, as an address does where nobody listens; forwards on those that are there.
    Refuses,
}

impl Network {
    fn forwards(self) -> bool {
        match self {
            Network::Works | Network::HoldsFins | Network::Delays(_) | Network::CutsIdle(_) | Network::Refuses => true,
            Network::Stalls => false,
        }
    }

    fn forwards_fins(self) -> bool {
        match self {
            Network::Works | Network::Delays(_) | Network::CutsIdle(_) | Network::Refuses => true,
            Network::HoldsFins | Network::Stalls => false,
        }
    }

    fn delay(self) -> Duration {
        match self {
            Network::Delays(delay) => delay,
            Network::Works | Network::HoldsFins | Network::Stalls | Network::CutsIdle(_) | Network::Refuses => Duration::ZERO,
        }
    }

    fn idle_max(self) -> Option<Duration> {
        match self {
            Network::CutsIdle(idle_max) => Some(idle_max),
            Network::Works | Network::HoldsFins | Network::Stalls | Network::Delays(_) | Network::Refuses => None,
        }
    }
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
    server: Arc<Mutex<SocketAddr>>,
    /// Bound and not listening: nobody else gets the address while it refuses.
    _reserved: Socket,
    mode: watch::Sender<Mode>,
    accepting: JoinHandle<()>,
    connections: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl StallProxy {
    pub async fn start(server: SocketAddr) -> Self {
        Self::start_with(server, false)
    }

    /// A proxy that knows websockets: pings and pongs end there, both ways, and nobody answers them.
    pub async fn swallowing_pings(server: SocketAddr) -> Self {
        Self::start_with(server, true)
    }

    fn start_with(server: SocketAddr, swallows_pings: bool) -> Self {
        let reserved = bound(SocketAddr::from(([127, 0, 0, 1], 0)));
        let address = reserved.local_addr().unwrap().as_socket().unwrap();
        let server = Arc::new(Mutex::new(server));
        let mut listener = Some(listening(address));
        let (mode, watched) = watch::channel(Mode { network: Network::Works, generation: 0, end: End::Cut });
        let connections = Arc::new(Mutex::new(Vec::new()));
        let (tasks, leads_to) = (Arc::clone(&connections), Arc::clone(&server));
        let accepting = tokio::spawn(async move {
            let mut mode = watched.clone();
            loop {
                until(&mut mode, |network| network != Network::Refuses).await;
                let open = listener.get_or_insert_with(|| listening(address));
                let (client, _from) = tokio::select! {
                    accepted = open.accept() => accepted.expect("a loopback listener accepts"),
                    () = until(&mut mode, |network| network == Network::Refuses) => {
                        listener = None;
                        continue;
                    }
                };
                // One look, before the server can see the connection: whoever has seen it there, or refuses from now on, can cut it.
                let Mode { network, generation, .. } = *mode.borrow();
                if network == Network::Refuses {
                    listener = None;
                    continue;
                }
                let (watched, server) = (watched.clone(), *leads_to.lock().unwrap());
                let task = tokio::spawn(async move {
                    // A server that is gone is a client whose connection ends at once.
                    if let Ok(server) = TcpStream::connect(server).await {
                        forward_both_ways(client, server, watched, generation, swallows_pings).await;
                    }
                });
                tasks.lock().unwrap().push(task);
            }
        });
        StallProxy { address, server, _reserved: reserved, mode, accepting, connections }
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes connections from now on to another server.
    pub fn lead_to(&self, server: SocketAddr) {
        *self.server.lock().unwrap() = server;
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

fn bound(address: SocketAddr) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    // Several may be bound to it as long as only one listens.
    socket.set_reuse_address(true).unwrap();
    socket.bind(&address.into()).unwrap();
    socket
}

fn listening(address: SocketAddr) -> TcpListener {
    let socket = bound(address);
    socket.listen(LISTEN_BACKLOG).unwrap();
    socket.set_nonblocking(true).unwrap();
    TcpListener::from_std(socket.into()).unwrap()
}

async fn forward_both_ways(client: TcpStream, server: TcpStream, mut mode: watch::Receiver<Mode>, generation: u64, swallows_pings: bool) {
    for stream in [&client, &server] {
        stream.set_nodelay(true).unwrap();
    }
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    let (passes, passed) = watch::channel(());
    let direction =
        |from, to| Direction { from, to, mode: mode.clone(), filter: swallows_pings.then(PingFilter::default), passes: passes.clone() };
    let (mut up, mut down) = (direction(client_read, server_write), direction(server_read, client_write));
    let ended = tokio::select! {
        _ = async { tokio::join!(up.forward(), down.forward()) } => None,
        () = idle_too_long(mode.clone(), passed) => Some(End::Cut),
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

/// Until nothing has passed for as long as the network allows.
async fn idle_too_long(mut mode: watch::Receiver<Mode>, mut passed: watch::Receiver<()>) {
    loop {
        until(&mut mode, |network| network.idle_max().is_some()).await;
        let Some(idle_max) = mode.borrow().network.idle_max() else { continue };
        tokio::select! {
            () = tokio::time::sleep(idle_max) => return,
            Ok(()) = passed.changed() => {}
            () = until(&mut mode, |network| network.idle_max().is_none()) => {}
        }
    }
}

struct Direction {
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    mode: watch::Receiver<Mode>,
    filter: Option<PingFilter>,
    passes: watch::Sender<()>,
}

impl Direction {
    /// Until the end of stream has been handed on, or either side has failed.
    async fn forward(&mut self) {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            self.until(Network::forwards).await;
            let read = tokio::select! {
                read = self.from.read(&mut buffer) => read.unwrap_or(0),
                () = until(&mut self.mode, |network| !network.forwards()) => continue,
            };
            if read == 0 {
                self.until(Network::forwards_fins).await;
                let _ = self.to.shutdown().await;
                return;
            }
            self.until(Network::forwards).await;
            let delay = self.mode.borrow().network.delay();
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
                self.until(Network::forwards).await;
            }
            let filtered = self.filter.as_mut().map(|filter| filter.filter(&buffer[..read]));
            if self.to.write_all(filtered.as_deref().unwrap_or(&buffer[..read])).await.is_err() {
                return;
            }
            self.passes.send_replace(());
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
