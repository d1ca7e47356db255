//! Test sizes: small in every run, full where somebody has asked for them with `./dev soak`.

/// The size to use: `soak` when the environment says `RELAY_SOAK=1`, else `ci`.
pub fn scaled(ci: usize, soak: usize) -> usize {
    if std::env::var_os("RELAY_SOAK").is_some_and(|value| value == "1") { soak } else { ci }
}
