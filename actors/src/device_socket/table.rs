//! Every open device socket of the process. Touched when one opens or ends, by the sweep, and by the admin listener; never on the
//! way of a frame.

use super::{link::Link, tcp::TcpHandle};
use crate::{clock, user_router::message::SocketId};
use relay_protocol::{close::CloseReason, device::Role, identity::Identity};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// The open sockets, in the order in which they opened.
#[derive(Debug, Default)]
pub struct SocketTable {
    sockets: Mutex<BTreeMap<SocketId, Arc<Link>>>,
    last_id: AtomicU64,
    bars: AtomicU64,
}

impl SocketTable {
    /// Opens a socket; it is in the table until the guard is dropped.
    pub fn open(self: &Arc<Self>, identity: Identity, role: Role, outbound_bytes_max: usize, tcp: Option<Arc<TcpHandle>>) -> OpenSocket {
        let id = SocketId(self.last_id.fetch_add(1, Relaxed) + 1);
        let link = Arc::new(Link::new(id, identity, role, outbound_bytes_max, tcp, clock::now()));
        self.lock().insert(id, link.clone());
        OpenSocket { table: self.clone(), link }
    }

    /// The sockets that are open now.
    pub fn snapshot(&self) -> Vec<Arc<Link>> {
        self.lock().values().cloned().collect()
    }

    /// Bars the sockets of these bearers, see [`Link::bar`], and names them.
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
        self.table.lock().remove(&self.link.id);
    }
}
