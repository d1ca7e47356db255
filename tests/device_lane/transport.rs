//! The websocket itself: what a client may send in which shape, how each broken rule ends, and that every end is clean.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use crate::support::{
    PATIENCE,
    raw_socket::{Frame, RawSocket, Received, opcode},
    wire::{Rig, round_trip},
};

mod control_frames;
mod endings;
mod floods;
mod memory;
mod messages;
mod proxies;
mod upgrades;
mod utf8;

/// Runs one violation after the other, each on a fresh socket of the same phone: every one must be closed with this code, and
/// nothing of it may reach the desktop, nor what follows it in the same write.
async fn each_is_closed(rig: &Rig, desktop: &mut RawSocket, violations: impl IntoIterator<Item = Vec<u8>>, code: u16, reason: &str) {
    for (index, violation) in violations.into_iter().enumerate() {
        let shown = &violation[..violation.len().min(40)];
        let mut phone = rig.phone(0).await;
        let late = Frame::text(&crate::support::wire::request("late", "1")).encode();
        phone.write(&[violation.clone(), late].concat()).await;
        assert_eq!(phone.closed(PATIENCE).await, Some((code, reason.to_owned())), "violation {index}: {shown:02x?}");
        let mut phone = rig.phone(0).await;
        round_trip(&mut phone, desktop, &format!("after-{index}")).await;
    }
}

/// Like [`each_is_closed`], for a violation that is complete before all of its frame has come: nothing follows it.
async fn is_closed_at_once(rig: &Rig, phone: &mut RawSocket, desktop: &mut RawSocket, code: u16, reason: &str) {
    assert_eq!(phone.closed(PATIENCE).await, Some((code, reason.to_owned())));
    let mut phone = rig.phone(0).await;
    round_trip(&mut phone, desktop, "after").await;
}

async fn expect_pong(socket: &mut RawSocket, payload: &[u8]) {
    let pong = Received::Frame { fin: true, opcode: opcode::PONG, payload: payload.to_vec() };
    assert_eq!(socket.read(PATIENCE).await, pong);
}
