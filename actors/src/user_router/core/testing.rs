//! A router core with a clock of its own, and effects as short lines: what a test gives and what it sees.

use super::{CoreConfig, Effects, ProcessPending, UserCore};
use crate::{
    clock::{self, EpochMs},
    drain::Drain,
    spans::Span,
    user_router::message::{Effect, Fresh, Input, Now, OutboundEvent, SocketId, TimelineMark, Unavailable, Whose},
};
use relay_protocol::{
    close::CloseReason,
    device::{DeviceFacts, Role},
    envelope::Inbound,
    event::{Event, Interest, RegularEvent, TimelineFrame},
    id::{ApiKeyId, AuthorizationGeneration, ConnectionId, DeviceId, RelayInstanceId, Route, SessionId, UserId},
    register::Register,
    rpc::{Call, Request, RequestId, Response},
    text::Text,
    version::Version,
};
use serde_json::Value;
use std::{hash::RandomState, time::Duration};
use uuid::Uuid;

/// Wall time at the start of each test.
pub(super) const EPOCH_MS: i64 = 1_789_214_400_000;
pub(super) const MS: Duration = Duration::from_millis(1);
const DESKTOPS: u128 = 0xd000;
const PHONES: u128 = 0xa000;

pub(super) fn user() -> UserId {
    UserId(Uuid::from_u128(7))
}

pub(super) fn desktop(number: usize) -> DeviceId {
    DeviceId(Uuid::from_u128(DESKTOPS + number as u128))
}

pub(super) fn phone(number: usize) -> DeviceId {
    DeviceId(Uuid::from_u128(PHONES + number as u128))
}

/// The route of a phone to a desktop.
pub(super) fn route(phone_number: usize, desktop_number: usize) -> Route {
    Route::Phone { phone: phone(phone_number), desktop: desktop(desktop_number) }
}

/// `d0`, `p3`.
pub(super) fn name(device: DeviceId) -> String {
    let number = device.0.as_u128();
    if number >= DESKTOPS { format!("d{}", number - DESKTOPS) } else { format!("p{}", number - PHONES) }
}

/// The connection that a socket gets.
pub(super) fn connection(socket: SocketId) -> ConnectionId {
    ConnectionId(Uuid::from_u128(u128::from(socket.0)))
}

/// The session that a socket's registration begins unless it resumes one.
pub(super) fn session(socket: SocketId) -> SessionId {
    SessionId(Uuid::from_u128(0x5e55_0000 + u128::from(socket.0)))
}

pub(super) fn key(number: usize) -> ApiKeyId {
    ApiKeyId(Uuid::from_u128(0x4e50 + number as u128))
}

pub(super) fn token(socket: SocketId) -> String {
    format!("token-{socket}")
}

pub(super) fn fresh(socket: SocketId) -> Fresh {
    Fresh { connection: connection(socket), session: session(socket), token: token(socket) }
}

/// The row of a device of this account.
pub(super) fn row(id: DeviceId) -> DeviceFacts {
    let role = if name(id).starts_with('d') { Role::Desktop } else { Role::Mobile };
    DeviceFacts { id, user: user(), role, relay_eligible: true }
}

/// A look-up that brings good rows for the route.
pub(super) fn found(socket: SocketId, route: Route) -> Input {
    let devices = Ok(vec![row(route.device()), row(route.desktop())]);
    Input::LookedUp { socket, required: Ok(Version::new(1, 7)), devices }
}

/// A good `register` for the route.
pub(super) fn register(route: Route) -> Register {
    Register {
        device_id: route.device().to_string(),
        relay_protocol_version: Some("1.7".into()),
        target_desktop_device_id: match route {
            Route::Desktop(_) => None,
            Route::Phone { desktop, .. } => Some(desktop.to_string()),
        },
        ..Register::default()
    }
}

pub(super) fn role(route: Route) -> Role {
    match route {
        Route::Desktop(_) => Role::Desktop,
        Route::Phone { .. } => Role::Mobile,
    }
}

