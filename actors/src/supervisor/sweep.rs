//! The judgement of one socket, from what its link shows. Pure; works while the socket's actor stands still.

use crate::device_socket::Link;
use relay_protocol::{close::CloseReason, limits};
use std::time::{Duration, Instant};

/// What the sweep judges by.
#[derive(Clone, Copy, Debug)]
pub struct SweepLimits {
    /// A socket must register within this time.
    pub register_timeout: Duration,
    /// A socket without any inbound byte for this long is closed.
    pub silence_timeout: Duration,
    /// A full lane whose transport took nothing for this long retires the connection.
    pub saturated_after: Duration,
    /// An unfinished message must be whole within this time.
    pub message_duration_max: Duration,
    /// An unfinished message must grow at least this often.
    pub message_growth_interval_max: Duration,
    /// A connection that is closing is ended from outside after this long.
    pub close_timeout: Duration,
}

impl Default for SweepLimits {
    fn default() -> Self {
        SweepLimits {
            register_timeout: limits::REGISTER_TIMEOUT,
            silence_timeout: limits::SILENCE_TIMEOUT,
            saturated_after: limits::SATURATED_AFTER,
            message_duration_max: limits::MESSAGE_DURATION_MAX,
            message_growth_interval_max: limits::MESSAGE_GROWTH_INTERVAL_MAX,
            close_timeout: 2 * limits::CLOSE_LINGER,
        }
    }
}

impl SweepLimits {
    /// How often to sweep, so that each limit is kept to within a fraction of itself.
    pub fn interval(&self) -> Duration {
        let shortest = self.register_timeout.min(self.silence_timeout).min(self.saturated_after).min(self.close_timeout);
        (shortest / 4).clamp(Duration::from_millis(20), Duration::from_secs(1))
    }
}

/// What to do about a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Keep,
    /// End its generation: the router answers its records and tells its presence.
    Retire(CloseReason),
    /// Close it; its end will be told to the router like any other.
    Close(CloseReason),
    /// End its TCP connection.
    Kill,
}

