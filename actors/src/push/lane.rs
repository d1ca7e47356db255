//! What waits for one provider and what it has been given: bounded, alerts before silent pushes, at the provider's pace.

use super::{
    gateway::{Outgoing, Scope, Verdict},
    limits::{
        ATTEMPTS_MAX, DEAD_SUSPICIOUS, DEAD_WINDOW, IN_FLIGHT_MAX, PAUSE_ASKED_MAX, PAUSE_FIRST, PAUSE_MAX, QUEUE_MAX,
        QUEUE_PER_ACCOUNT_MAX, RETRY_FIRST,
    },
};
use crate::clock::EpochMs;
use relay_protocol::id::{DeviceId, UserId};
use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

/// One push of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PushId(pub(super) u64);

/// A push, and whose it is.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) user: UserId,
    pub(super) device: DeviceId,
    pub(super) claimed_at: EpochMs,
    pub(super) outgoing: Outgoing,
    /// Not sent from then on.
    pub(super) ends: Instant,
    /// How often it has been given to the provider.
    pub(super) attempts: u32,
}

impl Item {
    pub(super) fn kind(&self) -> Kind {
        if self.outgoing.content.is_silent() { Kind::Silent } else { Kind::Alert }
    }
}

/// The two kinds of push.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Shown.
    Alert,
    /// Not shown.
    Silent,
}

impl Kind {
    /// Both.
    pub const ALL: [Kind; 2] = [Kind::Alert, Kind::Silent];

    /// The word for metrics.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Alert => "alert",
            Kind::Silent => "silent",
        }
    }
}

/// How a push ends. A closed set: each has a counter from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// The provider took it.
    Sent,
    /// The provider refused it for good.
    Refused,
    /// Its token was dead, and is forgotten.
    TokenDead,
    /// Its token was called dead, and is kept: claimed since, or too many are called dead.
    TokenKept,
    /// It was tried as often as it may be.
    GivenUp,
    /// It waited for too long.
    Expired,
    /// There was no room for it.
    Overflow,
    /// The process ends.
    Shutdown,
}

impl Fate {
    /// Every variant.
    pub const ALL: [Fate; 8] =
        [Fate::Sent, Fate::Refused, Fate::TokenDead, Fate::TokenKept, Fate::GivenUp, Fate::Expired, Fate::Overflow, Fate::Shutdown];

    /// The word for metrics.
    pub fn name(self) -> &'static str {
        match self {
            Fate::Sent => "sent",
            Fate::Refused => "refused",
            Fate::TokenDead => "tokenDead",
            Fate::TokenKept => "tokenKept",
            Fate::GivenUp => "givenUp",
            Fate::Expired => "expired",
            Fate::Overflow => "overflow",
            Fate::Shutdown => "shutdown",
        }
    }
}

/// What a verdict leads to.
#[derive(Debug)]
pub(super) enum Next {
    /// It has ended so.
    Ended(Fate),
    /// Its token is to be forgotten; it counts as in flight until that is done.
    Drop(DeviceId, EpochMs),
    /// It waits for another try.
    Again,
}

/// No room, and nothing to be dropped for it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

/// Dead tokens among the verdicts of the last while.
#[derive(Debug, Default)]
struct Suspicion {
    since: Option<Instant>,
    verdicts: u64,
    dead: u64,
}

impl Suspicion {
    /// Counts a verdict; whether dead tokens are to be believed.
    fn believes(&mut self, is_dead: bool, now: Instant) -> bool {
        if self.since.is_none_or(|since| since + DEAD_WINDOW <= now) {
            *self = Suspicion { since: Some(now), verdicts: 0, dead: 0 };
        }
        self.verdicts += 1;
        self.dead += u64::from(is_dead);
        self.dead <= DEAD_SUSPICIOUS || self.dead * 2 <= self.verdicts
    }
}

/// The pushes of one provider.
#[derive(Debug, Default)]
pub(super) struct Lane {
    alerts: VecDeque<(PushId, Item)>,
    silents: VecDeque<(PushId, Item)>,
    /// Those that are tried again, by when.
    later: BTreeMap<(Instant, PushId), Item>,
    in_flight: BTreeMap<PushId, Item>,
    /// How many of each account wait.
    waiting_of: BTreeMap<UserId, usize>,
    /// Nothing is sent before.
    paused_until: Option<Instant>,
    /// Since when the provider has failed without a success between, in pauses.
    pauses: u32,
    suspicion: Suspicion,
    /// Pushes that ended without a verdict, since they were last asked for.
    ended: Vec<(Kind, Fate)>,
    last_id: u64,
}

