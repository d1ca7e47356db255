//! What a desktop does with a request: the trait that tests and applications fill in, and the sample that ships.

use super::INTERNAL_ERROR;
use crate::{
    clock,
    frame::{ErrorFrame, Event, IncomingRequest, OutgoingResponse, RpcError, encode, kind},
};
use relay_protocol::limits::MESSAGE_BYTES_MAX;
use serde::Serialize;
use serde_json::value::RawValue;
use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};
use tokio::sync::mpsc;

/// Answers requests. Handlers run concurrently, each in a task of its own; one that never replies leaves the request to the
/// relay's deadline.
pub trait Handler: Send + Sync + 'static {
    /// One request. Replies may be sent before this ends; what it does after the reply is its own business.
    fn handle(&self, request: IncomingRequest, replies: Replies) -> impl Future<Output = ()> + Send;

    /// An event from the relay, such as `chat:timeline-interest-updated`. Must not block.
    fn on_event(&self, event: Event) {
        tracing::debug!(event_type = event.event_type, "an event is skipped");
    }

    /// The relay refused a frame of ours. Must not block.
    fn on_error(&self, error: ErrorFrame) {
        tracing::warn!(code = error.code, "the relay refused a frame");
    }
}

/// A closure is a handler that skips events and refusals.
impl<F, A> Handler for F
where
    F: Fn(IncomingRequest, Replies) -> A + Send + Sync + 'static,
    A: Future<Output = ()> + Send,
{
    fn handle(&self, request: IncomingRequest, replies: Replies) -> impl Future<Output = ()> + Send {
        self(request, replies)
    }
}

/// The socket that the request came on is gone, or the request has its final answer: nothing more can be delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the socket that the request came on is gone, or the request is answered")
    }
}

impl std::error::Error for Gone {}

/// Where the replies to one request go.
pub struct Replies {
    client_id: Box<RawValue>,
    id: Box<RawValue>,
    outbound: mpsc::Sender<String>,
    /// Whether the final answer is on its way: no progress may follow it.
    is_answered: Mutex<bool>,
}

impl Replies {
    pub(super) fn new(request: &IncomingRequest, outbound: mpsc::Sender<String>) -> Self {
        Replies { client_id: request.client_id.clone(), id: request.id.clone(), outbound, is_answered: Mutex::new(false) }
    }

    /// The final result, byte for byte. One that does not fit a frame becomes an error: sent anyway, it would cost every other
    /// request its socket.
    pub async fn result(&self, result: &RawValue) -> Result<(), Gone> {
        let text = self.encode(Some(result), None, true);
        if text.len() > MESSAGE_BYTES_MAX {
            return self.error(&RpcError::new(INTERNAL_ERROR, "The result does not fit a frame.")).await;
        }
        *self.is_answered() = true;
        self.frame(text).await
    }

    /// Progress: the request stays open. It waits for room, and is not sent if the request is answered meanwhile.
    pub async fn progress(&self, result: &RawValue) -> Result<(), Gone> {
        let text = self.encode(Some(result), None, false);
        let room = self.outbound.reserve().await.map_err(|_closed| Gone)?;
        let is_answered = self.is_answered();
        if *is_answered {
            return Err(Gone);
        }
        room.send(text);
        Ok(())
    }

    /// The final error.
    pub async fn error(&self, error: &RpcError) -> Result<(), Gone> {
        *self.is_answered() = true;
        self.frame(self.encode(None, Some(error), true)).await
    }

    /// Any frame at all, on the socket that the request came on.
    pub async fn frame(&self, text: String) -> Result<(), Gone> {
        self.outbound.send(text).await.map_err(|_closed| Gone)
    }

    /// [`Replies::error`] without waiting for room.
    pub(super) fn try_error(&self, error: &RpcError) -> Result<(), Gone> {
        self.outbound.try_send(self.encode(None, Some(error), true)).map_err(|_full_or_closed| Gone)
    }

    fn is_answered(&self) -> MutexGuard<'_, bool> {
        self.is_answered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn encode(&self, result: Option<&RawValue>, error: Option<&RpcError>, is_final: bool) -> String {
        encode(kind::RPC_RESPONSE, &OutgoingResponse { client_id: &self.client_id, id: &self.id, result, error, is_final })
    }
}

/// The desktop that ships with the relay: answers `system.ping` as the seed shows, and echoes `params` for every other method.
#[derive(Clone, Copy, Debug, Default)]
pub struct SampleRouter;

/// The answer to `system.ping`, as the seed shows it: a phone asks it after each registration.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pong {
    ok: bool,
    service: &'static str,
    timestamp_ms: u64,
    capabilities: [&'static str; 1],
}

impl Pong {
    /// That of this moment.
    pub fn now() -> Self {
        Pong { ok: true, service: "desktop-relay", timestamp_ms: clock::epoch_ms(), capabilities: ["run.cancel.exact-run.v1"] }
    }
}

impl Handler for SampleRouter {
    async fn handle(&self, request: IncomingRequest, replies: Replies) {
        let sent = if request.method == "system.ping" {
            let pong = serde_json::value::to_raw_value(&Pong::now()).expect("four plain fields serialize");
            replies.result(&pong).await
        } else {
            replies.result(request.params.as_deref().unwrap_or(RawValue::NULL)).await
        };
        if sent.is_err() {
            tracing::debug!(method = request.method, "the socket went before the reply");
        }
    }
}
