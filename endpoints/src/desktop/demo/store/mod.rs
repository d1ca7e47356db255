//! What the demo desktop knows, as statements on its database. Synchronous; time and ids that decide something are arguments.

pub(super) mod desktop;
pub(super) mod outbox;
pub(super) mod runs;
pub(super) mod sessions;
pub(super) mod timeline;

#[cfg(test)]
mod tests;
