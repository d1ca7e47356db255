//! The device socket actor: reads frames, hands them to the account's router, answers what needs no routing.
//!
//! It never decides who gets what, and receives no messages: what others want of it is on its [`Link`]. Its end is told by dropping,
//! which happens exactly once on every path: end of input, close, a broken connection, a panic.

use super::{
    gate::GateLimits,
    gated_input::Intake,
    link::{Held, Link, Registration},
    message_buffer::MessageBuffer,
};
use crate::{
    clock,
    directory::Directory,
    mailbox::{self, Refused},
    user_router::{
        actor::{Registering, Routed, Step, UserRouter},
        message::Input,
    },
};
use actix::{Actor, ActorContext, ActorFutureExt, Addr, AsyncContext, StreamHandler, WrapFuture};
use actix_http::ws::{CloseReason as PeerClose, Item, Message, ProtocolError};
use actix_web_actors::ws::WebsocketContext;
use bytestring::ByteString;
use relay_protocol::{
    close::CloseReason, device::Role, envelope::Inbound, error::FrameError, event::Event, id::AuthorizationGeneration, identity::Identity,
    rpc::Request, text::Text,
};
use std::{rc::Rc, sync::Arc, time::Duration};
use uuid::Uuid;

/// What a socket needs to know of the configuration.
#[derive(Clone, Copy, Debug)]
pub struct SocketConfig {
    /// Limits of the gate.
    pub gate: GateLimits,
    /// Protocol ping interval.
    pub heartbeat_interval: Duration,
    /// Bound of the outbound lane, in bytes.
    pub outbound_bytes_max: usize,
}

pub(super) struct DeviceSocket {
    link: Arc<Link>,
    directory: Arc<Directory>,
    heartbeat_interval: Duration,
    header_target: Option<String>,
    intake: Rc<Intake>,
    /// The account's router, kept from the first registration on.
    router: Option<Addr<UserRouter>>,
    /// What has come of the unfinished message; the gate bounds it.
    message: MessageBuffer,
}

impl DeviceSocket {
    pub(super) fn new(
        link: Arc<Link>,
        directory: Arc<Directory>,
        heartbeat_interval: Duration,
        header_target: Option<String>,
        intake: Rc<Intake>,
    ) -> Self {
        DeviceSocket { link, directory, heartbeat_interval, header_target, intake, router: None, message: MessageBuffer::default() }
    }

    fn on_text(&mut self, text: ByteString, ctx: &mut WebsocketContext<Self>) {
        self.intake.unfinished_bytes.update(|held| held - text.len());
        let held = Held::new(self.link.clone(), text.len());
        if let Err(error) = self.on_frame(text, held, ctx) {
            tracing::debug!(socket = %self.link.id, code = error.code(), "frame not taken");
            self.directory.counters().frame_errors.count(error.code());
            self.answer(error.to_text());
        }
    }

    fn on_frame(&mut self, text: ByteString, held: Held, ctx: &mut WebsocketContext<Self>) -> Result<(), FrameError> {
        match Inbound::parse_with(self.link.identity.scopes, text)? {
            Inbound::Ping => self.answer(Text::from_static("{\"type\":\"pong\",\"payload\":{}}")),
            Inbound::Register(register) => {
                if !self.link.begin_registration() {
                    return Err(FrameError::AlreadyRegistered);
                }
                let registering = Registering { link: self.link.clone(), header_target: self.header_target.clone(), register };
                self.router = Some(self.directory.register(registering));
            }
            Inbound::Request(request) => {
                self.registered_as(Role::Mobile)?;
                self.on_request(request, held, ctx);
            }
            Inbound::Response(response) => {
                self.registered_as(Role::Desktop)?;
                self.route(Input::Response { socket: self.link.id, response }, held, ctx);
            }
            Inbound::Event(event) => self.on_event(event, held, ctx)?,
        }
        Ok(())
    }

    fn registered_as(&self, role: Role) -> Result<(), FrameError> {
        if self.link.registration().is_none() {
            return Err(FrameError::NotRegistered);
        }
        if self.link.role == role { Ok(()) } else { Err(FrameError::WrongRole) }
    }

    fn on_request(&mut self, request: Request, held: Held, ctx: &mut WebsocketContext<Self>) {
        match request {
            Request::Call(call) => self.route(Input::Call { socket: self.link.id, call }, held, ctx),
            Request::Refused { id_json, refusal } => {
                self.directory.counters().refusals.count(refusal.name());
                self.answer(refusal.to_text(&id_json));
            }
        }
    }

