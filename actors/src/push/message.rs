//! What the push actor may be sent, and what it answers.

use super::gateway::Verdict;
use crate::{
    clock::EpochMs,
    directory::Directory,
    user_router::message::{Input, SocketId},
};
use actix::Message;
use relay_protocol::{
    event::{Notification, Outcome},
    id::{DeviceId, UserId},
    push::Provider,
};
use std::{fmt, sync::Arc};

/// A desktop registered that had been gone: the account's phones are told, if they can be.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct DesktopOnline {
    /// The account.
    pub user: UserId,
    /// The desktop.
    pub desktop: DeviceId,
    /// When.
    pub at: EpochMs,
}

/// A desktop asks for an alert.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Notify {
    /// The account.
    pub user: UserId,
    /// The desktop.
    pub desktop: DeviceId,
    /// The alert.
    pub notification: Notification,
    /// Where the answer goes.
    pub asker: Asker,
}

/// The desktop's socket, as its router knows it.
#[derive(Clone)]
pub struct Asker {
    /// Finds the router, which may be another one by then: that one knows no such socket.
    pub directory: Arc<Directory>,
    /// The account.
    pub user: UserId,
    /// The socket.
    pub socket: SocketId,
    /// The id under which it asked.
    pub notification_id: Box<str>,
}

impl Asker {
    /// Answers, if the socket is still there.
    pub fn tell(&self, outcome: Outcome) {
        let answer = outcome.to_text(&self.notification_id);
        self.directory.deliver(self.user, Input::Notified { socket: self.socket, answer });
    }
}

impl fmt::Debug for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asker").field("user", &self.user).field("socket", &self.socket).finish_non_exhaustive()
    }
}

/// Sends one alert to one phone, past queue and rates, and answers with what its provider says: for an operator who sets push up.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Result<Tested, NotTested>")]
pub struct TestPush {
    /// The phone.
    pub device: DeviceId,
}

/// What a provider said to a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tested {
    /// The provider.
    pub provider: Provider,
    /// What it said.
    pub verdict: Verdict,
}

/// Why no test was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTested {
    /// The device has no push token, or there is no such device.
    NoToken,
    /// The relay is not set up for its provider.
    NotConfigured(Provider),
    /// Storage did not answer.
    Unavailable,
}

/// The process ends: answered when every alert that waits has been sent or has been given up, and nothing else waits. With a provider
/// away that takes long, so ask with a timeout.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct Leave;
