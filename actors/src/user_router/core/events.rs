//! Events of desktops on their way to phones (device-lane section 6).

use super::{Effects, UserCore};
use crate::user_router::message::{DropReason, Effect, OutboundEvent, SocketId, TimelineMark};
use relay_protocol::{
    event::{Notification, RegularEvent, TimelineFrame},
    id::{DeviceId, Route},
    text::Text,
};

impl UserCore {
    /// To the phones with a lease of the session, if the frame shows its generation. Whether a lease is still live when a phone's turn
    /// to be written to comes is for its socket to say.
    pub(super) fn on_timeline(&self, socket: SocketId, frame: &TimelineFrame, effects: &mut Effects) {
        let Some(desktop) = self.live_desktop(socket, effects) else { return };
        let watched = (desktop, frame.session.clone());
        let Some(interested) = self.leases.of(&watched) else {
            return effects.push(Effect::Dropped(DropReason::NoLease));
        };
        if frame.generation != Some(interested.generation) {
            return effects.push(Effect::Dropped(DropReason::StaleGeneration));
        }
        let text = frame.forward(desktop);
        for lease in interested.leases.values() {
            let timeline = Some(TimelineMark { epoch: lease.term.epoch, key: frame.key.clone() });
            effects.push(Effect::SendEvent { socket: lease.socket, event: OutboundEvent { text: text.clone(), timeline } });
        }
    }

    /// To all phones that selected this desktop.
    pub(super) fn on_event(&self, socket: SocketId, event: &RegularEvent, effects: &mut Effects) {
        let Some(desktop) = self.live_desktop(socket, effects) else { return };
        let text = event.forward(desktop);
        for (_, socket) in self.routes.phones().filter(|(route, _)| route.desktop() == desktop) {
            effects.push(Effect::SendEvent { socket, event: OutboundEvent { text: text.clone(), timeline: None } });
        }
    }

    /// Not by socket: whoever may push knows the account's phones, connected or not (device-lane section 8).
    pub(super) fn on_notification(&self, socket: SocketId, notification: Notification, effects: &mut Effects) {
        let Some(desktop) = self.live_desktop(socket, effects) else { return };
        effects.push(Effect::Notify { socket, desktop, notification });
    }

    /// A desktop that has gone meanwhile may ask again under the same id.
    pub(super) fn on_notified(&self, socket: SocketId, answer: Text, effects: &mut Effects) {
        if self.routes.live(socket).is_some() {
            effects.push(Effect::Send { socket, text: answer });
        }
    }

    fn live_desktop(&self, socket: SocketId, effects: &mut Effects) -> Option<DeviceId> {
        if let Some(Route::Desktop(desktop)) = self.routes.live(socket).map(|live| live.route) {
            return Some(desktop);
        }
        effects.push(Effect::Dropped(DropReason::StaleSocket));
        None
    }
}
