//! Sizes of long tests: scaled down by default, whole under `./dev soak`.

/// `soak` when the environment has `RELAY_SOAK=1`, else `ci`.
pub fn scaled(ci: usize, soak: usize) -> usize {
    if std::env::var_os("RELAY_SOAK").is_some_and(|value| value == "1") { soak } else { ci }
}
