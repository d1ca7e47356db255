//! What a phone keeps of the events that its program has not taken yet: bounded in number and in bytes. The oldest make room, since
//! the newest say how things are, and the program learns how many it missed.

use crate::frame::Event;
use relay_protocol::limits::{ENVELOPE_BYTES_MAX, MESSAGE_BYTES_MAX};
use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};
use tokio::sync::Notify;

/// Most events kept.
const EVENTS_MAX: usize = 1_024;
/// Bytes kept, of their frames: room for one of any size, and for others beside it.
const EVENT_BYTES_MAX: usize = 2 * (MESSAGE_BYTES_MAX + ENVELOPE_BYTES_MAX);

/// Why [`Events::recv`] has no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoEvent {
    /// So many were dropped at this place, because they were not taken in time.
    Missed(u64),
    /// The link has ended, and everything that came over it was taken.
    Ended,
}

impl fmt::Display for NoEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoEvent::Missed(count) => write!(f, "{count} events were not taken in time"),
            NoEvent::Ended => f.write_str("the link has ended"),
        }
    }
}

impl std::error::Error for NoEvent {}

/// The events of a phone from its making on. Dropping it ends the keeping.
#[derive(Debug)]
pub struct Events {
    inbox: Arc<Inbox>,
}

impl Events {
    /// The next event. Cancelling loses nothing.
    ///
    /// # Errors
    /// Some were missed, which is told once and before those that follow them; or there will be no more.
    pub async fn recv(&mut self) -> Result<Arc<Event>, NoEvent> {
        loop {
            if let Some(next) = self.try_recv() {
                return next;
            }
            self.inbox.news.notified().await;
        }
    }

    /// The same without waiting; `None` if there is nothing now.
    pub fn try_recv(&mut self) -> Option<Result<Arc<Event>, NoEvent>> {
        self.inbox.lock().take()
    }
}

/// Where the reading side puts events, for whoever has subscribed.
#[derive(Debug, Default)]
pub(super) struct Subscribers {
    inboxes: Vec<Weak<Inbox>>,
    ended: bool,
}

impl Subscribers {
    pub(super) fn subscribe(&mut self) -> Events {
        let inbox = Arc::new(Inbox::default());
        inbox.lock().ended = self.ended;
        self.inboxes.push(Arc::downgrade(&inbox));
        Events { inbox }
    }

    /// `bytes` is the size of the event's frame.
    pub(super) fn publish(&mut self, event: &Arc<Event>, bytes: usize) {
        self.each(|kept| kept.put(Arc::clone(event), bytes));
    }

    pub(super) fn end(&mut self) {
        self.ended = true;
        self.each(|kept| kept.ended = true);
    }

    fn each(&mut self, change: impl Fn(&mut Kept)) {
        self.inboxes.retain(|inbox| {
            let Some(inbox) = inbox.upgrade() else { return false };
            change(&mut inbox.lock());
            inbox.news.notify_one();
            true
        });
    }
}

#[derive(Debug, Default)]
struct Inbox {
    kept: Mutex<Kept>,
    /// Keeps one permit, so what comes between a look and the wait is not missed.
    news: Notify,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        // No code panics while it holds the lock; if some did, the queue would still be whole.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
struct Kept {
    events: VecDeque<(Arc<Event>, usize)>,
    bytes: usize,
    missed: u64,
    ended: bool,
}

impl Kept {
    fn put(&mut self, event: Arc<Event>, bytes: usize) {
        while self.events.len() >= EVENTS_MAX || self.bytes + bytes > EVENT_BYTES_MAX {
            let Some((_, freed)) = self.events.pop_front() else { break };
            self.bytes -= freed;
            self.missed += 1;
        }
        self.bytes += bytes;
        self.events.push_back((event, bytes));
    }

    fn take(&mut self) -> Option<Result<Arc<Event>, NoEvent>> {
        if self.missed > 0 {
            return Some(Err(NoEvent::Missed(std::mem::take(&mut self.missed))));
        }
        match self.events.pop_front() {
            Some((event, bytes)) => {
                self.bytes -= bytes;
                Some(Ok(event))
            }
            None => self.ended.then_some(Err(NoEvent::Ended)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::value::RawValue;

    fn event(number: usize) -> Arc<Event> {
        Arc::new(Event { event_type: number.to_string(), source_device_id: None, payload: RawValue::NULL.to_owned() })
    }

    fn taken(events: &mut Events) -> Vec<Result<usize, NoEvent>> {
        std::iter::from_fn(|| events.try_recv()).map(|next| next.map(|event| event.event_type.parse().unwrap())).collect()
    }

    #[test]
    fn events_come_in_order_and_the_end_behind_them() {
        let mut subscribers = Subscribers::default();
        let mut events = subscribers.subscribe();
        subscribers.publish(&event(1), 10);
        subscribers.publish(&event(2), 10);
        assert_eq!(taken(&mut events), [Ok(1), Ok(2)]);
        subscribers.publish(&event(3), 10);
        subscribers.end();
        let mut next = || events.try_recv().unwrap().map(|event| event.event_type.clone());
        assert_eq!([next(), next(), next()], [Ok("3".to_owned()), Err(NoEvent::Ended), Err(NoEvent::Ended)]);
        assert_eq!(subscribers.subscribe().try_recv().unwrap().unwrap_err(), NoEvent::Ended);
    }

    #[test]
    fn the_oldest_make_room_by_number_and_are_counted_once() {
        let mut subscribers = Subscribers::default();
        let mut events = subscribers.subscribe();
        for number in 0..EVENTS_MAX + 3 {
            subscribers.publish(&event(number), 1);
        }
        let mut expected = vec![Err(NoEvent::Missed(3))];
        expected.extend((3..EVENTS_MAX + 3).map(Ok));
        assert_eq!(taken(&mut events), expected);
    }

    #[test]
    fn the_oldest_make_room_by_bytes_and_one_of_any_size_is_kept() {
        let mut subscribers = Subscribers::default();
        let mut events = subscribers.subscribe();
        for (number, bytes) in [EVENT_BYTES_MAX / 2, EVENT_BYTES_MAX / 2, 1].into_iter().enumerate() {
            subscribers.publish(&event(number), bytes);
        }
        assert_eq!(taken(&mut events), [Err(NoEvent::Missed(1)), Ok(1), Ok(2)]);
        subscribers.publish(&event(3), 1);
        subscribers.publish(&event(4), EVENT_BYTES_MAX + 1);
        assert_eq!(taken(&mut events), [Err(NoEvent::Missed(1)), Ok(4)]);
        subscribers.publish(&event(5), EVENT_BYTES_MAX);
        assert_eq!(taken(&mut events), [Ok(5)], "what was taken gives its bytes back");
    }

    #[test]
    fn each_subscriber_has_its_own_and_one_that_left_costs_nothing() {
        let mut subscribers = Subscribers::default();
        let (mut one, two) = (subscribers.subscribe(), subscribers.subscribe());
        drop(two);
        subscribers.publish(&event(1), 1);
        assert_eq!(subscribers.inboxes.len(), 1);
        let mut late = subscribers.subscribe();
        subscribers.publish(&event(2), 1);
        assert_eq!((taken(&mut one), taken(&mut late)), (vec![Ok(1), Ok(2)], vec![Ok(2)]));
    }
}
