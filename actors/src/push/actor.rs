//! The shell: stamps the time, asks the core, runs its effects against storage and the providers, keeps one timer.

use super::{
    core::{AskerId, Effect, Input, PushCore},
    gateway::{Alert, Content, Gateway, Outgoing, Scope, Verdict},
    lane::PushId,
    limits::{ALERT_KEPT_FOR, MAILBOX_CAPACITY},
    message::{Asker, DesktopOnline, Leave, NotTested, Notify, TestPush, Tested},
    reports::Reports,
};
use crate::{
    clock,
    counters::PushCounters,
    mailbox,
    persistence::{DropPushToken, PushTargetOf, PushTargets},
    supervisor::Services,
};
use actix::{Actor, ActorFutureExt, AsyncContext, Context, Handler, ResponseFuture, SpawnHandle, WrapFuture};
use relay_protocol::push::Provider;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::oneshot;
use uuid::Uuid;

/// Storage that has not answered by then does not answer; the persistence actor has its own, shorter deadlines.
const STORAGE_TIMEOUT: Duration = Duration::from_secs(8);
/// Gateways have a shorter deadline of their own; one that forgets it must not hold a place for ever.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);

/// What providers there are.
pub type Gateways = BTreeMap<Provider, Arc<dyn Gateway>>;

/// The actor. See the module documentation.
pub struct Push {
    core: PushCore,
    effects: VecDeque<Effect>,
    gateways: Gateways,
    services: Services,
    counters: Arc<PushCounters>,
    askers: BTreeMap<AskerId, Asker>,
    last_asker: u64,
    leaving: Vec<oneshot::Sender<()>>,
    timer: Option<(Instant, SpawnHandle)>,
    reports: Reports,
}

impl Push {
    /// An actor that is not started yet, which sends through these gateways.
    pub fn new(gateways: Gateways, services: Services, counters: Arc<PushCounters>) -> Self {
        Push {
            core: PushCore::new(gateways.keys().copied(), counters.clone()),
            effects: VecDeque::new(),
            gateways,
            services,
            counters,
            askers: BTreeMap::new(),
            last_asker: 0,
            leaving: Vec::new(),
            timer: None,
            reports: Reports::default(),
        }
    }

    fn step(&mut self, input: Input, ctx: &mut Context<Self>) {
        let now = clock::now();
        self.core.handle(now, input, &mut self.effects);
        while let Some(effect) = self.effects.pop_front() {
            self.run(effect, ctx);
        }
        self.rearm(now, ctx);
        self.show(now);
        if self.core.is_idle() {
            for waiting in self.leaving.drain(..) {
                // Who has stopped waiting needs no answer.
                let _ = waiting.send(());
            }
        }
    }

    fn run(&mut self, effect: Effect, ctx: &mut Context<Self>) {
        match effect {
            Effect::LookUp { job, user } => {
                let persistence = self.services.persistence();
                let asking = async move { mailbox::ask(&persistence, PushTargets { user }, STORAGE_TIMEOUT).await };
                ctx.spawn(asking.into_actor(self).map(move |answer, this, ctx| {
                    let targets = answer.ok().and_then(Result::ok);
                    this.step(Input::Found { job, targets }, ctx);
                }));
            }
            Effect::Answer { asker, outcome } => {
                if let Some(asker) = self.askers.remove(&asker) {
                    asker.tell(outcome);
                }
            }
            Effect::Send { provider, push, outgoing } => self.send(provider, push, outgoing, ctx),
            Effect::DropToken { provider, push, device, claimed_at } => {
                let persistence = self.services.persistence();
                let asking = async move { mailbox::ask(&persistence, DropPushToken { device, claimed_at }, STORAGE_TIMEOUT).await };
                ctx.spawn(asking.into_actor(self).map(move |answer, this, ctx| {
                    match answer {
                        Ok(Ok(true)) => tracing::info!(%device, %provider, "push token forgotten: the provider calls it dead"),
                        Ok(Ok(false)) => tracing::debug!(%device, %provider, "push token claimed anew; kept"),
                        // The next push to it meets the same verdict.
                        Ok(Err(_)) | Err(_) => tracing::debug!(%device, %provider, "dead push token could not be forgotten"),
                    }
                    this.step(Input::Dropped { provider, push }, ctx);
                }));
            }
            Effect::ReportSuspicious { provider } => {
                tracing::warn!(%provider, "most push tokens are called dead; none is forgotten for a while");
            }
        }
    }

