//! The router's shell: stamps the time, asks the core, runs the effects, keeps one timer.

use super::{
    core::{CoreConfig, Effects, UserCore},
    message::{Effect, Fresh, Input, Now, SocketId, Unavailable},
};
use crate::{
    clock::{self, EpochMs},
    counters::Counters,
    device_socket::{Held, Link, Refused, Registration},
    directory::{Directory, RouterId, Visit},
    drain::Work,
    mailbox,
    persistence::LookUp,
    push::{Asker, DesktopOnline, Notify},
    spans::Spans,
    supervisor::{ArmGrace, Services, Supervisor},
};
use actix::{Actor, ActorContext, ActorFutureExt, Addr, AsyncContext, Context, Handler, Message, MessageResult, SpawnHandle, WrapFuture};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use relay_protocol::{
    close::CloseReason,
    device::Presence,
    event::{NotSent, Outcome},
    id::{ConnectionId, DeviceId, SessionId, UserId},
    register::Register as RegisterFrame,
};
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};
use uuid::Uuid;

/// A look-up that takes longer than this counts as unavailable; the persistence actor has its own, shorter deadline.
const LOOK_UP_TIMEOUT: Duration = Duration::from_secs(8);
/// Random bytes of a resume token (device-lane section 3 asks for a token that cannot be guessed).
const RESUME_TOKEN_BYTES: usize = 32;

/// What routers take from the configuration.
#[derive(Clone, Debug)]
pub struct RouterConfig {
    /// The core's limits; the account is filled in for each.
    pub core: CoreConfig,
    /// Messages that wait for one router before its senders stop reading.
    pub mailbox_capacity: usize,
}

/// A registration as a socket hands it over.
pub struct Registering {
    /// The socket.
    pub link: Arc<Link>,
    /// `X-Target-Desktop-Device-ID`.
    pub header_target: Option<String>,
    /// The frame.
    pub register: Box<RegisterFrame>,
}

/// A registration on its way to the router.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Register {
    pub(crate) registering: Registering,
    pub(crate) visit: Visit,
    pub(crate) work: Work,
}

/// Something that happened, from a sender whose socket keeps the router alive, or that does not matter without it.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Step(pub Input);

/// A message of a socket, held until it has been handled.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Routed {
    pub(crate) input: Input,
    pub(crate) held: Held,
    pub(crate) work: Work,
}

/// Something that happened, whose sender waits until it has been handled.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Visited {
    pub(crate) input: Input,
    pub(crate) visit: Visit,
}

/// Asks for the account's live presence.
#[derive(Message)]
#[rtype(result = "BTreeMap<DeviceId, Presence>")]
pub(crate) struct Ask {
    pub(crate) visit: Visit,
}

/// The actor.
pub struct UserRouter {
    core: UserCore,
    effects: Effects,
    ports: Ports,
    timer: Option<(Instant, SpawnHandle)>,
    // The directory entry of this life.
    user: UserId,
    id: RouterId,
    directory: Arc<Directory>,
    left: bool,
}

/// Where effects go.
struct Ports {
    links: BTreeMap<SocketId, Arc<Link>>,
    services: Services,
    supervisor: Addr<Supervisor>,
    counters: Arc<Counters>,
    spans: Option<Spans>,
    user: UserId,
    directory: Arc<Directory>,
}

impl UserRouter {
    pub(crate) fn new(
        user: UserId,
        id: RouterId,
        config: &RouterConfig,
        directory: Arc<Directory>,
        services: Services,
        supervisor: Addr<Supervisor>,
        counters: Arc<Counters>,
    ) -> Self {
        UserRouter {
            core: UserCore::new(CoreConfig { user, revision_base: directory.age_ms(), counters: counters.clone(), ..config.core.clone() }),
            effects: Effects::default(),
            ports: Ports {
                links: BTreeMap::new(),
                services,
                supervisor,
                counters,
                spans: config.core.spans.clone(),
                user,
                directory: directory.clone(),
            },
            timer: None,
            user,
            id,
            directory,
            left: false,
        }
    }

