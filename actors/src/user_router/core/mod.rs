//! All decisions of the user router. No I/O, no clock, no randomness.
