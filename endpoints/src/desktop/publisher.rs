//! What a desktop sends by itself: timeline frames of the sessions that somebody watches, and other events.

use super::Interests;
use crate::{
    event::OutgoingEvent,
    frame::{encode, kind},
};
use relay_protocol::{
    event::{BaseSession, TIMELINE},
    limits::MESSAGE_BYTES_MAX,
};
use serde_json::{Map, Value, value::RawValue};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// It is on its way to the relay.
    Sent,
    /// Nobody watches the session: nothing was made and nothing sent.
    NotWatched,
    /// The desktop has no registered link.
    NotConnected,
    /// It does not fit a frame; sent anyway, it would cost the desktop its socket.
    TooLarge,
}

/// The desktop's link of the moment.
#[derive(Debug)]
pub(super) struct Connected {
    pub(super) outbound: mpsc::Sender<String>,
    pub(super) interests: Interests,
}

/// A handle on a running desktop, to send events through. Knows nothing to send to before the desktop is registered, and follows
/// it from link to link.
#[derive(Clone, Debug)]
pub struct Publisher {
    connected: watch::Receiver<Option<Connected>>,
}

impl Publisher {
    pub(super) fn new(connected: watch::Receiver<Option<Connected>>) -> Self {
        Publisher { connected }
    }

    /// Waits until somebody watches a session. False: the desktop has ended, and nobody ever will.
    pub async fn watched(&mut self) -> bool {
        let is_watched = |connected: &Option<Connected>| {
            connected.as_ref().is_some_and(|connected| connected.interests.live(Instant::now()).next().is_some())
        };
        self.connected.wait_for(is_watched).await.is_ok()
    }

    /// The base sessions that somebody watches now, each with its `authorizationGeneration`, in the order of their names.
    pub fn live(&self) -> Vec<(String, String)> {
        let connected = self.connected.borrow();
        let live = connected.iter().flat_map(|connected| connected.interests.live(Instant::now()));
        live.map(|(session, generation)| (session.to_owned(), generation.to_owned())).collect()
    }

    /// Sends a piece of a session's timeline, if somebody watches it; waits while the link has no room. With a key it is an
    /// overlay: a newer one of the same key may take its place on the way. `fields` is called only for a frame that is sent; the
    /// session, the generation and the key are put into what it makes.
    pub async fn timeline(&self, session: &str, key: Option<&str>, fields: impl FnOnce() -> Map<String, Value>) -> Published {
        let Some(base) = BaseSession::read(session) else { return Published::NotWatched };
        let outbound = match self.look_up(base.as_str()) {
            Ok((outbound, _generation)) => outbound,
            Err(outcome) => return outcome,
        };
        let Ok(room) = outbound.reserve().await else { return Published::NotConnected };
        // The interest may have ended meanwhile, or begun anew.
        let generation = match self.look_up(base.as_str()) {
            Ok((_outbound, generation)) => generation,
            Err(outcome) => return outcome,
        };
        let mut payload = fields();
        payload.insert("appSessionId".to_owned(), session.into());
        payload.insert("authorizationGeneration".to_owned(), generation.into());
        if let Some(key) = key {
            payload.insert("timelineKey".to_owned(), key.into());
        }
        send(room, encode_event(TIMELINE, &payload))
    }

    /// Sends any other event, whose payload is an object, to the phones that are connected to this desktop; waits while the link has
    /// no room. The relay refuses reserved names.
    pub async fn event(&self, event_type: &str, payload: &RawValue) -> Published {
        let outbound = self.connected.borrow().as_ref().map(|connected| connected.outbound.clone());
        let Some(outbound) = outbound else { return Published::NotConnected };
        let Ok(room) = outbound.reserve().await else { return Published::NotConnected };
        send(room, encode_event(event_type, payload))
    }

    /// Where a frame of this session goes now, and under which generation.
    fn look_up(&self, base: &str) -> Result<(mpsc::Sender<String>, String), Published> {
        let connected = self.connected.borrow();
        let connected = connected.as_ref().ok_or(Published::NotConnected)?;
        let generation = connected.interests.generation(Instant::now(), base).ok_or(Published::NotWatched)?;
        Ok((connected.outbound.clone(), generation.to_owned()))
    }
}

fn encode_event(event_type: &str, payload: impl serde::Serialize) -> String {
    encode(kind::EVENT, &OutgoingEvent { event_type, payload })
}

fn send(room: mpsc::Permit<'_, String>, text: String) -> Published {
    if text.len() > MESSAGE_BYTES_MAX {
        return Published::TooLarge;
    }
    room.send(text);
    Published::Sent
}
