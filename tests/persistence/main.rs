//! Storage that fails: the real binary over real sockets, its database behind a network of the test's own, stopped and started, or
//! held by somebody else. Routing of connected devices goes on; what needs storage is answered retryably; afterwards nothing is
//! missing. These tests choose their storage themselves, so they run once.
//!
//! | module | shows |
//! | --- | --- |
//! | `comebacks` | everybody comes back at once while PostgreSQL is slow |
//! | `drains` | the relay leaves while storage stalls, refuses, was stopped, or is held by another process |
//! | `outages` | PostgreSQL refuses or stalls under traffic: routing, answers, health, the log, and what catches up |
//! | `processes` | two relay processes on one storage know of each other |
//! | `restarts` | PostgreSQL is restarted under traffic, or greets with an error |
//! | `storms` | many devices try to register meanwhile |
//! | `small_pools` | one or two connections for everybody, and clients that leave while they wait |
//! | `sqlite` | the file is held by another process, or cannot be read |
//! | `texts` | NUL and odd Unicode in everything that is stored |

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

#[path = "../support/mod.rs"]
mod support;

mod comebacks;
mod drains;
mod outages;
mod processes;
mod restarts;
mod rig;
mod small_pools;
mod sqlite;
mod storms;
mod texts;
