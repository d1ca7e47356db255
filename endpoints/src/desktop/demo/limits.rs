//! Bounds of the demo desktop: unit, value, why.

use relay_protocol::limits::{
    MESSAGE_BYTES_MAX,
    desktop::{RECONCILE_OUTBOX_ENTRIES_MAX, RECONCILE_RESULT_BYTES_MAX, RECONCILE_SESSIONS_MAX},
};

/// Sessions, archived ones counted: a list of all of them is a fraction of a frame.
pub(super) const SESSIONS_MAX: i64 = 1_000;
/// Longest title, in characters.
pub(super) const TITLE_CHARS_MAX: usize = 200;
/// Longest text of one message, in bytes.
pub(super) const TEXT_BYTES_MAX: usize = 64 * 1024;
/// Entries of one timeline: a session that has so many is continued in another one.
pub(super) const ENTRIES_PER_SESSION_MAX: i64 = 100_000;
/// Entries of a page, unless the phone says how many.
pub(super) const PAGE_ENTRIES_DEFAULT: usize = 50;
/// Entries of a page at most.
pub(super) const PAGE_ENTRIES_MAX: usize = 200;
/// JSON of a page's entries, in bytes. The largest text with every character escaped is a tenth of it, so no page is empty for it.
pub(super) const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Messages in one session's outbox: what the contract lets a phone see.
pub(super) const OUTBOX_ENTRIES_MAX: usize = RECONCILE_OUTBOX_ENTRIES_MAX;
/// JSON of one session's outbox, in bytes.
pub(super) const OUTBOX_BYTES_MAX: usize = 256 * 1024;
/// JSON of one session's part of a reconciliation, in bytes: an equal share for each, the keys around them set aside.
pub(super) const RECONCILE_SESSION_BYTES_MAX: usize = (RECONCILE_RESULT_BYTES_MAX - 64 * 1024) / RECONCILE_SESSIONS_MAX;
/// Matches of a search, unless the phone says how many, and at most.
pub(super) const SEARCH_MATCHES_DEFAULT: usize = 20;
/// Matches of a search at most.
pub(super) const SEARCH_MATCHES_MAX: usize = 100;
/// Longest text that is searched for, in bytes.
pub(super) const QUERY_BYTES_MAX: usize = 1_024;
/// Characters of an entry that a match shows.
pub(super) const SNIPPET_CHARS: usize = 120;
/// What the made-up agents say that they can keep in mind, in tokens.
pub(super) const CONTEXT_WINDOW_TOKENS: i64 = 200_000;

const _: () = assert!(6 * TEXT_BYTES_MAX < PAGE_BYTES_MAX && 2 * PAGE_BYTES_MAX < MESSAGE_BYTES_MAX);
const _: () = assert!(OUTBOX_BYTES_MAX < RECONCILE_SESSION_BYTES_MAX - 16 * 1024);
