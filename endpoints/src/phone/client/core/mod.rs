//! Every decision of a [`Client`](super::Client): one [`Input`] in, any number of [`Effect`]s out. Pure: time is an argument, and chance
//! comes from the seed.
//!
//! After each registration, in this order: the lease, a ping to the desktop, what the program asked while there was no link; when
//! the ping is answered, the latest window of the watched session. Only then the status is [`Status::Ready`].

mod calls;
#[cfg(test)]
mod calls_test;
mod presence;
mod retry;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use retry::Retries;

use super::{failure::Failure, status::Status};
use crate::{
    backoff::{Backoff, Policy},
    frame::{DeviceStatus, ErrorFrame, Event, IncomingResponse, Outcome, Registered, Resume},
    link::{Cause, Ended, OpenError, RegisterError},
    phone::{Request, lease::Lease},
};
use calls::{CallEvent, Calls, Owner};
use presence::Presences;
use rand::rngs::StdRng;
use relay_protocol::{close::CloseReason, contract::Platform, device::Presence, event::DEVICE_STATUS, id::DeviceId};
use serde_json::value::RawValue;
use std::sync::Arc;
use tokio::time::Instant;

/// The method that asks whether the desktop is there.
const PING: &str = "system.ping";

/// What a core is made with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) desktop: Option<DeviceId>,
    pub(super) platform: Platform,
    pub(super) verifies: bool,
    pub(super) reconnect: Policy,
    pub(super) retries: Retries,
}

/// The session on the screen.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    /// Counts the program's watches: the end of a former one does not end this.
    pub(super) number: u64,
    pub(super) session: Arc<str>,
    /// Loads its latest window.
    pub(super) window: Option<Request>,
}

#[derive(Debug)]
pub(super) enum Input {
    /// What became of [`Effect::Open`].
    Opened(Result<Registered, OpenError>),
    LinkEnded(Ended),
    Response(IncomingResponse),
    Event(Event, usize),
    Refused(ErrorFrame),
    Start(u64, Box<Request>),
    Forget(u64),
    Watch(Watched),
    Unwatch(u64),
    /// Load the latest window again.
    Reload,
    Close,
    Timeout,
}

#[derive(Debug)]
pub(super) enum Effect {
    /// Connect and register.
    Open(Option<Resume>),
    /// Send a frame on the link.
    Send(String),
    /// End the link with a goodbye, behind what was sent.
    Goodbye,
    Save(Resume),
    Clear,
    Registered(Registered),
    Progress(u64, Outcome),
    Done(u64, Result<Box<RawValue>, Failure>),
    Publish(Event, usize),
    Refused(ErrorFrame),
    Window(Arc<str>, Box<RawValue>),
    Show(Status),
}

#[derive(Debug)]
enum Link {
    Opening(Option<(Arc<Cause>, Instant)>),
    Waiting(Arc<Cause>, Instant),
    Up(Instant),
    Over(Option<Arc<Cause>>),
}

/// What is known of the desktop while there is a link.
#[derive(Debug)]
enum Check {
    /// A ping is open.
    Pinging,
    /// It gave no answer. Asked again at the time, or when the relay says that it is online.
    Doubtful(Doubt, Option<Instant>),
    /// The latest window is being loaded.
    Loading,
    /// It answers.
    Done,
    /// It answers, but not the request for the latest window.
    NoHistory(Failure),
}

#[derive(Clone, Copy, Debug)]
enum Doubt {
    Silent,
    Reconnecting,
    Offline,
}

#[derive(Debug)]
pub(super) struct Core {
    settings: Settings,
    link: Link,
    reconnect: Backoff,
    presences: Presences,
    resume: Option<Resume>,
    lease: Lease,
    watched: Option<Watched>,
    check: Check,
    recheck: Backoff,
    calls: Calls,
    shown: Status,
    rng: StdRng,
}

impl Core {
    /// Without a link: one is asked for at once, or given as the first input.
    pub(super) fn new(now: Instant, settings: Settings, resume: Option<Resume>, rng: StdRng) -> Self {
        Core {
            settings,
            link: Link::Opening(None),
            reconnect: Backoff::new(settings.reconnect),
            presences: Presences::default(),
            resume,
            lease: Lease::default(),
            watched: None,
            check: Check::Pinging,
            recheck: Backoff::new(settings.reconnect),
            calls: Calls::new(now, settings.retries, settings.platform),
            shown: Status::Connecting,
            rng,
        }
    }

    /// What to begin with, if there is no link yet.
    pub(super) fn open(&self) -> Effect {
        Effect::Open(self.resume.clone())
    }

