use super::*;
use crate::http::auth::signing_keys::{RSA_A, RSA_B};
use rand::{SeedableRng, rngs::StdRng};
use relay_actors::clock;
use serde_json::json;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// A core, its verifiers' view, and one who asks for the keys `a` and `b`.
struct Bench {
    start: Instant,
    core: Refresh,
    rng: StdRng,
}

fn keys(names: &[&str]) -> KeySet {
    let key = |name: &&str| if *name == "a" { RSA_A.jwk("a") } else { RSA_B.jwk(name) };
    KeySet::parse(json!({"keys": names.iter().map(key).collect::<Vec<_>>()}).to_string().as_bytes()).unwrap()
}

impl Bench {
    fn new(loaded: Option<KeySet>) -> Self {
        let start = clock::now();
        Bench { start, core: Refresh::new(start, loaded), rng: StdRng::seed_from_u64(7) }
    }

    fn read(&mut self, after: Duration, keys: Option<KeySet>) -> Report {
        self.core.on_read(self.start + after, keys, &mut self.rng)
    }

    fn judge(&self, after: Duration, kid: &str) -> Verdict {
        self.core.published().judge(self.start + after, KeyAlgorithm::Rs256, Some(kid))
    }

    fn finally(&self, kid: &str) -> Verdict {
        self.core.published().judge_finally(KeyAlgorithm::Rs256, Some(kid))
    }

    fn due_after(&self) -> Duration {
        self.core.due() - self.start
    }
}

fn is_key(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Key(_))
}

#[test]
fn a_url_is_read_at_once_and_a_file_that_was_read_at_the_next_interval() {
    assert_eq!(Bench::new(None).due_after(), Duration::ZERO);
    assert_eq!(Bench::new(Some(keys(&["a"]))).due_after(), JWKS_REFRESH_INTERVAL);
}

#[test]
fn until_the_first_set_tokens_wait_for_a_read_or_are_unavailable() {
    let mut bench = Bench::new(None);
    assert_eq!(bench.judge(Duration::ZERO, "a"), Verdict::AskFor(1));
    bench.read(MS, None);
    assert_eq!(bench.finally("a"), Verdict::Unavailable, "nobody is refused for the issuer's absence");
    assert!(bench.due_after() > 2 * MS, "the seed makes it so");
    assert!(bench.core.on_asked(bench.start + MS, 2));
    bench.read(2 * MS, None);
    assert_eq!(bench.judge(3 * MS, "a"), Verdict::Unavailable, "asked a moment ago");
    bench.read(4 * MS, Some(keys(&["a"])));
    assert!(is_key(&bench.judge(5 * MS, "a")));
    assert_eq!(bench.judge(5 * MS, "b"), Verdict::Refused);
}

#[test]
fn a_known_key_asks_for_nothing_and_a_key_of_another_algorithm_is_refused_at_once() {
    let bench = Bench::new(Some(keys(&["a", "b"])));
    let late = 100 * JWKS_REFRESH_INTERVAL;
    assert!(is_key(&bench.judge(late, "a")));
    let judge = |algorithm, kid| bench.core.published().judge(bench.start + late, algorithm, kid);
    assert_eq!(judge(KeyAlgorithm::Es256, Some("a")), Verdict::Refused);
    assert_eq!(judge(KeyAlgorithm::Rs256, None), Verdict::Refused, "two would do");
    assert_eq!(judge(KeyAlgorithm::Es256, None), Verdict::AskFor(1));
}

