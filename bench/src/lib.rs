//! Load generator for the relay, and the floor it is compared with.
//!
//! A *pair* is one account with one desktop and one phone. The phone calls, the desktop answers, and the generator plays both
//! ends over loopback, so that one process sees a whole round trip. What the relay costs is read from `/proc`: CPU time per
//! thousand round trips is the steadiest figure on a shared machine, latencies come second.
//!
//! The [`floor`] is a relay that reads nothing: no tokens, no JSON, no pending records, no limits. What it costs is what sockets,
//! framing and masking cost on the machine at hand; a ratio to it means something on any machine, a bare number does not.
//!
//! | scenario | question |
//! | --- | --- |
//! | [`rpc`] | what does a round trip cost, and how long does it take? |
//! | [`storm`] | how fast do many devices come back at once? |
//! | [`idle`] | how much memory does a connection hold that does nothing? |
//! | [`fanout`] | how many frames of one desktop reach the phones that watch it, and how soon? |
//! | [`big`] | what do the largest results cost, and is their memory given back? |
//! | [`slow`] | what do peers that read nothing do to one that does? |
//! | [`compare`] | the first one for floor and relay in turn, as ratios of medians |

pub mod big;
pub mod cli;
pub mod clock;
pub mod compare;
pub mod error;
pub mod event;
pub mod fanout;
pub mod floor;
pub mod frame;
pub mod http;
pub mod idle;
pub mod link;
pub mod pairs;
pub mod payload;
pub mod peer;
pub mod procfs;
pub mod report;
pub mod rpc;
pub mod server;
pub mod slow;
pub mod stats;
pub mod storm;
pub mod target;
pub mod timeline;

pub use error::Error;
