//! Copies of a mutation: who waits, who takes a permit, and what each gets.
//!
//! The file of keys has a thread of its own, and paused time jumps to the next deadline as soon as nothing can run: whoever waits for
//! the file here does so without pause.

use super::*;
use crate::desktop::router::{Call, NoParams, idempotency::Idempotency};
use relay_protocol::limits::desktop::{DISPATCH, LIGHT_PERMITS, PERMIT_WAIT};
use std::collections::BTreeMap;
use tempfile::TempDir;
use tokio::sync::Semaphore;

/// Seconds of turns: the file takes milliseconds.
const TURNS_MAX: usize = 10_000_000;

/// Two mutations that run until they are released, and `system.ping`, which runs for as many milliseconds as asked.
struct Keyed {
    router: Arc<Router>,
    released: Arc<Semaphore>,
    runs: Arc<AtomicUsize>,
    _folder: TempDir,
}

fn keyed() -> Keyed {
    let (released, runs) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let (waiting, count) = (Arc::clone(&released), Arc::clone(&runs));
    let work = move |call: Call, _: NoParams| {
        let (waiting, run) = (Arc::clone(&waiting), count.fetch_add(1, Ordering::Relaxed) + 1);
        async move {
            call.progress(&"runs").await?;
            waiting.acquire().await.unwrap().forget();
            Ok(run)
        }
    };
    let nap = |_call, milliseconds: BTreeMap<String, u64>| async move {
        sleep(Duration::from_millis(milliseconds["after"])).await;
        Ok(())
    };
    let folder = tempfile::tempdir().unwrap();
    let router = router()
        .namespace(Namespace::new("run").on("cancel", work.clone()).on("chatOutboxSubmit", work))
        .namespace(Namespace::new("system").on("ping", nap))
        .idempotency(Idempotency::open(&folder.path().join("keys.db")).unwrap());
    Keyed { router: Arc::new(router), released, runs, _folder: folder }
}

impl Keyed {
    fn cancel(&self) -> Asked {
        ask(&self.router, mutation("run.cancel", "k"))
    }

    /// Takes every light permit for this long.
    async fn occupy(&self, duration: Duration) {
        let after = json!({"after": u64::try_from(duration.as_millis()).unwrap()});
        for _ in 0..LIGHT_PERMITS {
            // Its answer is of no interest.
            drop(ask(&self.router, request("system.ping", after.clone())));
        }
        settle().await;
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::Relaxed)
    }
}

impl Asked {
    /// The next frame, for which the clock does not move.
    async fn next_at_once(&mut self) -> Value {
        for _ in 0..TURNS_MAX {
            if !self.frames.is_empty() || self.frames.is_closed() {
                return self.next().await;
            }
            tokio::task::yield_now().await;
        }
        panic!("no frame came while the clock stood still");
    }

    async fn runs_at_once(&mut self) {
        assert_eq!(self.next_at_once().await["result"], "runs");
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_waits_without_a_permit_and_gets_the_first_ones_reply() {
    let keyed = keyed();
    let mut first = keyed.cancel();
    first.runs_at_once().await;
    let mut copies: Vec<_> = (0..LIGHT_PERMITS).map(|_| keyed.cancel()).collect();
    settle().await;
    assert_eq!((keyed.router.meter().read().light_in_use, keyed.runs()), (1, 1));
    advance(DISPATCH - MS).await;
    keyed.released.add_permits(1);
    assert_eq!(first.next_at_once().await["result"], 1);
    for copy in &mut copies {
        assert_eq!(copy.next_at_once().await["result"], 1, "without progress");
    }
    // One that comes later takes none either.
    keyed.occupy(DISPATCH).await;
    let start = Instant::now();
    assert_eq!(keyed.cancel().result().await, 1);
    assert_eq!((start.elapsed(), keyed.runs()), (Duration::ZERO, 1));
}

#[tokio::test(start_paused = true)]
async fn a_copy_waits_no_longer_than_its_own_dispatch_limit() {
    let keyed = keyed();
    // The first one gets its permit late, and so may end late.
    let late = PERMIT_WAIT - MS;
    keyed.occupy(late).await;
    let start = Instant::now();
    let (mut first, mut copy) = (keyed.cancel(), keyed.cancel());
    settle().await;
    advance(late).await;
    first.runs_at_once().await;
    advance(DISPATCH - late - MS).await;
    assert!(!copy.is_answered().await);
    assert_eq!(copy.error().await, json!({"code": -32603, "message": "Desktop request timed out."}));
    assert_eq!(start.elapsed(), DISPATCH);
    keyed.released.add_permits(1);
    assert_eq!(first.next_at_once().await["result"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_first_copy_without_a_permit_is_busy_for_all_and_a_later_one_runs() {
    let keyed = keyed();
    keyed.occupy(DISPATCH).await;
    let busy = json!({"code": -32603, "message": "Desktop is busy; retry the request shortly."});
    for asked in [keyed.cancel(), keyed.cancel(), keyed.cancel()] {
        assert_eq!(asked.error().await, busy);
    }
    assert_eq!((keyed.router.meter().read().busy, keyed.runs()), (1, 0));
    advance(DISPATCH).await;
    settle().await;
    keyed.cancel().runs_at_once().await;
    assert_eq!(keyed.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_mutation_is_cut_at_its_dispatch_limit_and_who_waited_for_it_gets_what_a_later_copy_gets() {
    for (method, runs_again) in [("run.cancel", false), ("run.chatOutboxSubmit", true)] {
        let keyed = keyed();
        let ask = || ask(&keyed.router, mutation(method, "k"));
        let mut first = ask();
        first.runs_at_once().await;
        let start = Instant::now();
        advance(MS).await;
        let mut copy = ask();
        settle().await;
        advance(DISPATCH - MS - MS).await;
        assert!(!first.is_answered().await && !copy.is_answered().await, "{method}");
        advance(MS).await;
        let cut = first.next_at_once().await;
        assert_eq!(cut["error"], json!({"code": -32603, "message": "Desktop request timed out."}), "{method}");
        let judged = copy.next_at_once().await;
        match runs_again {
            true => assert_eq!(judged["result"], "runs", "{method}"),
            false => assert_eq!((&judged["error"]["code"], &judged["error"]["data"]), (&json!(-32050), &json!({"retryable": true}))),
        }
        assert_eq!((start.elapsed(), keyed.runs()), (DISPATCH, 1 + usize::from(runs_again)), "{method}");
    }
}
