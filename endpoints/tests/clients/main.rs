//! The clients against a small server that speaks the relay's frames.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod comeback;
mod compatibility;
mod desktop;
mod devices;
mod events;
mod fake_relay;
mod link;
mod phone;
mod timeline;
mod watch;
