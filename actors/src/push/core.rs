//! All decisions about pushes: who may cause one, to which phones it goes, what waits for which provider, what a verdict means. No I/O,
//! no clock: what it knows came in as an [`Input`], what it wants leaves as an [`Effect`].

use super::{
    gateway::{Alert, Content, Outgoing, Verdict},
    lane::{Depth, Fate, Item, Lane, Next, PushId},
    limits::{
        ALERT_INTERVAL, ALERT_KEPT_FOR, ALERT_LIFE, ALERTS_BURST, LOOK_UPS_AT_ONCE, LOOK_UPS_MAX, SILENT_BURST, SILENT_INTERVAL,
        SILENT_KEPT_FOR, SILENT_LIFE,
    },
    rates::Rates,
    remembered::{Key, Remembered, State},
};
use crate::{clock::EpochMs, counters::PushCounters, store::PushTarget};
use relay_protocol::{
    event::{NotSent, Notification, Outcome},
    id::{DeviceId, UserId},
    push::Provider,
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Instant,
};

/// Who waits for what becomes of a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AskerId(pub(super) u64);

/// A question for an account's phones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct JobId(u64);

/// What happened.
#[derive(Debug)]
pub(super) enum Input {
    /// A desktop registered that had been gone.
    DesktopOnline { user: UserId, desktop: DeviceId, at: EpochMs },
    /// A desktop asks for an alert.
    Notify { user: UserId, desktop: DeviceId, notification: Notification, asker: AskerId },
    /// The answer to [`Effect::LookUp`]; none when storage gave none.
    Found { job: JobId, targets: Option<Vec<PushTarget>> },
    /// The answer to [`Effect::Send`].
    Judged { provider: Provider, push: PushId, verdict: Verdict },
    /// The answer to [`Effect::DropToken`].
    Dropped { provider: Provider, push: PushId },
    /// The process ends: what is shown still goes, the rest does not.
    Leave,
    /// The time that `next_timeout` named has come.
    Timeout,
}

/// What the shell must do.
#[derive(Debug)]
pub(super) enum Effect {
    /// Find the account's phones; answer with [`Input::Found`].
    LookUp { job: JobId, user: UserId },
    /// Tell who asked for an alert.
    Answer { asker: AskerId, outcome: Outcome },
    /// Give a push to the provider; answer with [`Input::Judged`].
    Send { provider: Provider, push: PushId, outgoing: Outgoing },
    /// Forget the token if it is still of this claim; answer with [`Input::Dropped`].
    DropToken { provider: Provider, push: PushId, device: DeviceId, claimed_at: EpochMs },
    /// So many tokens are called dead that none is forgotten for a while.
    ReportSuspicious { provider: Provider },
}

/// What becomes of a desktop's registration. A closed set: each has a counter from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HintFate {
    /// The account's phones are told.
    Told,
    /// No phone of the account takes pushes of a provider that is set up.
    NoDevices,
    /// No provider is set up.
    NotConfigured,
    /// Too many registrations of the account's desktops.
    RateLimited,
    /// The same desktop's is about to be told.
    Coalesced,
    /// Storage does not say which phones there are.
    Unavailable,
    /// Too much waits.
    Overloaded,
}

impl HintFate {
    /// Every variant.
    pub const ALL: [HintFate; 7] = [
        HintFate::Told,
        HintFate::NoDevices,
        HintFate::NotConfigured,
        HintFate::RateLimited,
        HintFate::Coalesced,
        HintFate::Unavailable,
        HintFate::Overloaded,
    ];

    /// The word for metrics.
    pub fn name(self) -> &'static str {
        match self {
            HintFate::Told => "told",
            HintFate::NoDevices => "noDevices",
            HintFate::NotConfigured => "notConfigured",
            HintFate::RateLimited => "rateLimited",
            HintFate::Coalesced => "coalesced",
            HintFate::Unavailable => "unavailable",
            HintFate::Overloaded => "overloaded",
        }
    }
}

/// Something to be sent to the phones of an account that are being looked up.
#[derive(Debug)]
enum Job {
    Hint { desktop: DeviceId, at: EpochMs },
    Alert { alert: Arc<Alert>, key: Key, askers: Vec<AskerId> },
}

/// The core of the push actor.
#[derive(Debug)]
pub(super) struct PushCore {
    /// One for each provider that is set up.
    lanes: BTreeMap<Provider, Lane>,
    alerts: Rates,
    hints: Rates,
    ids: Remembered,
    jobs: BTreeMap<JobId, (UserId, Job)>,
    /// Jobs that have not been looked up, alerts first.
    waiting_alerts: VecDeque<JobId>,
    waiting_hints: VecDeque<JobId>,
    looking_up: BTreeSet<JobId>,
    /// Desktops with a job.
    hinted: BTreeSet<(UserId, DeviceId)>,
    suspicious: BTreeSet<Provider>,
    last_job: u64,
    leaving: bool,
    counters: Arc<PushCounters>,
}

