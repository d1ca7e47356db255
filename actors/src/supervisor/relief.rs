//! Who is given up when all sockets together hold too much (device-lane section 3): the largest holders, until the rest fits.

use crate::device_socket::Link;
use std::{cmp::Reverse, sync::Arc};

/// The direction whose budget is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// What clients send.
    Inbound,
    /// What waits for clients.
    Outbound,
}

impl Direction {
    fn held_by(self, link: &Link) -> usize {
        match self {
            Direction::Inbound => link.inbound.held(),
            Direction::Outbound => link.lane.queued_bytes(),
        }
    }
}

/// The sockets to give up so that `excess` bytes less are held, the largest holder first. Of equal ones that one goes first whose
/// message has been unfinished for longest: it may only claim what another is sending. What a closing socket has received is about
/// to go anyway; what waits for it may stay as long as its close, and counts.
pub fn largest_holders(sockets: &[Arc<Link>], direction: Direction, excess: usize) -> Vec<Arc<Link>> {
    let mut missing = excess;
    let mut holders = Vec::new();
    for link in sockets {
        let held = direction.held_by(link);
        if direction == Direction::Inbound && link.lane.is_closing() {
            missing = missing.saturating_sub(held);
        } else if held > 0 {
            holders.push((held, link));
        }
    }
    holders.sort_by_key(|(held, link)| (Reverse(*held), link.activity.unfinished_since().is_none(), link.activity.unfinished_since()));
    let goes = |(held, link): (usize, &Arc<Link>)| {
        let goes = missing > 0;
        missing = missing.saturating_sub(held);
        goes.then(|| link.clone())
    };
    holders.into_iter().map_while(goes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock,
        device_socket::{MessageProgress, OpenSocket, SocketTable},
        user_router::message::OutboundEvent,
    };
    use relay_protocol::{close::CloseReason, device::Role, id::UserId, identity::Identity, text::Text};
    use std::time::Duration;
    use uuid::Uuid;

    /// Sockets that hold this much in both directions, in the order of their ids.
    fn table(held: &[usize]) -> (Arc<SocketTable>, Vec<OpenSocket>) {
        let table = Arc::new(SocketTable::default());
        let open = |bytes: &usize| {
            let socket = table.open(Identity::of_jwt(UserId(Uuid::nil())), Role::Mobile, 1_000_000, None);
            assert!(socket.link().inbound.take(*bytes));
            if *bytes > 0 {
                socket.link().lane.push(Text::from("x".repeat(*bytes))).unwrap();
            }
            socket
        };
        let sockets = held.iter().map(open).collect();
        (table, sockets)
    }

    fn given_up(table: &SocketTable, direction: Direction, excess: usize) -> Vec<u64> {
        largest_holders(&table.snapshot(), direction, excess).iter().map(|link| link.id.0).collect()
    }

    #[test]
    fn the_largest_go_first_and_no_more_than_needed() {
        let (table, _sockets) = table(&[500, 0, 2_000, 1_000, 0]);
        for direction in [Direction::Inbound, Direction::Outbound] {
            for (excess, expected) in [(0, &[][..]), (1, &[3]), (2_000, &[3]), (2_500, &[3, 4]), (50_000, &[3, 4, 1])] {
                assert_eq!(given_up(&table, direction, excess), expected, "{direction:?} {excess}");
            }
        }
    }

    #[test]
    fn events_count_among_what_waits() {
        let (table, sockets) = table(&[0, 500]);
        let event = OutboundEvent { text: Text::from("x".repeat(2_000)), timeline: None };
        sockets[0].link().lane.push_event(event, clock::now()).unwrap();
        assert_eq!(given_up(&table, Direction::Outbound, 1), [1]);
    }

    #[test]
    fn what_closing_sockets_received_counts_as_gone_and_what_waits_for_them_does_not() {
        let (table, sockets) = table(&[500, 2_000]);
        sockets[1].link().lane.close(CloseReason::Replaced, clock::now());
        assert_eq!(given_up(&table, Direction::Inbound, 2_000), [] as [u64; 0]);
        assert_eq!(given_up(&table, Direction::Inbound, 2_001), [1]);
        assert_eq!(given_up(&table, Direction::Outbound, 2_000), [2]);
    }

    #[test]
    fn of_equal_holders_the_longest_unfinished_message_goes_first() {
        let (table, sockets) = table(&[1_000, 1_000, 1_000]);
        let now = clock::now();
        let unfinished = MessageProgress { unfinished: true, grew: true };
        sockets[1].link().activity.on_input(now + Duration::from_secs(5), unfinished);
        sockets[2].link().activity.on_input(now + Duration::from_secs(2), unfinished);
        assert_eq!(given_up(&table, Direction::Inbound, 2_500), [3, 2, 1]);
    }
}
