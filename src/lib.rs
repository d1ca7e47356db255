//! The `relay` binary's library: configuration, HTTP routes, wiring, command line.
//!
//! [`cli`] is the way in. `relay serve` goes [`config`] → [`secrets`] → [`wiring`] (which storage, which actors) → [`server`]
//! (listeners) → [`http`] (routes).

pub mod cli;
pub mod config;
pub mod contract;
pub mod http;
pub mod http_client;
pub mod limits;
pub mod push_gateways;
pub mod ready_file;
pub mod secrets;
pub mod server;
pub mod service_manager;
pub mod signals;
pub mod telemetry;
pub mod tls;
pub mod traces;
pub mod wiring;
