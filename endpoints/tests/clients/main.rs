//! The clients against a small server that speaks the relay's frames.

mod desktop;
mod devices;
mod fake_relay;
mod link;
mod phone;
