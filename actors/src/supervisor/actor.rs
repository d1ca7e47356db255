//! The supervisor's shell.

use super::{
    grace::{Grace, Graces},
    relief::{Direction, largest_holders},
    services::Services,
    sweep::{SweepLimits, Verdict, judge},
};
use crate::{
    clock,
    counters::Counters,
    device_socket::{Link, SocketTable},
    directory::Directory,
    persistence::{Persistence, Shared},
    push::Push,
    user_router::{actor::RouterConfig, message::Input},
};
use actix::{Actor, ActorFutureExt, Addr, AsyncContext, Context, Handler, Message, WrapFuture};
use relay_protocol::{
    close::CloseReason,
    id::{ConnectionId, DeviceId, UserId},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Messages that wait for the supervisor before senders wait themselves.
const MAILBOX_CAPACITY: usize = 4_096;

/// How soon after one look for the largest holders the next may follow: what they held takes a moment to go, and a look goes over all
/// sockets.
const RELIEF_INTERVAL_MIN: Duration = Duration::from_millis(10);

/// What the supervisor takes from the configuration.
#[derive(Clone, Copy, Debug, Default)]
pub struct SupervisorConfig {
    /// Limits of the sweep.
    pub sweep: SweepLimits,
    /// How long a desktop counts as reconnecting.
    pub reconnect_grace: Duration,
}

/// Starts a persistence actor, on an arbiter of its choice, that takes over what an earlier one has left.
type PersistenceFactory = Box<dyn Fn(Arc<Shared>) -> Addr<Persistence> + Send>;

/// Starts a push actor.
type PushFactory = Box<dyn Fn(Services) -> Addr<Push> + Send>;

/// The actor.
pub struct Supervisor {
    config: SupervisorConfig,
    graces: Graces,
    armed: Option<Instant>,
    directory: Arc<Directory>,
    sockets: Arc<SocketTable>,
    counters: Arc<Counters>,
    services: Services,
    start_persistence: PersistenceFactory,
    start_push: PushFactory,
    shared: Arc<Shared>,
    /// Whether the persistence actor has been told to end what earlier processes left online; a new one must be told again.
    stale_ended: bool,
}

/// Asks for a report after the reconnect wait.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct ArmGrace {
    /// The account.
    pub user: UserId,
    /// The desktop.
    pub desktop: DeviceId,
    /// The generation that closed.
    pub generation: ConnectionId,
}

/// Is answered when the supervisor comes to it: whether it stands still.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct AreYouThere;

impl Supervisor {
    /// Starts the supervisor on this thread's arbiter, and makes the directory whose routers report to it.
    pub fn launch(
        config: SupervisorConfig,
        routers: RouterConfig,
        sockets: Arc<SocketTable>,
        counters: Arc<Counters>,
        start_persistence: impl Fn(Arc<Shared>) -> Addr<Persistence> + Send + 'static,
        start_push: impl Fn(Services) -> Addr<Push> + Send + 'static,
    ) -> (Addr<Self>, Arc<Directory>) {
        let shared = Arc::new(Shared::default());
        let services = Services::new(start_persistence(shared.clone()), shared.clone(), counters.clone());
        services.replace_push(start_push(services.clone()));
        let mut made = None;
        let supervisor = Supervisor::create(|ctx: &mut Context<Self>| {
            ctx.set_mailbox_capacity(MAILBOX_CAPACITY);
            let directory = Directory::new(routers, services.clone(), ctx.address(), counters.clone());
            made = Some(directory.clone());
            Supervisor {
                config,
                graces: Graces::default(),
                armed: None,
                directory,
                sockets,
                counters,
                services,
                start_persistence: Box::new(start_persistence),
                start_push: Box::new(start_push),
                shared,
                stale_ended: false,
            }
        });
        match made {
            Some(directory) => (supervisor, directory),
            None => unreachable!("an actor's context is made before it runs"),
        }
    }

    fn sweep(&mut self) {
        let now = clock::now();
        for link in self.sockets.snapshot() {
            match judge(&link, now, &self.config.sweep) {
                Verdict::Keep => {}
                Verdict::Retire(reason) => self.retire(&link, reason, now),
                Verdict::Close(reason) => link.lane.close(reason, now),
                Verdict::Kill => {
                    self.counters.killed.increment();
                    link.kill();
                }
            }
        }
        self.restart_push();
        if !self.services.persistence().connected() {
            self.counters.persistence_restarted.increment();
            tracing::error!("persistence actor failed; starting a new one");
            self.services.replace_persistence((self.start_persistence)(self.shared.clone()));
            if self.stale_ended {
                self.end_stale();
            }
        }
    }

