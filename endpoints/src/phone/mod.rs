//! A phone: one registered link to one desktop, calls over it, and the timeline of one session.
//!
//! A task owns the link; a [`Call`] waits for what that task finds for its id. Dropping a call forgets it: the desktop is not
//! told, since nothing on the wire says so. A [`Watch`] is a lease that the task renews until it is dropped. Dropping the [`Phone`]
//! ends the link at once; [`Phone::close`] says goodbye first. [`Client`] is a phone that comes back.

pub mod client;
mod events;
mod lease;

pub use client::{Client, ClientOptions};
pub use events::{Events, NoEvent};

use crate::{
    frame::{
        Envelope, ErrorFrame, Event, IncomingResponse, Outcome, OutgoingRequest, Register, Registered, Resume, RpcError, encode, kind,
    },
    link::{Ended, Link, LinkOptions, LinkReceiver, LinkSender, OpenError},
    trace::Traceparent,
};
use events::Subscribers;
use lease::Lease;
use relay_protocol::{
    contract::{self, Platform},
    id::DeviceId,
};
use serde_json::value::RawValue;
use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
    time::{Instant, sleep_until, timeout, timeout_at},
};
use uuid::Uuid;

/// Frames waiting for the socket; a call waits for room.
const OUTBOUND_FRAMES_MAX: usize = 64;
/// Progress answers kept for a call that is not looking; later ones are dropped, the final answer never is.
const PROGRESS_MAX: usize = 64;
/// How long a close frame may take to turn up after the sending side failed.
const CLOSE_FRAME_WAIT: Duration = Duration::from_secs(1);

/// What a phone needs to connect.
#[derive(Clone)]
pub struct PhoneOptions {
    /// Where, as whom, and to which desktop.
    pub link: LinkOptions,
    /// The device row, of role `mobile`.
    pub device: DeviceId,
    /// A name for people.
    pub device_name: Option<String>,
    /// What it runs on, for the deadlines of its calls.
    pub platform: Platform,
    /// What it claims to speak.
    pub relay_protocol_version: String,
    /// The session to go on with.
    pub resume: Option<Resume>,
}

impl PhoneOptions {
    /// The defaults for one device.
    pub fn new(link: LinkOptions, device: DeviceId) -> Self {
        let relay_protocol_version = crate::PROTOCOL_VERSION.to_owned();
        PhoneOptions { link, device, device_name: None, platform: Platform::Other, relay_protocol_version, resume: None }
    }

    fn register(&self, resume: Option<Resume>) -> Register {
        Register {
            device_id: self.device,
            relay_protocol_version: Some(self.relay_protocol_version.clone()),
            device_name: self.device_name.clone(),
            resume,
            target_desktop_device_id: self.link.target,
        }
    }
}

/// One call's request. Fields that are `None` are made up: a random id and trace, an idempotency key where the contract demands
/// one, the method's deadline.
#[derive(Clone, Debug)]
pub struct Request {
    /// A method of the contract.
    pub method: String,
    /// Any JSON; absent if `None`.
    pub params: Option<Box<RawValue>>,
    /// Keep it to retry an uncertain mutation.
    pub idempotency_key: Option<String>,
    /// Unique per user and desktop while it is open.
    pub id: Option<String>,
    /// W3C trace context.
    pub traceparent: Option<String>,
    /// For the final answer, counted from the start of the call.
    pub deadline: Option<Duration>,
}

impl Request {
    /// A request without params.
    pub fn new(method: impl Into<String>) -> Self {
        Request { method: method.into(), params: None, idempotency_key: None, id: None, traceparent: None, deadline: None }
    }
}

/// Why a call has no result.
#[derive(Clone, Debug)]
pub enum CallError {
    /// The desktop or the relay answered an error.
    Refused(RpcError),
    /// The link ended. Whether the request ran is unknown.
    Closed(Ended),
    /// No final answer in time. Whether the request ran is unknown.
    TimedOut(Duration),
    /// A call with this id is open on this phone.
    DuplicateId,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::Refused(error) => error.fmt(f),
            CallError::Closed(ended) => ended.fmt(f),
            CallError::TimedOut(after) => write!(f, "no answer within {} s", after.as_secs_f64()),
            CallError::DuplicateId => f.write_str("a call with this id is still open"),
        }
    }
}

