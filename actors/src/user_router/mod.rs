//! One actor per account with live state: routes and their connection generations, pending records, presence, resume sessions.
//!
//! Device sockets and HTTP handlers send it inputs; it answers with effects on the sockets' outbound lanes, on the persistence
//! actor and on the supervisor. It never waits for I/O.

pub mod actor;
pub mod core;
pub mod message;

#[cfg(test)]
mod crash_test;
#[cfg(test)]
mod drain_test;
