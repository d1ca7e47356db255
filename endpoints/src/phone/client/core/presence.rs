//! What the relay says of desktops, without what is out of date: another process counts its revisions anew, and knows other things.

use crate::frame::{DeviceStatus, Registered};
use relay_protocol::id::RelayInstanceId;

/// The newest that was heard of desktops. Revisions count up per account and process, over all of its desktops.
#[derive(Debug, Default)]
pub(super) struct Presences {
    instance: Option<RelayInstanceId>,
    revision: u64,
}

impl Presences {
    /// The relay has answered a registration. True if the former one was with another process, which has forgotten all it knew.
    pub(super) fn on_registered(&mut self, registered: &Registered) -> bool {
        let former = self.instance.replace(registered.relay_instance_id);
        let is_other = former.is_some_and(|former| former != registered.relay_instance_id);
        if is_other {
            self.revision = 0;
        }
        let told = registered.target.as_ref().and_then(|target| target.revision).unwrap_or_default();
        self.revision = self.revision.max(told);
        is_other
    }

    /// Whether this is news from the process that this phone is registered with. Takes note of it.
    pub(super) fn accepts(&mut self, status: &DeviceStatus) -> bool {
        match (status.relay_instance_id, status.revision) {
            (Some(instance), Some(revision)) if Some(instance) == self.instance && revision > self.revision => {
                self.revision = revision;
                true
            }
            (Some(_) | None, Some(_) | None) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{instance, registered, status},
        *,
    };
    use relay_protocol::device::Presence;

    #[test]
    fn only_news_of_the_process_that_registered_the_phone_count() {
        let mut presences = Presences::default();
        assert!(!presences.accepts(&status(1, 1, Presence::Online)), "not registered yet");
        assert!(!presences.on_registered(&registered(1, Some(5))));
        for (process, revision, accepted) in
            [(1, 4, false), (1, 5, false), (1, 6, true), (1, 6, false), (2, 7, false), (2, 100, false), (1, 7, true), (1, 9, true)]
        {
            assert_eq!(presences.accepts(&status(process, revision, Presence::Online)), accepted, "{process} {revision}");
        }
        assert!(!presences.on_registered(&registered(1, Some(5))), "the same process");
        assert!(!presences.accepts(&status(1, 9, Presence::Online)), "what was heard before the gap is no news behind it");
        assert!(presences.on_registered(&registered(2, None)), "another process");
        assert!(!presences.accepts(&status(1, 10, Presence::Online)), "the former process");
        assert!(presences.accepts(&status(2, 1, Presence::Online)), "it counts anew");
    }

    #[test]
    fn a_status_that_names_no_process_or_revision_is_none() {
        let mut presences = Presences::default();
        presences.on_registered(&registered(1, None));
        for (process, revision) in [(None, Some(1)), (Some(instance(1)), None), (None, None)] {
            let told = DeviceStatus { relay_instance_id: process, revision, ..status(1, 1, Presence::Online) };
            assert!(!presences.accepts(&told));
        }
    }
}