impl PushCore {
    pub(super) fn new(providers: impl IntoIterator<Item = Provider>, counters: Arc<PushCounters>) -> Self {
        PushCore {
            lanes: providers.into_iter().map(|provider| (provider, Lane::default())).collect(),
            alerts: Rates::new(ALERTS_BURST, ALERT_INTERVAL),
            hints: Rates::new(SILENT_BURST, SILENT_INTERVAL),
            ids: Remembered::default(),
            jobs: BTreeMap::new(),
            waiting_alerts: VecDeque::new(),
            waiting_hints: VecDeque::new(),
            looking_up: BTreeSet::new(),
            hinted: BTreeSet::new(),
            suspicious: BTreeSet::new(),
            last_job: 0,
            leaving: false,
            counters,
        }
    }

    /// Takes one step. `now` must not run backwards from step to step.
    pub(super) fn handle(&mut self, now: Instant, input: Input, effects: &mut VecDeque<Effect>) {
        match input {
            Input::DesktopOnline { user, desktop, at } => self.on_desktop_online(now, user, desktop, at),
            Input::Notify { user, desktop, notification, asker } => self.on_notify(now, user, desktop, notification, asker, effects),
            Input::Found { job, targets } => self.on_found(now, job, targets, effects),
            Input::Judged { provider, push, verdict } => self.on_judged(now, provider, push, &verdict, effects),
            Input::Dropped { provider, push } => {
                if let Some(kind) = self.lanes.get_mut(&provider).and_then(|lane| lane.dropped(push)) {
                    self.counters.of(provider, kind).count(Fate::TokenDead.name());
                }
            }
            Input::Leave => self.on_leave(),
            Input::Timeout => {}
        }
        self.look_up(effects);
        self.send(now, effects);
    }

    /// When [`Input::Timeout`] is wanted at the latest.
    pub(super) fn next_timeout(&self, now: Instant) -> Option<Instant> {
        self.lanes.values().filter_map(|lane| lane.next_timeout(now)).min()
    }

    /// Whether nothing is left to do.
    pub(super) fn is_idle(&self) -> bool {
        self.jobs.is_empty() && self.lanes.values().all(Lane::is_empty)
    }

    /// How much each provider's lane holds.
    pub(super) fn depths(&self, now: Instant) -> impl Iterator<Item = (Provider, Depth)> {
        self.lanes.iter().map(move |(provider, lane)| (*provider, lane.depth(now)))
    }

    fn on_desktop_online(&mut self, now: Instant, user: UserId, desktop: DeviceId, at: EpochMs) {
        let fate = if self.lanes.is_empty() {
            HintFate::NotConfigured
        } else if self.hinted.contains(&(user, desktop)) {
            HintFate::Coalesced
        } else if self.leaving || self.jobs.len() >= LOOK_UPS_MAX {
            HintFate::Overloaded
        } else if self.hints.take(user, now) {
            self.hinted.insert((user, desktop));
            let job = self.begin(user, Job::Hint { desktop, at });
            return self.waiting_hints.push_back(job);
        } else {
            HintFate::RateLimited
        };
        self.counters.hints.count(fate.name());
    }

    /// Every request counts against the account's rate, also one that is known, so that what waits here for one answer is bounded.
    fn on_notify(
        &mut self,
        now: Instant,
        user: UserId,
        desktop: DeviceId,
        notification: Notification,
        asker: AskerId,
        effects: &mut VecDeque<Effect>,
    ) {
        let Notification { id, title, body, app_session_id } = notification;
        let key = Key::new(user, &id);
        if !self.alerts.take(user, now) {
            return self.answer([asker], Outcome::Refused(NotSent::RateLimited), effects);
        }
        match self.ids.get(key, now) {
            Some(State::Accepted(devices)) => self.answer([asker], Outcome::AcceptedBefore { devices }, effects),
            Some(State::Asking(job)) => match self.jobs.get_mut(&JobId(job)) {
                Some((_, Job::Alert { askers, .. })) => askers.push(asker),
                Some((_, Job::Hint { .. })) | None => self.answer([asker], Outcome::Refused(NotSent::Unavailable), effects),
            },
            None if self.lanes.is_empty() => self.answer([asker], Outcome::Refused(NotSent::NotConfigured), effects),
            None if self.leaving || self.jobs.len() >= LOOK_UPS_MAX => {
                self.answer([asker], Outcome::Refused(NotSent::Overloaded), effects);
            }
            None => {
                let alert = Arc::new(Alert { desktop: Some(desktop), notification_id: id, title, body, app_session_id });
                let job = self.begin(user, Job::Alert { alert, key, askers: vec![asker] });
                self.ids.begin(key, job.0, now);
                self.waiting_alerts.push_back(job);
            }
        }
    }

    fn begin(&mut self, user: UserId, job: Job) -> JobId {
        self.last_job += 1;
        let id = JobId(self.last_job);
        self.jobs.insert(id, (user, job));
        id
    }

    fn look_up(&mut self, effects: &mut VecDeque<Effect>) {
        while self.looking_up.len() < LOOK_UPS_AT_ONCE {
            let Some(job) = self.waiting_alerts.pop_front().or_else(|| self.waiting_hints.pop_front()) else { return };
            let Some((user, _)) = self.jobs.get(&job) else { continue };
            self.looking_up.insert(job);
            effects.push_back(Effect::LookUp { job, user: *user });
        }
    }

