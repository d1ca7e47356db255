//! One actor for what must go on when others stand still: the liveness sweep over all sockets, the reconnect waits, and starting
//! the persistence actor anew when it has failed. It never sees a payload.

mod actor;
mod grace;
mod services;
mod sweep;

pub use actor::{ArmGrace, Supervisor, SupervisorConfig};
pub use grace::{Grace, Graces};
pub use services::Services;
pub use sweep::{SweepLimits, Verdict, judge};
