//! Permits, dispatch limits and the queue of replies, each at its edge.

use super::*;
use crate::desktop::router::NoParams;
use relay_protocol::limits::desktop::{DISPATCH, DISPATCH_LOAD, HEAVY_PERMITS, LIGHT_PERMITS, PERMIT_WAIT, QUEUE_REPLY};

/// Every method that a test calls, each ending after the milliseconds of its `after`, or never.
fn sleepy() -> Router {
    #[derive(serde::Deserialize)]
    struct After {
        #[serde(default)]
        after: Option<u64>,
    }
    let nap = |_call, After { after }: After| async move {
        match after {
            Some(milliseconds) => sleep(Duration::from_millis(milliseconds)).await,
            None => std::future::pending().await,
        }
        Ok("done")
    };
    router()
        .namespace(Namespace::new("system").on("ping", nap))
        .namespace(Namespace::new("files").on("readMediaRange", nap))
        .namespace(Namespace::new("run").on("chatLoad", nap).on("chatLoadThread", nap).on("chatLoadPageBefore", nap).on("cancel", nap))
}

fn after(method: &str, duration: Duration) -> IncomingRequest {
    request(method, json!({"after": u64::try_from(duration.as_millis()).unwrap()}))
}

fn busy() -> Value {
    json!({"code": -32603, "message": "Desktop is busy; retry the request shortly."})
}

fn timed_out() -> Value {
    json!({"code": -32603, "message": "Desktop request timed out."})
}

#[tokio::test(start_paused = true)]
async fn a_handler_has_its_dispatch_limit_and_not_a_millisecond_more() {
    let router = Arc::new(sleepy());
    for (method, limit) in [
        ("system.ping", DISPATCH),
        ("run.cancel", DISPATCH),
        ("run.chatLoadPageBefore", DISPATCH),
        ("run.chatLoad", DISPATCH_LOAD),
        ("run.chatLoadThread", DISPATCH_LOAD),
    ] {
        let keyed = |request| IncomingRequest { idempotency_key: Some("k".to_owned()), ..request };
        for in_time in [limit - MS, limit] {
            assert_eq!(ask(&router, keyed(after(method, in_time))).result().await, "done", "{method} {in_time:?}");
        }
        let start = Instant::now();
        let mut asked = ask(&router, keyed(request(method, json!({}))));
        settle().await;
        advance(limit - MS).await;
        assert!(!asked.is_answered().await, "{method}");
        assert_eq!(asked.error().await, timed_out(), "{method}");
        assert_eq!(start.elapsed(), limit, "{method}");
        assert_eq!(ask(&router, keyed(after(method, limit + MS))).error().await, timed_out(), "{method}");
    }
    settle().await;
    assert_eq!(router.meter().read(), Figures { timed_out: 10, ..Figures::default() }, "all permits are back");
}

