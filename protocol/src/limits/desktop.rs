//! What a desktop's router enforces. The relay does not: it carries requests and results unread. The contract manifest pins these
//! numbers for everybody who builds a desktop.

use super::{MESSAGE_BYTES_MAX, PENDING_DEFAULT, PENDING_LOAD};
use std::time::Duration;

/// Light calls that run at a time. Seed.
pub const LIGHT_PERMITS: usize = 8;
/// Heavy calls that run at a time: so few that a slow media read cannot hold up `system.ping`. Seed.
pub const HEAVY_PERMITS: usize = 2;
/// How long a call waits for a permit. Seed.
pub const PERMIT_WAIT: Duration = Duration::from_secs(8);
/// How long a handler may take. Seed.
pub const DISPATCH: Duration = Duration::from_secs(45);
/// How long a handler of the two initial timeline loads may take. Seed.
pub const DISPATCH_LOAD: Duration = Duration::from_secs(95);
/// How long a Codex timeline load may take, inside [`DISPATCH_LOAD`]: its handler keeps to it. Seed.
pub const CODEX_TIMELINE_LOAD: Duration = Duration::from_secs(90);
/// How long a reply waits for room in the socket's queue. Seed.
pub const QUEUE_REPLY: Duration = Duration::from_secs(5);

/// Longest idempotency key of a mutation, in bytes of decoded UTF-8. Seed.
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 256;
/// Sessions that one `run.chatReconcileSessions` asks for. Seed.
pub const RECONCILE_SESSIONS_MAX: usize = 16;
/// Largest result of `run.chatReconcileSessions`. Seed.
pub const RECONCILE_RESULT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Outbox entries of one session in a result of `run.chatReconcileSessions`. Seed.
pub const RECONCILE_OUTBOX_ENTRIES_MAX: usize = 256;
/// Raw bytes of one page of `run.chatCommandOutputRead`. Seed.
pub const COMMAND_OUTPUT_PAGE_BYTES_MAX: usize = 256 * 1024;
/// Raw bytes of one `files.readBinary`. Seed.
pub const READ_BINARY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Mutations with a key that run at a time, those that wait for a permit counted. Seed.
pub const RUNNING_CLAIMS_MAX: usize = 64;
/// Copies of one mutation that wait for the running one. Seed.
pub const CLAIM_WAITERS_MAX: usize = 32;
/// Replies to finished mutations that are kept in memory. Seed.
pub const FINISHED_CLAIMS_MAX: usize = 512;
/// Keys that are remembered on disk. Seed.
pub const CLAIM_ROWS_MAX: usize = 4_096;
/// How long a claim whose owner has gone counts as running, from the claim on. Seed.
pub const CLAIM_LEASE: Duration = Duration::from_secs(5 * 60);
/// How long a key is remembered, from its stored reply on. Seed.
pub const CLAIM_KEPT: Duration = Duration::from_secs(48 * 60 * 60);
/// Largest reply that is kept for repeats. Seed.
pub const KEPT_REPLY_BYTES_MAX: usize = 256 * 1024;

const _: () = assert!(DISPATCH_LOAD.as_secs() < CLAIM_LEASE.as_secs());
const _: () = assert!(CODEX_TIMELINE_LOAD.as_secs() < DISPATCH_LOAD.as_secs());
const _: () = assert!(PERMIT_WAIT.as_secs() + DISPATCH.as_secs() + QUEUE_REPLY.as_secs() < PENDING_DEFAULT.as_secs());
const _: () = assert!(PERMIT_WAIT.as_secs() + DISPATCH_LOAD.as_secs() + QUEUE_REPLY.as_secs() < PENDING_LOAD.as_secs());
const _: () = assert!(READ_BINARY_BYTES_MAX.div_ceil(3) * 4 < MESSAGE_BYTES_MAX);