/// Judges a socket.
pub fn judge(link: &Link, now: Instant, limits: &SweepLimits) -> Verdict {
    let for_at_least = |since: Instant, limit: Duration| now.saturating_duration_since(since) >= limit;
    if let Some(since) = link.lane.closing_since() {
        return if for_at_least(since, limits.close_timeout) { Verdict::Kill } else { Verdict::Keep };
    }
    let activity = &link.activity;
    if for_at_least(activity.last_input(), limits.silence_timeout) {
        return Verdict::Retire(CloseReason::Silent);
    }
    if link.lane.full_since().is_some_and(|since| for_at_least(since, limits.saturated_after)) {
        return Verdict::Retire(CloseReason::Saturated);
    }
    if link.registration().is_none() && for_at_least(activity.opened(), limits.register_timeout) {
        return Verdict::Close(CloseReason::RegistrationTimeout);
    }
    let unfinished = activity.unfinished_since().is_some_and(|since| {
        for_at_least(since, limits.message_duration_max) || for_at_least(activity.last_growth(), limits.message_growth_interval_max)
    });
    if unfinished { Verdict::Close(CloseReason::UnfinishedMessage) } else { Verdict::Keep }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock,
        device_socket::{Budget, EventLimits, LaneLimits, LinkBounds, MessageProgress, Registration},
        user_router::message::{OutboundEvent, SocketId},
    };

    const GROWING: MessageProgress = MessageProgress { unfinished: true, grew: true };
    const PING_ONLY: MessageProgress = MessageProgress { unfinished: true, grew: false };
    const WHOLE: MessageProgress = MessageProgress { unfinished: false, grew: true };
    use relay_protocol::{
        device::Role,
        id::{ConnectionId, DeviceId, Route, UserId},
        identity::Identity,
        text::Text,
    };
    use std::sync::Arc;
    use uuid::Uuid;

    fn link(registered: bool) -> (Link, Instant) {
        let start = clock::now();
        let budget = Arc::new(Budget::new(usize::MAX, 0, Arc::default()));
        let events = EventLimits { bytes_max: 500, flush_bytes: 500, ..EventLimits::default() };
        let lane = LaneLimits { bytes_max: 1_000, message_bytes_max: 1_000_000, events };
        let bounds = LinkBounds { lane, outbound: budget.clone(), inbound: budget, fates: Arc::default() };
        let link = Link::new(SocketId(1), Identity::of_jwt(UserId(Uuid::nil())), Role::Desktop, &bounds, None, start);
        if registered {
            let route = Route::Desktop(DeviceId(Uuid::nil()));
            link.set_registered(Registration { connection: ConnectionId(Uuid::nil()), route, at: start });
        }
        (link, start)
    }

    fn pull(link: &Link, now: Instant) {
        let _ = link.lane.pull(now, &std::task::Context::from_waker(std::task::Waker::noop()));
    }

    /// Each limit is exceeded at exactly its own time, not a millisecond before.
    fn edge(link: &Link, from: Instant, limit: Duration, verdict: Verdict) {
        let limits = SweepLimits::default();
        let millisecond = Duration::from_millis(1);
        assert_eq!(judge(link, from + limit - millisecond, &limits), Verdict::Keep);
        assert_eq!(judge(link, from + limit, &limits), verdict);
        assert_eq!(judge(link, from + limit + millisecond, &limits), verdict);
    }

    #[test]
    fn a_socket_that_does_not_register_is_closed() {
        let (link, start) = link(false);
        edge(&link, start, limits::REGISTER_TIMEOUT, Verdict::Close(CloseReason::RegistrationTimeout));
    }

    #[test]
    fn silence_is_counted_from_the_last_byte() {
        let (link, start) = link(true);
        edge(&link, start, limits::SILENCE_TIMEOUT, Verdict::Retire(CloseReason::Silent));
        let later = start + Duration::from_secs(100);
        link.activity.on_input(later, WHOLE);
        edge(&link, later, limits::SILENCE_TIMEOUT, Verdict::Retire(CloseReason::Silent));
    }

    #[test]
    fn a_socket_that_is_paced_is_neither_silent_nor_stuck() {
        let (link, start) = link(true);
        let resumed = start + Duration::from_secs(100);
        link.activity.on_input(start, WHOLE);
        link.activity.on_paced(resumed);
        edge(&link, resumed, limits::SILENCE_TIMEOUT, Verdict::Retire(CloseReason::Silent));
        link.activity.on_input(start, GROWING);
        link.activity.on_paced(resumed);
        edge(&link, resumed, limits::MESSAGE_GROWTH_INTERVAL_MAX, Verdict::Close(CloseReason::UnfinishedMessage));
    }

    /// In paused time, since a lane asks the clock when it becomes full.
    #[tokio::test(start_paused = true)]
    async fn a_full_lane_is_retired_only_when_its_transport_stands_still() {
        let (link, start) = link(true);
        let saturated = Verdict::Retire(CloseReason::Saturated);
        link.lane.push(Text::from("x".repeat(700))).unwrap();
        assert_eq!(judge(&link, start + Duration::from_secs(100), &SweepLimits::default()), Verdict::Keep, "not full");
        tokio::time::advance(Duration::from_secs(100)).await;
        link.lane.push(Text::from("x".repeat(700))).unwrap();
        edge(&link, clock::now(), limits::SATURATED_AFTER, saturated);
        let pulled = clock::now() + Duration::from_secs(5);
        link.lane.push(Text::from("x".repeat(200_000))).unwrap();
        pull(&link, pulled);
        edge(&link, pulled, limits::SATURATED_AFTER, saturated);
    }

    #[test]
    fn a_full_buffer_of_events_is_judged_like_a_full_lane() {
        let (link, start) = link(true);
        let event = || OutboundEvent { text: Text::from("x".repeat(10)), timeline: None };
        let full = start + Duration::from_secs(100);
        link.lane.push_event(event(), start).unwrap();
        assert_eq!(judge(&link, full, &SweepLimits::default()), Verdict::Keep, "not full");
        link.lane.push_event(event(), full).unwrap();
        edge(&link, full, limits::SATURATED_AFTER, Verdict::Retire(CloseReason::Saturated));
        pull(&link, full);
        assert_eq!(judge(&link, full + Duration::from_secs(10), &SweepLimits::default()), Verdict::Keep, "all is taken");
    }

    /// The router may take its time to close it, while sweeps go on finding it.
    #[test]
    fn a_connection_is_given_up_once_however_often_it_is_judged() {
        let (link, start) = link(true);
        let silent = || judge(&link, start + limits::SILENCE_TIMEOUT, &SweepLimits::default());
        assert_eq!((silent(), link.note_retirement()), (Verdict::Retire(CloseReason::Silent), true));
        assert_eq!((silent(), link.note_retirement()), (Verdict::Retire(CloseReason::Silent), false));
    }

    #[test]
    fn an_unfinished_message_must_grow_and_end() {
        let (link, start) = link(true);
        link.activity.on_input(start, GROWING);
        link.activity.on_input(start + Duration::from_secs(29), PING_ONLY);
        edge(&link, start, limits::MESSAGE_GROWTH_INTERVAL_MAX, Verdict::Close(CloseReason::UnfinishedMessage));
        let growing = |end: Duration| {
            let mut at = Duration::ZERO;
            while at < end {
                at += Duration::from_secs(20);
                link.activity.on_input(start + at, GROWING);
            }
        };
        growing(limits::MESSAGE_DURATION_MAX - Duration::from_secs(1));
        edge(&link, start, limits::MESSAGE_DURATION_MAX, Verdict::Close(CloseReason::UnfinishedMessage));
        link.activity.on_input(start + limits::MESSAGE_DURATION_MAX, WHOLE);
        assert_eq!(judge(&link, start + limits::MESSAGE_DURATION_MAX, &SweepLimits::default()), Verdict::Keep);
    }

    #[test]
    fn a_close_that_gets_nowhere_ends_the_tcp_connection() {
        let (link, start) = link(true);
        link.lane.close(CloseReason::Replaced, start);
        edge(&link, start, SweepLimits::default().close_timeout, Verdict::Kill);
    }
}
