//! What is counted of pushes.

use super::{Counter, Tally};
use crate::push::{Fate, HintFate, Kind};
use relay_protocol::{event::NotSent, push::Provider};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A figure that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// The figure becomes this one.
    pub fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// The figure.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// How much one provider's queue holds.
#[derive(Debug, Default)]
pub struct QueueGauges {
    /// Alerts that wait.
    pub alerts: Gauge,
    /// Silent pushes that wait.
    pub silents: Gauge,
    /// Pushes that the provider is being asked to take.
    pub in_flight: Gauge,
    /// 1 while nothing is sent because the provider fails.
    pub paused: Gauge,
}

/// Counters of one provider.
#[derive(Debug)]
struct Sending {
    /// Alerts by [`Fate::name`].
    alerts: Tally,
    /// Silent pushes by [`Fate::name`].
    silents: Tally,
    queue: QueueGauges,
}

impl Default for Sending {
    fn default() -> Self {
        let fates = || Tally::new(Fate::ALL.map(Fate::name));
        Sending { alerts: fates(), silents: fates(), queue: QueueGauges::default() }
    }
}

/// Counters of the push actor.
#[derive(Debug)]
pub struct PushCounters {
    /// Alerts that desktops asked for: `accepted`, or [`NotSent::as_str`].
    pub notifications: Tally,
    /// Registrations of desktops, by [`HintFate::name`].
    pub hints: Tally,
    /// Tries that failed and are repeated, by provider.
    pub retries: Tally,
    /// Push actors that ended by a panic and were started anew.
    pub restarted: Counter,
    apns: Sending,
    fcm: Sending,
}

impl Default for PushCounters {
    fn default() -> Self {
        PushCounters {
            notifications: Tally::new(["accepted"].into_iter().chain(NotSent::ALL.map(NotSent::as_str))),
            hints: Tally::new(HintFate::ALL.map(HintFate::name)),
            retries: Tally::new(Provider::ALL.map(Provider::as_str)),
            restarted: Counter::default(),
            apns: Sending::default(),
            fcm: Sending::default(),
        }
    }
}

impl PushCounters {
    /// Pushes that have ended, by [`Fate::name`].
    pub fn of(&self, provider: Provider, kind: Kind) -> &Tally {
        let Sending { alerts, silents, .. } = self.provider(provider);
        match kind {
            Kind::Alert => alerts,
            Kind::Silent => silents,
        }
    }

    /// How much the provider's queue holds.
    pub fn queue(&self, provider: Provider) -> &QueueGauges {
        &self.provider(provider).queue
    }

    fn provider(&self, provider: Provider) -> &Sending {
        match provider {
            Provider::Apns => &self.apns,
            Provider::Fcm => &self.fcm,
        }
    }
}
