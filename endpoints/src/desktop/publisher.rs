//! What a desktop sends by itself: timeline frames of the sessions that somebody watches, and other events.

use super::{
    Interests,
    event_buffer::{Kind, MadeUnder, OverlayKey, Pending},
    event_queue::{Connection, EventQueue},
};
use crate::{
    event::OutgoingEvent,
    frame::{encode, kind},
};
use relay_protocol::{
    event::{BaseSession, TIMELINE},
    limits::MESSAGE_BYTES_MAX,
};
use serde_json::{Map, Value, value::RawValue};
use std::sync::Arc;
use tokio::time::Instant;

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// It waits for the socket. A newer overlay of its key may still take its place, and it is not sent if its interest or the link
    /// ends first.
    Sent,
    /// Nobody watches the session, or nobody does any more as when it was made: nothing is sent.
    NotWatched,
    /// The desktop has no registered link.
    NotConnected,
    /// It does not fit a frame; sent anyway, it would cost the desktop its socket.
    TooLarge,
}

/// A handle on a running desktop, to send events through. Knows nothing to send to before the desktop is registered, and follows
/// it from link to link.
///
/// Events wait for the socket in a bounded buffer, behind replies: 4 MiB, 64 events that nothing replaces, and 64 timeline keys. While
/// one of these is reached, the next event waits for room, and those that are published after it wait behind it.
#[derive(Clone, Debug)]
pub struct Publisher {
    connected: Connection,
}

impl Publisher {
    pub(super) fn new(connected: Connection) -> Self {
        Publisher { connected }
    }

    /// Waits until somebody watches a session. False: the desktop has ended, and nobody ever will.
    pub async fn watched(&mut self) -> bool {
        let is_watched = |interests: &Interests| interests.live(Instant::now()).next().is_some();
        self.connected.wait_for(|connected| connected.as_ref().is_some_and(|connected| is_watched(&connected.interests))).await.is_ok()
    }

    /// The base sessions that somebody watches now, each with its `authorizationGeneration`, in the order of their names.
    pub fn live(&self) -> Vec<(String, String)> {
        let connected = self.connected.borrow();
        let live = connected.iter().flat_map(|connected| connected.interests.live(Instant::now()));
        live.map(|(session, generation)| (session.to_owned(), generation.to_owned())).collect()
    }

    /// Sends a piece of a session's timeline, if somebody watches it; waits while there is no room. With a key it is an overlay: a
    /// newer one of the same session and key takes its place on the way. `fields` is called only while somebody watches; the session,
    /// the generation and the key are put into what it makes.
    pub async fn timeline(&self, session: &str, key: Option<&str>, fields: impl FnOnce() -> Map<String, Value>) -> Published {
        let Some(base) = BaseSession::read(session) else { return Published::NotWatched };
        if let Err(outcome) = self.generation(base.as_str()) {
            return outcome;
        }
        let Some(queue) = self.queue() else { return Published::NotConnected };
        let overlay = key.map(|key| OverlayKey { session: base.as_str().to_owned(), key: key.to_owned() });
        let turn = queue.turn().await;
        // Made as late as can be: meanwhile the interest may have ended, or begun anew, and what there is to say has changed.
        let generation = match turn.place(&self.connected, overlay.as_ref(), || self.generation(base.as_str())).await {
            Ok(generation) => generation,
            Err(outcome) => return outcome,
        };
        let mut payload = fields();
        payload.insert("appSessionId".to_owned(), session.into());
        payload.insert("authorizationGeneration".to_owned(), generation.as_str().into());
        if let Some(key) = key {
            payload.insert("timelineKey".to_owned(), key.into());
        }
        let text = encode_event(TIMELINE, &payload);
        if text.len() > MESSAGE_BYTES_MAX {
            return Published::TooLarge;
        }
        let made_under = MadeUnder { session: base.as_str().to_owned(), generation };
        let kind = match overlay {
            Some(overlay) => Kind::Overlay(made_under, overlay),
            None => Kind::Entry(made_under),
        };
        turn.push(&self.connected, Pending { kind, text }).await
    }

    /// Sends any other event, whose payload is an object, to the phones that are connected to this desktop; waits while there is no
    /// room. The relay refuses reserved names.
    pub async fn event(&self, event_type: &str, payload: &RawValue) -> Published {
        let Some(queue) = self.queue() else { return Published::NotConnected };
        let text = encode_event(event_type, payload);
        if text.len() > MESSAGE_BYTES_MAX {
            return Published::TooLarge;
        }
        queue.turn().await.push(&self.connected, Pending { kind: Kind::Other, text }).await
    }

    fn queue(&self) -> Option<Arc<EventQueue>> {
        self.connected.borrow().as_ref().map(|connected| connected.events.clone())
    }

    /// What a frame of this session must carry now.
    fn generation(&self, base: &str) -> Result<String, Published> {
        let connected = self.connected.borrow();
        let connected = connected.as_ref().ok_or(Published::NotConnected)?;
        connected.interests.generation(Instant::now(), base).map(str::to_owned).ok_or(Published::NotWatched)
    }
}

fn encode_event(event_type: &str, payload: impl serde::Serialize) -> String {
    encode(kind::EVENT, &OutgoingEvent { event_type, payload })
}
