//! Where an account's router is found, or started: the only shared map on the way of a frame, and there only for registrations.
//!
//! A router ends when its account has no live state. So that nothing is sent to one that has just ended, whoever sends something
//! that must be handled takes a [`Visit`] with the address, under the same lock under which the router asks to leave; a router with
//! visits stays.

use crate::{
    clock,
    counters::Counters,
    drain::Drain,
    mailbox::{self, NoAnswer},
    supervisor::{AreYouThere, Services, Supervisor},
    user_router::{
        actor::{Ask, Register, Registering, RouterConfig, Step, UserRouter, Visited},
        core::CoreConfig,
        message::Input,
    },
};
use actix::{Actor, Addr, Context};
use relay_protocol::{
    device::Presence,
    id::{DeviceId, UserId},
};
use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

const SHARDS: usize = 16;

/// The map from accounts to their routers.
pub struct Directory {
    shards: Vec<Mutex<HashMap<UserId, Entry>>>,
    hashing: RandomState,
    last_router: AtomicU64,
    started: Instant,
    config: RouterConfig,
    services: Services,
    supervisor: Addr<Supervisor>,
    counters: Arc<Counters>,
}

struct Entry {
    router: Addr<UserRouter>,
    id: RouterId,
    visits: usize,
}

/// One life of an account's router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouterId(u64);

impl Directory {
    /// An empty directory. Routers that it starts use these services.
    pub fn new(config: RouterConfig, services: Services, supervisor: Addr<Supervisor>, counters: Arc<Counters>) -> Arc<Self> {
        Arc::new(Directory {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hashing: RandomState::new(),
            last_router: AtomicU64::new(0),
            started: clock::now(),
            config,
            services,
            supervisor,
            counters,
        })
    }

    /// The services that its routers use.
    pub fn services(&self) -> &Services {
        &self.services
    }

    /// What its routers are told when they are made.
    pub(crate) fn core_config(&self) -> &CoreConfig {
        &self.config.core
    }

    /// The counters of this process.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Whether the supervisor of its routers handles a message within this time.
    pub(crate) async fn supervisor_answers(&self, timeout: Duration) -> bool {
        mailbox::ask(&self.supervisor, AreYouThere, timeout).await.is_ok()
    }

    /// Whether the process is leaving, and what that waits for.
    pub fn drain(&self) -> &Drain {
        &self.config.core.drain
    }

    /// Open requests of the process.
    pub fn pending(&self) -> usize {
        self.config.core.process.open()
    }

    /// Hands a registration to the account's router, which is started on this thread's arbiter if there is none.
    pub fn register(self: &Arc<Self>, registering: Registering) -> Addr<UserRouter> {
        let (router, visit) = self.enter(registering.link.identity.user);
        mailbox::deliver(&router, Register { registering, visit, work: self.drain().begin_work() });
        router
    }

