//! Every open device socket of the process. Touched when one opens or ends, by the sweep, and by the admin listener; never on the
//! way of a frame.

use super::{
    budget::Budget,
    lane::{EventFates, EventLimits, LaneLimits},
    link::{Link, LinkBounds},
    tcp::TcpHandle,
};
use crate::{clock, user_router::message::SocketId};
use relay_protocol::{close::CloseReason, device::Role, identity::Identity, limits};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use tokio::sync::Notify;

/// What the sockets may hold together, and what is the same for each.
#[derive(Clone, Copy, Debug)]
pub struct TableLimits {
    /// Bytes of unfinished messages, and of messages that wait for their router.
    pub inbound_bytes_max: usize,
    /// Bytes in outbound lanes.
    pub outbound_bytes_max: usize,
    /// Largest message of a client: either sum may be passed by one of them until the largest holders are given up.
    pub message_bytes_max: usize,
    /// The coalescing buffer of each.
    pub events: EventLimits,
}

impl Default for TableLimits {
    fn default() -> Self {
        TableLimits {
            inbound_bytes_max: limits::INBOUND_TOTAL_BYTES_MAX,
            outbound_bytes_max: limits::OUTBOUND_TOTAL_BYTES_MAX,
            message_bytes_max: limits::MESSAGE_BYTES_MAX,
            events: EventLimits::default(),
        }
    }
}

/// The open sockets, in the order in which they opened.
#[derive(Debug)]
pub struct SocketTable {
    sockets: Mutex<BTreeMap<SocketId, Arc<Link>>>,
    last_id: AtomicU64,
    bars: AtomicU64,
    message_bytes_max: usize,
    events: EventLimits,
    inbound: Arc<Budget>,
    outbound: Arc<Budget>,
    fates: Arc<EventFates>,
    exceeded: Arc<Notify>,
}

impl Default for SocketTable {
    fn default() -> Self {
        SocketTable::new(TableLimits::default())
    }
}

impl SocketTable {
    /// A table without sockets.
    pub fn new(limits: TableLimits) -> Self {
        let exceeded = Arc::new(Notify::new());
        // What the relay sends is what it received, in an envelope of its own.
        let message_bytes_max = limits.message_bytes_max.saturating_add(limits::ENVELOPE_BYTES_MAX);
        SocketTable {
            sockets: Mutex::default(),
            last_id: AtomicU64::new(0),
            bars: AtomicU64::new(0),
            message_bytes_max,
            events: limits.events,
            inbound: Arc::new(Budget::new(limits.inbound_bytes_max, limits.message_bytes_max, exceeded.clone())),
            outbound: Arc::new(Budget::new(limits.outbound_bytes_max, message_bytes_max, exceeded.clone())),
            fates: Arc::default(),
            exceeded,
        }
    }

    /// What all sockets have received and not handed on.
    pub fn inbound(&self) -> &Budget {
        &self.inbound
    }

    /// What waits in all outbound lanes.
    pub fn outbound(&self) -> &Budget {
        &self.outbound
    }

    /// What became of the events of all lanes.
    pub fn fates(&self) -> &EventFates {
        &self.fates
    }

    /// Told whenever bytes are taken beyond one of the two.
    pub fn exceeded(&self) -> Arc<Notify> {
        self.exceeded.clone()
    }

    /// Opens a socket; it is in the table until the guard is dropped.
    pub fn open(self: &Arc<Self>, identity: Identity, role: Role, outbound_bytes_max: usize, tcp: Option<Arc<TcpHandle>>) -> OpenSocket {
        let id = SocketId(self.last_id.fetch_add(1, Relaxed) + 1);
        let bounds = LinkBounds {
            lane: LaneLimits { bytes_max: outbound_bytes_max, message_bytes_max: self.message_bytes_max, events: self.events },
            outbound: self.outbound.clone(),
            inbound: self.inbound.clone(),
            fates: self.fates.clone(),
        };
        let link = Arc::new(Link::new(id, identity, role, &bounds, tcp, clock::now()));
        self.lock().insert(id, link.clone());
        OpenSocket { table: self.clone(), link }
    }

    /// The sockets that are open now.
    pub fn snapshot(&self) -> Vec<Arc<Link>> {
        self.lock().values().cloned().collect()
    }

    /// Bars the sockets of these bearers, see `Link::bar`, and names them.
    pub fn bar(&self, is_of: impl Fn(&Identity) -> bool, reason: CloseReason) -> Vec<Arc<Link>> {
        let sockets = self.lock();
        self.bars.fetch_add(1, Relaxed);
        let barred: Vec<_> = sockets.values().filter(|link| is_of(&link.identity)).cloned().collect();
        barred.iter().for_each(|link| link.bar(reason));
        barred
    }

    /// How often sockets have been barred. While this stays the same, no [`SocketTable::bar`] has missed a socket that is in the table
    /// now: a bearer that was good when it was read is still good.
    pub fn bars(&self) -> u64 {
        let _sockets = self.lock();
        self.bars.load(Relaxed)
    }

    /// How many are open now.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether none is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SocketId, Arc<Link>>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A socket's place in the table. Kept until the connection's last byte, not only while its actor lives: a close that gets nowhere is
/// ended by the sweep, which finds it here.
#[derive(Debug)]
pub struct OpenSocket {
    table: Arc<SocketTable>,
    link: Arc<Link>,
}

impl OpenSocket {
    /// The link.
    pub fn link(&self) -> &Arc<Link> {
        &self.link
    }
}

impl Drop for OpenSocket {
    fn drop(&mut self) {
        self.link.lane.end();
        self.table.lock().remove(&self.link.id);
    }
}