#[tokio::test(start_paused = true)]
async fn a_cut_handler_is_dropped() {
    struct Dropped(Arc<AtomicUsize>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let drops = Arc::new(AtomicUsize::new(0));
    let kept = Arc::clone(&drops);
    let system = Namespace::new("system").on("ping", move |_call, _: NoParams| {
        let dropped = Dropped(Arc::clone(&kept));
        async move {
            let _dropped = dropped;
            never().await
        }
    });
    let router = Arc::new(router().namespace(system));
    let asked = ask(&router, request("system.ping", json!({})));
    settle().await;
    advance(DISPATCH - MS).await;
    settle().await;
    assert_eq!(drops.load(Ordering::Relaxed), 0);
    assert_eq!(asked.error().await, timed_out());
    assert_eq!(drops.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn who_gets_no_permit_in_time_is_told_that_the_desktop_is_busy() {
    for (method, permits) in [("system.ping", LIGHT_PERMITS), ("files.readMediaRange", HEAVY_PERMITS)] {
        let router = Arc::new(sleepy());
        // Their permits come back one millisecond late for the first of those who wait, and just in time for the second.
        let holders: Vec<_> = (0..permits).map(|_| ask(&router, after(method, PERMIT_WAIT + MS))).collect();
        settle().await;
        let in_use = |figures: Figures| if permits == LIGHT_PERMITS { figures.light_in_use } else { figures.heavy_in_use };
        assert_eq!(in_use(router.meter().read()), permits, "{method}");
        let start = Instant::now();
        let late = ask(&router, after(method, Duration::ZERO));
        settle().await;
        advance(MS).await;
        let in_time = ask(&router, after(method, Duration::ZERO));
        assert_eq!(late.error().await, busy(), "{method}");
        assert_eq!(start.elapsed(), PERMIT_WAIT, "{method}");
        assert_eq!(in_time.result().await, "done", "{method}");
        for holder in holders {
            assert_eq!(holder.result().await, "done", "{method}");
        }
        settle().await;
        assert_eq!(router.meter().read(), Figures { busy: 1, ..Figures::default() }, "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn slow_media_reads_do_not_hold_up_a_ping() {
    let router = Arc::new(sleepy());
    let reads: Vec<_> = (0..HEAVY_PERMITS + 20).map(|_| ask(&router, request("files.readMediaRange", json!({})))).collect();
    settle().await;
    assert_eq!(router.meter().read().heavy_in_use, HEAVY_PERMITS);
    for _ in 0..3 {
        let start = Instant::now();
        assert_eq!(ask(&router, after("system.ping", Duration::ZERO)).result().await, "done");
        assert!(start.elapsed() <= MS, "the clock's grain");
    }
    // Nor do slow light calls hold up a heavy one.
    drop(reads);
    let router = Arc::new(sleepy());
    let _calls: Vec<_> = (0..LIGHT_PERMITS + 20).map(|_| ask(&router, request("system.ping", json!({})))).collect();
    settle().await;
    let start = Instant::now();
    assert_eq!(ask(&router, after("files.readMediaRange", Duration::ZERO)).result().await, "done");
    assert!(start.elapsed() <= MS, "the clock's grain");
}

#[tokio::test(start_paused = true)]
async fn a_reply_waits_for_room_and_is_then_only_logged() {
    for has_room_in_time in [true, false] {
        let system = Namespace::new("system").on("ping", |_call, _: NoParams| async { Ok("done") });
        let router = Arc::new(router().namespace(system));
        let asked = request("system.ping", json!({}));
        let (outbound, mut frames) = mpsc::channel(1);
        outbound.try_send("full".to_owned()).unwrap();
        let replies = Replies::new(&asked, outbound);
        let handling = Arc::clone(&router);
        let start = Instant::now();
        let task = tokio::spawn(async move { handling.handle(asked, replies).await });
        settle().await;
        advance(QUEUE_REPLY - MS).await;
        settle().await;
        assert!(!task.is_finished());
        assert_eq!(router.meter().read().light_in_use, 1, "the permit is held while the reply waits");
        if has_room_in_time {
            assert_eq!(frames.recv().await.unwrap(), "full");
        }
        task.await.unwrap();
        assert_eq!(start.elapsed(), if has_room_in_time { QUEUE_REPLY - MS } else { QUEUE_REPLY });
        assert_eq!(router.meter().read(), Figures { unqueued: u64::from(!has_room_in_time), ..Figures::default() });
        let last = frames.recv().await.unwrap();
        assert_eq!(last.contains(r#""result":"done","isFinal":true"#), has_room_in_time, "{last}");
        assert!(frames.recv().await.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_desktop_answers_within_the_sum_of_its_limits() {
    let router = Arc::new(sleepy());
    let start = Instant::now();
    // Those who wait get their permit just in time.
    let _holders: Vec<_> = (0..LIGHT_PERMITS).map(|_| ask(&router, after("system.ping", PERMIT_WAIT - MS))).collect();
    settle().await;
    let waiting = ask(&router, request("run.cancel", json!({})));
    assert_eq!(waiting.code().await, -32602, "a mutation without a key does not wait");
    assert_eq!(start.elapsed(), Duration::ZERO);
    let asked = ask(&router, request("system.ping", json!({})));
    assert_eq!(asked.error().await, timed_out());
    assert_eq!(start.elapsed(), PERMIT_WAIT - MS + DISPATCH);
}
