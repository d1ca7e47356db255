//! Every number of the device lane: unit, default, and the rule that it comes from (device-lane page or seed).
//!
//! Configuration keys take these as defaults. Clients may rely on the ones that the wire shows.

pub mod desktop;

use std::time::Duration;

/// Largest message that a client may send, fragments summed. Seed: 32 MiB, every frame.
pub const MESSAGE_BYTES_MAX: usize = 32 * 1024 * 1024;
/// What the relay may add to a message that it forwards; receivers accept the sum. Device-lane section 3.
pub const ENVELOPE_BYTES_MAX: usize = 4 * 1024;
/// Largest message before a successful registration. Device-lane section 3.
pub const UNREGISTERED_MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// Most fragments of one message. Device-lane section 3.
pub const FRAGMENTS_MAX: u32 = 4_096;
/// An unfinished message must grow at least this often. Device-lane section 3.
pub const MESSAGE_GROWTH_INTERVAL_MAX: Duration = Duration::from_secs(30);
/// An unfinished message must be whole within this time. Device-lane section 3.
pub const MESSAGE_DURATION_MAX: Duration = Duration::from_secs(600);
/// Behind its close frame the relay reads and discards input for this long, or until the peer has closed too: closing a connection
/// with unread input would take the close frame away from the peer. Device-lane section 3.
pub const CLOSE_LINGER: Duration = Duration::from_secs(1);

/// Data messages and pings that one connection may send at once. Device-lane section 4.
pub const RATE_BURST: u32 = 300;
/// Data messages and pings that one connection may send a second, in the long run. Device-lane section 4.
pub const RATE_PER_SECOND: u32 = 150;
/// How much of a message over the rate limit is looked at. Device-lane section 4.
pub const GLANCE_BYTES_MAX: usize = 4 * 1024;

/// Longest RPC id, in bytes of decoded UTF-8. Device-lane section 4.
pub const RPC_ID_BYTES_MAX: usize = 128;
/// Open requests of the process. Seed.
pub const PENDING_PER_PROCESS_MAX: usize = 4_096;
/// Open requests to one desktop. Seed.
pub const PENDING_PER_DESKTOP_MAX: usize = 128;
/// Open requests of one phone route. Seed.
pub const PENDING_PER_CLIENT_MAX: usize = 64;
/// Open requests of one account. Seed.
pub const PENDING_PER_USER_MAX: usize = 512;
/// Sessions that one `session.syncHistoryState` names. As many as the manifest lets a desktop report of one session's outbox.
pub const SYNC_HISTORY_SESSIONS_MAX: usize = 256;
/// Longest session id in `params` that the relay types, in bytes of decoded UTF-8. Device-lane section 6, of `appSessionId`.
pub const SESSION_ID_BYTES_MAX: usize = 1_024;
/// Longest name of an event. Device-lane section 6.
pub const EVENT_NAME_BYTES_MAX: usize = 128;
/// Longest `timelineKey`, in bytes of decoded UTF-8. As long as a session id may be: each pending frame keeps one.
pub const TIMELINE_KEY_BYTES_MAX: usize = 1_024;
/// How long a lease lasts from its last renewal. Seed.
pub const TIMELINE_INTEREST_TTL: Duration = Duration::from_secs(60);
/// How often a phone renews its lease. Seed.
pub const TIMELINE_INTEREST_RENEWAL: Duration = Duration::from_secs(20);
/// Highest history revision: the last integer that every client's JSON numbers hold exactly.
pub const HISTORY_REVISION_MAX: u64 = (1 << 53) - 1;
/// A record's life where no other rule names one. Seed.
pub const PENDING_DEFAULT: Duration = Duration::from_secs(90);
/// A record's life for the two initial timeline loads. Seed.
pub const PENDING_LOAD: Duration = Duration::from_secs(120);
/// A record's life for an outbox submit. Seed.
pub const PENDING_OUTBOX: Duration = Duration::from_secs(31 * 60);

