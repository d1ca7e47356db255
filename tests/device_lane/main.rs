//! The device lane over real sockets: the real binary, real connections, one module per concern.

#[path = "../support/mod.rs"]
mod support;

mod api_keys;
mod clients_page;
mod closes;
mod desktop_router;
mod drain;
mod hostile;
mod issuer_keys;
mod leases;
mod metrics;
mod phone_client;
mod presence;
mod push;
mod rate;
mod registration;
mod rpc;
mod stalled_peers;
mod strangers;
mod traces;
mod transport;
mod watchers;
