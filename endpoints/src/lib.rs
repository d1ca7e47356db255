//! The other parties of the relay.