/// Devices of one account, forgotten ones counted, since their rows stay. An account has a handful; a program that registers one per
/// start must not fill the storage.
pub const DEVICES_PER_ACCOUNT_MAX: u32 = 1_000;
/// Presence changes that are kept of one device. A desktop that reconnects once an hour fills a month.
pub const PRESENCE_HISTORY_MAX: u32 = 200;
/// Presence changes in one answer, unless asked otherwise.
pub const PRESENCE_PAGE_DEFAULT: u32 = 50;
/// Presence changes in one answer, at most.
pub const PRESENCE_PAGE_MAX: u32 = 200;
/// How long a desktop counts as reconnecting after its socket closed. Seed.
pub const RECONNECT_GRACE: Duration = Duration::from_secs(90);
/// A resume session's life from its last RPC. Seed.
pub const RESUME_TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// A socket must register within this time. Device-lane section 3.
pub const REGISTER_TIMEOUT: Duration = Duration::from_secs(10);
/// Protocol ping interval. Seed.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(30);
/// A socket without any inbound byte for this long is closed. Seed.
pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(180);
/// Outbound bytes of one connection. Operations page; room for one maximal frame is kept on top of what is queued.
pub const OUTBOUND_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Outbound bytes of all connections together. Device-lane section 3.
pub const OUTBOUND_TOTAL_BYTES_MAX: usize = 1024 * 1024 * 1024;
/// Bytes of unfinished messages, and of messages that wait for their router, of all connections together. Device-lane section 3.
pub const INBOUND_TOTAL_BYTES_MAX: usize = 1024 * 1024 * 1024;
/// A connection whose lane is full is retired when its transport took nothing for this long. Device-lane section 6.
pub const SATURATED_AFTER: Duration = Duration::from_secs(1);
/// Bytes that the kernel takes for one connection ahead of what it can send. Two slices: it never runs dry, and what waits behind a slow
/// peer waits where it can still be replaced.
pub const UNSENT_BYTES_MAX: u32 = 32 * 1024;
/// How long the first pending event of a phone waits for others to be written with it. Seed.
pub const EVENT_FLUSH_INTERVAL: Duration = Duration::from_millis(250);
/// Pending bytes of events that do not wait for others any more. Device-lane section 6.
pub const EVENT_FLUSH_BYTES: usize = 64 * 1024;
/// Bytes of pending events at which a phone's buffer is full, and the largest event that counts among them. Seed.
pub const EVENT_LANE_BYTES_MAX: usize = 512 * 1024;
/// Longest push token. Apple's have 64 characters and may grow, Firebase's have about 160.
pub const PUSH_TOKEN_BYTES_MAX: usize = 4_096;
/// Longest app id (bundle id) beside a push token. Apple's limit for bundle ids.
pub const PUSH_APP_ID_BYTES_MAX: usize = 155;
/// Longest `notificationId`, in bytes of decoded UTF-8. As long as an RPC id may be.
pub const NOTIFICATION_ID_BYTES_MAX: usize = 128;
/// Longest title of an alert, in characters. Device-lane section 8.
pub const NOTIFICATION_TITLE_CHARS_MAX: usize = 200;
/// Longest body of an alert, in characters. Device-lane section 8.
pub const NOTIFICATION_BODY_CHARS_MAX: usize = 2_000;
/// How long a `notificationId` is remembered, so that it is not sent twice. Device-lane section 8.
pub const NOTIFICATION_ID_MEMORY: Duration = Duration::from_secs(24 * 60 * 60);
/// How long compatibility rules are used before they are read again. Seed.
pub const POLICY_CACHE: Duration = Duration::from_secs(60);

const _: () = assert!(PENDING_PER_CLIENT_MAX <= PENDING_PER_DESKTOP_MAX && PENDING_PER_DESKTOP_MAX <= PENDING_PER_USER_MAX);
const _: () = assert!(PENDING_PER_USER_MAX <= PENDING_PER_PROCESS_MAX);
const _: () = assert!(MESSAGE_BYTES_MAX + ENVELOPE_BYTES_MAX <= OUTBOUND_BYTES_MAX);
const _: () = assert!(EVENT_FLUSH_BYTES <= EVENT_LANE_BYTES_MAX && EVENT_LANE_BYTES_MAX <= OUTBOUND_BYTES_MAX);
const _: () = assert!(OUTBOUND_BYTES_MAX <= OUTBOUND_TOTAL_BYTES_MAX && MESSAGE_BYTES_MAX <= INBOUND_TOTAL_BYTES_MAX);
const _: () = assert!(TIMELINE_INTEREST_RENEWAL.as_secs() * 2 < TIMELINE_INTEREST_TTL.as_secs());
const _: () = assert!(HEARTBEAT_INTERVAL.as_secs() * 2 < SILENCE_TIMEOUT.as_secs());