pub(super) fn call(id: &str, method: &str, params: u32) -> Call {
    call_traced(id, method, params, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
}

pub(super) fn call_traced(id: &str, method: &str, params: u32, traceparent: &str) -> Call {
    let text = format!(
        "{{\"type\":\"rpc.request\",\"payload\":{{\"id\":\"{id}\",\"method\":\"{method}\",\"params\":{params},\"idempotencyKey\":\"k\",\
         \"traceparent\":\"{traceparent}\"}}}}"
    );
    match Inbound::parse(text.into()) {
        Ok(Inbound::Request(Request::Call(call))) => call,
        other => panic!("{other:?}"),
    }
}

pub(super) fn response(client: &str, id: &str, result: u32, is_final: bool) -> Response {
    let text = format!(
        "{{\"type\":\"rpc.response\",\"payload\":{{\"clientId\":\"{client}\",\"id\":\"{id}\",\"result\":{result},\"isFinal\":{is_final}}}}}"
    );
    match Inbound::parse(text.into()) {
        Ok(Inbound::Response(response)) => response,
        other => panic!("{other:?}"),
    }
}

pub(super) fn generation(number: u64) -> AuthorizationGeneration {
    AuthorizationGeneration(Uuid::from_u128(0x6e00_0000 + u128::from(number)))
}

pub(super) fn event(name: &str, payload: &str) -> Event {
    let text = format!("{{\"type\":\"event\",\"payload\":{{\"eventType\":\"{name}\",\"payload\":{payload}}}}}");
    match Inbound::parse(text.into()) {
        Ok(Inbound::Event(event)) => event,
        other => panic!("{other:?}"),
    }
}

pub(super) fn interest(session: &str, active: bool) -> Interest {
    match event("chat:timeline-interest", &format!("{{\"appSessionId\":\"{session}\",\"active\":{active}}}")) {
        Event::Interest(interest) => interest,
        other @ (Event::Timeline(_) | Event::Notification(_) | Event::Regular(_)) => panic!("{other:?}"),
    }
}

/// A timeline frame with a key, that says `n` and shows a generation.
pub(super) fn timeline(session: &str, generation: AuthorizationGeneration, n: u64) -> TimelineFrame {
    timeline_with_key(session, generation, Some("k"), n)
}

pub(super) fn timeline_with_key(session: &str, generation: AuthorizationGeneration, key: Option<&str>, n: u64) -> TimelineFrame {
    let key = key.map(|key| format!("\"timelineKey\":\"{key}\",")).unwrap_or_default();
    let payload = format!("{{\"appSessionId\":\"{session}\",\"authorizationGeneration\":\"{generation}\",{key}\"n\":{n}}}");
    match event("chat:stream", &payload) {
        Event::Timeline(frame) => frame,
        other @ (Event::Interest(_) | Event::Notification(_) | Event::Regular(_)) => panic!("{other:?}"),
    }
}

pub(super) fn regular(n: u64) -> RegularEvent {
    match event("files:changed", &format!("{{\"n\":{n}}}")) {
        Event::Regular(event) => event,
        other @ (Event::Interest(_) | Event::Timeline(_) | Event::Notification(_)) => panic!("{other:?}"),
    }
}

pub(super) struct Harness {
    pub(super) core: UserCore,
    pub(super) process: ProcessPending,
    pub(super) drain: Drain,
    pub(super) now: Now,
    /// The API key that sockets are opened with from now on.
    pub(super) api_key: Option<ApiKeyId>,
    sockets: u64,
    generations: u64,
}

impl Harness {
    pub(super) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(super) fn with(change: impl FnOnce(&mut CoreConfig)) -> Self {
        let mut config = CoreConfig::new(user(), RelayInstanceId(Uuid::nil()), RandomState::new());
        change(&mut config);
        let now = Now { monotonic: clock::now(), wall: EpochMs(EPOCH_MS) };
        let (process, drain) = (config.process.clone(), config.drain.clone());
        Harness { core: UserCore::new(config), process, drain, now, api_key: None, sockets: 0, generations: 0 }
    }

    pub(super) fn step(&mut self, input: Input) -> Vec<String> {
        let mut effects = Effects::default();
        self.core.handle(self.now, input, &mut effects);
        assert_eq!(self.core.check_invariants(), Ok(()));
        std::iter::from_fn(|| effects.pop()).map(describe).collect()
    }

    /// Lets time pass without a word to the core.
    pub(super) fn pass(&mut self, time: Duration) {
        self.now = Now { monotonic: self.now.monotonic + time, wall: self.now.wall.plus(time) };
    }

    pub(super) fn timeout_after(&mut self, time: Duration) -> Vec<String> {
        self.pass(time);
        self.step(Input::Timeout)
    }

    pub(super) fn new_socket(&mut self) -> SocketId {
        self.sockets += 1;
        SocketId(self.sockets)
    }

    pub(super) fn begin(&mut self, socket: SocketId, route: Route, register: Register) -> Vec<String> {
        let (role, register, api_key) = (role(route), Box::new(register), self.api_key);
        self.step(Input::Register { socket, role, header_target: None, register, fresh: fresh(socket), api_key })
    }

    /// The look-up brings good rows.
    pub(super) fn found(&mut self, socket: SocketId, route: Route) -> Vec<String> {
        self.step(found(socket, route))
    }

    pub(super) fn unavailable(&mut self, socket: SocketId) -> Vec<String> {
        self.step(Input::LookedUp { socket, required: Err(Unavailable), devices: Err(Unavailable) })
    }

    /// Registers the socket; the frame that answers it.
    pub(super) fn answer(&mut self, socket: SocketId, route: Route, register: Register) -> Value {
        self.begin(socket, route, register);
        let mut effects = Effects::default();
        self.core.handle(self.now, found(socket, route), &mut effects);
        let mut effects = std::iter::from_fn(|| effects.pop());
        effects.find_map(|effect| if let Effect::Registered { answer, .. } = effect { Some(json(&answer)) } else { None }).unwrap()
    }

    /// Registers a new socket; what came of it.
    pub(super) fn open(&mut self, route: Route) -> (SocketId, Vec<String>) {
        let socket = self.new_socket();
        self.begin(socket, route, register(route));
        let seen = self.found(socket, route);
        assert!(seen.contains(&format!("{socket} registered")), "{seen:?}");
        (socket, seen)
    }

    /// Tries to resume on a new socket; what came of it.
    pub(super) fn resume(&mut self, route: Route, session: SessionId, token: &str) -> (SocketId, Vec<String>) {
        let socket = self.new_socket();
        let resume = Register { session_id: Some(session.to_string()), resume_token: Some(token.into()), ..register(route) };
        self.begin(socket, route, resume);
        (socket, self.found(socket, route))
    }

    pub(super) fn desktop(&mut self, number: usize) -> SocketId {
        self.open(Route::Desktop(desktop(number))).0
    }

    pub(super) fn phone(&mut self, number: usize, desktop_number: usize) -> SocketId {
        self.open(route(number, desktop_number)).0
    }

    pub(super) fn call(&mut self, socket: SocketId, id: &str) -> Vec<String> {
        self.step(Input::Call { socket, call: call(id, "system.ping", 1) })
    }

    /// Sends a request that must be forwarded.
    pub(super) fn forwarded(&mut self, socket: SocketId, id: &str) {
        let seen = self.call(socket, id);
        assert!(seen.len() == 1 && seen[0].contains(" request "), "{seen:?}");
    }

    pub(super) fn respond(&mut self, socket: SocketId, client: Route, id: &str, is_final: bool) -> Vec<String> {
        self.step(Input::Response { socket, response: response(&client.to_string(), id, 1, is_final) })
    }

    /// A phone takes or gives up interest; were a generation to begin, it would be the next one.
    pub(super) fn interest(&mut self, socket: SocketId, session: &str, active: bool) -> Vec<String> {
        self.generations += 1;
        self.step(Input::Interest { socket, interest: interest(session, active), generation: generation(self.generations) })
    }

    pub(super) fn timeline(&mut self, socket: SocketId, session: &str, of: u64, n: u64) -> Vec<String> {
        self.step(Input::Timeline { socket, frame: timeline(session, generation(of), n) })
    }

    pub(super) fn regular(&mut self, socket: SocketId, n: u64) -> Vec<String> {
        self.step(Input::Event { socket, event: regular(n) })
    }

    pub(super) fn close(&mut self, socket: SocketId) -> Vec<String> {
        self.step(Input::SocketClosed { socket })
    }

    pub(super) fn retire(&mut self, socket: SocketId, reason: CloseReason) -> Vec<String> {
        self.step(Input::Retire { socket, reason })
    }

    pub(super) fn close_device(&mut self, device: DeviceId, reason: CloseReason) -> Vec<String> {
        self.step(Input::CloseAllOf { whose: Whose::Device(device), reason })
    }

    pub(super) fn log_out(&mut self) -> Vec<String> {
        self.step(Input::CloseAllOf { whose: Whose::Account, reason: CloseReason::LoggedOut })
    }

    pub(super) fn revoke(&mut self, api_key: ApiKeyId) -> Vec<String> {
        self.step(Input::CloseAllOf { whose: Whose::ApiKey(api_key), reason: CloseReason::Revoked })
    }

    pub(super) fn grace_elapsed(&mut self, desktop_number: usize, of: SocketId) -> Vec<String> {
        self.step(Input::GraceElapsed { desktop: desktop(desktop_number), generation: connection(of) })
    }

    pub(super) fn not_forwarded(&mut self, socket: SocketId, id: &str) -> Vec<String> {
        self.step(Input::NotForwarded { socket, id: RequestId::new(id) })
    }
}

pub(super) fn json(text: &Text) -> Value {
    serde_json::from_slice(&text.to_bytes()).unwrap()
}

/// One effect as a line: `3 registered`, `1 close replaced`, `2 refusal a -32011`, `arm d0 1`.
pub(super) fn describe(effect: Effect) -> String {
    match effect {
        Effect::LookUp { socket, devices } => format!("{socket} look-up {}", devices.into_iter().map(name).collect::<Vec<_>>().join(" ")),
        Effect::Registered { socket, connection: id, answer, .. } => {
            assert_eq!(id, connection(socket));
            format!("{socket} {}", json(&answer)["type"].as_str().unwrap())
        }
        Effect::NotRegistered { socket, answer } => format!("{socket} failed {}", json(&answer)["payload"]["code"].as_str().unwrap()),
        Effect::Send { socket, text } => format!("{socket} {}", describe_sent(&json(&text))),
        Effect::SendEvent { socket, event } => format!("{socket} {}", describe_event(&event)),
        Effect::SetLease { socket, lease: Some(term) } => format!("{socket} lease {}", term.epoch.0),
        Effect::SetLease { socket, lease: None } => format!("{socket} lease none"),
        Effect::Forward { socket, id, text } => {
            let payload = &json(&text)["payload"];
            assert_eq!(payload["id"].as_str().map(str::trim), Some(id.as_str()));
            assert_eq!(payload["userId"], user().to_string());
            format!("{socket} request {} from {}", id.as_str(), client(payload["clientId"].as_str().unwrap()))
        }
        Effect::Close { socket, reason } => format!("{socket} close {}", reason.text()),
        Effect::ArmGrace { desktop, generation } => format!("arm {} {}", name(desktop), generation.0.as_u128()),
        Effect::DesktopOnline { desktop, .. } => format!("push {} online", name(desktop)),
        Effect::Notify { socket, desktop, notification } => format!("{socket} push {} of {}", notification.id, name(desktop)),
        Effect::WriteStatus(write) => format!("write {} {} {}", name(write.device), write.status, write.reason.as_str()),
        Effect::Dropped(reason) => format!("dropped {reason:?}"),
        Effect::Record(span) => {
            let Span { method, user: of, client, outcome, .. } = *span;
            assert_eq!(of, user());
            let route = client.map_or("nobody".to_owned(), |route| format!("{}>{}", name(route.device()), name(route.desktop())));
            format!("span {} {route} {} {}", method.name, outcome.name(), if span.delivered { "delivered" } else { "lost" })
        }
    }
}

fn client(route: &str) -> String {
    let route: Route = route.parse().unwrap();
    format!("{}::{}", name(route.device()), name(route.desktop()))
}

fn describe_sent(frame: &Value) -> String {
    let payload = &frame["payload"];
    match frame["type"].as_str().unwrap() {
        "event" if payload["eventType"] == "chat:timeline-interest-updated" => describe_update(&payload["payload"]),
        "event" if payload["eventType"] == "agent:notification-result" => {
            let told = &payload["payload"];
            format!("told {} {}", told["notificationId"].as_str().unwrap(), told["reason"].as_str().unwrap_or("accepted"))
        }
        "event" => {
            assert_eq!(payload["eventType"], "device-status");
            format!("status {}", describe_status(&payload["payload"]))
        }
        "rpc.response" => {
            let id = payload["id"].as_str().unwrap();
            match payload.get("result") {
                Some(result) => format!("reply {id} {result}{}", if payload["isFinal"] == true { "" } else { " more" }),
                None => format!("refusal {id} {}", payload["error"]["code"]),
            }
        }
        other => panic!("{other} is nothing that a router sends"),
    }
}

/// `interest s g1 60000 r3`: session, generation, time left, revision; or `interest s ended r3`.
fn describe_update(update: &Value) -> String {
    let (session, revision) = (update["appSessionId"].as_str().unwrap(), &update["revision"]);
    assert_eq!(update["relayInstanceId"], Uuid::nil().to_string());
    if update["active"] == false {
        assert!(update["expiresAt"].is_null() && update["expiresInMs"].is_null() && update["authorizationGeneration"].is_null());
        return format!("interest {session} ended r{revision}");
    }
    let of: AuthorizationGeneration = update["authorizationGeneration"].as_str().unwrap().parse().unwrap();
    format!("interest {session} g{} {} r{revision}", of.0.as_u128() - 0x6e00_0000, update["expiresInMs"])
}

/// `timeline 3 from d0 under 1`: what it says, who sent it, the epoch of the lease; or `event 3 from d0`.
fn describe_event(event: &OutboundEvent) -> String {
    let payload = &json(&event.text)["payload"];
    let source: DeviceId = payload["sourceDeviceId"].as_str().unwrap().parse().unwrap();
    let (n, from) = (&payload["payload"]["n"], name(source));
    match &event.timeline {
        Some(TimelineMark { epoch, key }) => {
            assert_eq!((payload["eventType"].as_str(), key.as_deref()), (Some("chat:stream"), Some("k")));
            assert!(payload["payload"].get("authorizationGeneration").is_none());
            format!("timeline {n} from {from} under {}", epoch.0)
        }
        None => {
            assert_eq!(payload["eventType"], "files:changed");
            format!("event {n} from {from}")
        }
    }
}

/// `d0 online registered 4`: device, status, reason, revision.
pub(super) fn describe_status(status: &Value) -> String {
    let device: DeviceId = status["deviceId"].as_str().unwrap().parse().unwrap();
    let (word, reason) = (status["status"].as_str().unwrap(), status["reason"].as_str().unwrap());
    format!("{} {word} {reason} {}", name(device), status["revision"])
}
