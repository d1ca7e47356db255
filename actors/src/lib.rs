//! The running relay: its actors, their pure cores, and the storage behind them.
//!
//! `docs/architecture.md` follows one request through all of this.

pub mod clock;
pub mod persistence;
pub mod relay;
pub mod store;
pub mod user_router;