impl std::error::Error for CallError {}

/// What [`Call::next`] found.
#[derive(Clone, Debug)]
pub enum Step {
    /// An answer with `isFinal: false`.
    Progress(Outcome),
    /// The result; the call is over.
    Final(Box<RawValue>),
}

/// A registered phone.
pub struct Phone {
    registered: Registered,
    platform: Platform,
    outbound: mpsc::Sender<String>,
    shared: Arc<Shared>,
    watched: watch::Sender<Option<Arc<str>>>,
    pump: JoinHandle<()>,
}

impl Phone {
    /// Connects and registers.
    pub async fn connect(options: PhoneOptions) -> Result<Self, OpenError> {
        let (link, registered) = Link::open(&options.link, options.register(options.resume.clone())).await?;
        let (outbound, queue) = mpsc::channel(OUTBOUND_FRAMES_MAX);
        let (watched, wanted) = watch::channel(None);
        let shared = Arc::new(Shared::default());
        let pump = tokio::spawn(pump(link, Outbound { queue, wanted }, Arc::clone(&shared)));
        Ok(Phone { registered, platform: options.platform, outbound, shared, watched, pump })
    }

    /// The relay's answer: session, resume token, the desktop's presence.
    pub fn registered(&self) -> &Registered {
        &self.registered
    }

    /// Events from now on, presence among them, until the link ends. Those that are not taken are kept up to a bound.
    pub fn events(&self) -> Events {
        lock(&self.shared.events).subscribe()
    }

    /// Watches one session of the desktop until the [`Watch`] is dropped: takes a lease at once, and renews it. A phone has one
    /// lease at a time, so this takes the place of an earlier watch.
    pub fn watch(&self, session: &str) -> Watch {
        let watch = Watch { session: Arc::from(session), events: self.events(), watched: self.watched.clone() };
        self.watched.send_replace(Some(Arc::clone(&watch.session)));
        watch
    }

    /// The latest frame of this phone that the relay refused; `None` at first. A refusal does not say of which frame it is.
    pub fn refusals(&self) -> watch::Receiver<Option<ErrorFrame>> {
        self.shared.refused.subscribe()
    }

    /// How the link ended; `None` while it lives.
    pub fn ended(&self) -> Option<Ended> {
        match &*lock(&self.shared.calls) {
            Calls::Open(_) => None,
            Calls::Ended(ended) => Some(ended.clone()),
        }
    }

    /// Calls and waits for the result, skipping progress.
    pub async fn call(&self, method: &str, params: Option<&RawValue>, idempotency_key: Option<String>) -> Result<Box<RawValue>, CallError> {
        let mut call = self.start(Request { params: params.map(ToOwned::to_owned), idempotency_key, ..Request::new(method) }).await?;
        loop {
            match call.next().await? {
                Step::Progress(_) => {}
                Step::Final(result) => return Ok(result),
            }
        }
    }

    /// Sends a request; its answers come from the [`Call`].
    pub async fn start(&self, request: Request) -> Result<Call, CallError> {
        let id = request.id.unwrap_or_else(|| Uuid::new_v4().to_string());
        let mutation = contract::find(&request.method).is_some_and(|method| method.mutation);
        let key = request.idempotency_key.or_else(|| mutation.then(|| Uuid::new_v4().to_string()));
        let traceparent = request.traceparent.unwrap_or_else(|| Traceparent::random(&mut rand::rng()).to_string());
        let patience = request.deadline.unwrap_or_else(|| contract::phone_deadline(&request.method, self.platform));
        let call = Call::open(id, patience, &self.shared)?;
        let outgoing = OutgoingRequest {
            id: &call.id,
            method: &request.method,
            params: request.params.as_deref(),
            idempotency_key: key.as_deref(),
            traceparent: &traceparent,
        };
        match timeout_at(call.deadline, self.outbound.send(encode(kind::RPC_REQUEST, &outgoing))).await {
            // A queue that closed under us has already failed the call, with the reason.
            Ok(Ok(()) | Err(_)) => Ok(call),
            Err(_elapsed) => Err(CallError::TimedOut(patience)),
        }
    }

