//! A phone that watches one session and comes back with jitter when its link is lost: registered again, it takes its lease anew.

use super::{NoEvent, Phone, PhoneOptions, Watch};
use crate::{
    backoff::{Backoff, Policy},
    frame::{ErrorFrame, Event, Registered},
    link::{Cause, Ended},
};
use rand::{SeedableRng, rngs::StdRng};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

/// What a [`Watcher`] tells.
#[derive(Debug)]
pub enum Seen {
    /// It is registered, and its lease is on the way.
    Watching(Registered),
    /// An event came.
    Event(Arc<Event>),
    /// So many events were dropped, since they were not taken in time.
    Missed(u64),
    /// The relay refused a frame. A watcher sends no others than those of its lease.
    Refused(ErrorFrame),
    /// It has no link, and tries again after the wait.
    Waiting {
        /// What went wrong.
        cause: Cause,
        /// Until the next attempt.
        wait: Duration,
    },
}

/// A phone that watches one session.
pub struct Watcher {
    options: PhoneOptions,
    session: String,
    backoff: Backoff,
    rng: StdRng,
    state: State,
}

enum State {
    Watching(Box<Watching>),
    Waiting(Instant),
}

/// A link with a lease.
struct Watching {
    phone: Phone,
    watch: Watch,
    refusals: watch::Receiver<Option<ErrorFrame>>,
    since: Instant,
    is_told: bool,
}

impl Watcher {
    /// Watches with a phone that these options have connected, and comes back with the same ones.
    pub fn new(options: PhoneOptions, phone: Phone, session: String, backoff: Policy) -> Self {
        let rng = StdRng::from_rng(&mut rand::rng());
        let state = State::Watching(Box::new(Watching::begin(phone, &session)));
        Watcher { options, session, backoff: Backoff::new(backoff), rng, state }
    }

    /// What comes next. Cancelling loses no event; it may lose an attempt to connect, and the next call makes another.
    ///
    /// # Errors
    /// Something that trying again cannot mend, such as a log-out or a replacement. Nothing comes after it.
    pub async fn next(&mut self) -> Result<Seen, Cause> {
        let cause = loop {
            match &mut self.state {
                State::Watching(watching) => match watching.next().await {
                    Ok(seen) => return Ok(seen),
                    Err(ended) => {
                        self.backoff.on_link_ended(watching.since.elapsed());
                        self.options.resume = Some(watching.phone.registered().resume.clone());
                        break Cause::Ended(ended);
                    }
                },
                State::Waiting(until) => {
                    sleep_until(*until).await;
                    match Phone::connect(self.options.clone()).await {
                        Ok(phone) => self.state = State::Watching(Box::new(Watching::begin(phone, &self.session))),
                        Err(error) => break Cause::Open(error),
                    }
                }
            }
        };
        let wait = self.backoff.next_wait(&mut self.rng);
        self.state = State::Waiting(Instant::now() + wait);
        if cause.retryable() { Ok(Seen::Waiting { cause, wait }) } else { Err(cause) }
    }

    /// Whether it has a registered link, as far as it knows.
    pub fn is_watching(&self) -> bool {
        matches!(self.state, State::Watching(_))
    }

    /// Gives the lease back and says goodbye.
    pub async fn close(self) {
        match self.state {
            State::Watching(watching) => watching.phone.close().await,
            State::Waiting(_) => {}
        }
    }
}

impl Watching {
    fn begin(phone: Phone, session: &str) -> Self {
        let (watch, refusals) = (phone.watch(session), phone.refusals());
        Watching { phone, watch, refusals, since: Instant::now(), is_told: false }
    }

    async fn next(&mut self) -> Result<Seen, Ended> {
        if !self.is_told {
            self.is_told = true;
            return Ok(Seen::Watching(self.phone.registered().clone()));
        }
        tokio::select! {
            biased;
            Ok(()) = self.refusals.changed() => match self.refusals.borrow_and_update().clone() {
                Some(refusal) => Ok(Seen::Refused(refusal)),
                None => unreachable!("only refusals are put there"),
            },
            next = self.watch.next() => match next {
                Ok(event) => Ok(Seen::Event(event)),
                Err(NoEvent::Missed(count)) => Ok(Seen::Missed(count)),
                Err(NoEvent::Ended) => Err(self.phone.ended().unwrap_or_else(|| Ended::Lost("the link is closing".to_owned()))),
            },
        }
    }
}