    /// Has the account's router handle an input, and waits until it has. Without a router there is nothing to do.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub async fn tell(self: &Arc<Self>, user: UserId, input: Input, timeout: Duration) -> Result<(), NoAnswer> {
        match self.enter_if_there(user) {
            Some((router, visit)) => mailbox::ask(&router, Visited { input, visit }, timeout).await,
            None => Ok(()),
        }
    }

    /// Offers an input to the account's router, for events that are judged again later if they do not arrive.
    pub fn hint(&self, user: UserId, input: Input) -> bool {
        let router = self.shard(user).get(&user).map(|entry| entry.router.clone());
        router.is_some_and(|router| mailbox::offer(&router, Step(input)).is_ok())
    }

    /// Gives an input to the account's router, for events that come only once.
    pub fn deliver(&self, user: UserId, input: Input) {
        let router = self.shard(user).get(&user).map(|entry| entry.router.clone());
        if let Some(router) = router {
            mailbox::deliver(&router, Step(input));
        }
    }

    /// Has every router handle what was on the way to it, and then let go of what it keeps for devices to come back to.
    pub async fn clear(self: &Arc<Self>, timeout: Duration) {
        let users: Vec<UserId> = self.shards.iter().flat_map(|shard| lock(shard).keys().copied().collect::<Vec<_>>()).collect();
        for user in users {
            // One that does not answer has nothing more to say.
            let _ = self.tell(user, Input::Clear, timeout).await;
        }
    }

    /// Live presence of the account's devices.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub async fn presence(self: &Arc<Self>, user: UserId, timeout: Duration) -> Result<BTreeMap<DeviceId, Presence>, NoAnswer> {
        match self.enter_if_there(user) {
            Some((router, visit)) => mailbox::ask(&router, Ask { visit }, timeout).await,
            None => Ok(BTreeMap::new()),
        }
    }

    /// Milliseconds that this directory has existed. Presence revisions of a router start from it, above those of an earlier router of
    /// the account.
    pub(crate) fn age_ms(&self) -> u64 {
        u64::try_from(clock::now().saturating_duration_since(self.started).as_millis()).unwrap_or(u64::MAX)
    }

    /// How many accounts have a router.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// Whether no account has one.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A router without live state asks to leave. False when somebody is on the way to it.
    pub(crate) fn leave(&self, user: UserId, id: RouterId) -> bool {
        let mut shard = self.shard(user);
        match shard.get(&user) {
            Some(entry) if entry.id == id && entry.visits > 0 => false,
            Some(entry) if entry.id == id => {
                shard.remove(&user);
                true
            }
            Some(_) | None => true,
        }
    }

    /// A router has ended, whatever was on the way to it.
    pub(crate) fn remove(&self, user: UserId, id: RouterId) {
        let mut shard = self.shard(user);
        if shard.get(&user).is_some_and(|entry| entry.id == id) {
            shard.remove(&user);
        }
    }

    fn enter(self: &Arc<Self>, user: UserId) -> (Addr<UserRouter>, Visit) {
        let mut shard = self.shard(user);
        // One that has failed is about to remove itself; nobody can reach it any more.
        if shard.get(&user).is_some_and(|entry| !entry.router.connected()) {
            shard.remove(&user);
        }
        let entry = shard.entry(user).or_insert_with(|| {
            let id = RouterId(self.last_router.fetch_add(1, Relaxed) + 1);
            Entry { router: self.start(user, id), id, visits: 0 }
        });
        entry.visits += 1;
        (entry.router.clone(), Visit { directory: self.clone(), user, id: entry.id })
    }

    fn enter_if_there(self: &Arc<Self>, user: UserId) -> Option<(Addr<UserRouter>, Visit)> {
        let mut shard = self.shard(user);
        let entry = shard.get_mut(&user)?;
        entry.visits += 1;
        Some((entry.router.clone(), Visit { directory: self.clone(), user, id: entry.id }))
    }

    fn start(self: &Arc<Self>, user: UserId, id: RouterId) -> Addr<UserRouter> {
        let router =
            UserRouter::new(user, id, &self.config, self.clone(), self.services.clone(), self.supervisor.clone(), self.counters.clone());
        UserRouter::create(|ctx: &mut Context<UserRouter>| {
            ctx.set_mailbox_capacity(self.config.mailbox_capacity);
            router
        })
    }

    fn shard(&self, user: UserId) -> MutexGuard<'_, HashMap<UserId, Entry>> {
        #[expect(clippy::cast_possible_truncation, reason = "any bits will do")]
        let index = self.hashing.hash_one(user) as usize % SHARDS;
        lock(&self.shards[index])
    }
}

/// A poisoned shard belongs to a thread that panicked while it held nothing but plain data; the data is still good.
fn lock(shard: &Mutex<HashMap<UserId, Entry>>) -> MutexGuard<'_, HashMap<UserId, Entry>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Somebody on the way to a router, which stays until the visit is over.
pub struct Visit {
    directory: Arc<Directory>,
    user: UserId,
    id: RouterId,
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut shard = self.directory.shard(self.user);
        if let Some(entry) = shard.get_mut(&self.user).filter(|entry| entry.id == self.id) {
            entry.visits -= 1;
        }
    }
}