    /// Sends any frame, in order with the calls.
    pub async fn send_frame(&self, text: String) -> Result<(), Ended> {
        let lost = || self.ended().unwrap_or_else(|| Ended::Lost("the link is closing".to_owned()));
        self.outbound.send(text).await.map_err(|_closed| lost())
    }

    /// Says goodbye and waits a moment for the answer, so that the relay does not take the end for a lost connection.
    pub async fn close(mut self) {
        // Without a sender, the queue's end is the goodbye.
        self.outbound = mpsc::channel(1).0;
        // Whatever the outcome, the link is dropped next.
        let _ = timeout(CLOSE_FRAME_WAIT, &mut self.pump).await;
    }
}

impl Drop for Phone {
    fn drop(&mut self) {
        self.pump.abort();
        self.shared.end(&Ended::Lost("the phone was dropped".to_owned()));
    }
}

/// An interest in one session. Dropping it gives the lease back.
pub struct Watch {
    session: Arc<str>,
    events: Events,
    watched: watch::Sender<Option<Arc<str>>>,
}

impl Watch {
    /// The next event of any kind: timeline frames of the session, other events of the desktop, presence. Cancelling loses nothing.
    ///
    /// # Errors
    /// As [`Events::recv`].
    pub async fn next(&mut self) -> Result<Arc<Event>, NoEvent> {
        self.events.recv().await
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // A later watch has taken its place and stays.
        self.watched.send_if_modified(|watched| watched.take_if(|session| Arc::ptr_eq(session, &self.session)).is_some());
    }
}

/// An open request.
pub struct Call {
    id: String,
    deadline: Instant,
    patience: Duration,
    progress: mpsc::Receiver<Outcome>,
    outcome: oneshot::Receiver<Result<Outcome, Ended>>,
    shared: Arc<Shared>,
}

impl Call {
    fn open(id: String, patience: Duration, shared: &Arc<Shared>) -> Result<Self, CallError> {
        let (progress_sender, progress) = mpsc::channel(PROGRESS_MAX);
        let (outcome_sender, outcome) = oneshot::channel();
        match &mut *lock(&shared.calls) {
            Calls::Ended(ended) => return Err(CallError::Closed(ended.clone())),
            Calls::Open(waiting) if waiting.contains_key(&id) => return Err(CallError::DuplicateId),
            Calls::Open(waiting) => {
                waiting.insert(id.clone(), Waiting { progress: progress_sender, outcome: outcome_sender });
            }
        }
        Ok(Call { id, deadline: Instant::now() + patience, patience, progress, outcome, shared: Arc::clone(shared) })
    }

    /// The request's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The next answer: progress in order, then the final one. Must not be called again after a final answer or an error.
    pub async fn next(&mut self) -> Result<Step, CallError> {
        let answer = async {
            tokio::select! {
                biased;
                Some(progress) = self.progress.recv() => Ok(Step::Progress(progress)),
                outcome = &mut self.outcome => match outcome {
                    Ok(Ok(Outcome::Result(result))) => Ok(Step::Final(result)),
                    Ok(Ok(Outcome::Error(error))) => Err(CallError::Refused(error)),
                    Ok(Err(ended)) => Err(CallError::Closed(ended)),
                    Err(_dropped) => Err(CallError::Closed(Ended::Lost("the phone was dropped".to_owned()))),
                },
            }
        };
        match timeout_at(self.deadline, answer).await {
            Ok(step) => step,
            Err(_elapsed) => Err(CallError::TimedOut(self.patience)),
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Calls::Open(waiting) = &mut *lock(&self.shared.calls) {
            waiting.remove(&self.id);
        }
    }
}

struct Waiting {
    progress: mpsc::Sender<Outcome>,
    outcome: oneshot::Sender<Result<Outcome, Ended>>,
}

enum Calls {
    Open(HashMap<String, Waiting>),
    Ended(Ended),
}

struct Shared {
    calls: Mutex<Calls>,
    events: Mutex<Subscribers>,
    refused: watch::Sender<Option<ErrorFrame>>,
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics while it holds a lock; if some did, what it guards would still be whole.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for Shared {
    fn default() -> Self {
        Shared { calls: Mutex::new(Calls::Open(HashMap::new())), events: Mutex::default(), refused: watch::Sender::new(None) }
    }
}

impl Shared {
    /// Fails what is open; the first end counts.
    fn end(&self, ended: &Ended) {
        let mut calls = lock(&self.calls);
        let Calls::Open(waiting) = &mut *calls else { return };
        let waiting = std::mem::take(waiting);
        *calls = Calls::Ended(ended.clone());
        drop(calls);
        for call in waiting.into_values() {
            // A call that stopped waiting needs no answer.
            let _ = call.outcome.send(Err(ended.clone()));
        }
        // Whoever learns of the end here can ask how it came.
        lock(&self.events).end();
    }