    fn send(&self, provider: Provider, push: PushId, outgoing: Outgoing, ctx: &mut Context<Self>) {
        let Some(gateway) = self.gateways.get(&provider).cloned() else { return };
        let sending = async move { verdict(&*gateway, &outgoing).await };
        ctx.spawn(sending.into_actor(self).map(move |verdict, this, ctx| {
            this.reports.tell(provider, &verdict, clock::now());
            this.step(Input::Judged { provider, push, verdict }, ctx);
        }));
    }

    fn rearm(&mut self, now: Instant, ctx: &mut Context<Self>) {
        let wanted = self.core.next_timeout(now);
        if self.timer.map(|(at, _handle)| at) == wanted {
            return;
        }
        if let Some((_at, handle)) = self.timer.take() {
            ctx.cancel_future(handle);
        }
        self.timer = wanted.map(|at| {
            let handle = ctx.run_later(at.saturating_duration_since(now), |this, ctx| {
                this.timer = None;
                this.step(Input::Timeout, ctx);
            });
            (at, handle)
        });
    }

    fn show(&self, now: Instant) {
        for (provider, depth) in self.core.depths(now) {
            let gauges = self.counters.queue(provider);
            gauges.alerts.set(depth.alerts as u64);
            gauges.silents.set(depth.silents as u64);
            gauges.in_flight.set(depth.in_flight as u64);
            gauges.paused.set(u64::from(depth.is_paused));
        }
    }
}

async fn verdict(gateway: &dyn Gateway, outgoing: &Outgoing) -> Verdict {
    let late = |_elapsed| Verdict::Retry { reason: "noAnswer".to_owned(), wait: None, scope: Scope::Provider };
    tokio::time::timeout(SEND_TIMEOUT, gateway.send(outgoing)).await.unwrap_or_else(late)
}

impl Actor for Push {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX_CAPACITY);
    }
}

impl Handler<DesktopOnline> for Push {
    type Result = ();

    fn handle(&mut self, DesktopOnline { user, desktop, at }: DesktopOnline, ctx: &mut Self::Context) {
        self.step(Input::DesktopOnline { user, desktop, at }, ctx);
    }
}

impl Handler<Notify> for Push {
    type Result = ();

    fn handle(&mut self, Notify { user, desktop, notification, asker }: Notify, ctx: &mut Self::Context) {
        self.last_asker += 1;
        let id = AskerId(self.last_asker);
        self.askers.insert(id, asker);
        self.step(Input::Notify { user, desktop, notification, asker: id }, ctx);
    }
}

impl Handler<TestPush> for Push {
    type Result = ResponseFuture<Result<Tested, NotTested>>;

    fn handle(&mut self, TestPush { device }: TestPush, _: &mut Self::Context) -> Self::Result {
        let (persistence, gateways) = (self.services.persistence(), self.gateways.clone());
        Box::pin(async move {
            let found = mailbox::ask(&persistence, PushTargetOf { device }, STORAGE_TIMEOUT).await;
            let target = found.ok().and_then(Result::ok).ok_or(NotTested::Unavailable)?.ok_or(NotTested::NoToken)?;
            let provider = target.address.provider;
            let gateway = gateways.get(&provider).ok_or(NotTested::NotConfigured(provider))?;
            let name = Uuid::new_v4().to_string();
            let alert = Alert {
                desktop: None,
                notification_id: name.clone().into(),
                title: "Relay".into(),
                body: "This phone can be reached by push.".into(),
                app_session_id: None,
            };
            let content = Content::Alert(Arc::new(alert));
            let outgoing = Outgoing { address: target.address, content, collapse_key: name.into(), keep_for: ALERT_KEPT_FOR };
            Ok(Tested { provider, verdict: verdict(&**gateway, &outgoing).await })
        })
    }
}

impl Handler<Leave> for Push {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, _message: Leave, ctx: &mut Self::Context) -> Self::Result {
        let (done, is_done) = oneshot::channel();
        self.leaving.push(done);
        self.step(Input::Leave, ctx);
        Box::pin(async {
            // An actor that has failed has nothing left to send.
            let _ = is_done.await;
        })
    }
}
