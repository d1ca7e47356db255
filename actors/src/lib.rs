//! The running relay: its actors, their pure cores, and the storage behind them.
//!
//! `docs/architecture.md` follows one request through all of this.

pub mod clock;
pub mod counters;
pub mod device_socket;
pub mod directory;
pub mod drain;
pub mod mailbox;
pub mod persistence;
pub mod processes;
pub mod push;
pub mod readings;
pub mod relay;
pub mod spans;
pub mod store;
pub mod supervisor;
pub mod user_router;

// Unit tests that need the whole rig use the integration tests' one, which names this crate from outside.
#[cfg(test)]
extern crate self as relay_actors;
