//! A phone that comes back: calls that outlive a connection, and a session that stays watched.
//!
//! A [`Client`] belongs to one phone and one desktop. Its task connects, registers with the stored resume token, and connects again
//! with jitter until something happens that trying again cannot mend. A [`Call`] is answered, or fails, by its own deadline, whatever
//! becomes of the connection meanwhile. A [`Watch`] is a lease that is renewed, and taken again after each registration.
//!
//! What a program shows comes from [`Client::status`]; what it shows of the session from [`Client::window`] and [`Watch::next`].
//! Nothing is kept for a phone that is away, so each registration loads the latest window anew.
//!
//! `core/` decides, `shell.rs` does; `carrier.rs` owns one link.

mod call;
mod carrier;
mod core;
mod failure;
mod shell;
mod status;
mod store;

pub use self::core::Retries;
pub use call::Call;
pub use failure::Failure;
pub use status::Status;
pub use store::{MemoryStore, ResumeStore};

use self::core::{Core, Settings, Watched};
use super::{Events, NoEvent, PhoneOptions, Request, Subscribers, lock};
use crate::{
    backoff::Policy,
    frame::{ErrorFrame, Event, Registered, Resume},
    link::{Link, OpenError},
};
use rand::{SeedableRng, rngs::StdRng};
use relay_protocol::limits::PENDING_PER_CLIENT_MAX;
use serde_json::value::{RawValue, to_raw_value};
use shell::{Command, Shell};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{Semaphore, mpsc, watch},
    task::JoinHandle,
    time::{Instant, timeout},
};

/// Most calls of a program that are open at once: what a relay takes of one phone, without the client's own ping and load.
pub const CALLS_MAX: usize = PENDING_PER_CLIENT_MAX - 2;
/// The method that loads the latest window of a session.
const LOAD: &str = "run.chatLoad";
/// How long the end of a client that is being closed is waited for: the goodbye takes a second at the most, twice.
const CLOSE_WAIT: Duration = Duration::from_secs(3);

/// What a client is made with.
#[derive(Clone)]
pub struct ClientOptions {
    /// How to connect. Its session to resume comes before the one that the store has.
    pub phone: PhoneOptions,
    /// The waits before it connects again, with full jitter.
    pub reconnect: Policy,
    /// What is tried again of calls.
    pub retries: Retries,
    /// Whether it pings the desktop after each registration. If not, it believes the relay.
    pub verifies: bool,
}

impl ClientOptions {
    /// The defaults for one phone.
    pub fn new(phone: PhoneOptions) -> Self {
        ClientOptions { phone, reconnect: Policy::default(), retries: Retries::default(), verifies: true }
    }
}

/// The latest window of the watched session, as the desktop answered it.
#[derive(Clone, Debug)]
pub struct Window {
    /// Of which session.
    pub session: Arc<str>,
    /// The result of the load.
    pub result: Box<RawValue>,
}

/// A phone of one desktop. Dropping it ends its connection at once; [`Client::close`] says goodbye first.
pub struct Client {
    commands: mpsc::UnboundedSender<Command>,
    shared: Arc<Shared>,
    numbers: AtomicU64,
    permits: Arc<Semaphore>,
    task: JoinHandle<()>,
}

/// What the task tells its program.
struct Shared {
    events: Mutex<Subscribers>,
    status: watch::Sender<Status>,
    registered: watch::Sender<Option<Registered>>,
    window: watch::Sender<Option<Arc<Window>>>,
    refused: watch::Sender<Option<ErrorFrame>>,
}

impl Client {
    /// Begins to connect, and goes on until it is connected or trying again cannot mend what is wrong.
    pub fn start(options: ClientOptions, mut store: impl ResumeStore) -> Self {
        let resume = to_resume(&options.phone, &mut store);
        Self::run(options, store, resume, None)
    }

    /// Connects once, for a program that wants to know at once why it cannot. From then on the client comes back by itself.
    ///
    /// # Errors
    /// It could not connect or register.
    pub async fn connect(options: ClientOptions, mut store: impl ResumeStore) -> Result<Self, OpenError> {
        let resume = to_resume(&options.phone, &mut store);
        let (link, registered) = Link::open(&options.phone.link, options.phone.register(resume.clone())).await?;
        Ok(Self::run(options, store, resume, Some((link, registered))))
    }

