//! What goes into the router's core, and what comes out. Nothing else passes between them.

use crate::clock::EpochMs;
use crate::spans::Span;
use crate::store::StatusWrite;
use relay_protocol::{
    close::CloseReason,
    device::{DeviceFacts, Role},
    event::{Interest, Notification, RegularEvent, TimelineFrame},
    id::{ApiKeyId, AuthorizationGeneration, ConnectionId, DeviceId, Route, SessionId},
    register::Register,
    rpc::{Call, RequestId, Response},
    text::Text,
    version::Version,
};
use std::{fmt, sync::Arc, time::Instant};

/// One websocket, registered or not. Never reused within a process, so that a late event of an old socket changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId(pub u64);

impl fmt::Display for SocketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The two times of one step: the monotonic one decides, the wall time is only shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Decides every deadline.
    pub monotonic: Instant,
    /// For `at` and `expiresAt`.
    pub wall: EpochMs,
}

/// Random values that a registration may need, made by the shell so that the core has no randomness of its own.
#[derive(Clone)]
pub struct Fresh {
    /// The new connection generation.
    pub connection: ConnectionId,
    /// The id of a new session; unused on resume.
    pub session: SessionId,
    /// The token of a new session: 32 random bytes, base64url. A secret; unused on resume.
    pub token: String,
}

impl fmt::Debug for Fresh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fresh").field("connection", &self.connection).field("session", &self.session).finish_non_exhaustive()
    }
}

/// Whose connections and sessions end together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// One device's, on all its routes.
    Device(DeviceId),
    /// All of the account's.
    Account,
    /// Those that were opened, or last resumed, with this API key.
    ApiKey(ApiKeyId),
}

impl Whose {
    /// Whether something of this device, under this key, is among them. A device is missing where its id has not been read.
    pub(crate) fn includes(self, device: Option<DeviceId>, api_key: Option<ApiKeyId>) -> bool {
        match self {
            Whose::Device(own) => device == Some(own),
            Whose::Account => true,
            Whose::ApiKey(own) => api_key == Some(own),
        }
    }
}

/// One phone's right to the timeline of one session. Never reused within a router, so that frames of an ended lease reach nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseEpoch(pub u64);

/// A lease as the phone's socket compares it when it writes: a renewal keeps the epoch and moves the deadline, so that it reaches frames
/// that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTerm {
    /// Which lease.
    pub epoch: LeaseEpoch,
    /// From then on nothing of it is written.
    pub deadline: Instant,
}

/// An event of a desktop on its way to one phone, for the coalescing buffer of the phone's connection (device-lane section 6).
#[derive(Clone, Debug)]
pub struct OutboundEvent {
    /// The whole frame; a fan-out shares its bytes.
    pub text: Text,
    /// Of a timeline frame what it is written under; a regular event has no lease.
    pub timeline: Option<TimelineMark>,
}

/// What a timeline frame is written under, and what it replaces.
#[derive(Clone, Debug)]
pub struct TimelineMark {
    /// The lease that must be live at the final send.
    pub epoch: LeaseEpoch,
    /// The decoded `timelineKey`: a pending frame with the same key is replaced. Without one the frame stands for itself.
    pub key: Option<Arc<str>>,
}

/// Storage could not answer; the registration may be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unavailable;

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// A socket sent `register`, and none of its registrations is being decided.
    Register {
        /// The socket.
        socket: SocketId,
        /// `X-Client-Type`.
        role: Role,
        /// `X-Target-Desktop-Device-ID`.
        header_target: Option<String>,
        /// The frame.
        register: Box<Register>,
        /// Random values for it.
        fresh: Fresh,
        /// The API key that opened the socket, if one did.
        api_key: Option<ApiKeyId>,
    },
    /// The answer to [`Effect::LookUp`].
    LookedUp {
        /// The socket that registers.
        socket: SocketId,
        /// The version that the compatibility rules demand.
        required: Result<Version, Unavailable>,
        /// The rows of the devices asked for; unknown and forgotten ones are missing.
        devices: Result<Vec<DeviceFacts>, Unavailable>,
    },
    /// A registered phone sent a well-formed request.
    Call {
        /// Its socket.
        socket: SocketId,
        /// The request.
        call: Call,
    },
    /// A registered desktop sent a response.
    Response {
        /// Its socket.
        socket: SocketId,
        /// The response.
        response: Response,
    },
    /// A registered phone takes, renews or gives up its lease.
    Interest {
        /// Its socket.
        socket: SocketId,
        /// Of what.
        interest: Interest,
        /// A random generation, for a session that had no lease.
        generation: AuthorizationGeneration,
    },
    /// A registered desktop sent a timeline frame.
    Timeline {
        /// Its socket.
        socket: SocketId,
        /// The frame.
        frame: TimelineFrame,
    },
    /// A registered desktop sent another event.
    Event {
        /// Its socket.
        socket: SocketId,
        /// The event.
        event: RegularEvent,
    },
    /// A registered desktop asks for a push alert.
    Notification {
        /// Its socket.
        socket: SocketId,
        /// The alert.
        notification: Notification,
    },
    /// The answer to [`Effect::Notify`].
    Notified {
        /// The desktop's socket, which may have ended.
        socket: SocketId,
        /// The frame for it.
        answer: Text,
    },
    /// The outbound lane did not take what [`Effect::Forward`] handed over. Comes before any input that could free the id.
    NotForwarded {
        /// The desktop's socket.
        socket: SocketId,
        /// The request.
        id: RequestId,
    },
    /// The socket has ended, or will take and give nothing any more. May come more than once.
    SocketClosed {
        /// The socket.
        socket: SocketId,
    },
    /// The relay gives the socket up: the sweep found it silent or saturated, or its own layer closes it for what it sent. Unlike
    /// [`Input::SocketClosed`] it says why, which decides whether the session may be resumed.
    Retire {
        /// The socket.
        socket: SocketId,
        /// `Silent`, `Saturated`, or a fault like `UnfinishedMessage`.
        reason: CloseReason,
    },
    /// A reconnect wait that [`Effect::ArmGrace`] asked for has passed.
    GraceElapsed {
        /// The desktop.
        desktop: DeviceId,
        /// The generation whose close started the wait.
        generation: ConnectionId,
    },
    /// Close sockets and end their sessions: forgotten, no longer eligible, logged out, revoked.
    CloseAllOf {
        /// Which.
        whose: Whose,
        /// `DeviceForgotten`, `NotEligible`, `LoggedOut` or `Revoked`.
        reason: CloseReason,
    },
    /// The process has closed its sockets: nobody comes back to this router.
    Clear,
    /// The time that `next_timeout` named has come.
    Timeout,
}

