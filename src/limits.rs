//! Bounds of the HTTP side and the command line: unit, value, why. Those of the device lane are in `relay_protocol::limits`.

use relay_endpoints::backoff::Policy;
use std::time::Duration;

/// Largest body of a call under `/api`. The largest valid one is about 4 KiB with every character escaped.
pub const API_BODY_BYTES_MAX: usize = 16 * 1024;
/// A body over the cap is read and discarded up to here, so that its sender sees the answer and not a reset.
pub const API_BODY_DISCARDED_BYTES_MAX: usize = 1024 * 1024;
/// A body must have arrived within this time.
pub const API_BODY_READ_TIMEOUT: Duration = Duration::from_secs(10);
/// A request's head must be whole within this time.
pub const REQUEST_HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest device name, in characters.
pub const DEVICE_NAME_CHARS_MAX: usize = 200;
/// Longest platform word, in characters.
pub const PLATFORM_CHARS_MAX: usize = 64;
/// Longest application version, in characters.
pub const APP_VERSION_CHARS_MAX: usize = 64;

/// Compatibility rules. They are kept in memory, and each check reads through all of them.
pub const COMPATIBILITY_RULES_MAX: u32 = 1_000;
/// Longest name of an API key, in characters.
pub const API_KEY_NAME_CHARS_MAX: usize = 200;
/// Keys of one account that are not revoked. One for each program and machine of a household of them; each is a secret to look after.
pub const API_KEYS_PER_ACCOUNT_MAX: u32 = 100;
/// Look-ups of API keys that run at once; more wait their turn. SQLite answers one at a time within microseconds, a PostgreSQL pool has
/// no more connections than this, and the storage's queue of 1,024 keeps room for everybody else.
pub const API_KEY_LOOK_UPS_MAX: usize = 32;

/// How long a call waits for its turn before it is told that storage cannot answer.
pub const API_KEY_LOOK_UP_WAIT: Duration = Duration::from_secs(2);

/// Longest bearer token that is looked at. RS256 tokens of common providers stay below 4 KiB.
pub const BEARER_BYTES_MAX: usize = 8 * 1024;
/// Tolerated difference between our clock and the token issuer's, for `exp` and `nbf`.
pub const JWT_LEEWAY: Duration = Duration::from_secs(30);
/// Shortest secret. RFC 7518 section 3.2: an HS256 key is at least as long as the hash.
pub const SECRET_BYTES_MIN: usize = 32;
/// Largest configuration file. One with every key and its help is about 10 KiB.
pub const CONFIG_FILE_BYTES_MAX: usize = 1024 * 1024;
/// Shortest RSA modulus of an issuer's key, in bits. RFC 7518 section 3.3.
pub const RSA_MODULUS_BITS_MIN: usize = 2_048;
/// Longest RSA modulus of an issuer's key, in bits: what the RSA library takes.
pub const RSA_MODULUS_BITS_MAX: usize = 8_192;
/// Largest JWK set. One key with a certificate chain is about 8 KiB.
pub const JWKS_BYTES_MAX: usize = 1024 * 1024;
/// Most keys in a JWK set. Issuers publish two to ten.
pub const JWKS_KEYS_MAX: usize = 100;
/// A JWK set must have been read within this time. It is also the longest that a call waits for one.
pub const JWKS_READ_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a JWK set is read again: the longest that a withdrawn key is still taken, unless the set cannot be read.
pub const JWKS_REFRESH_INTERVAL: Duration = Duration::from_secs(10 * 60);
/// Least time between two reads that unknown keys ask for: who sends invented `kid`s must not make the relay flood the issuer.
pub const JWKS_ON_DEMAND_INTERVAL: Duration = Duration::from_secs(10);
/// Waits between attempts while a JWK set cannot be read.
pub const JWKS_RETRY_BACKOFF: Policy = Policy { first: Duration::from_secs(1), max: Duration::from_secs(60) };

/// Longest time that a span waits for others to be exported with it.
pub const OTLP_BATCH_WAIT: Duration = Duration::from_secs(1);
/// A collector must have answered within this time: the default of `OTEL_EXPORTER_OTLP_TIMEOUT`.
pub const OTLP_CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Waits between attempts while a collector does not take a batch. What it asks for with `Retry-After` is kept within these bounds.
pub const OTLP_RETRY_BACKOFF: Policy = Policy { first: Duration::from_secs(1), max: Duration::from_secs(30) };
/// How long one batch is tried, so that a batch that a collector always fails on does not hold up the others for ever.
pub const OTLP_RETRY_LIFE: Duration = Duration::from_secs(5 * 60);
/// How long a process that ends goes on exporting: as long as a step of its drain.
pub const OTLP_FLUSH_TIMEOUT: Duration = DRAIN_STEP_TIMEOUT;
/// Largest answer of a collector that is read. A full one is less than 1 KiB.
pub const OTLP_ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Life of a token that `relay token` mints, unless told otherwise. Operations page.
pub const TOKEN_TTL: Duration = Duration::from_secs(60 * 60);
/// Life of a token that a command mints for its own calls.
pub const OWN_TOKEN_TTL: Duration = Duration::from_secs(5 * 60);

/// Life of the token that `relay desktop` and `relay phone … watch` make for themselves and show at each reconnect.
pub const DESKTOP_TOKEN_TTL: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// How long `relay desktop --demo` waits at its end for work that must finish: as long as a step of a drain.
pub const DESKTOP_DETACHED_WAIT: Duration = DRAIN_STEP_TIMEOUT;

