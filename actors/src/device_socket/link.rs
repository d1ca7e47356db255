//! What everybody else holds of a device socket: its outbound lane, its signs of life, its registration, and the TCP connection to
//! end it with when the actor cannot end itself.
//!
//! A websocket actor is polled from inside its response body, so it stands still while its peer reads nothing. Whatever must go
//! on then is here, shared, and judged by the supervisor's sweep.

use super::{
    budget::{Budget, Share},
    lane::{EventFates, Lane, LaneLimits},
    tcp::TcpHandle,
};
use crate::user_router::message::SocketId;
use relay_protocol::{
    close::CloseReason,
    device::Role,
    id::{ConnectionId, Route},
    identity::Identity,
};
use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// A device socket, as the router, the sweep and the admin listener see it.
#[derive(Debug)]
pub struct Link {
    /// The socket.
    pub id: SocketId,
    /// Who opened it, by the bearer token of the upgrade.
    pub identity: Identity,
    /// `X-Client-Type`.
    pub role: Role,
    /// Frames on their way out.
    pub lane: Lane,
    /// Signs of life.
    pub activity: Activity,
    /// Bytes of its unfinished message, as its headers claim them, and of its messages that wait for a router.
    pub inbound: Share,
    /// Whole messages of it that wait for a router, or are being handled.
    waiting: AtomicUsize,
    registration: OnceLock<Registration>,
    registering: AtomicBool,
    ended: AtomicBool,
    barred: OnceLock<CloseReason>,
    retired: AtomicBool,
    tcp: Option<Arc<TcpHandle>>,
}

/// What a socket may hold, and out of what.
#[derive(Clone, Debug)]
pub struct LinkBounds {
    /// Of its outbound lane.
    pub lane: LaneLimits,
    /// What all lanes together hold.
    pub outbound: Arc<Budget>,
    /// What becomes of the events of all lanes.
    pub fates: Arc<EventFates>,
    /// What all sockets together have received and not handed on.
    pub inbound: Arc<Budget>,
}

/// An inbound message that is held until this is dropped: in a mailbox, or while it is read.
#[derive(Debug)]
pub struct Held {
    link: Arc<Link>,
    bytes: usize,
}

impl Held {
    /// A whole message of this many bytes, which its socket's [`Link::inbound`] has taken.
    pub fn new(link: Arc<Link>, bytes: usize) -> Self {
        link.waiting.fetch_add(1, Relaxed);
        Held { link, bytes }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.link.waiting.fetch_sub(1, Relaxed);
        self.link.inbound.give_back(self.bytes);
    }
}

/// A successful registration. A socket has at most one in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The connection generation.
    pub connection: ConnectionId,
    /// The route that it holds, or held until it was replaced.
    pub route: Route,
    /// When it was decided.
    pub at: Instant,
}

impl Link {
    /// A link of a socket that has just opened. Without a TCP handle (in tests) a frozen actor can only be abandoned.
    pub fn new(id: SocketId, identity: Identity, role: Role, bounds: &LinkBounds, tcp: Option<Arc<TcpHandle>>, now: Instant) -> Self {
        let outbound = Share::new(bounds.outbound.clone());
        Link {
            id,
            identity,
            role,
            lane: Lane::new(bounds.lane, outbound, bounds.fates.clone(), now),
            activity: Activity::new(now),
            inbound: Share::new(bounds.inbound.clone()),
            waiting: AtomicUsize::new(0),
            registration: OnceLock::new(),
            retired: AtomicBool::new(false),
            registering: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            barred: OnceLock::new(),
            tcp,
        }
    }

