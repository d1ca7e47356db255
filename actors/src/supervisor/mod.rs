//! One actor for what must go on when others stand still: the liveness sweep over all sockets, the bounds on what
//! they hold together, the reconnect waits, and starting
//! the persistence actor and the push actor anew when one has failed. It never sees a payload.

mod actor;
mod grace;
mod relief;
mod services;
mod sweep;

pub use actor::{AreYouThere, ArmGrace, Supervisor, SupervisorConfig};
pub use grace::{Grace, Graces};
pub use relief::{Direction, largest_holders};
pub use services::Services;
pub use sweep::{SweepLimits, Verdict, judge};
