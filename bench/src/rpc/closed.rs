//! The closed loop: each phone keeps a window of calls in flight.

use super::Run;
use crate::{
    error::Error,
    frame::{self, CallId, Kind},
    link::{Incoming, Receiver, Sender},
    target::Link,
};
use std::{sync::Arc, time::Duration};
use tokio::sync::Mutex;

/// A call without an answer for this long is given up, and its place in the window used again.
const LOST: Duration = Duration::from_secs(5);
/// How often calls are looked at for that.
const LOST_CHECK: Duration = Duration::from_secs(1);
/// A server that refuses is not asked again at full speed.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);

/// The calls in flight of one phone. A place in the window holds the last call sent from it.
struct Window {
    sender: Sender,
    calls: Vec<CallId>,
}

impl Window {
    /// Sends the next call from a place.
    async fn call(&mut self, run: &Run, slot: u16) -> Result<(), Error> {
        let call = &mut self.calls[usize::from(slot)];
        *call = CallId { sequence: call.sequence.wrapping_add(1), slot, due_nanos: run.clock.nanos() };
        let request = frame::request(*call, &run.bodies.params);
        self.sender.send(request).await
    }

    /// Whether an answer is to a call still in flight, and not to one given up or answered before.
    fn awaits(&self, id: CallId) -> bool {
        self.calls.get(usize::from(id.slot)) == Some(&id)
    }
}

/// Calls until the connection ends, which counts as a failure.
pub(super) async fn phone(run: Arc<Run>, link: Link) {
    let Link { peer, sender, receiver } = link;
    let calls = (0..run.window).map(|slot| CallId { sequence: 0, slot, due_nanos: 0 }).collect();
    let window = Mutex::new(Window { sender, calls });
    let end = tokio::select! {
        end = converse(&run, &window, receiver) => end,
        end = give_up_lost_calls(&run, &window) => end,
    };
    if let Err(error) = end {
        run.recorder.fail(|| format!("phone {}: {error}", peer.pair));
    }
}

async fn converse(run: &Run, window: &Mutex<Window>, mut receiver: Receiver) -> Result<(), Error> {
    for slot in 0..run.window {
        window.lock().await.call(run, slot).await?;
    }
    loop {
        let text = match receiver.receive().await {
            Incoming::Message(text) => text,
            Incoming::Ping(body) => {
                window.lock().await.sender.pong(&body).await?;
                continue;
            }
            Incoming::Closed => return Err(Error::Closed { during: "the run" }),
        };
        match frame::kind(&text) {
            Kind::Response => {}
            Kind::Error => {
                run.wrong_answer(&text);
                continue;
            }
            Kind::Request | Kind::Registered | Kind::Other => continue,
        }
        let Some(id) = CallId::of(&text) else {
            run.wrong_answer(&text);
            continue;
        };
        if !window.lock().await.awaits(id) {
            continue;
        }
        let now = run.clock.nanos();
        if !run.is_right(&text) {
            tokio::time::sleep(REFUSED_PAUSE).await;
        } else if run.recorder.covers(now) {
            run.recorder.record(now - id.due_nanos);
        }
        window.lock().await.call(run, id.slot).await?;
    }
}

async fn give_up_lost_calls(run: &Run, window: &Mutex<Window>) -> Result<(), Error> {
    loop {
        tokio::time::sleep(LOST_CHECK).await;
        let mut window = window.lock().await;
        for slot in 0..run.window {
            let waited = run.clock.nanos().saturating_sub(window.calls[usize::from(slot)].due_nanos);
            if Duration::from_nanos(waited) > LOST {
                run.recorder.time_out();
                window.call(run, slot).await?;
            }
        }
    }
}