    /// What waited in one that has failed is gone: its desktops and phones find each other without it.
    fn restart_push(&self) {
        if self.services.push().is_some_and(|push| !push.connected()) {
            self.counters.push.restarted.increment();
            tracing::error!("push actor failed; starting a new one");
            self.services.replace_push((self.start_push)(self.services.clone()));
        }
    }

    /// Rows that an earlier process left as online stay so for one reconnect wait; who has not come back by then is gone.
    fn end_stale(&mut self) {
        self.stale_ended = true;
        self.services.end_stale_statuses();
    }

    /// Waits until the sockets hold too much together, and gives up the largest holders.
    fn await_excess(&mut self, ctx: &mut Context<Self>) {
        let exceeded = self.sockets.exceeded();
        let told = async move { exceeded.notified().await }.into_actor(self);
        ctx.spawn(told.map(|(), this, ctx| {
            this.relieve();
            ctx.run_later(RELIEF_INTERVAL_MIN, Self::await_excess);
        }));
    }

    fn relieve(&self) {
        let budgets = [(Direction::Inbound, self.sockets.inbound()), (Direction::Outbound, self.sockets.outbound())];
        for (direction, budget) in budgets {
            let excess = budget.excess();
            if excess == 0 {
                continue;
            }
            let (now, largest) = (clock::now(), largest_holders(&self.sockets.snapshot(), direction, excess));
            tracing::warn!(?direction, excess, sockets = largest.len(), "sockets hold too much together; the largest are given up");
            for link in largest {
                if !link.lane.is_closing() {
                    self.retire(&link, CloseReason::Saturated, now);
                }
                // Its router closes it in its turn; what waits for it is given back now.
                if direction == Direction::Outbound && !link.lane.shed(now) {
                    link.kill();
                }
            }
        }
    }

    /// The router ends the generation and closes the link. When it cannot be told, the link is closed here, and the router learns
    /// of it as of any other end.
    /// While the router is slow it is told again by every sweep, since it may fail meanwhile; that is one retirement all the same.
    fn retire(&self, link: &Link, reason: CloseReason, now: Instant) {
        let user = link.identity.user;
        if link.note_retirement() {
            self.counters.retired.count(reason.text());
            tracing::debug!(%user, socket = %link.id, reason = reason.text(), queued = link.lane.queued_bytes(), "retiring");
        }
        let told = link.registration().is_some() && self.directory.hint(user, Input::Retire { socket: link.id, reason });
        if !told {
            link.lane.close(reason, now);
        }
    }

    fn end_graces(&mut self, ctx: &mut Context<Self>) {
        self.armed = None;
        while let Some(Grace { user, desktop, generation }) = self.graces.take_ended(clock::now()) {
            self.directory.deliver(user, Input::GraceElapsed { desktop, generation });
        }
        self.arm_next(ctx);
    }

    /// Waits are all equally long, so a new one never ends before the armed one.
    fn arm_next(&mut self, ctx: &mut Context<Self>) {
        let (None, Some(next)) = (self.armed, self.graces.next()) else { return };
        self.armed = Some(next);
        ctx.run_later(next.saturating_duration_since(clock::now()), Self::end_graces);
    }
}

impl Actor for Supervisor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.run_interval(self.config.sweep.interval(), |this, _| this.sweep());
        self.await_excess(ctx);
        ctx.run_later(self.config.reconnect_grace, |this, _| this.end_stale());
    }
}

impl Handler<ArmGrace> for Supervisor {
    type Result = ();

    fn handle(&mut self, message: ArmGrace, ctx: &mut Context<Self>) {
        let ArmGrace { user, desktop, generation } = message;
        self.graces.arm(Grace { user, desktop, generation }, clock::now() + self.config.reconnect_grace);
        self.arm_next(ctx);
    }
}

impl Handler<AreYouThere> for Supervisor {
    type Result = ();

    fn handle(&mut self, AreYouThere: AreYouThere, _: &mut Context<Self>) {}
}
