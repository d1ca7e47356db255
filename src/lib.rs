//! The `relay` binary's library: configuration, HTTP routes, wiring, command line.
