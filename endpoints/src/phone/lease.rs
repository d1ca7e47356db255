//! The one lease that a phone holds, as the frames to send and when. Pure: time is an argument.

use crate::{
    event::{OutgoingEvent, TimelineInterest},
    frame::{encode, kind},
};
use relay_protocol::{event::INTEREST, limits::TIMELINE_INTEREST_RENEWAL};
use std::sync::Arc;
use tokio::time::Instant;

#[derive(Debug, Default)]
pub(super) struct Lease {
    held: Option<Held>,
}

#[derive(Debug)]
struct Held {
    session: Arc<str>,
    renew_at: Instant,
}

impl Lease {
    /// The phone wants to watch this session from now on, or none. The frame that says so, if one is needed: a lease on another
    /// session ends the former by itself.
    pub(super) fn want(&mut self, now: Instant, session: Option<Arc<str>>) -> Option<String> {
        match session {
            Some(session) => {
                let held = self.held.insert(Held { session, renew_at: now + TIMELINE_INTEREST_RENEWAL });
                Some(frame(&held.session, true))
            }
            None => self.held.take().map(|held| frame(&held.session, false)),
        }
    }

    /// When to call [`Lease::renew`].
    pub(super) fn renew_at(&self) -> Option<Instant> {
        self.held.as_ref().map(|held| held.renew_at)
    }

    /// The frame to send if the renewal is due.
    pub(super) fn renew(&mut self, now: Instant) -> Option<String> {
        let held = self.held.as_mut().filter(|held| now >= held.renew_at)?;
        held.renew_at = now + TIMELINE_INTEREST_RENEWAL;
        Some(frame(&held.session, true))
    }
}

fn frame(session: &str, active: bool) -> String {
    let payload = TimelineInterest { app_session_id: session, active };
    encode(kind::EVENT, &OutgoingEvent { event_type: INTEREST, payload })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const MS: Duration = Duration::from_millis(1);

    fn some(session: &str) -> Option<Arc<str>> {
        Some(Arc::from(session))
    }

    #[test]
    fn a_lease_is_taken_at_once_and_renewed_each_interval() {
        let (start, mut lease) = (Instant::now(), Lease::default());
        assert_eq!((lease.renew_at(), lease.renew(start)), (None, None));
        assert_eq!(lease.want(start, some("s")), Some(frame("s", true)));
        let due = start + TIMELINE_INTEREST_RENEWAL;
        assert_eq!((lease.renew_at(), lease.renew(due - MS)), (Some(due), None));
        assert_eq!(lease.renew(due), Some(frame("s", true)));
        assert_eq!(lease.renew_at(), Some(due + TIMELINE_INTEREST_RENEWAL));
        // Late, after a pause of the whole program: once, and the next one an interval later.
        let late = due + 5 * TIMELINE_INTEREST_RENEWAL;
        assert_eq!((lease.renew(late), lease.renew(late)), (Some(frame("s", true)), None));
    }

    #[test]
    fn it_is_given_back_once_and_another_session_replaces_it() {
        let (now, mut lease) = (Instant::now(), Lease::default());
        assert_eq!(lease.want(now, None), None);
        lease.want(now, some("a"));
        assert_eq!(lease.want(now + MS, some("b")), Some(frame("b", true)));
        assert_eq!(lease.renew_at(), Some(now + MS + TIMELINE_INTEREST_RENEWAL));
        assert_eq!(lease.want(now, None), Some(frame("b", false)));
        assert_eq!((lease.want(now, None), lease.renew_at()), (None, None));
    }
}