    /// `work` ends when every effect has been handed on; a look-up takes it along to its own step.
    fn step(&mut self, input: Input, mut work: Option<Work>, ctx: &mut Context<Self>) {
        let now = Now { monotonic: clock::now(), wall: EpochMs::now() };
        let closed = if let Input::SocketClosed { socket } = input { Some(socket) } else { None };
        self.core.handle(now, input, &mut self.effects);
        while let Some(effect) = self.effects.pop() {
            if let Effect::LookUp { socket, devices } = effect {
                self.look_up(socket, devices, work.take(), ctx);
            } else if let Some(result) = self.ports.run(effect, now.monotonic) {
                self.core.handle(now, result, &mut self.effects);
            }
        }
        if let Some(socket) = closed {
            self.ports.links.remove(&socket);
        }
        self.rearm(now.monotonic, ctx);
        self.leave_if_idle(ctx);
    }

    fn leave_if_idle(&mut self, ctx: &mut Context<Self>) {
        if self.core.is_idle() && self.directory.leave(self.user, self.id) {
            self.left = true;
            ctx.stop();
        }
    }

    /// The timer is only moved forward. A deadline that went away lets it fire for nothing, which is cheaper than moving it with
    /// each request.
    fn rearm(&mut self, now: Instant, ctx: &mut Context<Self>) {
        let Some((at, reason)) = self.core.next_timeout() else { return };
        if let Some((armed, handle)) = self.timer {
            if armed <= at {
                return;
            }
            ctx.cancel_future(handle);
        }
        let handle = ctx.run_later(at.saturating_duration_since(now), move |this, ctx| {
            tracing::trace!(user = %this.user, reason, "router timer");
            this.timer = None;
            this.step(Input::Timeout, None, ctx);
        });
        self.timer = Some((at, handle));
    }

    fn look_up(&mut self, socket: SocketId, devices: Vec<DeviceId>, work: Option<Work>, ctx: &mut Context<Self>) {
        let persistence = self.ports.services.persistence();
        let looking_up = async move { mailbox::ask(&persistence, LookUp { devices }, LOOK_UP_TIMEOUT).await };
        ctx.spawn(looking_up.into_actor(self).map(move |answer, this, ctx| {
            let (required, devices) = match answer {
                Ok(found) => (found.required.map_err(|_policy| Unavailable), found.devices.map_err(|_look_up| Unavailable)),
                Err(_no_answer) => (Err(Unavailable), Err(Unavailable)),
            };
            this.step(Input::LookedUp { socket, required, devices }, work, ctx);
        }));
    }
}

impl Ports {
    /// Runs an effect; what becomes of it may be an input.
    fn run(&self, effect: Effect, now: Instant) -> Option<Input> {
        match effect {
            Effect::LookUp { .. } => None,
            Effect::Registered { socket, connection, route, answer } => {
                let link = self.links.get(&socket)?;
                tracing::info!(user = %self.user, %socket, %connection, %route, "registered");
                link.set_registered(Registration { connection, route, at: now });
                // A socket that is closing has no use for the answer; its end is on the way.
                let _ = link.lane.push(answer);
                None
            }
            Effect::NotRegistered { socket, answer } => {
                let link = self.links.get(&socket)?;
                link.set_not_registered();
                let _ = link.lane.push(answer);
                None
            }
            Effect::Send { socket, text } => {
                let refused = self.links.get(&socket)?.lane.push(text).err()?;
                self.retire_if_full(socket, refused)
            }
            Effect::SendEvent { socket, event } => {
                let refused = self.links.get(&socket)?.lane.push_event(event, now).err()?;
                self.retire_if_full(socket, refused)
            }
            Effect::SetLease { socket, lease } => {
                self.links.get(&socket)?.lane.set_lease(lease);
                None
            }
            Effect::Forward { socket, id, text } => match self.links.get(&socket).map(|link| link.lane.offer(text)) {
                Some(Ok(())) => None,
                Some(Err(_)) | None => Some(Input::NotForwarded { socket, id }),
            },
            Effect::Close { socket, reason } => {
                tracing::debug!(user = %self.user, %socket, reason = reason.text(), "closing");
                self.links.get(&socket)?.lane.close(reason, now);
                None
            }
            Effect::ArmGrace { desktop, generation } => {
                mailbox::deliver(&self.supervisor, ArmGrace { user: self.user, desktop, generation });
                None
            }
            Effect::DesktopOnline { desktop, at } => {
                self.services.tell_phones(DesktopOnline { user: self.user, desktop, at });
                None
            }
            Effect::Notify { socket, desktop, notification } => {
                let asker = Asker { directory: self.directory.clone(), user: self.user, socket, notification_id: notification.id.clone() };
                let refused = self.services.notify(Notify { user: self.user, desktop, notification, asker }).err()?;
                self.counters.push.notifications.count(NotSent::Overloaded.as_str());
                Some(Input::Notified { socket, answer: Outcome::Refused(NotSent::Overloaded).to_text(&refused.notification.id) })
            }
            Effect::WriteStatus(write) => {
                self.services.write_status(write);
                None
            }
            Effect::Dropped(reason) => {
                self.counters.dropped.count(reason.name());
                None
            }
            Effect::Record(span) => {
                if let Some(spans) = &self.spans {
                    spans.offer(*span);
                }
                None
            }
        }
    }

