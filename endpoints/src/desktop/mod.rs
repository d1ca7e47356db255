//! A desktop: registers, answers requests concurrently, and comes back with jitter when its socket is lost.
//!
//! [`Desktop::run`] owns the link of the moment and every handler in progress. A handler outlives the socket that its request
//! came on, since its work may matter though its reply no longer can be delivered; it does not outlive the desktop.
//!
//! What a desktop sends by itself goes through a [`Publisher`]: timeline frames of the sessions that somebody watches, and other
//! events.

pub mod demo;
mod demo_timeline;
mod event_buffer;
mod event_queue;
mod handler;
mod interests;
mod publisher;
pub mod router;

pub use crate::link::Cause;
pub use demo_timeline::DemoTimeline;
pub use handler::{Gone, Handler, Pong, Replies, SampleRouter};
pub use interests::Interests;
pub use publisher::{Published, Publisher};

use crate::{
    backoff::{Backoff, Policy},
    compatibility::{Checked, check_desktop},
    event::InterestUpdate,
    frame::{Envelope, ErrorFrame, Event, IncomingRequest, Register, Registered, Resume, RpcError, encode, kind},
    link::{Ended, Link, LinkOptions, LinkSender},
};
use event_queue::{Connected, Connection, EventQueue};
use rand::{SeedableRng, rngs::StdRng};
use relay_protocol::{compatibility::Descriptor, event::INTEREST_UPDATED, id::DeviceId, limits::PENDING_PER_DESKTOP_MAX};
use std::{pin::pin, sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, sleep},
};

/// Replies waiting for the socket; a handler that replies waits for room.
const REPLIES_MAX: usize = 64;
/// How long a close frame may take to turn up after the sending side failed.
const CLOSE_FRAME_WAIT: Duration = Duration::from_secs(1);
/// JSON-RPC internal error: both of the seed's desktop texts use it.
const INTERNAL_ERROR: i64 = -32603;
/// Seed: the text of a desktop that has no permit left.
const BUSY: &str = "Desktop is busy; retry the request shortly.";

/// What a desktop needs to run.
#[derive(Clone)]
pub struct DesktopOptions {
    /// Where and as whom.
    pub link: LinkOptions,
    /// The device row, of role `desktop`.
    pub device: DeviceId,
    /// A name for people.
    pub device_name: Option<String>,
    /// What it claims to speak.
    pub relay_protocol_version: String,
    /// What it says of itself to the compatibility check before each attempt to connect; none: it does not ask.
    pub descriptor: Option<Descriptor>,
    /// Waits between attempts.
    pub backoff: Policy,
    /// Handlers at a time; a request above it is answered -32603. The relay forwards no more than this either.
    pub handlers_max: usize,
}

impl DesktopOptions {
    /// The defaults for one device.
    pub fn new(link: LinkOptions, device: DeviceId) -> Self {
        DesktopOptions {
            link,
            device,
            device_name: None,
            relay_protocol_version: crate::PROTOCOL_VERSION.to_owned(),
            descriptor: None,
            backoff: Policy::default(),
            handlers_max: PENDING_PER_DESKTOP_MAX,
        }
    }
}

/// What a desktop tells its owner.
#[derive(Debug)]
pub enum State {
    /// It can be called.
    Registered(Registered),
    /// It cannot be called, and tries again after the wait.
    Waiting {
        /// What went wrong.
        cause: Cause,
        /// Until the next attempt.
        wait: Duration,
    },
}

/// A desktop router around a [`Handler`].
pub struct Desktop<H> {
    options: DesktopOptions,
    handler: Arc<H>,
    handlers: JoinSet<()>,
    resume: Option<Resume>,
    connected: watch::Sender<Option<Connected>>,
    backoff: Backoff,
    rng: StdRng,
}

impl<H: Handler> Desktop<H> {
    /// A desktop that is not connected yet.
    pub fn new(options: DesktopOptions, handler: H) -> Self {
        let rng = StdRng::from_rng(&mut rand::rng());
        Desktop::with_rng(options, handler, rng)
    }

    /// Like [`Desktop::new`], with the jitter's RNG given.
    pub fn with_rng(options: DesktopOptions, handler: H, rng: StdRng) -> Self {
        let backoff = Backoff::new(options.backoff);
        let connected = watch::Sender::new(None);
        Desktop { options, handler: Arc::new(handler), handlers: JoinSet::new(), resume: None, connected, backoff, rng }
    }

    /// For what the desktop sends by itself, over whatever link it has.
    pub fn publisher(&self) -> Publisher {
        Publisher::new(self.connected.subscribe())
    }

    /// Runs until something that trying again cannot mend: a non-retryable refusal, a policy close (1008), a replacement
    /// (4002), a compatibility check that says no.
    pub async fn run(self, on_state: impl FnMut(&State)) -> Cause {
        match self.run_until(std::future::pending(), on_state).await {
            Ok(()) => unreachable!("nothing asks this desktop to stop"),
            Err(cause) => cause,
        }
    }

    /// Like [`Desktop::run`], and ends well, with a closing handshake, once `stop` completes.
    pub async fn run_until(mut self, stop: impl Future<Output = ()>, mut on_state: impl FnMut(&State)) -> Result<(), Cause> {
        let mut stop = pin!(stop);
        loop {
            let opened = tokio::select! {
                () = &mut stop => return Ok(()),
                opened = self.open() => opened,
            };
            let cause = match opened {
                Ok((link, registered)) => {
                    self.resume = Some(registered.resume.clone());
                    on_state(&State::Registered(registered));
                    let since = Instant::now();
                    let Some(ended) = self.serve(link, &mut stop).await else { return Ok(()) };
                    self.backoff.on_link_ended(since.elapsed());
                    Cause::Ended(ended)
                }
                Err(cause) => cause,
            };
            if !cause.retryable() {
                return Err(cause);
            }
            let wait = self.backoff.next_wait(&mut self.rng);
            on_state(&State::Waiting { cause, wait });
            tokio::select! {
                () = &mut stop => return Ok(()),
                () = sleep(wait) => {}
            }
        }
    }

