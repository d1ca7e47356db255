//! The `relay` binary's library: configuration, HTTP routes, wiring, command line.

pub mod config;
pub mod http;
pub mod limits;
pub mod secrets;
pub mod telemetry;
