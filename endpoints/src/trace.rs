//! W3C trace context: a new `traceparent` for each call (<https://www.w3.org/TR/trace-context/>, version 00).

use rand::{Rng, RngExt};
use std::fmt;

/// A root span of a new, sampled trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traceparent {
    trace_id: u128,
    span_id: u64,
}

impl Traceparent {
    /// Random ids. The standard forbids all-zero ones.
    pub fn random(rng: &mut impl Rng) -> Self {
        Traceparent { trace_id: rng.random_range(1..=u128::MAX), span_id: rng.random_range(1..=u64::MAX) }
    }
}

/// The header's text, flags `01` (sampled).
impl fmt::Display for Traceparent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-01", self.trace_id, self.span_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{SeedableRng, rngs::StdRng};

    #[test]
    fn the_text_has_the_form_of_the_standard() {
        let smallest = Traceparent { trace_id: 1, span_id: 0xab };
        assert_eq!(smallest.to_string(), "00-00000000000000000000000000000001-00000000000000ab-01");
    }

    #[test]
    fn calls_do_not_share_a_trace() {
        let mut rng = StdRng::seed_from_u64(7);
        let one = Traceparent::random(&mut rng);
        let two = Traceparent::random(&mut rng);
        assert_ne!(one.trace_id, two.trace_id);
        assert_ne!(one.span_id, two.span_id);
        assert_eq!(one.to_string().len(), 55);
    }
}
