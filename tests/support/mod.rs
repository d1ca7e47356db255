//! What the tests over real sockets share: the real binary, accounts on it, sockets that break the rules, and a network that
//! stalls. Each test file is a crate of its own and uses a part of it.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]
#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test file uses a part of this, and nobody else does")]

pub mod account;
pub mod collector;
pub mod data_dir;
pub mod desktop_process;
pub mod issuer;
pub mod metrics;
pub mod neighbours;
pub mod postgres;
pub mod push_server;
pub mod raw_socket;
pub mod relay_process;
pub mod running_desktop;
pub mod scale;
pub mod signing_keys;
pub mod stall_proxy;
pub mod timeline;
pub mod tls_tunnel;
pub mod token;
pub mod wire;

use std::time::Duration;

/// Longer than anything takes that is not measured; a test that waits this long has failed.
pub const PATIENCE: Duration = Duration::from_secs(20);
