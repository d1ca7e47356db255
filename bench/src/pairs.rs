//! What the scenarios share: connecting pairs, and the desktop's side of them.

use crate::{
    error::Error,
    frame::{self, Kind},
    link::{Incoming, Sender},
    peer::Peer,
    stats::Recorder,
    target::{Link, Target},
};
use futures_util::{StreamExt, TryStreamExt, stream};
use std::sync::Arc;
use tokio::task::JoinSet;

/// Pairs connecting at the same time.
const LANES: usize = 32;

/// A desktop and the phone that calls it.
pub struct Pair {
    /// Connected first.
    pub desktop: Link,
    /// Connected when its desktop was there.
    pub phone: Link,
}

/// Creates the devices and connects `count` pairs.
pub async fn connect(target: &Target, count: u32) -> Result<Vec<Pair>, Error> {
    let peers: Vec<Peer> = (0..count).flat_map(|pair| [Peer::desktop(pair), Peer::phone(pair)]).collect();
    target.prepare(&peers).await?;
    stream::iter(0..count)
        .map(|pair| async move {
            let desktop = target.connect(Peer::desktop(pair)).await?;
            let phone = target.connect(Peer::phone(pair)).await?;
            Ok(Pair { desktop, phone })
        })
        .buffer_unordered(LANES)
        .try_collect()
        .await
}

/// What each end sends, and expects to find again at the other.
pub struct Bodies {
    /// JSON text of each call.
    pub params: String,
    /// JSON text of each answer.
    pub result: String,
}

/// Answers every call until the connection ends, which counts as a failure. The tasks belong to `tasks`.
pub fn spawn_desktop(tasks: &mut JoinSet<()>, link: Link, bodies: Arc<Bodies>, recorder: Arc<Recorder>) {
    tasks.spawn(async move {
        let Link { peer, mut sender, mut receiver } = link;
        loop {
            let sent = match receiver.receive().await {
                Incoming::Message(text) => answer(&mut sender, &text, &bodies, &recorder).await,
                Incoming::Ping(body) => sender.pong(&body).await,
                Incoming::Closed => Err(Error::Closed { during: "the run" }),
            };
            if let Err(error) = sent {
                recorder.fail(|| format!("desktop {}: {error}", peer.pair));
                return;
            }
        }
    });
}

async fn answer(sender: &mut Sender, text: &[u8], bodies: &Bodies, recorder: &Recorder) -> Result<(), Error> {
    match frame::kind(text) {
        Kind::Request => {}
        Kind::Response | Kind::Registered | Kind::Other => return Ok(()),
        Kind::Error => {
            recorder.fail(|| format!("desktop got {}", String::from_utf8_lossy(text)));
            return Ok(());
        }
    }
    if !frame::has_params(text, &bodies.params) {
        recorder.fail(|| "a call arrived with other params than it was sent with".into());
    }
    match frame::response(text, &bodies.result) {
        Some(response) => sender.send(response).await,
        None => Err(Error::Refused { step: "answer", answer: "a call without an id arrived".into() }),
    }
}