    /// Whole messages of it that wait in its router's mailbox or for room there; one that is being handled counts too.
    pub fn waiting_messages(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// Its registration, once there is one. Set before the answer enters the lane, so a client that has its answer is registered.
    pub fn registration(&self) -> Option<&Registration> {
        self.registration.get()
    }

    /// The router has decided for it.
    pub fn set_registered(&self, registration: Registration) {
        // The router decides at most once per socket; were it to decide twice, the first would stay.
        let _ = self.registration.set(registration);
        self.registering.store(false, Relaxed);
    }

    /// The router has decided against it; it may try again.
    pub fn set_not_registered(&self) {
        self.registering.store(false, Relaxed);
    }

    /// Claims the one registration that may be in progress. False when there is one, or the socket is registered.
    pub fn begin_registration(&self) -> bool {
        self.registration.get().is_none() && !self.registering.swap(true, Relaxed)
    }

    /// Lets no registration of it take effect from now on. One that has is the router's to end.
    pub(super) fn bar(&self, reason: CloseReason) {
        // The first reason stays.
        let _ = self.barred.set(reason);
    }

    /// Why no registration of it may take effect any more: its bearer was logged out, or its API key revoked.
    pub fn barred(&self) -> Option<CloseReason> {
        self.barred.get().copied()
    }

    /// Whether the socket's actor has ended. A registration that reaches the router only then must not take effect.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Relaxed)
    }

    /// Its actor has ended.
    pub fn set_ended(&self) {
        self.ended.store(true, Relaxed);
    }

    /// Notes that the relay gives the connection up, and says whether this is the first time.
    pub fn note_retirement(&self) -> bool {
        !self.retired.swap(true, Relaxed)
    }

    /// Ends the TCP connection, and with it the actor, whatever state it is in.
    pub fn kill(&self) {
        if let Some(tcp) = &self.tcp {
            tcp.shut_down();
        }
    }
}

/// What a chunk of input did to the message that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageProgress {
    /// A message has begun and is not whole.
    pub unfinished: bool,
    /// The chunk held bytes of a message.
    pub grew: bool,
}

/// Signs of life, in milliseconds since the socket opened; readable while the actor stands still.
#[derive(Debug)]
pub struct Activity {
    opened: Instant,
    last_input_ms: AtomicU64,
    last_growth_ms: AtomicU64,
    /// Start of the unfinished message plus one; zero when there is none.
    unfinished_since_ms: AtomicU64,
}

impl Activity {
    fn new(opened: Instant) -> Self {
        Activity { opened, last_input_ms: AtomicU64::new(0), last_growth_ms: AtomicU64::new(0), unfinished_since_ms: AtomicU64::new(0) }
    }

    /// Bytes came; afterwards a message is, or is not, unfinished. Control frames alone are not growth.
    pub fn on_input(&self, now: Instant, message: MessageProgress) {
        let now_ms = self.ms(now);
        self.last_input_ms.store(now_ms, Relaxed);
        if message.grew {
            self.last_growth_ms.store(now_ms, Relaxed);
        }
        if !message.unfinished {
            self.unfinished_since_ms.store(0, Relaxed);
        } else if self.unfinished_since_ms.load(Relaxed) == 0 {
            self.unfinished_since_ms.store(now_ms + 1, Relaxed);
        }
    }

    /// Nothing is read until then, and what the peer sends meanwhile waits in the kernel: silence and growth are counted from then on.
    pub fn on_paced(&self, until: Instant) {
        let until_ms = self.ms(until);
        self.last_input_ms.store(until_ms, Relaxed);
        self.last_growth_ms.store(until_ms, Relaxed);
    }

    /// When the socket opened.
    pub fn opened(&self) -> Instant {
        self.opened
    }

    /// When the last byte came.
    pub fn last_input(&self) -> Instant {
        self.opened + Duration::from_millis(self.last_input_ms.load(Relaxed))
    }

    /// When the unfinished message last grew.
    pub fn last_growth(&self) -> Instant {
        self.opened + Duration::from_millis(self.last_growth_ms.load(Relaxed))
    }

    /// Since when a message has been unfinished.
    pub fn unfinished_since(&self) -> Option<Instant> {
        let since_ms = self.unfinished_since_ms.load(Relaxed).checked_sub(1)?;
        Some(self.opened + Duration::from_millis(since_ms))
    }

    fn ms(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.opened).as_millis()).unwrap_or(u64::MAX)
    }
}
