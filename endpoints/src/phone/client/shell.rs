//! The task of a client: it stamps the time, asks the core, and does what the core says.

use super::{
    Shared, Window,
    call::Reporter,
    carrier::{Carrier, News},
    core::{Core, Effect, Input, Watched},
    store::ResumeStore,
};
use crate::{
    frame::{Envelope, Registered, Resume, kind},
    link::{Link, OpenError},
    phone::{PhoneOptions, Request, lock},
};
use std::{collections::HashMap, pin::Pin, sync::Arc};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};

/// What a program asks of its client.
pub(super) enum Command {
    Start(u64, Box<Request>, Reporter),
    Forget(u64),
    Watch(Watched),
    Unwatch(u64),
    Reload,
    Close,
}

type Opening = Pin<Box<dyn Future<Output = Result<(Link, Registered), OpenError>> + Send>>;

pub(super) struct Shell<S> {
    core: Core,
    phone: PhoneOptions,
    store: S,
    commands: mpsc::UnboundedReceiver<Command>,
    shared: Arc<Shared>,
    reporters: HashMap<u64, Reporter>,
    opening: Option<Opening>,
    link: Option<Carrier>,
}

/// What wakes the shell.
enum Wake {
    Timer,
    Command(Option<Command>),
    Opened(Result<(Link, Registered), OpenError>),
    News(News),
}

impl<S: ResumeStore> Shell<S> {
    pub(super) fn new(core: Core, phone: PhoneOptions, store: S, commands: mpsc::UnboundedReceiver<Command>, shared: Arc<Shared>) -> Self {
        Shell { core, phone, store, commands, shared, reporters: HashMap::new(), opening: None, link: None }
    }

    /// Runs until the core is over. `link` is one that is registered already.
    pub(super) async fn run(mut self, link: Option<(Link, Registered)>) {
        match link {
            Some((link, registered)) => self.on_opened(Ok((link, registered))).await,
            None => {
                let open = self.core.open();
                self.run_effect(open).await;
            }
        }
        while !self.core.is_over() {
            match self.wake().await {
                Wake::Timer => self.step(Input::Timeout).await,
                Wake::Command(Some(command)) => self.on_command(command).await,
                // The client is dropped, and this task with it.
                Wake::Command(None) => return,
                Wake::Opened(opened) => self.on_opened(opened).await,
                Wake::News(News::Frame(text)) => self.on_frame(&text).await,
                Wake::News(News::Ended(ended)) => {
                    self.link = None;
                    self.step(Input::LinkEnded(ended)).await;
                }
            }
        }
        lock(&self.shared.events).end();
    }

    async fn wake(&mut self) -> Wake {
        let due = self.core.next_timeout();
        let timer = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        let (opening, link) = (&mut self.opening, &mut self.link);
        let opened = async {
            match opening {
                Some(opening) => opening.await,
                None => std::future::pending().await,
            }
        };
        let news = async {
            match link {
                Some(link) => link.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // What is due is done first: a flood of frames delays no deadline.
            biased;
            () = timer => Wake::Timer,
            command = self.commands.recv() => Wake::Command(command),
            opened = opened => Wake::Opened(opened),
            news = news => Wake::News(news),
        }
    }

    async fn step(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.core.handle(Instant::now(), input, &mut effects);
        for effect in effects {
            self.run_effect(effect).await;
        }
    }

    async fn on_command(&mut self, command: Command) {
        let input = match command {
            Command::Start(number, request, reporter) => {
                self.reporters.insert(number, reporter);
                Input::Start(number, request)
            }
            Command::Forget(number) => {
                self.reporters.remove(&number);
                Input::Forget(number)
            }
            Command::Watch(watched) => Input::Watch(watched),
            Command::Unwatch(number) => Input::Unwatch(number),
            Command::Reload => Input::Reload,
            Command::Close => Input::Close,
        };
        self.step(input).await;
    }

    async fn on_opened(&mut self, opened: Result<(Link, Registered), OpenError>) {
        self.opening = None;
        let opened = opened.map(|(link, registered)| {
            self.link = Some(Carrier::start(link));
            registered
        });
        self.step(Input::Opened(opened)).await;
    }

    async fn on_frame(&mut self, text: &str) {
        match read(text) {
            Ok(Some(input)) => self.step(input).await,
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "the relay sent a frame that cannot be read"),
        }
    }

    async fn run_effect(&mut self, effect: Effect) {
        match effect {
            Effect::Open(resume) => self.opening = Some(open(&self.phone, resume)),
            Effect::Send(frame) => {
                if let Some(link) = &self.link {
                    link.send(frame);
                }
            }
            Effect::Goodbye => {
                if let Some(link) = self.link.take() {
                    link.close().await;
                }
            }
            Effect::Save(resume) => note(self.store.save(&resume)),
            Effect::Clear => note(self.store.clear()),
            Effect::Registered(registered) => {
                self.shared.registered.send_replace(Some(registered));
            }
            Effect::Progress(number, outcome) => {
                if let Some(reporter) = self.reporters.get(&number) {
                    reporter.progress(outcome);
                }
            }
            Effect::Done(number, outcome) => {
                if let Some(reporter) = self.reporters.remove(&number) {
                    reporter.done(outcome);
                }
            }
            Effect::Publish(event, bytes) => lock(&self.shared.events).publish(&Arc::new(event), bytes),
            Effect::Refused(refusal) => {
                tracing::warn!(code = refusal.code, "the relay refused a frame");
                self.shared.refused.send_replace(Some(refusal));
            }
            Effect::Window(session, result) => {
                self.shared.window.send_replace(Some(Arc::new(Window { session, result })));
            }
            Effect::Show(status) => {
                self.shared.status.send_replace(status);
            }
        }
    }
}

fn open(phone: &PhoneOptions, resume: Option<Resume>) -> Opening {
    let (options, register) = (phone.link.clone(), phone.register(resume));
    Box::pin(async move { Link::open(&options, register).await })
}

/// A store that fails costs a registration without a token at the worst.
fn note(stored: Result<(), impl std::error::Error>) {
    if let Err(error) = stored {
        tracing::warn!(%error, "the session to resume could not be stored");
    }
}

/// The input that a frame is; `None` if it is of a type that this client does not know.
fn read(text: &str) -> Result<Option<Input>, serde_json::Error> {
    let envelope = Envelope::parse(text)?;
    Ok(match &*envelope.kind {
        kind::RPC_RESPONSE => Some(Input::Response(envelope.read()?)),
        kind::EVENT => Some(Input::Event(envelope.read()?, text.len())),
        kind::ERROR => Some(Input::Refused(envelope.read()?)),
        other => {
            tracing::debug!(kind = other, "a frame of unknown type is skipped");
            None
        }
    })
}
