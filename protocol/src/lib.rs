//! What is said on the wire and what the rules are: frames, ids, limits, refusals, close codes and the contract manifest.
//!
//! Both sides use this crate: the relay (`relay-actors`) and the other parties (`relay-endpoints`). It does no I/O, has no
//! clock and starts nothing; everything in it is a value or a pure function.

pub mod close;
pub mod compatibility;
pub mod contract;
pub mod desktop_error;
pub mod device;
pub mod envelope;
pub mod error;
pub mod event;
pub mod glance;
pub mod id;
pub mod identity;
pub mod limits;
pub mod params;
pub mod push;
pub mod register;
pub mod rpc;
pub mod text;
pub mod trace_context;
pub mod version;