    fn on_found(&mut self, now: Instant, id: JobId, targets: Option<Vec<PushTarget>>, effects: &mut VecDeque<Effect>) {
        self.looking_up.remove(&id);
        let Some((user, job)) = self.jobs.remove(&id) else { return };
        match job {
            Job::Hint { desktop, at } => {
                self.hinted.remove(&(user, desktop));
                let content = Content::DesktopOnline { desktop, at };
                // Of one desktop the newest is enough.
                let collapse_key: Arc<str> = format!("desktop_online:{desktop}").into();
                let fate = match self.spread(now, user, targets, &content, &collapse_key) {
                    Ok(_) => HintFate::Told,
                    Err(NotSent::NoDevices | NotSent::NotConfigured) => HintFate::NoDevices,
                    Err(NotSent::Unavailable) => HintFate::Unavailable,
                    Err(NotSent::Overloaded | NotSent::RateLimited | NotSent::Duplicate) => HintFate::Overloaded,
                };
                self.counters.hints.count(fate.name());
            }
            Job::Alert { alert, key, askers } => {
                let collapse_key: Arc<str> = key.collapse_key().into();
                let outcome = match self.spread(now, user, targets, &Content::Alert(alert), &collapse_key) {
                    Ok(devices) => {
                        self.ids.accept(key, devices);
                        Outcome::Accepted { devices }
                    }
                    Err(reason) => {
                        self.ids.refuse(key);
                        Outcome::Refused(reason)
                    }
                };
                self.answer(askers, outcome, effects);
            }
        }
    }

    /// Queues a push for each of the phones; for how many there was room.
    fn spread(
        &mut self,
        now: Instant,
        user: UserId,
        targets: Option<Vec<PushTarget>>,
        content: &Content,
        collapse_key: &Arc<str>,
    ) -> Result<usize, NotSent> {
        let targets = targets.ok_or(NotSent::Unavailable)?;
        if targets.is_empty() {
            return Err(NotSent::NoDevices);
        }
        let (life, keep_for) = if content.is_silent() { (SILENT_LIFE, SILENT_KEPT_FOR) } else { (ALERT_LIFE, ALERT_KEPT_FOR) };
        let (mut reachable, mut queued) = (0, 0);
        for PushTarget { device, address, claimed_at } in targets {
            let Some(lane) = self.lanes.get_mut(&address.provider) else { continue };
            reachable += 1;
            let outgoing = Outgoing { address, content: content.clone(), collapse_key: collapse_key.clone(), keep_for };
            let item = Item { user, device, claimed_at, outgoing, ends: now + life, attempts: 0 };
            queued += usize::from(!(self.leaving && content.is_silent()) && lane.add(item, now).is_ok());
        }
        match (reachable, queued) {
            (0, _) => Err(NotSent::NotConfigured),
            (_, 0) => Err(NotSent::Overloaded),
            (_, queued) => Ok(queued),
        }
    }

    fn on_judged(&mut self, now: Instant, provider: Provider, push: PushId, verdict: &Verdict, effects: &mut VecDeque<Effect>) {
        let Some(lane) = self.lanes.get_mut(&provider) else { return };
        let Some((kind, next)) = lane.judge(push, verdict, now) else { return };
        match next {
            Next::Ended(fate) => self.counters.of(provider, kind).count(fate.name()),
            Next::Drop(device, claimed_at) => effects.push_back(Effect::DropToken { provider, push, device, claimed_at }),
            Next::Again => self.counters.retries.count(provider.as_str()),
        }
        if !lane.is_suspicious(now) {
            self.suspicious.remove(&provider);
        } else if self.suspicious.insert(provider) {
            effects.push_back(Effect::ReportSuspicious { provider });
        }
    }

    fn on_leave(&mut self) {
        self.leaving = true;
        for (user, job) in std::mem::take(&mut self.waiting_hints).into_iter().filter_map(|job| self.jobs.remove(&job)) {
            if let Job::Hint { desktop, .. } = job {
                self.hinted.remove(&(user, desktop));
                self.counters.hints.count(HintFate::Overloaded.name());
            }
        }
        self.lanes.values_mut().for_each(Lane::drop_silents);
    }

    fn send(&mut self, now: Instant, effects: &mut VecDeque<Effect>) {
        for (provider, lane) in &mut self.lanes {
            while let Some((push, outgoing)) = lane.take(now) {
                effects.push_back(Effect::Send { provider: *provider, push, outgoing });
            }
            for (kind, fate) in lane.take_ended() {
                self.counters.of(*provider, kind).count(fate.name());
            }
        }
    }

    fn answer(&self, askers: impl IntoIterator<Item = AskerId>, outcome: Outcome, effects: &mut VecDeque<Effect>) {
        for asker in askers {
            self.counters.notifications.count(outcome.reason().map_or("accepted", NotSent::as_str));
            effects.push_back(Effect::Answer { asker, outcome });
        }
    }
}

#[cfg(test)]
#[path = "core_test.rs"]
mod tests;
