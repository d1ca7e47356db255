//! A desktop's router: namespaces of handlers, and what stands between them and the wire.
//!
//! A request is judged in this order: whose it is, whether the contract and this desktop have its method, whether a mutation has its
//! key, whether a copy with that key has been here. Then it waits for a permit, its handler runs within the dispatch limit, and what
//! it says is judged before it leaves. A permit is held until the reply is queued, so that at most as many results as permits wait
//! for the socket.
//!
//! ```
//! use relay_endpoints::desktop::router::{Call, HandlerError, Namespace, NoParams, Router};
//! use relay_protocol::desktop_error::DesktopError;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Deserialize)]
//! #[serde(rename_all = "camelCase")]
//! struct Params {
//!     session_id: String,
//! }
//!
//! #[derive(Serialize)]
//! #[serde(rename_all = "camelCase")]
//! struct Session {
//!     session_id: String,
//! }
//!
//! async fn get(_call: Call, params: Params) -> Result<Session, HandlerError> {
//!     match params.session_id.as_str() {
//!         "s-1" => Ok(Session { session_id: params.session_id }),
//!         _ => Err(HandlerError::new(DesktopError::NotFound, "There is no such session.")),
//!     }
//! }
//!
//! async fn cancel(call: Call, _: NoParams) -> Result<(), HandlerError> {
//!     // Goes on when the dispatch limit has passed.
//!     call.finish(async { Ok(()) }).await
//! }
//!
//! let user = "a11ce000-0000-4000-8000-000000000001".parse().expect("a UUID");
//! let router = Router::new(user)
//!     .namespace(Namespace::new("session").on("get", get))
//!     .namespace(Namespace::new("run").on("cancel", cancel));
//! assert_eq!(router.methods().count(), 2);
//! ```

mod bounds;
mod call;
mod counters;
mod detached;
mod error;
pub mod idempotency;
mod namespace;
mod permits;
mod snake_case;
#[cfg(test)]
mod tests;

pub use call::{Call, NoParams};
pub use counters::{Figures, Meter};
pub use detached::{DETACHED_MAX, Detached};
pub use error::HandlerError;
pub use namespace::{HandlerResult, Namespace};

use super::{Handler, Replies};
use crate::frame::{ErrorFrame, Event, IncomingRequest};
use counters::Counters;
use futures_util::FutureExt;
use idempotency::{Admission, Idempotency, Reply, Scope};
use permits::Permits;
use relay_protocol::{
    contract::{self, Method},
    desktop_error::DesktopError,
    id::UserId,
    limits::desktop::{IDEMPOTENCY_KEY_BYTES_MAX, QUEUE_REPLY},
};
use serde_json::value::RawValue;
use std::{panic::AssertUnwindSafe, sync::Arc};
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, timeout, timeout_at},
};
use tracing::Instrument;

type Listener<T> = Box<dyn Fn(T) + Send + Sync>;

/// Answers requests by the handlers of its namespaces.
pub struct Router {
    user: UserId,
    namespaces: Vec<Namespace>,
    idempotency: Option<Idempotency>,
    meter: Meter,
    detached: Arc<Detached>,
    on_event: Option<Listener<Event>>,
    on_error: Option<Listener<ErrorFrame>>,
}

/// A reply, and the permit that is held until it is queued.
struct Answer {
    reply: Reply,
    permit: Option<OwnedSemaphorePermit>,
}

impl Router {
    /// A router without namespaces, for the account that the desktop is signed in to.
    pub fn new(user: UserId) -> Self {
        let meter = Meter { permits: Arc::new(Permits::new()), counters: Arc::default() };
        Router { user, namespaces: Vec::new(), idempotency: None, meter, detached: Arc::default(), on_event: None, on_error: None }
    }

    /// Adds a namespace, in the place of one of the same name.
    pub fn namespace(mut self, namespace: Namespace) -> Self {
        self.namespaces.retain(|known| known.name() != namespace.name());
        self.namespaces.push(namespace);
        self
    }

    /// Remembers mutations by their keys. Without it each copy of a mutation runs.
    pub fn idempotency(mut self, idempotency: Idempotency) -> Self {
        self.idempotency = Some(idempotency);
        self
    }

