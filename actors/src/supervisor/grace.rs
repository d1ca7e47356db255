//! Reconnect waits of desktops. Pure: the actor asks when the next one ends, and takes what has ended.

use relay_protocol::id::{ConnectionId, DeviceId, UserId};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

/// A wait that has ended. The router decides what it means; if the desktop has come back, nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grace {
    /// The account.
    pub user: UserId,
    /// The desktop.
    pub desktop: DeviceId,
    /// The generation whose close started the wait.
    pub generation: ConnectionId,
}

/// The waits that are running: at most one per desktop, since a newer close starts it again.
#[derive(Debug, Default)]
pub struct Graces {
    running: BTreeMap<(UserId, DeviceId), (Instant, ConnectionId)>,
    by_end: BTreeSet<(Instant, UserId, DeviceId)>,
}

impl Graces {
    /// Starts a wait, instead of an earlier one of the same desktop.
    pub fn arm(&mut self, grace: Grace, ends: Instant) {
        let key = (grace.user, grace.desktop);
        if let Some((earlier, _)) = self.running.insert(key, (ends, grace.generation)) {
            self.by_end.remove(&(earlier, grace.user, grace.desktop));
        }
        self.by_end.insert((ends, grace.user, grace.desktop));
    }

    /// When the next wait ends.
    pub fn next(&self) -> Option<Instant> {
        self.by_end.first().map(|(ends, _, _)| *ends)
    }

    /// Takes a wait that has ended by now; call until there is none.
    pub fn take_ended(&mut self, now: Instant) -> Option<Grace> {
        let (_, user, desktop) = *self.by_end.first().filter(|(ends, _, _)| *ends <= now)?;
        self.by_end.pop_first();
        let (_, generation) = self.running.remove(&(user, desktop))?;
        Some(Grace { user, desktop, generation })
    }

    /// How many are running.
    pub fn len(&self) -> usize {
        self.running.len()
    }

    /// Whether none is running.
    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use std::time::Duration;
    use uuid::Uuid;

    fn grace(desktop: u128, generation: u128) -> Grace {
        let id = Uuid::from_u128;
        Grace { user: UserId(id(0)), desktop: DeviceId(id(desktop)), generation: ConnectionId(id(generation)) }
    }

    #[test]
    fn a_wait_ends_at_its_time_and_once() {
        let (start, mut graces) = (clock::now(), Graces::default());
        let ms = |ms| start + Duration::from_millis(ms);
        graces.arm(grace(1, 1), ms(100));
        assert_eq!(graces.next(), Some(ms(100)));
        assert_eq!(graces.take_ended(ms(99)), None);
        assert_eq!(graces.take_ended(ms(100)), Some(grace(1, 1)));
        assert_eq!(graces.take_ended(ms(200)), None);
        assert!(graces.is_empty() && graces.next().is_none());
    }

    #[test]
    fn a_newer_close_starts_the_wait_again() {
        let (start, mut graces) = (clock::now(), Graces::default());
        let ms = |ms| start + Duration::from_millis(ms);
        graces.arm(grace(1, 1), ms(100));
        graces.arm(grace(2, 2), ms(150));
        graces.arm(grace(1, 3), ms(180));
        assert_eq!(graces.len(), 2);
        assert_eq!(graces.take_ended(ms(179)), Some(grace(2, 2)));
        assert_eq!(graces.take_ended(ms(179)), None);
        assert_eq!(graces.take_ended(ms(181)), Some(grace(1, 3)));
    }
}