    /// A registered link, unless the relay says beforehand that there will be none.
    async fn open(&self) -> Result<(Link, Registered), Cause> {
        if let Some(descriptor) = &self.options.descriptor {
            match check_desktop(&self.options.link.address, descriptor).await {
                Checked::Compatible => {}
                Checked::Unknown(why) => tracing::debug!(%why, "the compatibility check gave no answer; the registration decides"),
                Checked::Incompatible(incompatible) => return Err(Cause::Incompatible(incompatible)),
            }
        }
        Link::open(&self.options.link, self.registration()).await.map_err(Cause::Open)
    }

    fn registration(&self) -> Register {
        Register {
            device_id: self.options.device,
            relay_protocol_version: Some(self.options.relay_protocol_version.clone()),
            device_name: self.options.device_name.clone(),
            resume: self.resume.clone(),
            target_desktop_device_id: None,
        }
    }

    /// Serves one link: `None` when asked to stop, else how the link ended.
    async fn serve(&mut self, link: Link, stop: &mut (impl Future<Output = ()> + Unpin)) -> Option<Ended> {
        let (mut sender, mut receiver) = link.split();
        let (outbound, queue) = mpsc::channel(REPLIES_MAX);
        let events = EventsOfLink(Arc::default());
        // Without interests: the relay tells them behind its answer.
        self.connected.send_replace(Some(Connected { events: events.0.clone(), interests: Interests::default() }));
        let ended = {
            let mut writing = pin!(write(&mut sender, queue, &events.0, self.connected.subscribe()));
            loop {
                tokio::select! {
                    () = &mut *stop => break None,
                    failed = &mut writing => {
                        // The relay's close frame says more than "broken pipe" does.
                        let ended = receiver.ending(CLOSE_FRAME_WAIT).await;
                        break Some(if matches!(ended, Ended::Closed { .. }) { ended } else { failed });
                    }
                    received = receiver.receive() => match received {
                        Ok(text) => self.on_frame(&text, &outbound),
                        Err(ended) => break Some(ended),
                    },
                    Some(finished) = self.handlers.join_next() => {
                        if let Err(error) = finished {
                            tracing::error!(%error, "a request handler failed");
                        }
                    }
                }
            }
        };
        self.connected.send_replace(None);
        drop(events);
        if ended.is_none() {
            sender.close().await;
            receiver.ending(CLOSE_FRAME_WAIT).await;
        }
        ended
    }

    fn on_frame(&mut self, text: &str, outbound: &mpsc::Sender<String>) {
        let envelope = match Envelope::parse(text) {
            Ok(envelope) => envelope,
            Err(error) => return tracing::warn!(%error, "the relay sent a frame that is none"),
        };
        match &*envelope.kind {
            kind::RPC_REQUEST => match envelope.read::<IncomingRequest>() {
                Ok(request) => self.on_request(request, outbound),
                Err(error) => tracing::warn!(%error, "the relay sent a request that cannot be read"),
            },
            kind::EVENT => match envelope.read::<Event>() {
                Ok(event) => self.on_event(event),
                Err(error) => tracing::warn!(%error, "the relay sent an event that cannot be read"),
            },
            kind::ERROR => match envelope.read::<ErrorFrame>() {
                Ok(error) => self.handler.on_error(error),
                Err(error) => tracing::warn!(%error, "the relay sent an error that cannot be read"),
            },
            kind::PING => {
                // A full queue is proof of life enough.
                let _ = outbound.try_send(encode(kind::PONG, &serde_json::Map::new()));
            }
            other => tracing::debug!(kind = other, "a frame of unknown type is skipped"),
        }
    }

    fn on_event(&self, event: Event) {
        if event.event_type == INTEREST_UPDATED {
            match serde_json::from_str::<InterestUpdate>(event.payload.get()) {
                Ok(update) => {
                    self.connected.send_if_modified(|connected| {
                        let Some(connected) = connected else { return false };
                        let is_newer = connected.interests.on_update(Instant::now(), update);
                        connected.events.on_interest();
                        is_newer
                    });
                }
                Err(error) => tracing::warn!(%error, "the relay sent an interest that cannot be read"),
            }
        }
        self.handler.on_event(event);
    }

    fn on_request(&mut self, request: IncomingRequest, outbound: &mpsc::Sender<String>) {
        let replies = Replies::new(&request, outbound.clone());
        if self.handlers.len() >= self.options.handlers_max {
            if replies.try_error(&RpcError::new(INTERNAL_ERROR, BUSY)).is_err() {
                tracing::warn!("no room for a refusal either; the relay's deadline decides");
            }
            return;
        }
        let handler = Arc::clone(&self.handler);
        self.handlers.spawn(async move { handler.handle(request, replies).await });
    }
}

/// The events of one link, which end with it however its serving ends.
struct EventsOfLink(Arc<EventQueue>);

impl Drop for EventsOfLink {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Writes until the socket fails; replies never wait behind events.
async fn write(sender: &mut LinkSender, mut replies: mpsc::Receiver<String>, events: &EventQueue, connection: Connection) -> Ended {
    loop {
        let text = tokio::select! {
            biased;
            Some(reply) = replies.recv() => reply,
            event = events.next(&connection) => event,
        };
        if let Err(ended) = sender.send(text).await {
            return ended;
        }
    }
}