    /// Is called with each event from the relay; must not block.
    pub fn events(mut self, listener: impl Fn(Event) + Send + Sync + 'static) -> Self {
        self.on_event = Some(Box::new(listener));
        self
    }

    /// Is called with each refusal of a frame of ours; must not block.
    pub fn errors(mut self, listener: impl Fn(ErrorFrame) + Send + Sync + 'static) -> Self {
        self.on_error = Some(Box::new(listener));
        self
    }

    /// The methods that have a handler, in the contract's order.
    pub fn methods(&self) -> impl Iterator<Item = &'static Method> {
        contract::methods().filter(|method| self.namespace_of(method).is_some())
    }

    /// Reads its figures, also once a desktop owns it.
    pub fn meter(&self) -> Meter {
        self.meter.clone()
    }

    /// Its detached tasks, for an application that lets them finish before it ends.
    pub fn detached(&self) -> Arc<Detached> {
        Arc::clone(&self.detached)
    }

    fn namespace_of(&self, method: &Method) -> Option<&Namespace> {
        self.namespaces.iter().find(|namespace| namespace.has(method))
    }

    /// All that is judged before a mutation's key is looked up.
    fn check(&self, request: IncomingRequest, replies: &Arc<Replies>) -> Result<(&Namespace, Call), HandlerError> {
        if request.user_id != self.user {
            self.counters().forbidden.add_one();
            tracing::warn!(user = %request.user_id, "a request of another account is refused");
            return Err(HandlerError::new(DesktopError::Forbidden, "This desktop is signed in to another account."));
        }
        let text = |raw: &RawValue| serde_json::from_str::<Box<str>>(raw.get()).ok().map(Arc::from);
        let (Some(device), Some(id)) = (text(&request.client_id), text(&request.id)) else {
            return Err(HandlerError::new(DesktopError::InvalidRequest, "clientId and id must be strings."));
        };
        let Some(method) = contract::find(&request.method) else {
            return Err(HandlerError::new(DesktopError::MethodNotFound, "The contract has no such method."));
        };
        let Some(namespace) = self.namespace_of(method) else {
            return Err(HandlerError::new(DesktopError::MethodNotFound, format!("This desktop has no method {}.", method.name)));
        };
        let call = Call {
            method,
            id,
            params: request.params,
            user: self.user,
            device,
            idempotency_key: key_of(method, request.idempotency_key)?,
            traceparent: request.traceparent.into(),
            replies: Arc::clone(replies),
            detached: Arc::downgrade(&self.detached),
            counters: Arc::clone(&self.meter.counters),
        };
        bounds::check_params(method, call.params.as_deref())?;
        Ok((namespace, call))
    }

    async fn answer_and_queue(&self, request: IncomingRequest, replies: &Arc<Replies>) {
        let Answer { reply, permit } = self.answer(request, replies).await;
        let queued = timeout(QUEUE_REPLY, async {
            match &reply {
                Ok(result) => replies.result(result).await,
                Err(error) => replies.error(error).await,
            }
        });
        match queued.await {
            Ok(Ok(())) => {}
            Ok(Err(gone)) => tracing::debug!(%gone, "a reply is not sent"),
            Err(_elapsed) => {
                self.counters().unqueued.add_one();
                tracing::warn!("a reply found no room; the relay's deadline decides");
            }
        }
        drop(permit);
    }

    async fn answer(&self, request: IncomingRequest, replies: &Arc<Replies>) -> Answer {
        let (namespace, call) = match self.check(request, replies) {
            Ok(checked) => checked,
            Err(error) => return Answer::without_permit(Err(error.to_rpc())),
        };
        let method = call.method;
        let waits_until = Instant::now() + method.dispatch_limit();
        let claim = loop {
            match self.admit(&call) {
                None => break None,
                Some(Admission::Run(claim)) => break Some(claim),
                Some(Admission::Answer(reply)) => return Answer::without_permit(reply),
                Some(Admission::Wait(joined)) => match timeout_at(waits_until, joined.reply()).await {
                    Ok(Some(reply)) => return Answer::without_permit(reply),
                    // The copy was cut off, and is forgotten: what a repeat gets now is for its durable claim to say.
                    Ok(None) => {}
                    Err(_elapsed) => return Answer::without_permit(self.timed_out(method)),
                },
            }
        };
        let Some(permit) = self.meter.permits.acquire(method).await else {
            let reply: Reply = Err(HandlerError::busy().to_rpc());
            self.counters().busy.add_one();
            if let Some(claim) = claim {
                claim.abandon(reply.clone());
            }
            return Answer::without_permit(reply);
        };
        let work = self.run(namespace, call);
        let reply = match claim {
            Some(claim) => timeout(method.dispatch_limit(), claim.execute(work)).await,
            None => timeout(method.dispatch_limit(), work).await,
        };
        Answer { reply: reply.unwrap_or_else(|_elapsed| self.timed_out(method)), permit: Some(permit) }
    }

    /// What a repeat of a mutation gets; `None` for a call that is no mutation.
    fn admit(&self, call: &Call) -> Option<Admission> {
        let (idempotency, key) = (self.idempotency.as_ref()?, call.idempotency_key.as_ref()?);
        let scope = Scope { user: call.user, device: Arc::clone(&call.device), method: call.method.name, key: Arc::clone(key) };
        Some(idempotency.admit(scope, call.params.as_deref()))
    }

    /// The handler and the judgement of its result. Dropped at the dispatch limit.
    async fn run(&self, namespace: &Namespace, call: Call) -> Reply {
        let method = call.method;
        // A handler that panics costs its own request only: nothing of the router is borrowed into it.
        let handled = AssertUnwindSafe(async { namespace.call(call).await }).catch_unwind().await;
        let result = handled.unwrap_or_else(|_panic| {
            self.counters().panicked.add_one();
            tracing::error!(method = method.name, "a handler panicked");
            Err(HandlerError::new(DesktopError::Internal, "The method failed."))
        });
        let judged = result.and_then(|result| {
            call::scan(&result, method, self.counters())?;
            bounds::check_result(method, &result).inspect_err(|error| {
                self.counters().over_limit.add_one();
                tracing::error!(method = method.name, %error, "a result breaks the contract");
            })?;
            Ok(result)
        });
        judged.map_err(|error| error.to_rpc())
    }

    fn timed_out(&self, method: &Method) -> Reply {
        self.counters().timed_out.add_one();
        tracing::warn!(method = method.name, "a request took too long");
        Err(HandlerError::timed_out().to_rpc())
    }

    fn counters(&self) -> &Counters {
        &self.meter.counters
    }
}

