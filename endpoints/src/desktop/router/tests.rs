//! The router without sockets, in paused time.

mod checks;
mod deadlines;
mod detached;
mod judgement;

use super::{Figures, HandlerError, Namespace, Router};
use crate::{
    desktop::{Handler, Replies},
    frame::IncomingRequest,
};
use relay_protocol::desktop_error::DesktopError;
use serde_json::{Value, json, value::RawValue};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{Duration, Instant, advance, sleep},
};

const USER: &str = "a11ce000-0000-4000-8000-000000000001";
const STRANGER: &str = "b0b00000-0000-4000-8000-000000000002";
const PHONE: &str = "0f8fad5b-d9cb-469f-a165-70867728950e::a2d1c7f4-3b6e-4d0a-9c55-6e1f7b8d9e12";
const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const MS: Duration = Duration::from_millis(1);

fn router() -> Router {
    Router::new(USER.parse().unwrap())
}

/// A request without a key.
fn request(method: &str, params: Value) -> IncomingRequest {
    let text = json!({"clientId": PHONE, "userId": USER, "id": "1", "method": method, "params": params, "traceparent": TRACE});
    serde_json::from_value(text).unwrap()
}

fn mutation(method: &str, key: &str) -> IncomingRequest {
    IncomingRequest { idempotency_key: Some(key.to_owned()), ..request(method, json!({})) }
}

fn raw(text: impl Into<String>) -> Box<RawValue> {
    RawValue::from_string(text.into()).unwrap()
}

/// What a handler gets that never ends.
async fn never() -> Result<(), HandlerError> {
    std::future::pending().await
}

/// A request that is being handled, and the frames that it sends.
struct Asked {
    frames: mpsc::Receiver<String>,
    task: JoinHandle<()>,
}

fn ask(router: &Arc<Router>, request: IncomingRequest) -> Asked {
    let (outbound, frames) = mpsc::channel(8);
    let (router, replies) = (Arc::clone(router), Replies::new(&request, outbound));
    let task = tokio::spawn(async move { router.handle(request, replies).await });
    Asked { frames, task }
}

impl Asked {
    /// The payload of the next frame.
    async fn next(&mut self) -> Value {
        let frame = self.frames.recv().await.expect("a frame before the request's end");
        serde_json::from_str::<Value>(&frame).unwrap()["payload"].take()
    }

    /// The error of the next frame, which is final.
    async fn error(mut self) -> Value {
        let mut payload = self.next().await;
        assert_eq!(payload["isFinal"], true);
        assert!(payload.get("result").is_none(), "{payload}");
        payload["error"].take()
    }

    async fn code(self) -> i64 {
        self.error().await["code"].as_i64().unwrap()
    }

    async fn result(mut self) -> Value {
        let mut payload = self.next().await;
        assert!(payload.get("error").is_none(), "{payload}");
        payload["result"].take()
    }

    /// Whether a frame has come by now; all that can run has run.
    async fn is_answered(&mut self) -> bool {
        settle().await;
        !self.frames.is_empty()
    }
}

/// Lets everything run that can, without moving the clock.
async fn settle() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

/// A method that counts its runs.
fn counting(namespace: Namespace, method: &str) -> (Namespace, Arc<AtomicUsize>) {
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let namespace = namespace.on(method, move |_call, _params: Value| {
        count.fetch_add(1, Ordering::Relaxed);
        async { Ok(json!({"ran": true})) }
    });
    (namespace, runs)
}
