//! One actor per websocket: the gate in front of the codec, the outbound lane behind it, and the link that others hold.
//!
//! Everything that knows the websocket crate is in this folder.
//!
//! ```text
//! bytes in ─→ gate ─→ codec ─→ DeviceSocket ─→ router's mailbox
//! bytes out ←──────────── Outgoing ←─ lane ←── router's effects, from any thread
//! ```

mod actor;
mod bucket;
mod budget;
mod gate;
mod gated_input;
mod input;
mod lane;
mod link;
mod message_buffer;
mod outgoing;
mod table;
mod tcp;
mod upgrade;

#[cfg(test)]
mod gate_pieces_test;
#[cfg(test)]
mod gate_rate_test;
#[cfg(test)]
mod gate_test;
#[cfg(test)]
mod gate_testing;
#[cfg(test)]
mod traps_test;

pub use actor::SocketConfig;
pub use bucket::{Bucket, Rate};
pub use budget::{Budget, Share};
pub use gate::{Gate, GateLimits, Passed};
pub use lane::{EndReason, EventFates, EventLimits, Lane, LaneLimits, Pulled, Refused, SLICE_BYTES_MAX};
pub use link::{Activity, Held, Link, LinkBounds, MessageProgress, Registration};
pub use table::{OpenSocket, SocketTable, TableLimits};
pub use tcp::TcpHandle;
pub use upgrade::{NotAnUpgrade, Sockets, check_upgrade};