/// How long `relay phone` keeps trying while its desktop is away, unless told otherwise: one that was started a moment before
/// registers well within it.
pub const PHONE_WAIT: Duration = Duration::from_secs(5);
/// Waits between those attempts: somebody looks at the terminal, and it is one phone.
pub const PHONE_WAIT_BACKOFF: Policy = Policy { first: Duration::from_millis(100), max: Duration::from_secs(1) };

/// Connections to PostgreSQL, unless told otherwise: a database of two cores is busy with fewer, and its usual 100 hold several relays.
pub const DATABASE_POOL_SIZE: u16 = 10;
/// A storage that has not answered a ping within this time is not ready.
pub const READY_PING_TIMEOUT: Duration = Duration::from_secs(2);
/// Handshakes that one address, or one account at one address, may make at once. Operations page.
pub const HANDSHAKE_BURST_PER_ADDRESS: u32 = 200;
/// The same a second, in the long run. Operations page.
pub const HANDSHAKES_PER_ADDRESS: u32 = 50;
/// Addresses whose handshakes are counted apart, at about 100 bytes each. One is known for as long as its bucket takes to fill.
pub const HANDSHAKE_ADDRESSES_MAX: usize = 65_536;
/// How often addresses whose buckets are full again are forgotten when there is no room for new ones: it looks at all of them.
pub const HANDSHAKE_ADDRESSES_FORGOTTEN_EVERY: Duration = Duration::from_secs(1);

/// Descriptors of a connection: the server's, and the one that ends it from outside.
pub const DESCRIPTORS_PER_CONNECTION: u64 = 2;
/// Descriptors that are kept free of public connections: listeners, storage, workers, and what operators need.
pub const DESCRIPTORS_RESERVED: u64 = 128;
/// Connections of the admin listener: operators, probes, metrics.
pub const ADMIN_CONNECTIONS_MAX: usize = 32;
/// Most connections of one worker, however many descriptors there are. The heads of unfinished requests take up to 128 KiB each.
pub const CONNECTIONS_PER_WORKER_MAX: usize = 25_600;

/// Connections that the kernel completes before they are accepted: a reconnect storm fits, the usual 1,024 does not hold it.
pub const ACCEPT_BACKLOG: u32 = 4_096;
/// How long the server discards unread input after its last answer before it closes the connection: not at all. Device sockets have
/// lingered by themselves, and must not wait again; calls read their bodies before they answer, unless they refuse their caller. Between
/// zero and half a second lies a trap: the server's clock ticks twice a second, and a deadline that has passed when it is set never
/// fires.
pub const DISCONNECT_TIMEOUT: Duration = Duration::ZERO;
/// How long a drain waits for routing work in progress. Operations page.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a drain then waits for each of: sockets to go, routers to handle their ends, statuses to be stored. A socket whose peer reads
/// nothing is ended 2 s after its close.
pub const DRAIN_STEP_TIMEOUT: Duration = Duration::from_secs(3);
/// How often `relay drain --wait` asks how far the relay is.
pub const DRAIN_WATCH_INTERVAL: Duration = Duration::from_millis(250);
/// How long telling the service manager something may hold up this thread: its socket is full only when it does not read.
pub const NOTIFY_TIMEOUT: Duration = Duration::from_millis(500);
/// How often it is told how far a phase of a drain is.
pub const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// How long a stopping server waits for calls that are being answered.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Largest PEM file of `--tls-cert` and `--tls-key`. A chain of four certificates is about 8 KiB.
pub const TLS_FILE_BYTES_MAX: u64 = 1024 * 1024;
/// How often these files are looked at: soon enough for somebody who waits for a new certificate, and nothing beside the rest.
pub const TLS_RENEWAL_INTERVAL: Duration = Duration::from_secs(2);

/// Largest file of `--apns-key` and `--fcm-service-account`. They have 250 bytes and 2 KiB.
pub const PUSH_KEY_FILE_BYTES_MAX: u64 = 64 * 1024;
/// What Apple and Google take of one push, in bytes of JSON.
pub const PUSH_PAYLOAD_BYTES_MAX: usize = 4_096;

/// How long before the end of its certificate the relay warns: who renews at 30 days has failed for two weeks by then.
pub const TLS_EXPIRY_WARNING: Duration = Duration::from_secs(14 * 24 * 60 * 60);
/// How often it then warns.
pub const TLS_EXPIRY_WARNING_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// Largest file of `relay contract check`. A manifest is about 8 KiB, a phone's source seldom ten times as much.
pub const CONTRACT_FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Longest duration that configuration takes: deadlines stay far from what a clock can hold.
pub const CONFIGURED_DURATION_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Smallest `--max-message`: what is allowed before registration must be allowed after it.
pub const MAX_MESSAGE_BYTES_MIN: usize = relay_protocol::limits::UNREGISTERED_MESSAGE_BYTES_MAX;

const _: () = assert!(JWKS_READ_TIMEOUT.as_secs() < JWKS_ON_DEMAND_INTERVAL.as_secs());
const _: () = assert!(JWKS_RETRY_BACKOFF.max.as_secs() < JWKS_REFRESH_INTERVAL.as_secs());
const _: () = assert!(OTLP_RETRY_BACKOFF.max.as_secs() < OTLP_RETRY_LIFE.as_secs());
const _: () = assert!(4 * 3 * (DEVICE_NAME_CHARS_MAX + PLATFORM_CHARS_MAX + APP_VERSION_CHARS_MAX) < API_BODY_BYTES_MAX);
const _: () = assert!(ADMIN_CONNECTIONS_MAX as u64 * DESCRIPTORS_PER_CONNECTION < DESCRIPTORS_RESERVED);
