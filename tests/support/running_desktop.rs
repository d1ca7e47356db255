//! A desktop in a task of its own, registered when the test gets it.

use super::PATIENCE;
use relay_endpoints::{
    desktop::{Cause, Desktop, DesktopOptions, Handler, State},
    frame::Registered,
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::timeout,
};

/// What a test sees of a state.
#[derive(Clone, Debug)]
pub enum Seen {
    Registered(Registered),
    /// Without a connection, for the reason given as text.
    Waiting(String),
}

/// Runs until it is stopped or dropped. A dropped one vanishes without a closing handshake.
pub struct RunningDesktop {
    states: mpsc::UnboundedReceiver<Seen>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), Cause>>,
}

impl RunningDesktop {
    /// Starts one and waits until it is registered.
    pub async fn start(options: DesktopOptions, handler: impl Handler) -> (Self, Registered) {
        let mut desktop = Self::spawn(options, handler);
        let registered = desktop.registered().await;
        (desktop, registered)
    }

    /// Starts one without waiting.
    pub fn spawn(options: DesktopOptions, handler: impl Handler) -> Self {
        Self::run(Desktop::new(options, handler))
    }

    /// Runs this one, which the test may have a publisher of.
    pub fn run(desktop: Desktop<impl Handler>) -> Self {
        let (seen, states) = mpsc::unbounded_channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async {
            if stopped.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let on_state = move |state: &State| {
            let state = match state {
                State::Registered(registered) => Seen::Registered(registered.clone()),
                State::Waiting { cause, .. } => Seen::Waiting(cause.to_string()),
            };
            // A test that looks no longer needs no states.
            let _ = seen.send(state);
        };
        let task = tokio::spawn(desktop.run_until(stopped, on_state));
        RunningDesktop { states, stop: Some(stop), task }
    }

    /// The next state.
    pub async fn state(&mut self) -> Seen {
        timeout(PATIENCE, self.states.recv()).await.expect("the desktop's state changes").expect("the desktop runs")
    }

    /// The next registration, after any number of failed attempts.
    pub async fn registered(&mut self) -> Registered {
        loop {
            if let Seen::Registered(registered) = self.state().await {
                return registered;
            }
        }
    }

    /// Asks it to stop, and waits until it has said goodbye.
    pub async fn stop(mut self) {
        if let Some(stop) = self.stop.take() {
            // One that has ended already is found out next.
            let _ = stop.send(());
        }
        timeout(PATIENCE, &mut self.task).await.expect("the desktop stops").unwrap().expect("it was not refused before");
    }

    /// Why it gave up.
    pub async fn gave_up(mut self) -> Cause {
        timeout(PATIENCE, &mut self.task).await.expect("the desktop gives up").unwrap().expect_err("nobody stopped it")
    }
}

impl Drop for RunningDesktop {
    fn drop(&mut self) {
        self.task.abort();
    }
}
