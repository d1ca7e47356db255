//! The shell: stamps time, calls the core, runs its effects against the store, re-arms one timer.

use super::{
    Flush, LookUp, LookedUp, PersistenceConfig, PersistenceStopped, ReconcileStale, Shared, WriteStatus,
    core::{Core, Effect, Effects, FlushId, Input, RequestId},
    push_tokens::CALLS_MAX,
};
use crate::{
    clock,
    store::{Store, StoreError},
};
use actix::{Actor, ActorFutureExt, AsyncContext, Context, Handler, ResponseFuture, SpawnHandle, WrapFuture};
use relay_protocol::id::RelayInstanceId;
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::{Semaphore, oneshot};

/// The persistence actor. See the module documentation.
pub struct Persistence {
    core: Core,
    effects: Effects,
    pub(super) store: Arc<dyn Store>,
    instance: RelayInstanceId,
    pub(super) config: PersistenceConfig,
    /// Askers, by the id that the core knows them by; ids are shared by look-ups and flushes.
    last_id: u64,
    lookups: BTreeMap<RequestId, oneshot::Sender<LookedUp>>,
    flushes: BTreeMap<FlushId, oneshot::Sender<()>>,
    timer: Option<(Instant, SpawnHandle)>,
    shared: Arc<Shared>,
    pub(super) push_token_calls: Arc<Semaphore>,
}

impl Persistence {
    /// An actor that is not started yet. It takes over what an earlier one has left in `shared`.
    pub fn new(store: Arc<dyn Store>, instance: RelayInstanceId, config: PersistenceConfig, shared: Arc<Shared>) -> Self {
        Persistence {
            core: Core::new(&config),
            effects: Effects::new(),
            store,
            instance,
            config,
            last_id: 0,
            lookups: BTreeMap::new(),
            flushes: BTreeMap::new(),
            timer: None,
            shared,
            push_token_calls: Arc::new(Semaphore::new(CALLS_MAX)),
        }
    }

    fn step(&mut self, input: Input, ctx: &mut Context<Self>) {
        let now = clock::now();
        self.core.handle(now, input, &mut self.effects);
        while let Some(effect) = self.effects.pop_front() {
            self.run(effect, ctx);
        }
        self.rearm(now, ctx);
        self.shared.show(self.core.state());
    }

    fn run(&mut self, effect: Effect, ctx: &mut Context<Self>) {
        let (store, instance) = (Arc::clone(&self.store), self.instance);
        let (read_timeout, write_timeout) = (self.config.lookup_deadline, self.config.write_timeout);
        match effect {
            Effect::ReadDevices { statement, devices } => {
                let call = async move { store.look_up(&devices).await };
                self.ask(call, read_timeout, ctx, move |result| Input::DevicesRead { statement, result });
            }
            Effect::ReadRules { statement } => {
                let call = async move { store.minimum_protocol_rules().await };
                self.ask(call, read_timeout, ctx, move |result| Input::RulesRead { statement, result });
            }
            Effect::WriteStatuses { statement, writes } => {
                let shared = Arc::clone(&self.shared);
                let call = async move { store.write_statuses(&writes, instance).await.map(|()| shared.forget(&writes)) };
                self.ask(call, write_timeout, ctx, move |result| Input::StatusesWritten { statement, result });
            }
            Effect::EndStale { statement, at } => {
                let call = async move { store.disconnect_stale(instance, at).await };
                self.ask(call, write_timeout, ctx, move |result| Input::StaleEnded { statement, result });
            }
            // An asker that has gone needs no answer.
            Effect::AnswerLookUp { request, answer } => drop(self.lookups.remove(&request).map(|asker| asker.send(answer))),
            Effect::AnswerFlush { flush } => drop(self.flushes.remove(&flush).map(|asker| asker.send(()))),
            Effect::ReportFailing { statement, cause } => tracing::warn!(statement = statement.as_str(), cause, "storage fails"),
            Effect::ReportRecovered { statement, failing_for } => {
                tracing::info!(statement = statement.as_str(), ?failing_for, "storage works again");
            }
            Effect::ReportStaleEnded { devices } => tracing::info!(devices, "stale statuses of earlier processes ended"),
        }
    }

    /// Calls the store and hands its answer to the core. A call that takes too long is dropped, as failed.
    fn ask<T: 'static>(
        &self,
        call: impl Future<Output = Result<T, StoreError>> + 'static,
        timeout: Duration,
        ctx: &mut Context<Self>,
        input: impl FnOnce(Result<T, StoreError>) -> Input + 'static,
    ) {
        let answer = tokio::time::timeout(timeout, call).into_actor(self).map(move |answer, this, ctx| {
            let late = |_elapsed| Err(StoreError::Unavailable(format!("no answer within {}", humantime::format_duration(timeout))));
            this.step(input(answer.unwrap_or_else(late)), ctx);
        });
        ctx.spawn(answer);
    }

    fn rearm(&mut self, now: Instant, ctx: &mut Context<Self>) {
        let wanted = self.core.next_timeout();
        if self.timer.map(|(at, _handle)| at) == wanted.map(|(at, _reason)| at) {
            return;
        }
        if let Some((_at, handle)) = self.timer.take() {
            ctx.cancel_future(handle);
        }
        self.timer = wanted.map(|(at, reason)| {
            let handle = ctx.run_later(at.saturating_duration_since(now), move |this, ctx| {
                tracing::debug!(reason, "timeout");
                this.timer = None;
                this.step(Input::Timeout, ctx);
            });
            (at, handle)
        });
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}

impl Actor for Persistence {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(self.config.lookups_max);
        for write in self.shared.remembered() {
            self.step(Input::WriteStatus(write), ctx);
        }
    }
}

impl Handler<LookUp> for Persistence {
    type Result = ResponseFuture<LookedUp>;

    fn handle(&mut self, LookUp { devices }: LookUp, ctx: &mut Self::Context) -> Self::Result {
        let request = RequestId(self.next_id());
        let (asker, answer) = oneshot::channel();
        self.lookups.insert(request, asker);
        self.step(Input::LookUp { request, devices }, ctx);
        Box::pin(async { answer.await.unwrap_or_else(|_actor_ended| LookedUp::unavailable()) })
    }
}

impl Handler<WriteStatus> for Persistence {
    type Result = ();

    fn handle(&mut self, WriteStatus(write): WriteStatus, ctx: &mut Self::Context) {
        self.step(Input::WriteStatus(write), ctx);
    }
}

impl Handler<ReconcileStale> for Persistence {
    type Result = ();

    fn handle(&mut self, ReconcileStale { at }: ReconcileStale, ctx: &mut Self::Context) {
        self.step(Input::ReconcileStale { at }, ctx);
    }
}

impl Handler<Flush> for Persistence {
    type Result = ResponseFuture<Result<(), PersistenceStopped>>;

    fn handle(&mut self, _message: Flush, ctx: &mut Self::Context) -> Self::Result {
        let flush = FlushId(self.next_id());
        let (asker, answer) = oneshot::channel();
        self.flushes.insert(flush, asker);
        self.step(Input::Flush { flush }, ctx);
        Box::pin(async { answer.await.map_err(|_actor_ended| PersistenceStopped) })
    }
}
