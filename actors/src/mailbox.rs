//! The one way to send to an actor.
//!
//! `do_send` ignores the mailbox's capacity, and a fresh clone of an address has a free slot of its own, so each holder keeps one
//! address per link and sends through here.

use actix::{Actor, Addr, Handler, Message, dev::ToEnvelope, prelude::SendError};
use std::time::Duration;

/// Why a message was not taken. It comes back whole.
#[derive(Debug)]
pub enum Refused<M> {
    /// The mailbox is full.
    Full(M),
    /// The actor has ended.
    Gone(M),
}

/// Why an answer did not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// The actor has ended.
    Gone,
    /// It took too long.
    TimedOut,
}

/// Puts a message into the mailbox if there is room.
///
/// # Errors
/// [`Refused`], with the message.
pub fn offer<A, M>(kept: &Addr<A>, message: M) -> Result<(), Refused<M>>
where
    A: Actor + Handler<M>,
    A::Context: ToEnvelope<A, M>,
    M: Message + Send + 'static,
    M::Result: Send,
{
    kept.try_send(message).map_err(|error| match error {
        SendError::Full(message) => Refused::Full(message),
        SendError::Closed(message) => Refused::Gone(message),
    })
}

/// Puts a message into the mailbox now, or as soon as there is room: for what must not be lost, like the end of a socket. Nothing is
/// done when the actor has ended.
pub fn deliver<A, M>(kept: &Addr<A>, message: M)
where
    A: Actor + Handler<M>,
    A::Context: ToEnvelope<A, M>,
    M: Message<Result = ()> + Send + 'static,
{
    let Err(Refused::Full(message)) = offer(kept, message) else { return };
    // Without a runtime the process is ending, and the actor with it.
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        let waiting = kept.send(message);
        runtime.spawn(async move {
            // The actor may end meanwhile; then there is nobody left to tell.
            let _ = waiting.await;
        });
    }
}

/// Sends a message and waits for its result.
///
/// # Errors
/// [`NoAnswer`].
pub async fn ask<A, M>(kept: &Addr<A>, message: M, timeout: Duration) -> Result<M::Result, NoAnswer>
where
    A: Actor + Handler<M>,
    A::Context: ToEnvelope<A, M>,
    M: Message + Send + 'static,
    M::Result: Send,
{
    match tokio::time::timeout(timeout, kept.send(message)).await {
        Ok(Ok(result)) => Ok(result),
        Ok(Err(_ended)) => Err(NoAnswer::Gone),
        Err(_elapsed) => Err(NoAnswer::TimedOut),
    }
}
