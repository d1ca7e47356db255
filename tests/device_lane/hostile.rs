//! Hostile input across sockets and addresses: what all of them may hold together, how often an address may knock, and connections
//! that never get as far as a request.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod addresses;
mod handshakes;
mod totals;