    pub(super) fn handle(&mut self, now: Instant, input: Input, out: &mut Vec<Effect>) {
        match input {
            Input::Opened(Ok(registered)) => self.on_registered(now, registered, out),
            Input::Opened(Err(error)) => self.on_no_link(now, Cause::Open(error), out),
            Input::LinkEnded(ended) => self.on_link_ended(now, ended, out),
            Input::Response(response) => self.with_calls(now, out, |this, events| {
                this.calls.on_response(now, response, &mut this.rng, events);
            }),
            Input::Event(event, bytes) => self.on_event(now, event, bytes, out),
            Input::Refused(refusal) => out.push(Effect::Refused(refusal)),
            Input::Start(number, request) => self.start(now, Owner::Program(number), *request, out),
            Input::Forget(number) => self.calls.forget(Owner::Program(number)),
            Input::Watch(watched) => self.on_watch(now, watched, out),
            Input::Unwatch(number) => self.on_unwatch(now, number, out),
            Input::Reload => self.on_reload(now, out),
            Input::Close => self.on_close(now, out),
            Input::Timeout => self.on_timeout(now, out),
        }
        let status = self.status();
        if !self.shown.is_same(&status) {
            self.shown = status.clone();
            out.push(Effect::Show(status));
        }
    }

    /// When a [`Input::Timeout`] is due.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let link = match &self.link {
            Link::Waiting(_, until) => Some(*until),
            Link::Up(_) => match &self.check {
                Check::Doubtful(_, until) => *until,
                Check::Pinging | Check::Loading | Check::Done | Check::NoHistory(_) => None,
            },
            Link::Opening(_) | Link::Over(_) => None,
        };
        [link, self.lease.renew_at(), self.calls.next_timeout()].into_iter().flatten().min()
    }

    /// Whether this core has ended, and gives no further effects.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.link, Link::Over(_))
    }

    fn status(&self) -> Status {
        match &self.link {
            Link::Opening(None) => Status::Connecting,
            Link::Opening(Some((cause, at))) | Link::Waiting(cause, at) => {
                Status::Reconnecting { cause: Arc::clone(cause), next_attempt: *at }
            }
            Link::Up(_) => match &self.check {
                Check::Pinging | Check::Loading | Check::Doubtful(Doubt::Silent, _) => Status::Verifying,
                Check::Doubtful(Doubt::Reconnecting, _) => Status::DesktopReconnecting,
                Check::Doubtful(Doubt::Offline, _) => Status::DesktopOffline,
                Check::Done => Status::Ready,
                Check::NoHistory(failure) => Status::HistoryUnavailable(failure.clone()),
            },
            Link::Over(Some(cause)) => Status::Ended(Arc::clone(cause)),
            Link::Over(None) => Status::Closed,
        }
    }

    fn on_registered(&mut self, now: Instant, registered: Registered, out: &mut Vec<Effect>) {
        self.link = Link::Up(now);
        let is_other_process = self.presences.on_registered(&registered);
        if self.resume.as_ref() != Some(&registered.resume) {
            self.resume = Some(registered.resume.clone());
            out.push(Effect::Save(registered.resume.clone()));
        }
        let desktop = registered.target.as_ref().map(|target| target.status);
        out.push(Effect::Registered(registered));
        if let Some(watched) = &self.watched {
            out.extend(self.lease.want(now, Some(Arc::clone(&watched.session))).map(Effect::Send));
        }
        self.recheck = Backoff::new(self.settings.reconnect);
        self.with_calls(now, out, |this, events| this.calls.on_registered(is_other_process, events));
        match desktop.and_then(Doubt::of).filter(|_| !self.settings.verifies) {
            Some(doubt) => self.check = Check::Doubtful(doubt, None),
            None => self.verify(now, out),
        }
        self.with_calls(now, out, |this, events| this.calls.send_held(events));
    }

    fn on_link_ended(&mut self, now: Instant, ended: Ended, out: &mut Vec<Effect>) {
        let Link::Up(since) = self.link else { return };
        self.reconnect.on_link_ended(now.duration_since(since));
        self.lease = Lease::default();
        self.calls.on_link_ended();
        self.calls.forget(Owner::Ping);
        self.calls.forget(Owner::Window);
        self.on_no_link(now, Cause::Ended(ended), out);
    }

    fn on_no_link(&mut self, now: Instant, cause: Cause, out: &mut Vec<Effect>) {
        if is_logged_out(&cause) {
            self.resume = None;
            out.push(Effect::Clear);
        }
        let cause = Arc::new(cause);
        if cause.retryable() {
            self.link = Link::Waiting(cause, now + self.reconnect.next_wait(&mut self.rng));
        } else {
            self.with_calls(now, out, |this, events| this.calls.end(&Failure::Ended(Arc::clone(&cause)), events));
            self.link = Link::Over(Some(cause));
        }
    }

    fn on_event(&mut self, now: Instant, event: Event, bytes: usize, out: &mut Vec<Effect>) {
        if event.event_type != DEVICE_STATUS {
            return out.push(Effect::Publish(event, bytes));
        }
        let told: DeviceStatus = match serde_json::from_str(event.payload.get()) {
            Ok(told) => told,
            // The program may know more of it.
            Err(_unknown) => return out.push(Effect::Publish(event, bytes)),
        };
        if !self.presences.accepts(&told) {
            return tracing::debug!(revision = told.revision, "a status that is out of date is ignored");
        }
        out.push(Effect::Publish(event, bytes));
        if Some(told.device_id) == self.settings.desktop && matches!(self.link, Link::Up(_)) {
            self.on_presence(now, told.status, out);
        }
    }

    fn on_presence(&mut self, now: Instant, presence: Presence, out: &mut Vec<Effect>) {
        match (Doubt::of(presence), &self.check) {
            (Some(doubt), _) => self.doubt(now, doubt),
            (None, Check::Doubtful(..)) => self.verify(now, out),
            (None, Check::Pinging | Check::Loading | Check::Done | Check::NoHistory(_)) => {}
        }
    }

    /// The desktop is not there, or does not say so. Asked again after a wait, as a replaced connection makes no news of presence.
    fn doubt(&mut self, now: Instant, doubt: Doubt) {
        self.calls.forget(Owner::Ping);
        self.calls.forget(Owner::Window);
        let until = self.settings.verifies.then(|| now + self.recheck.next_wait(&mut self.rng));
        self.check = Check::Doubtful(doubt, until);
    }

    fn verify(&mut self, now: Instant, out: &mut Vec<Effect>) {
        if self.settings.verifies {
            self.check = Check::Pinging;
            self.calls.forget(Owner::Ping);
            self.start(now, Owner::Ping, Request::new(PING), out);
        } else {
            self.load(now, out);
        }
    }

    fn load(&mut self, now: Instant, out: &mut Vec<Effect>) {
        self.calls.forget(Owner::Window);
        match self.watched.as_ref().and_then(|watched| watched.window.clone()) {
            Some(request) => {
                self.check = Check::Loading;
                self.start(now, Owner::Window, request, out);
            }
            None => self.check = Check::Done,
        }
    }

    fn on_ping(&mut self, now: Instant, result: Result<Box<RawValue>, Failure>, out: &mut Vec<Effect>) {
        let doubt = match result {
            Err(Failure::DesktopOffline(_)) => Doubt::Offline,
            Err(Failure::DesktopReconnecting(_)) => Doubt::Reconnecting,
            Err(Failure::TimedOut(_) | Failure::RelayTimedOut(_) | Failure::NotSent(_) | Failure::ReplyLost) => Doubt::Silent,
            Err(Failure::Refused(error)) if error.retryable => Doubt::Silent,
            // A desktop that refuses to be pinged is there.
            Ok(_) | Err(Failure::Refused(_) | Failure::TooManyCalls | Failure::DuplicateId) => {
                self.recheck = Backoff::new(self.settings.reconnect);
                return self.load(now, out);
            }
            Err(Failure::Ended(_) | Failure::Closed) => return,
        };
        self.doubt(now, doubt);
    }

    fn on_window(&mut self, now: Instant, result: Result<Box<RawValue>, Failure>, out: &mut Vec<Effect>) {
        match result {
            Ok(window) => {
                self.check = Check::Done;
                if let Some(watched) = &self.watched {
                    out.push(Effect::Window(Arc::clone(&watched.session), window));
                }
            }
            Err(Failure::DesktopOffline(_)) => self.doubt(now, Doubt::Offline),
            Err(Failure::DesktopReconnecting(_)) => self.doubt(now, Doubt::Reconnecting),
            Err(
                failure @ (Failure::TimedOut(_)
                | Failure::RelayTimedOut(_)
                | Failure::NotSent(_)
                | Failure::ReplyLost
                | Failure::Refused(_)
                | Failure::TooManyCalls
                | Failure::DuplicateId),
            ) => self.check = Check::NoHistory(failure),
            Err(Failure::Ended(_) | Failure::Closed) => {}
        }
    }

    fn on_watch(&mut self, now: Instant, watched: Watched, out: &mut Vec<Effect>) {
        let session = Arc::clone(&watched.session);
        self.watched = Some(watched);
        self.calls.forget(Owner::Window);
        if matches!(self.link, Link::Up(_)) {
            out.extend(self.lease.want(now, Some(session)).map(Effect::Send));
            self.load_if_verified(now, out);
        }
    }

    fn on_unwatch(&mut self, now: Instant, number: u64, out: &mut Vec<Effect>) {
        if self.watched.take_if(|watched| watched.number == number).is_some() {
            out.extend(self.lease.want(now, None).map(Effect::Send));
            self.load_if_verified(now, out);
        }
    }

    fn on_reload(&mut self, now: Instant, out: &mut Vec<Effect>) {
        if matches!(self.link, Link::Up(_)) {
            self.load_if_verified(now, out);
        }
    }

    fn load_if_verified(&mut self, now: Instant, out: &mut Vec<Effect>) {
        match self.check {
            Check::Loading | Check::Done | Check::NoHistory(_) => self.load(now, out),
            Check::Pinging | Check::Doubtful(..) => {}
        }
    }

    fn on_close(&mut self, now: Instant, out: &mut Vec<Effect>) {
        if matches!(self.link, Link::Up(_)) {
            out.extend(self.lease.want(now, None).map(Effect::Send));
            out.push(Effect::Goodbye);
        }
        self.with_calls(now, out, |this, events| this.calls.end(&Failure::Closed, events));
        self.link = Link::Over(None);
    }

    fn on_timeout(&mut self, now: Instant, out: &mut Vec<Effect>) {
        self.with_calls(now, out, |this, events| this.calls.on_timeout(now, &mut this.rng, events));
        out.extend(self.lease.renew(now).map(Effect::Send));
        match (&self.link, &self.check) {
            (Link::Waiting(cause, until), _) if *until <= now => {
                self.link = Link::Opening(Some((Arc::clone(cause), *until)));
                out.push(Effect::Open(self.resume.clone()));
            }
            (Link::Up(_), Check::Doubtful(_, Some(until))) if *until <= now => self.ask_again(now, out),
            (Link::Opening(_) | Link::Waiting(..) | Link::Up(_) | Link::Over(_), _) => {}
        }
    }

    /// Asks a desktop that is in doubt. What is shown stays, until there is an answer.
    fn ask_again(&mut self, now: Instant, out: &mut Vec<Effect>) {
        if let Check::Doubtful(_, until) = &mut self.check {
            *until = None;
        }
        self.start(now, Owner::Ping, Request::new(PING), out);
    }

    fn start(&mut self, now: Instant, owner: Owner, request: Request, out: &mut Vec<Effect>) {
        self.with_calls(now, out, |this, events| this.calls.start(now, owner, request, &mut this.rng, events));
    }

    /// Lets something happen to the calls, and turns what comes of it into effects.
    fn with_calls(&mut self, now: Instant, out: &mut Vec<Effect>, happen: impl FnOnce(&mut Self, &mut Vec<CallEvent>)) {
        let mut events = Vec::new();
        happen(self, &mut events);
        for event in events {
            match event {
                CallEvent::Send(frame) => out.push(Effect::Send(frame)),
                CallEvent::Progress(Owner::Program(number), outcome) => out.push(Effect::Progress(number, outcome)),
                CallEvent::Progress(Owner::Ping | Owner::Window, _) => {}
                CallEvent::Done(Owner::Program(number), result) => out.push(Effect::Done(number, result)),
                CallEvent::Done(Owner::Ping, result) => self.on_ping(now, result, out),
                CallEvent::Done(Owner::Window, result) => self.on_window(now, result, out),
            }
        }
    }
}

impl Doubt {
    fn of(presence: Presence) -> Option<Self> {
        match presence {
            Presence::Online => None,
            Presence::Reconnecting => Some(Doubt::Reconnecting),
            Presence::Disconnected => Some(Doubt::Offline),
        }
    }
}

/// After a policy close the session can never be resumed.
fn is_logged_out(cause: &Cause) -> bool {
    match cause {
        Cause::Ended(ended) | Cause::Open(OpenError::Register(RegisterError::Ended(ended))) => {
            ended.code() == CloseReason::LoggedOut.code()
        }
        Cause::Open(
            OpenError::Register(RegisterError::Refused(_) | RegisterError::Malformed(_) | RegisterError::TimedOut) | OpenError::Connect(_),
        )
        | Cause::Incompatible(_) => false,
    }
}
