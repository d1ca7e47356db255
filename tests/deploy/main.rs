//! What lies in `deploy/` and on the page about proxies, run as it stands: real HAProxy and nginx, real relay processes, the script.
//! Only addresses, paths and, where said, times are replaced.
//!
//! | module | shows |
//! | --- | --- |
//! | `blue_green` | a switch as clients, probes and storage see it |
//! | `failures` | a new process that does not come, an old one that does not go, a wrong token, wrong use |
//! | `interruptions` | a switch that is killed anywhere, and run again |
//! | `proxies` | the examples of docs/proxies.md |

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

#[path = "../support/mod.rs"]
mod support;

mod blue_green;
mod clients;
mod failures;
mod interruptions;
mod programs;
mod proxies;
mod stage;
mod units;
