//! proxies.