    fn on_event(&mut self, event: Event, held: Held, ctx: &mut WebsocketContext<Self>) -> Result<(), FrameError> {
        let socket = self.link.id;
        let (role, input) = match event {
            Event::Interest(interest) => {
                (Role::Mobile, Input::Interest { socket, interest, generation: AuthorizationGeneration(Uuid::new_v4()) })
            }
            Event::Timeline(frame) => (Role::Desktop, Input::Timeline { socket, frame }),
            Event::Notification(notification) => (Role::Desktop, Input::Notification { socket, notification }),
            Event::Regular(event) => (Role::Desktop, Input::Event { socket, event }),
        };
        self.registered_as(role)?;
        self.route(input, held, ctx);
        Ok(())
    }

    /// Hands something to the router. While its mailbox is full this socket stops reading, so its peer is slowed down and nothing is
    /// lost.
    fn route(&mut self, input: Input, held: Held, ctx: &mut WebsocketContext<Self>) {
        let Some(router) = &self.router else { return };
        let work = self.directory.drain().begin_work();
        match mailbox::offer(router, Routed { input, held, work }) {
            Ok(()) => {}
            Err(Refused::Full(routed)) => ctx.wait(router.send(routed).into_actor(self).map(|_sent, _, _| ())),
            Err(Refused::Gone(_)) => self.close(CloseReason::RouterFailed, ctx),
        }
    }

    fn answer(&self, text: Text) {
        // A closing connection takes nothing more, and needs nothing more.
        let _ = self.link.lane.push(text);
    }

    fn close(&self, reason: CloseReason, ctx: &mut WebsocketContext<Self>) {
        self.link.lane.close(reason, clock::now());
        ctx.stop();
    }

    fn on_peer_close(&self, close: Option<&PeerClose>, ctx: &mut WebsocketContext<Self>) {
        self.link.lane.answer_close(close.map(|close| close.code.into()), clock::now());
        ctx.stop();
    }

    fn keep(&mut self, piece: &[u8]) {
        self.message.extend(piece, self.intake.unfinished_bytes.get());
    }

    fn on_fragment(&mut self, item: Item, ctx: &mut WebsocketContext<Self>) {
        match item {
            Item::FirstText(bytes) | Item::Continue(bytes) => self.keep(&bytes),
            Item::FirstBinary(_) => self.close(CloseReason::Binary, ctx),
            Item::Last(bytes) => {
                self.keep(&bytes);
                // Only the whole message is judged: a character may be cut by a fragment's end.
                match ByteString::try_from(self.message.take()) {
                    Ok(text) => self.on_text(text, ctx),
                    Err(_not_utf8) => self.close(CloseReason::NotUtf8, ctx),
                }
            }
        }
    }
}

impl Actor for DeviceSocket {
    type Context = WebsocketContext<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.run_interval(self.heartbeat_interval, |this, _| this.link.lane.ping());
    }
}

impl StreamHandler<Result<Message, ProtocolError>> for DeviceSocket {
    fn handle(&mut self, item: Result<Message, ProtocolError>, ctx: &mut Self::Context) {
        self.intake.unhandled_frames.update(|frames| frames.saturating_sub(1));
        match item {
            Ok(Message::Text(text)) => self.on_text(text, ctx),
            Ok(Message::Continuation(item)) => self.on_fragment(item, ctx),
            Ok(Message::Ping(payload)) => self.link.lane.pong(&payload),
            Ok(Message::Pong(_) | Message::Nop) => {}
            Ok(Message::Close(close)) => self.on_peer_close(close.as_ref(), ctx),
            Ok(Message::Binary(_)) => self.close(CloseReason::Binary, ctx),
            // The gate has judged every header and every close frame and hides broken connections, so what the codec finds is text
            // that is not UTF-8.
            Err(ProtocolError::Io(_)) => self.close(CloseReason::NotUtf8, ctx),
            Err(_unexpected) => self.close(CloseReason::ProtocolViolation, ctx),
        }
    }

    /// The input has ended: by the gate's verdict, or because the peer has gone.
    fn finished(&mut self, ctx: &mut Self::Context) {
        match self.intake.violation.take() {
            Some(violation) => self.close(violation, ctx),
            None => ctx.stop(),
        }
    }
}

impl Drop for DeviceSocket {
    fn drop(&mut self) {
        self.link.set_ended();
        self.link.inbound.give_back(self.intake.unfinished_bytes.take());
        if let Some(router) = &self.router {
            mailbox::deliver(router, Step(Input::SocketClosed { socket: self.link.id }));
        }
        let Link { id, identity: Identity { user, .. }, lane, .. } = &*self.link;
        let reason = lane.end_reason().name();
        self.directory.counters().closed.count(reason);
        match self.link.registration() {
            Some(Registration { connection, route, .. }) => {
                tracing::info!(%user, socket = %id, %connection, %route, reason, "closed");
            }
            None => tracing::debug!(%user, socket = %id, reason, "socket ended without a registration"),
        }
    }
}
