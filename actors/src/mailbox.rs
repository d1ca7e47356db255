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

#[cfg(test)]
mod tests {
    use super::*;
    use actix::{AsyncContext, Context, Message, MessageResult, WrapFuture};
    use tokio::sync::oneshot;

    const CAPACITY: usize = 16;

    /// Handles nothing until it is woken.
    struct Sleeper {
        wake: Option<oneshot::Receiver<()>>,
        handled: Vec<u32>,
    }

    #[derive(Debug, Message)]
    #[rtype(result = "()")]
    struct Number(u32);

    #[derive(Debug, Message)]
    #[rtype(result = "Vec<u32>")]
    struct Handled;

    impl Actor for Sleeper {
        type Context = Context<Self>;

        fn started(&mut self, ctx: &mut Context<Self>) {
            let wake = self.wake.take().unwrap();
            ctx.wait(async { wake.await.unwrap() }.into_actor(self));
        }
    }

    impl Handler<Number> for Sleeper {
        type Result = ();

        fn handle(&mut self, Number(number): Number, _: &mut Context<Self>) {
            self.handled.push(number);
        }
    }

    impl Handler<Handled> for Sleeper {
        type Result = MessageResult<Handled>;

        fn handle(&mut self, _: Handled, _: &mut Context<Self>) -> Self::Result {
            MessageResult(self.handled.clone())
        }
    }

    fn sleeper() -> (Addr<Sleeper>, oneshot::Sender<()>) {
        let (wake, woken) = oneshot::channel();
        let address = Sleeper::create(|ctx| {
            ctx.set_mailbox_capacity(CAPACITY);
            Sleeper { wake: Some(woken), handled: Vec::new() }
        });
        (address, wake)
    }

    /// Offers numbers over one kept address until one is refused, and gives the one that came back.
    fn fill(kept: &Addr<Sleeper>) -> u32 {
        for number in 0.. {
            match offer(kept, Number(number)) {
                Ok(()) => {}
                Err(Refused::Full(Number(back))) => return back,
                Err(Refused::Gone(_)) => panic!("the sleeper lives"),
            }
        }
        unreachable!("a mailbox is bounded")
    }

    async fn handled(kept: &Addr<Sleeper>) -> Vec<u32> {
        ask(kept, Handled, Duration::from_secs(5)).await.unwrap()
    }

    /// Why every holder keeps one address, and clones none to send: each clone has a free slot of its own.
    #[actix::test]
    async fn trap_2_a_kept_address_reports_full_and_fresh_clones_never_do() {
        let (kept, wake) = sleeper();
        let refused = fill(&kept);
        assert!((CAPACITY..=CAPACITY + 1).contains(&(refused as usize)), "{refused} were taken");
        for number in refused..refused + 1_000 {
            let _is_taken: () = kept.clone().try_send(Number(number)).unwrap();
        }
        assert!(matches!(offer(&kept, Number(0)), Err(Refused::Full(Number(0)))));
        wake.send(()).unwrap();
        assert_eq!(handled(&kept).await.len(), refused as usize + 1_000);
    }

    #[actix::test]
    async fn trap_2_what_must_not_be_lost_waits_for_room_and_goes_in_once() {
        let (kept, wake) = sleeper();
        let first = fill(&kept);
        for number in first..first + 100 {
            deliver(&kept, Number(number));
        }
        assert!(matches!(offer(&kept, Number(0)), Err(Refused::Full(_))));
        wake.send(()).unwrap();
        let mut numbers = handled(&kept).await;
        while numbers.len() < first as usize + 100 {
            tokio::task::yield_now().await;
            numbers = handled(&kept).await;
        }
        assert!(numbers.starts_with(&(0..first).collect::<Vec<_>>()), "what was in the mailbox comes first: {numbers:?}");
        numbers.sort_unstable();
        assert_eq!(numbers, (0..first + 100).collect::<Vec<_>>());
    }

    #[actix::test]
    async fn trap_2_an_actor_that_has_ended_takes_nothing_and_gives_it_back() {
        let (kept, wake) = sleeper();
        // Its wake-up never comes: the actor panics.
        drop(wake);
        while kept.connected() {
            tokio::task::yield_now().await;
        }
        assert!(matches!(offer(&kept, Number(7)), Err(Refused::Gone(Number(7)))));
        deliver(&kept, Number(7));
        assert_eq!(ask(&kept, Handled, Duration::from_secs(5)).await, Err(NoAnswer::Gone));
    }

    #[actix::test]
    async fn an_answer_that_does_not_come_is_given_up() {
        tokio::time::pause();
        let (kept, _wake) = sleeper();
        assert_eq!(ask(&kept, Handled, Duration::from_secs(5)).await, Err(NoAnswer::TimedOut));
    }
}