    fn on_response(&self, response: IncomingResponse) {
        let Calls::Open(waiting) = &mut *lock(&self.calls) else { return };
        if response.is_final {
            match waiting.remove(&response.id) {
                // A call that stopped waiting needs no answer.
                Some(call) => drop(call.outcome.send(Ok(response.outcome))),
                None => tracing::debug!(id = response.id, "an answer that nobody waits for"),
            }
        } else if let Some(call) = waiting.get(&response.id)
            && call.progress.try_send(response.outcome).is_err()
        {
            tracing::debug!(id = response.id, "progress that nobody looked at is dropped");
        }
    }
}

/// What the writing side sends: frames in their order, and the lease.
struct Outbound {
    queue: mpsc::Receiver<String>,
    wanted: watch::Receiver<Option<Arc<str>>>,
}

/// Owns the link until it ends or the phone is dropped.
async fn pump(link: Link, outbound: Outbound, shared: Arc<Shared>) {
    let (sender, mut receiver) = link.split();
    let ended = tokio::select! {
        ended = read(&mut receiver, &shared) => ended,
        failed = write(sender, outbound) => {
            // The relay's close frame says more than "broken pipe" does.
            let ended = receiver.ending(CLOSE_FRAME_WAIT).await;
            if matches!(ended, Ended::Closed { .. }) { ended } else { failed }
        }
    };
    shared.end(&ended);
}

async fn read(receiver: &mut LinkReceiver, shared: &Shared) -> Ended {
    loop {
        let text = match receiver.receive().await {
            Ok(text) => text,
            Err(ended) => return ended,
        };
        if let Err(error) = on_frame(&text, shared) {
            tracing::warn!(%error, "the relay sent a frame that cannot be read");
        }
    }
}

fn on_frame(text: &str, shared: &Shared) -> Result<(), serde_json::Error> {
    let envelope = Envelope::parse(text)?;
    match &*envelope.kind {
        kind::RPC_RESPONSE => shared.on_response(envelope.read()?),
        kind::EVENT => lock(&shared.events).publish(&Arc::new(envelope.read()?), text.len()),
        kind::ERROR => {
            let error: ErrorFrame = envelope.read()?;
            tracing::warn!(code = error.code, "the relay refused a frame");
            shared.refused.send_replace(Some(error));
        }
        other => tracing::debug!(kind = other, "a frame of unknown type is skipped"),
    }
    Ok(())
}

async fn write(mut sender: LinkSender, mut outbound: Outbound) -> Ended {
    let mut lease = Lease::default();
    loop {
        let renewal = async {
            match lease.renew_at() {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        let frame = tokio::select! {
            queued = outbound.queue.recv() => match queued {
                Some(text) => Some(text),
                None => break,
            },
            Ok(()) = outbound.wanted.changed() => lease.want(Instant::now(), outbound.wanted.borrow_and_update().clone()),
            () = renewal => lease.renew(Instant::now()),
        };
        if let Some(text) = frame
            && let Err(ended) = sender.send(text).await
        {
            return ended;
        }
    }
    if let Some(text) = lease.want(Instant::now(), None)
        && let Err(ended) = sender.send(text).await
    {
        return ended;
    }
    sender.close().await;
    // The reading side sees the answer, or the phone is dropped; either ends this task too.
    std::future::pending().await
}