    fn run(options: ClientOptions, store: impl ResumeStore, resume: Option<Resume>, link: Option<(Link, Registered)>) -> Self {
        let ClientOptions { phone, reconnect, retries, verifies } = options;
        let settings = Settings { desktop: phone.link.target, platform: phone.platform, verifies, reconnect, retries };
        let core = Core::new(Instant::now(), settings, resume, StdRng::from_rng(&mut rand::rng()));
        let shared = Arc::new(Shared {
            events: Mutex::default(),
            status: watch::Sender::new(Status::Connecting),
            registered: watch::Sender::new(None),
            window: watch::Sender::new(None),
            refused: watch::Sender::new(None),
        });
        let (commands, queue) = mpsc::unbounded_channel();
        let task = tokio::spawn(Shell::new(core, phone, store, queue, Arc::clone(&shared)).run(link));
        let permits = Arc::new(Semaphore::new(CALLS_MAX));
        Client { commands, shared, numbers: AtomicU64::new(0), permits, task }
    }

    /// How things are. Changes that come faster than they are looked at are seen as one.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.shared.status.subscribe()
    }

    /// The relay's latest answer to a registration; `None` before the first.
    pub fn registered(&self) -> watch::Receiver<Option<Registered>> {
        self.shared.registered.subscribe()
    }

    /// The latest window that was loaded; `None` before the first.
    pub fn window(&self) -> watch::Receiver<Option<Arc<Window>>> {
        self.shared.window.subscribe()
    }

    /// The latest frame of this phone that the relay refused; `None` at first. A refusal does not say of which frame it is.
    pub fn refusals(&self) -> watch::Receiver<Option<ErrorFrame>> {
        self.shared.refused.subscribe()
    }

    /// Events from now on, over all connections, until the client ends. Those that are not taken are kept up to a bound. Presence that
    /// is out of date, or of another relay process, is left out.
    pub fn events(&self) -> Events {
        lock(&self.shared.events).subscribe()
    }

    /// Calls a method. Without a connection the call waits for one.
    ///
    /// # Errors
    /// [`CALLS_MAX`] calls are open.
    pub fn call(&self, request: Request) -> Result<Call, Failure> {
        let permit = Arc::clone(&self.permits).try_acquire_owned().map_err(|_none_left| Failure::TooManyCalls)?;
        let number = self.next_number();
        let (call, reporter) = Call::new(number, permit, self.commands.clone(), self.status());
        self.tell(Command::Start(number, Box::new(request), reporter));
        Ok(call)
    }

    /// Watches one session of the desktop until the [`Watch`] is dropped, and loads its latest window with `run.chatLoad`.
    pub fn watch(&self, session: &str) -> Watch {
        let params = serde_json::json!({ "appSessionId": session });
        let params = to_raw_value(&params).expect("an object of a string serializes");
        self.watch_with(session, Some(Request { params: Some(params), ..Request::new(LOAD) }))
    }

    /// The same with another request for the latest window, or none. A phone has one lease at a time, so this takes the place of an
    /// earlier watch.
    pub fn watch_with(&self, session: &str, window: Option<Request>) -> Watch {
        let number = self.next_number();
        let watch = Watch { number, events: self.events(), commands: self.commands.clone() };
        self.tell(Command::Watch(Watched { number, session: Arc::from(session), window }));
        watch
    }

    /// Loads the latest window of the watched session again, as after [`Status::HistoryUnavailable`].
    pub fn reload(&self) {
        self.tell(Command::Reload);
    }

    /// Gives the lease back, says goodbye, and waits a moment for the answer. Open calls fail.
    pub async fn close(mut self) {
        self.tell(Command::Close);
        // Whatever the outcome, the task is dropped next.
        let _ = timeout(CLOSE_WAIT, &mut self.task).await;
    }

    fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    fn tell(&self, command: Command) {
        // A client that has ended shows so in its status.
        let _ = self.commands.send(command);
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.task.abort();
        lock(&self.shared.events).end();
    }
}

fn to_resume(phone: &PhoneOptions, store: &mut impl ResumeStore) -> Option<Resume> {
    phone.resume.clone().or_else(|| {
        store.load().unwrap_or_else(|error| {
            tracing::warn!(%error, "the stored session cannot be read");
            None
        })
    })
}

/// An interest in one session. Dropping it gives the lease back.
pub struct Watch {
    number: u64,
    events: Events,
    commands: mpsc::UnboundedSender<Command>,
}

impl Watch {
    /// The next event of any kind: timeline frames of the session, other events of the desktop, presence. Cancelling loses nothing.
    /// What came while there was no connection is in the window that is loaded after it.
    ///
    /// # Errors
    /// As [`Events::recv`].
    pub async fn next(&mut self) -> Result<Arc<Event>, NoEvent> {
        self.events.recv().await
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // A client that has ended has no lease.
        let _ = self.commands.send(Command::Unwatch(self.number));
    }
}
