//! Push: phones that are asleep learn that a desktop is there, or that an agent needs them (device-lane section 8).
//!
//! Routers hand over what happened and go on: nothing here can hold them up. The actor asks the persistence actor for the account's
//! phones, queues a push for each, and gives them to the providers at the pace that those take them.
//!
//! | file | owns |
//! | --- | --- |
//! | `core` | all decisions, pure |
//! | `rates`, `remembered` | how often an account may cause pushes; which notification ids it has used |
//! | `lane` | what waits for one provider, what is in flight, retries and pauses |
//! | `gateway` | what a provider is to all this; implemented outside of this crate |
//! | `limits` | bounds and times |
//! | `reports` | what is logged of verdicts |

mod actor;
mod core;
mod gateway;
mod lane;
pub mod limits;
mod message;
mod rates;
mod remembered;
mod reports;

pub use actor::{Gateways, Push};
pub use core::HintFate;
pub use gateway::{Alert, Content, Gateway, Outgoing, Scope, Verdict};
pub use lane::{Fate, Kind};
pub use message::{Asker, DesktopOnline, Leave, NotTested, Notify, TestPush, Tested};