/// What the shell must do. Effects are run in order.
#[derive(Debug)]
pub enum Effect {
    /// Ask the persistence actor for the policy and these rows; answer with [`Input::LookedUp`].
    LookUp {
        /// The socket that registers.
        socket: SocketId,
        /// At most two.
        devices: Vec<DeviceId>,
    },
    /// The registration is decided and routing knows it: tell the socket, then send its answer.
    Registered {
        /// The socket.
        socket: SocketId,
        /// Its new generation.
        connection: ConnectionId,
        /// Its route.
        route: Route,
        /// The `registered` or `resumed` frame.
        answer: Text,
    },
    /// The registration failed: tell the socket, which may try again, then send its answer.
    NotRegistered {
        /// The socket.
        socket: SocketId,
        /// The error frame.
        answer: Text,
    },
    /// Put a frame on the socket's urgent lane: a reply, a refusal, presence.
    Send {
        /// The socket.
        socket: SocketId,
        /// The frame.
        text: Text,
    },
    /// Put an event into the coalescing buffer of a phone's socket.
    SendEvent {
        /// The phone's socket.
        socket: SocketId,
        /// The event.
        event: OutboundEvent,
    },
    /// What timeline frames are written under from now on; frames of another lease that wait are gone.
    SetLease {
        /// The phone's socket.
        socket: SocketId,
        /// The lease, if there is one.
        lease: Option<LeaseTerm>,
    },
    /// Put a request on the desktop's urgent lane. If it is not taken, answer with [`Input::NotForwarded`].
    Forward {
        /// The desktop's socket.
        socket: SocketId,
        /// The request.
        id: RequestId,
        /// The frame.
        text: Text,
    },
    /// Close the socket with this reason. Its [`Input::SocketClosed`] will come and change nothing.
    Close {
        /// The socket.
        socket: SocketId,
        /// Why.
        reason: CloseReason,
    },
    /// Have the supervisor report [`Input::GraceElapsed`] after the reconnect wait.
    ArmGrace {
        /// The desktop.
        desktop: DeviceId,
        /// The generation that closed.
        generation: ConnectionId,
    },
    /// A desktop registered that had been gone: the account's phones are told by push.
    DesktopOnline {
        /// The desktop.
        desktop: DeviceId,
        /// When.
        at: EpochMs,
    },
    /// Have an alert sent to the account's phones; answer with [`Input::Notified`].
    Notify {
        /// The socket that asked.
        socket: SocketId,
        /// Its desktop.
        desktop: DeviceId,
        /// The alert.
        notification: Notification,
    },
    /// Store a presence.
    WriteStatus(StatusWrite),
    /// Count something that was dropped.
    Dropped(DropReason),
    /// Record the span of a request that has ended.
    Record(Box<Span>),
}

/// Why something was dropped without an answer. A closed set: each has a counter from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// A response that matches no pending record of that connection.
    NoPendingRecord,
    /// A response, or a refusal of an open request, whose phone has no socket now.
    PhoneGone,
    /// A timeline frame of a session of which no phone has a lease.
    NoLease,
    /// A timeline frame that does not show the generation of its session, of which a phone has a lease.
    StaleGeneration,
    /// A frame of a socket that is not registered any more: closed or replaced, with frames still in the mailbox. Requests of a
    /// replaced phone are refused instead.
    StaleSocket,
}

impl DropReason {
    /// Every variant.
    pub const ALL: [DropReason; 5] =
        [DropReason::NoPendingRecord, DropReason::PhoneGone, DropReason::NoLease, DropReason::StaleGeneration, DropReason::StaleSocket];

    /// The word for metrics.
    pub fn name(self) -> &'static str {
        match self {
            DropReason::NoPendingRecord => "noPendingRecord",
            DropReason::PhoneGone => "phoneGone",
            DropReason::NoLease => "noLease",
            DropReason::StaleGeneration => "staleGeneration",
            DropReason::StaleSocket => "staleSocket",
        }
    }
}
