//! Load generator for the relay.
