//! Clients that come back by the rules of the protocol: back-off with jitter, resume tokens, `Retry-After`. Each keeps its history.

use crate::support::{
    PATIENCE,
    raw_socket::{Frame, RawOptions, RawSocket, Received, opcode},
};
use relay_endpoints::backoff::{Backoff, Policy};
use relay_protocol::id::DeviceId;
use serde_json::{Map, Value, json};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{task::JoinHandle, time::sleep};

/// What one client saw, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct History {
    /// The processes that took its registration.
    pub(crate) registrations: Vec<String>,
    /// Code and reason; none for an end without a close frame.
    pub(crate) closes: Vec<Option<(u16, String)>>,
    /// Registrations that were refused, but for an unknown session.
    pub(crate) refusals: Vec<String>,
    /// Answers to an upgrade that were no 101: their first line, and whether they said when to come again.
    pub(crate) not_opened: Vec<(String, bool)>,
}

pub(crate) struct Client {
    history: Arc<Mutex<History>>,
    task: JoinHandle<()>,
}

impl Client {
    pub(crate) fn start(options: RawOptions, device: DeviceId) -> Self {
        let history = Arc::new(Mutex::new(History::default()));
        let task = tokio::spawn(live(options, device, Arc::clone(&history)));
        Client { history, task }
    }

    pub(crate) fn history(&self) -> History {
        self.history.lock().unwrap().clone()
    }

    /// Whether it is registered with this process now.
    pub(crate) fn is_at(&self, instance: &str) -> bool {
        assert!(!self.task.is_finished(), "a client gave up");
        let history = self.history.lock().unwrap();
        history.registrations.last().is_some_and(|last| last == instance) && history.registrations.len() > history.closes.len()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn live(options: RawOptions, device: DeviceId, history: Arc<Mutex<History>>) {
    let mut backoff = Backoff::new(Policy::default());
    let mut resume = Map::new();
    loop {
        let mut wait_at_least = Duration::ZERO;
        match RawSocket::try_open(&options).await {
            Ok(mut socket) => {
                if register(&mut socket, device, &mut resume, &history).await {
                    let close = until_closed(&mut socket).await;
                    history.lock().unwrap().closes.push(close);
                }
            }
            Err(answer) => {
                let says_when = answer.to_ascii_lowercase().contains("\r\nretry-after: 1\r\n");
                wait_at_least = Duration::from_secs(says_when.into());
                history.lock().unwrap().not_opened.push((answer.lines().next().unwrap().to_owned(), says_when));
            }
        }
        let wait = wait_at_least + backoff.next_wait(&mut rand::rng());
        sleep(wait).await;
    }
}

/// Whether the socket is registered now. A session that is not known is registered anew on the same socket.
async fn register(socket: &mut RawSocket, device: DeviceId, resume: &mut Map<String, Value>, history: &Mutex<History>) -> bool {
    loop {
        let mut payload = json!({"deviceId": device, "relayProtocolVersion": "1.7"});
        payload.as_object_mut().unwrap().extend(resume.clone());
        socket.text(&json!({"type": "register", "payload": payload}).to_string()).await;
        let answer = loop {
            let received = socket.read(PATIENCE).await;
            if let Some(text) = received.text() {
                let frame: Value = serde_json::from_str(text).unwrap();
                if frame["type"] != "event" {
                    break frame;
                }
            } else if let Received::Frame { opcode: opcode::PING, payload, .. } = received {
                socket.frame(&Frame::new(opcode::PONG, payload)).await;
            } else {
                history.lock().unwrap().refusals.push(format!("{received:?}"));
                return false;
            }
        };
        let payload = &answer["payload"];
        match (answer["type"].as_str().unwrap(), payload["code"].as_str()) {
            ("registered" | "resumed", _) => {
                *resume = ["sessionId", "resumeToken"].map(|key| (key.to_owned(), payload[key].clone())).into_iter().collect();
                history.lock().unwrap().registrations.push(payload["relayInstanceId"].as_str().unwrap().to_owned());
                return true;
            }
            ("error", Some("invalidResume")) => resume.clear(),
            _ => {
                history.lock().unwrap().refusals.push(answer.to_string());
                return false;
            }
        }
    }
}

async fn until_closed(socket: &mut RawSocket) -> Option<(u16, String)> {
    loop {
        match socket.read(PATIENCE).await {
            Received::Frame { opcode: opcode::PING, payload, .. } => socket.frame(&Frame::new(opcode::PONG, payload)).await,
            Received::Frame { opcode: opcode::CLOSE, payload, .. } => {
                let close = Received::Frame { fin: true, opcode: opcode::CLOSE, payload: payload.clone() }.close();
                // The other side may have gone.
                let _ = socket.try_write(&Frame::new(opcode::CLOSE, payload).encode(), PATIENCE).await;
                return close;
            }
            Received::Frame { .. } | Received::Nothing => {}
            Received::End | Received::EndInsideFrame | Received::Reset => return None,
        }
    }
}