    /// A lane that holds too much has closed its connection.
    fn retire_if_full(&self, socket: SocketId, refused: Refused) -> Option<Input> {
        let reason = CloseReason::Saturated;
        (refused == Refused::Full).then(|| {
            self.counters.retired.count(reason.text());
            Input::Retire { socket, reason }
        })
    }
}

impl Actor for UserRouter {
    type Context = Context<Self>;
}

impl Handler<Register> for UserRouter {
    type Result = ();

    fn handle(&mut self, message: Register, ctx: &mut Context<Self>) {
        let Registering { link, header_target, register } = message.registering;
        let (socket, role, api_key) = (link.id, link.role, link.identity.api_key);
        drop(message.visit);
        if let Some(reason) = link.barred() {
            // What barred it may have been handled before this came.
            link.lane.close(reason, clock::now());
            return self.leave_if_idle(ctx);
        }
        if link.has_ended() {
            // Its end may have overtaken it while the mailbox was full; then nobody will end what would begin here.
            return self.leave_if_idle(ctx);
        }
        self.ports.links.insert(socket, link);
        let fresh = Fresh {
            connection: ConnectionId(Uuid::new_v4()),
            session: SessionId(Uuid::new_v4()),
            token: URL_SAFE_NO_PAD.encode(rand::random::<[u8; RESUME_TOKEN_BYTES]>()),
        };
        self.step(Input::Register { socket, role, header_target, register, fresh, api_key }, Some(message.work), ctx);
    }
}

impl Handler<Step> for UserRouter {
    type Result = ();

    fn handle(&mut self, Step(input): Step, ctx: &mut Context<Self>) {
        self.step(input, None, ctx);
    }
}

impl Handler<Routed> for UserRouter {
    type Result = ();

    fn handle(&mut self, Routed { input, held, work }: Routed, ctx: &mut Context<Self>) {
        self.step(input, Some(work), ctx);
        drop(held);
    }
}

impl Handler<Visited> for UserRouter {
    type Result = ();

    fn handle(&mut self, message: Visited, ctx: &mut Context<Self>) {
        drop(message.visit);
        self.step(message.input, None, ctx);
    }
}

impl Handler<Ask> for UserRouter {
    type Result = MessageResult<Ask>;

    fn handle(&mut self, message: Ask, _: &mut Context<Self>) -> Self::Result {
        drop(message.visit);
        MessageResult(self.core.presence())
    }
}

impl Drop for UserRouter {
    /// A router that ends with live state has panicked, or the process is ending. Its sockets must not outlive what they were
    /// registered with.
    fn drop(&mut self) {
        if self.left {
            return;
        }
        self.directory.remove(self.user, self.id);
        if std::thread::panicking() {
            self.ports.counters.routers_failed.increment();
            tracing::error!(user = %self.user, "router failed; its devices register again");
        }
        let now = clock::now();
        for link in std::mem::take(&mut self.ports.links).into_values() {
            link.lane.close(CloseReason::RouterFailed, now);
        }
    }
}

/// Makes a router panic, as no input should.
#[cfg(test)]
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Crash;

#[cfg(test)]
impl Handler<Crash> for UserRouter {
    type Result = ();

    fn handle(&mut self, _: Crash, _: &mut Context<Self>) {
        panic!("the test asked for it");
    }
}
