//! The shell around an [`EventBuffer`]: publishers wait for room, one after the other, and the link's writer waits for events.

use super::{
    Interests, Published,
    event_buffer::{EventBuffer, MadeUnder, OverlayKey, Pending},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::{
    sync::{self, Notify, watch},
    time::Instant,
};

/// The desktop's link of the moment.
#[derive(Debug)]
pub(super) struct Connected {
    pub(super) events: Arc<EventQueue>,
    pub(super) interests: Interests,
}

/// The link of the moment, as publishers and the writer see it.
pub(super) type Connection = watch::Receiver<Option<Connected>>;

/// The events of one link that wait for its socket. Takes nothing more once the link has ended.
#[derive(Debug, Default)]
pub(super) struct EventQueue {
    state: Mutex<State>,
    /// Held by the one publisher that may wait for room: a large event is not overtaken for ever by small ones.
    turn: sync::Mutex<()>,
    room: Notify,
    work: Notify,
}

#[derive(Debug, Default)]
struct State {
    buffer: EventBuffer,
    has_ended: bool,
}

/// A publisher's turn: until it is dropped, no other one puts anything in.
pub(super) struct Turn<'q> {
    queue: &'q EventQueue,
    _held: sync::MutexGuard<'q, ()>,
}

impl EventQueue {
    /// Waits until the publishers that came first are served.
    pub(super) async fn turn(&self) -> Turn<'_> {
        Turn { queue: self, _held: self.turn.lock().await }
    }

    /// The next event to be written; waits for one. Cancelling loses nothing.
    pub(super) async fn next(&self, connection: &Connection) -> String {
        loop {
            let text = self.state().buffer.pop(is_live(connection));
            if let Some(text) = text {
                self.room.notify_one();
                return text;
            }
            // What was dropped on the way made room too.
            self.room.notify_one();
            self.work.notified().await;
        }
    }

    /// Lets a publisher that waits look again: an interest has changed.
    pub(super) fn on_interest(&self) {
        self.room.notify_one();
    }

    /// Drops what waits: the link has ended.
    pub(super) fn end(&self) {
        let (unsent, fates) = {
            let mut state = self.state();
            state.has_ended = true;
            state.buffer.clear()
        };
        self.room.notify_one();
        tracing::debug!(unsent, ?fates, "the events of a link");
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn<'_> {
    /// Waits until there is a place for an event of this key, or of none; how large it will be is not known yet. `may_go` is asked
    /// before each look, and what it answers at last is given back.
    pub(super) async fn place<T>(
        &self,
        connection: &Connection,
        key: Option<&OverlayKey>,
        may_go: impl Fn() -> Result<T, Published>,
    ) -> Result<T, Published> {
        loop {
            let answer = may_go()?;
            {
                let mut state = self.queue.state();
                if state.has_ended {
                    return Err(Published::NotConnected);
                }
                if state.has_place(connection, key) {
                    return Ok(answer);
                }
            }
            self.queue.room.notified().await;
        }
    }

    /// Puts the event in; waits while there is no room.
    pub(super) async fn push(self, connection: &Connection, event: Pending) -> Published {
        loop {
            {
                let mut state = self.queue.state();
                if state.has_ended {
                    return Published::NotConnected;
                }
                if !event.kind.made_under().is_none_or(is_live(connection)) {
                    return Published::NotWatched;
                }
                if state.has_room(connection, &event) {
                    state.buffer.push(event);
                    self.queue.work.notify_one();
                    return Published::Sent;
                }
            }
            self.queue.room.notified().await;
        }
    }
}

impl State {
    fn has_place(&mut self, connection: &Connection, key: Option<&OverlayKey>) -> bool {
        self.buffer.has_place(key) || {
            self.buffer.drop_ended(is_live(connection));
            self.buffer.has_place(key)
        }
    }

    fn has_room(&mut self, connection: &Connection, event: &Pending) -> bool {
        self.buffer.has_room(event) || {
            self.buffer.drop_ended(is_live(connection));
            self.buffer.has_room(event)
        }
    }
}

/// Whether somebody watches the session now, under that generation.
fn is_live(connection: &Connection) -> impl Fn(&MadeUnder) -> bool {
    let (connected, now) = (connection.borrow(), Instant::now());
    move |made_under| {
        let interests = connected.as_ref().map(|connected| &connected.interests);
        interests.and_then(|interests| interests.generation(now, &made_under.session)) == Some(&*made_under.generation)
    }
}
