//! Which notification ids have been asked for, so that none is sent twice.

use super::limits::REMEMBERED_MAX;
use relay_protocol::{id::UserId, limits::NOTIFICATION_ID_MEMORY};
use sha2::{Digest, Sha256};
use std::{
    collections::{BTreeMap, VecDeque},
    time::Instant,
};

/// An account's notification id: the first half of a hash, since ids are long and there are many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(UserId, [u8; 16]);

impl Key {
    pub(super) fn new(user: UserId, notification_id: &str) -> Self {
        let mut half = [0; 16];
        half.copy_from_slice(&Sha256::digest(notification_id)[..16]);
        Key(user, half)
    }

    /// What providers fold repeats by: says nothing of the id, and two accounts' differ.
    pub(super) fn collapse_key(&self) -> String {
        let digest = Sha256::new().chain_update(self.0.0.as_bytes()).chain_update(self.1).finalize();
        digest[..16].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// What is known of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The account's phones are being looked up, by this job.
    Asking(u64),
    /// It was accepted for so many phones.
    Accepted(usize),
}

/// The ids, each for a day from when it was first seen.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    states: BTreeMap<Key, (State, Instant)>,
    /// In the order in which they are forgotten. Of one that was refused there is an entry without a state.
    order: VecDeque<(Instant, Key)>,
}

impl Remembered {
    pub(super) fn get(&mut self, key: Key, now: Instant) -> Option<State> {
        while let Some((until, key)) = self.order.front().copied().filter(|(until, _)| *until <= now) {
            self.order.pop_front();
            self.forget(key, until);
        }
        self.states.get(&key).map(|(state, _)| *state)
    }

    /// Remembers an id that is not known, from now on for a day.
    pub(super) fn begin(&mut self, key: Key, job: u64, now: Instant) {
        let until = now + NOTIFICATION_ID_MEMORY;
        self.states.insert(key, (State::Asking(job), until));
        self.order.push_back((until, key));
        while self.order.len() > REMEMBERED_MAX {
            let Some((until, key)) = self.order.pop_front() else { break };
            self.forget(key, until);
        }
    }

    pub(super) fn accept(&mut self, key: Key, devices: usize) {
        if let Some((state, _)) = self.states.get_mut(&key) {
            *state = State::Accepted(devices);
        }
    }

    /// It was not sent: the desktop may ask again.
    pub(super) fn refuse(&mut self, key: Key) {
        self.states.remove(&key);
    }

    /// Another request under the same id may have begun since that one.
    fn forget(&mut self, key: Key, until: Instant) {
        if self.states.get(&key).is_some_and(|(_, own)| *own == until) {
            self.states.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use std::time::Duration;
    use uuid::Uuid;

    fn key(user: u128, id: &str) -> Key {
        Key::new(UserId(Uuid::from_u128(user)), id)
    }

    #[test]
    fn an_id_is_known_for_a_day_in_its_account_only() {
        let (mut ids, now) = (Remembered::default(), clock::now());
        ids.begin(key(1, "a"), 7, now);
        assert_eq!([ids.get(key(1, "a"), now), ids.get(key(2, "a"), now), ids.get(key(1, "b"), now)], [Some(State::Asking(7)), None, None]);
        ids.accept(key(1, "a"), 2);
        let end = now + NOTIFICATION_ID_MEMORY;
        assert_eq!(ids.get(key(1, "a"), end - Duration::from_millis(1)), Some(State::Accepted(2)));
        assert_eq!(ids.get(key(1, "a"), end), None);
        assert!(ids.order.is_empty() && ids.states.is_empty());
    }

    #[test]
    fn a_refused_id_is_free_and_its_second_life_has_its_own_end() {
        let (mut ids, now) = (Remembered::default(), clock::now());
        ids.begin(key(1, "a"), 1, now);
        ids.refuse(key(1, "a"));
        assert_eq!(ids.get(key(1, "a"), now), None);
        let later = now + Duration::from_secs(60);
        ids.begin(key(1, "a"), 2, later);
        assert_eq!(ids.get(key(1, "a"), now + NOTIFICATION_ID_MEMORY), Some(State::Asking(2)));
        assert_eq!(ids.get(key(1, "a"), later + NOTIFICATION_ID_MEMORY), None);
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many() {
        let (mut ids, now) = (Remembered::default(), clock::now());
        for number in 0..=REMEMBERED_MAX {
            ids.begin(Key(UserId(Uuid::nil()), (number as u128).to_be_bytes()), 0, now);
        }
        assert_eq!((ids.order.len(), ids.states.len()), (REMEMBERED_MAX, REMEMBERED_MAX));
        assert_eq!(ids.get(Key(UserId(Uuid::nil()), 0_u128.to_be_bytes()), now), None);
    }

    #[test]
    fn a_collapse_key_is_short_ascii_and_differs_between_accounts() {
        let collapse = key(1, "a").collapse_key();
        assert!(collapse.len() <= 64 && collapse.is_ascii());
        assert_ne!(collapse, key(2, "a").collapse_key());
        assert_ne!(collapse, key(1, "b").collapse_key());
    }
}