impl Handler for Router {
    async fn handle(&self, request: IncomingRequest, replies: Replies) {
        let replies = Arc::new(replies);
        // Labels what handlers log, too.
        let span = tracing::info_span!("request", id = request.id.get(), method = request.method);
        self.answer_and_queue(request, &replies).instrument(span).await;
    }

    fn on_event(&self, event: Event) {
        match &self.on_event {
            Some(listener) => listener(event),
            None => tracing::debug!(event_type = event.event_type, "an event is skipped"),
        }
    }

    fn on_error(&self, error: ErrorFrame) {
        match &self.on_error {
            Some(listener) => listener(error),
            None => tracing::warn!(code = error.code, "the relay refused a frame"),
        }
    }
}

impl Answer {
    fn without_permit(reply: Reply) -> Self {
        Answer { reply, permit: None }
    }
}

/// The key of a mutation; that of any other method is ignored.
fn key_of(method: &Method, key: Option<String>) -> Result<Option<Arc<str>>, HandlerError> {
    if !method.mutation {
        return Ok(None);
    }
    let key = key.unwrap_or_default();
    if key.trim().is_empty() {
        return Err(HandlerError::new(DesktopError::InvalidParams, "A mutation needs an idempotencyKey that is not blank."));
    }
    if key.len() > IDEMPOTENCY_KEY_BYTES_MAX {
        let message = format!("idempotencyKey must be at most {IDEMPOTENCY_KEY_BYTES_MAX} bytes.");
        return Err(HandlerError::new(DesktopError::InvalidParams, message));
    }
    Ok(Some(key.into()))
}
