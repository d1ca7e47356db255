//! The other parties of the relay: a desktop and its router, a phone client, and the HTTP calls that both need first.
//!
//! The command line (`relay desktop`, `relay phone`) and the integration tests use the same code. Nothing here knows the
//! relay's actors; what both sides share is in `relay-protocol`.
//!
//! * [`link`]: one registered websocket, frames as text in and out.
//! * [`desktop`]: a desktop that answers requests and comes back after losing its socket.
//! * [`desktop::router`]: what every desktop does with a request before and behind its handler.
//! * [`phone`]: a phone that calls a desktop and watches one of its sessions.
//! * [`compatibility`]: whether this version may connect at all, asked beforehand.
//! * [`devices`], [`api_keys`]: the account's devices and API keys over HTTP.
//! * [`admin`]: the admin listener's calls about the process.
//!
//! Values that only pass through (`params`, `result`, `error`) stay raw JSON text, so that no number is reformatted and no
//! escape rewritten.

pub mod address;
pub mod admin;
pub mod api;
pub mod api_keys;
pub mod backoff;
mod clock;
pub mod compatibility;
pub mod desktop;
pub mod devices;
pub mod event;
pub mod frame;
mod inbound;
pub mod link;
pub mod phone;
mod private_file;
mod tls;
pub mod trace;

/// The relay protocol that these clients speak (contract manifest: current and minimum).
pub const PROTOCOL_VERSION: &str = "1.7";
