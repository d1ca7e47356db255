//! The bounds and times of pushes. None is configured: providers set most of them, and the rest follows from those.

use std::time::Duration;

/// Pushes of one provider that wait, at about 400 bytes each. Issue of the field: a dead provider must not fill the memory.
pub const QUEUE_MAX: usize = 10_000;
/// Of them those of one account: what 64 phones are sent by twelve events. One account cannot take the room of all.
pub const QUEUE_PER_ACCOUNT_MAX: usize = 768;
/// Pushes that a provider is asked to take at once; Apple takes about this many streams of one connection.
pub const IN_FLIGHT_MAX: usize = 64;
/// How often a push is tried.
pub const ATTEMPTS_MAX: u32 = 5;
/// First wait before a single push is tried again; it doubles. Firebase asks for ten seconds at least.
pub const RETRY_FIRST: Duration = Duration::from_secs(10);
/// First pause of a provider that fails; it doubles.
pub const PAUSE_FIRST: Duration = Duration::from_secs(1);
/// Longest wait and longest pause that are not asked for by the provider.
pub const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Longest that a provider may ask for: after that it is asked again.
pub const PAUSE_ASKED_MAX: Duration = Duration::from_secs(15 * 60);

/// A silent push that has waited here for so long helps nobody: the app has been opened, or the desktop is gone.
pub const SILENT_LIFE: Duration = Duration::from_secs(5 * 60);
/// An alert that has waited here for so long is given up.
pub const ALERT_LIFE: Duration = Duration::from_secs(60 * 60);
/// How long the provider keeps a silent push for a phone that it cannot reach.
pub const SILENT_KEPT_FOR: Duration = Duration::from_secs(60 * 60);
/// How long the provider keeps an alert.
pub const ALERT_KEPT_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// Alerts that an account may ask for at once.
pub const ALERTS_BURST: u32 = 20;
/// And in the long run one in this time.
pub const ALERT_INTERVAL: Duration = Duration::from_secs(6);
/// Registrations of an account's desktops that may be told at once.
pub const SILENT_BURST: u32 = 20;
/// And in the long run one in this time. Apple advises against more than a few silent pushes an hour, and drops them as it likes.
pub const SILENT_INTERVAL: Duration = Duration::from_secs(30);

/// Questions for an account's phones that storage is asked at once.
pub const LOOK_UPS_AT_ONCE: usize = 8;
/// Questions that wait: a whole relay's desktops that register after a restart.
pub const LOOK_UPS_MAX: usize = 16_384;
/// Notification ids that are remembered, at about 100 bytes each; the oldest go first.
pub const REMEMBERED_MAX: usize = 200_000;

/// So many dead tokens within [`DEAD_WINDOW`], and more than half of all verdicts: then something else is wrong than the tokens, like a
/// key of another app, and none is forgotten for the rest of that time. Case C72.
pub const DEAD_SUSPICIOUS: u64 = 20;
/// See [`DEAD_SUSPICIOUS`].
pub const DEAD_WINDOW: Duration = Duration::from_secs(60);
/// Messages that wait for the push actor before senders are refused.
pub const MAILBOX_CAPACITY: usize = 4_096;