/// How much a lane holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Depth {
    pub(super) alerts: usize,
    pub(super) silents: usize,
    pub(super) in_flight: usize,
    pub(super) is_paused: bool,
}

impl Lane {
    /// Takes a push. When there is no room, a silent one goes for an alert.
    pub(super) fn add(&mut self, item: Item, now: Instant) -> Result<(), Full> {
        let has_share = |lane: &Self| lane.waiting_of.get(&item.user).is_none_or(|count| *count < QUEUE_PER_ACCOUNT_MAX);
        if self.waiting() >= QUEUE_MAX || !has_share(self) {
            self.end_expired(now);
        }
        let has_room = has_share(self) && (self.waiting() < QUEUE_MAX || (item.kind() == Kind::Alert && self.drop_a_silent()));
        if !has_room {
            self.ended.push((item.kind(), Fate::Overflow));
            return Err(Full);
        }
        self.last_id += 1;
        self.enqueue(PushId(self.last_id), item);
        Ok(())
    }

    /// The next push that may be sent now. It is in flight until its verdict.
    pub(super) fn take(&mut self, now: Instant) -> Option<(PushId, Outgoing)> {
        while let Some(entry) = self.later.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((_, id), item) = entry.remove_entry();
            self.uncount(item.user);
            self.enqueue(id, item);
        }
        if self.paused_until.is_some_and(|until| until > now) {
            return None;
        }
        // After a failure one push tries the way for all.
        let at_once = if self.pauses > 0 { 1 } else { IN_FLIGHT_MAX };
        if self.in_flight.len() >= at_once {
            return None;
        }
        loop {
            let (id, mut item) = self.alerts.pop_front().or_else(|| self.silents.pop_front())?;
            self.uncount(item.user);
            if item.ends <= now {
                self.ended.push((item.kind(), Fate::Expired));
                continue;
            }
            item.attempts += 1;
            let outgoing = item.outgoing.clone();
            self.in_flight.insert(id, item);
            return Some((id, outgoing));
        }
    }

    /// A push in flight has its verdict.
    pub(super) fn judge(&mut self, id: PushId, verdict: &Verdict, now: Instant) -> Option<(Kind, Next)> {
        let item = self.in_flight.get(&id)?;
        let (kind, is_dead) = (item.kind(), matches!(verdict, Verdict::TokenDead { .. }));
        let next = match verdict {
            Verdict::Retry { wait, scope, .. } => {
                let wait = wait.map(|wait| wait.min(PAUSE_ASKED_MAX));
                let item = self.in_flight.remove(&id)?;
                let at = match scope {
                    Scope::Push => now + wait.unwrap_or_default().max(backoff(RETRY_FIRST, item.attempts)),
                    Scope::Provider => self.pause(wait, now),
                };
                if item.attempts >= ATTEMPTS_MAX {
                    Next::Ended(Fate::GivenUp)
                } else if at >= item.ends {
                    Next::Ended(Fate::Expired)
                } else {
                    *self.waiting_of.entry(item.user).or_default() += 1;
                    self.later.insert((at, id), item);
                    Next::Again
                }
            }
            Verdict::Sent { .. } | Verdict::Refused { .. } | Verdict::TokenDead { .. } => {
                if self.paused_until.is_none_or(|until| until <= now) {
                    (self.paused_until, self.pauses) = (None, 0);
                }
                let is_believed = self.suspicion.believes(is_dead, now);
                match verdict {
                    Verdict::TokenDead { since, .. } if is_believed && since.is_none_or(|since| item.claimed_at <= since) => {
                        return Some((kind, Next::Drop(item.device, item.claimed_at)));
                    }
                    Verdict::TokenDead { .. } => self.end(id, Fate::TokenKept)?,
                    Verdict::Sent { .. } => self.end(id, Fate::Sent)?,
                    Verdict::Refused { .. } | Verdict::Retry { .. } => self.end(id, Fate::Refused)?,
                }
            }
        };
        Some((kind, next))
    }

    /// The token of a push in flight has been dealt with.
    pub(super) fn dropped(&mut self, id: PushId) -> Option<Kind> {
        self.in_flight.remove(&id).map(|item| item.kind())
    }

    /// Whether tokens that are called dead are kept for now.
    pub(super) fn is_suspicious(&self, now: Instant) -> bool {
        let Suspicion { since, verdicts, dead } = self.suspicion;
        since.is_some_and(|since| since + DEAD_WINDOW > now) && dead > DEAD_SUSPICIOUS && dead * 2 > verdicts
    }

    /// When [`Lane::take`], which gives nothing more now, may give something though no verdict has come. Always later than now.
    pub(super) fn next_timeout(&self, now: Instant) -> Option<Instant> {
        let pause = self.paused_until.filter(|until| *until > now);
        let pause_ends = pause.filter(|_| !self.alerts.is_empty() || !self.silents.is_empty());
        let retry = self.later.keys().next().map(|(at, _)| pause.map_or(*at, |until| until.max(*at)));
        [pause_ends, retry].into_iter().flatten().min()
    }

    /// Gives up what nobody would see.
    pub(super) fn drop_silents(&mut self) {
        while self.drop_one_silent(Fate::Shutdown) {}
    }

    /// Pushes that ended without a verdict since the last call.
    pub(super) fn take_ended(&mut self) -> Vec<(Kind, Fate)> {
        std::mem::take(&mut self.ended)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting() == 0 && self.in_flight.is_empty()
    }

    pub(super) fn depth(&self, now: Instant) -> Depth {
        let silents = self.silents.len() + self.later.values().filter(|item| item.kind() == Kind::Silent).count();
        Depth {
            alerts: self.waiting() - silents,
            silents,
            in_flight: self.in_flight.len(),
            is_paused: self.paused_until.is_some_and(|until| until > now),
        }
    }

    fn waiting(&self) -> usize {
        self.alerts.len() + self.silents.len() + self.later.len()
    }

    fn enqueue(&mut self, id: PushId, item: Item) {
        *self.waiting_of.entry(item.user).or_default() += 1;
        match item.kind() {
            Kind::Alert => self.alerts.push_back((id, item)),
            Kind::Silent => self.silents.push_back((id, item)),
        }
    }

    fn uncount(&mut self, user: UserId) {
        if let Some(count) = self.waiting_of.get_mut(&user) {
            *count -= 1;
            if *count == 0 {
                self.waiting_of.remove(&user);
            }
        }
    }

    fn end(&mut self, id: PushId, fate: Fate) -> Option<Next> {
        self.in_flight.remove(&id)?;
        Some(Next::Ended(fate))
    }

    /// Those in flight together fail together: that is one failure of the provider.
    fn pause(&mut self, asked: Option<Duration>, now: Instant) -> Instant {
        let is_paused = self.paused_until.is_some_and(|until| until > now);
        if !is_paused {
            self.pauses += 1;
        }
        let until = now + asked.unwrap_or_default().max(backoff(PAUSE_FIRST, self.pauses));
        let until = self.paused_until.map_or(until, |own| own.max(until));
        self.paused_until = Some(until);
        until
    }

    fn drop_a_silent(&mut self) -> bool {
        self.drop_one_silent(Fate::Overflow)
    }

    fn drop_one_silent(&mut self, fate: Fate) -> bool {
        let user = match self.silents.pop_front() {
            Some((_, item)) => item.user,
            None => {
                let key = self.later.iter().find(|(_, item)| item.kind() == Kind::Silent).map(|(key, _)| *key);
                let Some(item) = key.and_then(|key| self.later.remove(&key)) else { return false };
                item.user
            }
        };
        self.uncount(user);
        self.ended.push((Kind::Silent, fate));
        true
    }

    /// Called when there is no room, so what it costs is spent on those that ask for too much: what has ended goes, from the front only,
    /// since pushes of one kind wait equally long; those that are tried again are few and are looked at one by one.
    fn end_expired(&mut self, now: Instant) {
        for kind in Kind::ALL {
            let queue = match kind {
                Kind::Alert => &mut self.alerts,
                Kind::Silent => &mut self.silents,
            };
            let ended: Vec<UserId> =
                std::iter::from_fn(|| queue.pop_front_if(|(_, item)| item.ends <= now)).map(|(_, item)| item.user).collect();
            for user in ended {
                self.uncount(user);
                self.ended.push((kind, Fate::Expired));
            }
        }
    }
}

/// The wait after so many failures.
fn backoff(first: Duration, failures: u32) -> Duration {
    let doubled = 1_u32.checked_shl(failures.saturating_sub(1)).and_then(|factor| first.checked_mul(factor));
    doubled.map_or(PAUSE_MAX, |wait| wait.min(PAUSE_MAX))
}