#[test]
fn however_many_ask_there_is_one_read_per_interval() {
    let mut bench = Bench::new(Some(keys(&["a"])));
    let asked = (0..1000).filter(|_| bench.judge(MS, "x") == Verdict::AskFor(1)).count();
    assert_eq!(asked, 1000, "all wait for the same read");
    let reads = (0..1000).filter(|_| bench.core.on_asked(bench.start + MS, 1)).count();
    assert_eq!(reads, 1);
    bench.read(2 * MS, Some(keys(&["a"])));
    assert_eq!(bench.finally("x"), Verdict::Refused);
    assert!(!bench.core.on_asked(bench.start + JWKS_ON_DEMAND_INTERVAL + 2 * MS, 1), "who asked for it has it");

    // Counted from the read that was asked for.
    let next = MS + JWKS_ON_DEMAND_INTERVAL;
    for (after, expected) in [(next - MS, Verdict::Refused), (next, Verdict::AskFor(2)), (next + MS, Verdict::AskFor(2))] {
        assert_eq!(bench.judge(after, "x"), expected, "{after:?}");
    }
    assert!(!bench.core.on_asked(bench.start + next - MS, 2));
    assert!(bench.core.on_asked(bench.start + next, 2));
}

#[test]
fn a_read_that_was_due_anyway_does_not_use_up_the_one_on_demand() {
    let mut bench = Bench::new(None);
    assert!(bench.core.on_asked(bench.start, 1), "asked for and due");
    bench.read(MS, Some(keys(&["a"])));
    assert_eq!(bench.judge(2 * MS, "b"), Verdict::AskFor(2), "rotated right after the start");
    assert!(bench.core.on_asked(bench.start + 2 * MS, 2));
    bench.read(3 * MS, Some(keys(&["b"])));
    assert!(is_key(&bench.finally("b")));
    assert_eq!(bench.finally("a"), Verdict::Refused, "what is withdrawn is no longer taken");
}

#[test]
fn a_failure_keeps_the_keys_and_says_of_unknown_ones_that_nobody_knows() {
    let mut bench = Bench::new(Some(keys(&["a"])));
    assert!(bench.core.on_asked(bench.start + MS, 1));
    bench.read(2 * MS, None);
    assert!(is_key(&bench.judge(3 * MS, "a")));
    assert_eq!((bench.finally("x"), bench.judge(3 * MS, "x")), (Verdict::Unavailable, Verdict::Unavailable));
    bench.read(4 * MS, Some(keys(&["a"])));
    assert_eq!((bench.finally("x"), bench.judge(5 * MS, "x")), (Verdict::Refused, Verdict::Refused));
}

#[test]
fn success_is_read_again_at_the_interval_and_failure_soon_with_growing_waits() {
    let mut bench = Bench::new(None);
    bench.read(MS, Some(keys(&["a"])));
    assert_eq!(bench.due_after(), MS + JWKS_REFRESH_INTERVAL);
    let mut longest = Duration::ZERO;
    for attempt in 0..200u32 {
        let cap = JWKS_RETRY_BACKOFF.first.saturating_mul(1 << attempt.min(10)).min(JWKS_RETRY_BACKOFF.max);
        bench.read(Duration::ZERO, None);
        assert!(bench.due_after() <= cap, "attempt {attempt}: {:?}", bench.due_after());
        longest = longest.max(bench.due_after());
    }
    assert!(longest > JWKS_RETRY_BACKOFF.max / 2, "{longest:?}");
    bench.read(Duration::ZERO, Some(keys(&["a"])));
    assert_eq!(bench.due_after(), JWKS_REFRESH_INTERVAL);
    bench.read(Duration::ZERO, None);
    assert!(bench.due_after() <= JWKS_RETRY_BACKOFF.first, "waits start again");
}

#[test]
fn beginnings_and_ends_of_failure_and_changes_are_reported_once() {
    let mut bench = Bench::new(None);
    let report = |begins_to_fail, recovers, keys_changed| Report { begins_to_fail, recovers, keys_changed };
    for (read, expected) in [
        (None, report(true, false, false)),
        (None, report(false, false, false)),
        (Some(keys(&["a"])), report(false, true, true)),
        (Some(keys(&["a"])), report(false, false, false)),
        (Some(keys(&["a", "b"])), report(false, false, true)),
        (None, report(true, false, false)),
        (Some(keys(&["a", "b"])), report(false, true, false)),
        (Some(keys(&[])), report(false, false, true)),
    ] {
        assert_eq!(bench.read(MS, read.clone()), expected, "{read:?}");
    }
    assert_eq!(bench.core.published().generation, 8);
}
