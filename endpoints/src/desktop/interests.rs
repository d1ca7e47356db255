//! Which sessions somebody watches, as the relay has told this desktop. Pure: time is an argument.
//!
//! A session is live from an update that says so until one that takes it back, or until its deadline, which comes without a
//! message. What counts for the deadline is how long the relay says that it takes, never the time of day.

use crate::event::InterestUpdate;
use relay_protocol::id::RelayInstanceId;
use std::collections::BTreeMap;
use tokio::time::Instant;

/// Sessions that are remembered. An account has far fewer phones, and each watches one; those that have ended are kept as long as
/// there is room, so that an update that comes late is known to be old.
const SESSIONS_MAX: usize = 1_024;

/// The interests of one registration: a new one starts empty, since the relay tells every live session anew.
#[derive(Debug, Default)]
pub struct Interests {
    instance: Option<RelayInstanceId>,
    sessions: BTreeMap<String, Interest>,
}

#[derive(Debug)]
struct Interest {
    revision: u64,
    generation: String,
    /// Live before this.
    until: Instant,
}

impl Interests {
    /// Takes an update. False: it is older than what is known, and changes nothing.
    pub fn on_update(&mut self, now: Instant, update: InterestUpdate) -> bool {
        if self.instance != Some(update.relay_instance_id) {
            self.instance = Some(update.relay_instance_id);
            self.sessions.clear();
        }
        match self.sessions.get(&update.session) {
            Some(known) if update.revision <= known.revision => return false,
            Some(_) => {}
            None => self.make_room(),
        }
        let (generation, until) = match update.authorization {
            Some(authorization) => (authorization.generation, now + authorization.expires_in),
            None => (String::new(), now),
        };
        self.sessions.insert(update.session, Interest { revision: update.revision, generation, until });
        true
    }

    /// What a frame of this base session must carry now; `None` if nobody would get it.
    pub fn generation(&self, now: Instant, session: &str) -> Option<&str> {
        self.sessions.get(session).filter(|interest| now < interest.until).map(|interest| interest.generation.as_str())
    }

    /// The base sessions that somebody watches now, each with its generation, in the order of their names.
    pub fn live(&self, now: Instant) -> impl Iterator<Item = (&str, &str)> {
        let live = self.sessions.iter().filter(move |(_, interest)| now < interest.until);
        live.map(|(session, interest)| (session.as_str(), interest.generation.as_str()))
    }

    /// Forgets the one that ended first, or will, if there are as many as may be.
    fn make_room(&mut self) {
        if self.sessions.len() < SESSIONS_MAX {
            return;
        }
        let first_to_end = self.sessions.iter().min_by_key(|(_, interest)| interest.until).map(|(session, _)| session.clone());
        if let Some(session) = first_to_end {
            self.sessions.remove(&session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Authorization;
    use std::time::Duration;
    use uuid::Uuid;

    const MS: Duration = Duration::from_millis(1);
    const TTL: Duration = Duration::from_secs(60);

    fn update(instance: u128, revision: u64, session: &str, generation: Option<&str>) -> InterestUpdate {
        InterestUpdate {
            session: session.to_owned(),
            authorization: generation.map(|generation| Authorization { generation: generation.to_owned(), expires_in: TTL }),
            revision,
            relay_instance_id: RelayInstanceId(Uuid::from_u128(instance)),
        }
    }

    #[test]
    fn a_session_is_live_until_its_deadline_and_not_at_it() {
        let (now, mut interests) = (Instant::now(), Interests::default());
        assert!(interests.on_update(now, update(1, 1, "s", Some("g"))));
        assert_eq!(interests.generation(now, "s"), Some("g"));
        assert_eq!(interests.generation(now + TTL - MS, "s"), Some("g"));
        assert_eq!(interests.generation(now + TTL, "s"), None);
        assert_eq!(interests.generation(now + TTL + MS, "s"), None);
        assert_eq!((interests.live(now + TTL - MS).count(), interests.live(now + TTL).count()), (1, 0));
        assert_eq!(interests.generation(now, "another"), None);
    }

    #[test]
    fn an_update_renews_takes_back_and_gives_anew() {
        let (now, mut interests) = (Instant::now(), Interests::default());
        interests.on_update(now, update(1, 1, "s", Some("g1")));
        interests.on_update(now + TTL / 2, update(1, 2, "s", Some("g1")));
        assert_eq!(interests.generation(now + TTL, "s"), Some("g1"), "renewed");
        interests.on_update(now + TTL, update(1, 3, "s", None));
        assert_eq!(interests.generation(now + TTL, "s"), None, "taken back");
        interests.on_update(now + TTL, update(1, 4, "s", Some("g2")));
        interests.on_update(now + TTL, update(1, 5, "r", Some("g3")));
        assert_eq!(interests.live(now + TTL).collect::<Vec<_>>(), [("r", "g3"), ("s", "g2")]);
    }

    #[test]
    fn a_revision_that_is_not_newer_changes_nothing() {
        let (now, mut interests) = (Instant::now(), Interests::default());
        interests.on_update(now, update(1, 5, "s", Some("g")));
        for (revision, session, generation, taken) in [
            (4, "s", None, false),
            (5, "s", None, false),
            // Each session by itself: the states behind a registration come in any order.
            (3, "r", Some("h"), true),
            (6, "s", None, true),
            // After the end too.
            (6, "s", Some("old"), false),
            (5, "s", Some("old"), false),
        ] {
            let case = update(1, revision, session, generation);
            assert_eq!(interests.on_update(now, case.clone()), taken, "{case:?}");
        }
        assert_eq!(interests.live(now).collect::<Vec<_>>(), [("r", "h")]);
    }

    #[test]
    fn another_relay_process_knows_nothing_of_the_former_ones_sessions() {
        let (now, mut interests) = (Instant::now(), Interests::default());
        interests.on_update(now, update(1, 5, "s", Some("g")));
        interests.on_update(now, update(1, 6, "r", Some("g")));
        assert!(interests.on_update(now, update(2, 1, "s", Some("h"))));
        assert_eq!(interests.live(now).collect::<Vec<_>>(), [("s", "h")]);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_live_sessions_stay() {
        let (now, mut interests) = (Instant::now(), Interests::default());
        interests.on_update(now + MS, update(1, 1, "live", Some("g")));
        for revision in 2..10 + u64::try_from(SESSIONS_MAX).unwrap() {
            assert!(interests.on_update(now, update(1, revision, &revision.to_string(), None)));
        }
        assert_eq!(interests.sessions.len(), SESSIONS_MAX);
        assert_eq!(interests.generation(now, "live"), Some("g"));
    }
}
