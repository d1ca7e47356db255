//! Push: phones that are asleep learn that a desktop is there, or that an agent needs them (device-lane section 8).

mod gateway;

pub use gateway::{Alert, Content, Gateway, Outgoing, Scope, Verdict};
