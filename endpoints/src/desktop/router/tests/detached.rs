//! Work that outlives its request, and work that fails.

use super::*;
use crate::desktop::router::{Call, DETACHED_MAX, NoParams};
use relay_protocol::limits::desktop::DISPATCH;
use tokio::sync::Notify;

/// `run.cancel` detaches work that ends when it is released, and says so.
fn releasable() -> (Router, Arc<Notify>, Arc<AtomicUsize>) {
    let (release, finished) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let (released, count) = (Arc::clone(&release), Arc::clone(&finished));
    let run = Namespace::new("run").on("cancel", move |call: Call, _: NoParams| {
        let (released, count) = (Arc::clone(&released), Arc::clone(&count));
        async move {
            // The task holds a call, as one that tells its progress would.
            let inner = call.clone();
            let work = async move {
                released.notified().await;
                count.fetch_add(1, Ordering::Relaxed);
                inner.progress(&"late").await?;
                Ok("finished")
            };
            call.finish(work).await
        }
    });
    (router().namespace(run), release, finished)
}

#[tokio::test(start_paused = true)]
async fn detached_work_outlives_the_dispatch_limit() {
    let (router, release, finished) = releasable();
    let (detached, router) = (router.detached(), Arc::new(router));
    let mut asked = ask(&router, mutation("run.cancel", "k"));
    let answer = asked.next().await;
    assert_eq!(answer["error"], json!({"code": -32603, "message": "Desktop request timed out."}));
    assert_eq!((detached.running(), finished.load(Ordering::Relaxed)), (1, 0));
    let mut waiters: Vec<_> = (0..2)
        .map(|_| {
            tokio::spawn({
                let detached = Arc::clone(&detached);
                async move { detached.finished().await }
            })
        })
        .collect();
    settle().await;
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    release.notify_one();
    while let Some(waiter) = waiters.pop() {
        waiter.await.unwrap();
    }
    assert_eq!((detached.running(), finished.load(Ordering::Relaxed)), (0, 1));
    assert!(asked.frames.recv().await.is_none(), "no progress follows the answer");
}

#[tokio::test(start_paused = true)]
async fn detached_work_in_time_answers_and_may_tell_its_progress() {
    let (router, release, _finished) = releasable();
    let router = Arc::new(router);
    let mut asked = ask(&router, mutation("run.cancel", "k"));
    settle().await;
    release.notify_one();
    let progress = asked.next().await;
    assert_eq!((&progress["result"], &progress["isFinal"]), (&json!("late"), &json!(false)));
    assert_eq!(asked.result().await, "finished");
    assert_eq!(router.detached().running(), 0);
}

#[tokio::test(start_paused = true)]
async fn detached_work_ends_with_its_owners() {
    let (router, _release, _finished) = releasable();
    let alive = Arc::downgrade(&router.detached());
    let router = Arc::new(router);
    let asked = ask(&router, mutation("run.cancel", "k"));
    settle().await;
    asked.task.abort();
    assert!(asked.task.await.unwrap_err().is_cancelled());
    assert_eq!(alive.upgrade().unwrap().running(), 1);
    drop(router);
    assert!(alive.upgrade().is_none(), "the task's own call does not keep it alive");
}

#[tokio::test(start_paused = true)]
async fn no_more_than_a_bounded_number_of_tasks_is_detached() {
    let (router, release, finished) = releasable();
    let router = Arc::new(router);
    // Cut off one after the other: their work stays.
    for _ in 0..DETACHED_MAX {
        let asked = ask(&router, mutation("run.cancel", "k"));
        settle().await;
        asked.task.abort();
        settle().await;
    }
    assert_eq!(router.detached().running(), DETACHED_MAX);
    let expected = json!({"code": -32603, "message": "Desktop is busy; retry the request shortly.", "data": {"retryable": true}});
    assert_eq!(ask(&router, mutation("run.cancel", "k")).error().await, expected);
    release.notify_one();
    settle().await;
    assert_eq!(finished.load(Ordering::Relaxed), 1);
    let mut asked = ask(&router, mutation("run.cancel", "k"));
    assert!(!asked.is_answered().await, "there is room again");
}

#[tokio::test(start_paused = true)]
async fn a_panic_costs_its_own_request_only() {
    let run = Namespace::new("run")
        .on("getRunState", |_call, _: NoParams| {
            if true {
                panic!("while the handler starts")
            }
            never()
        })
        .on("listActiveRuns", |_call, _: NoParams| async {
            tokio::task::yield_now().await;
            if true {
                panic!("behind an await")
            }
            Ok(())
        })
        .on("cancel", |call: Call, _: NoParams| async move {
            let work = async {
                if true {
                    panic!("in detached work")
                }
                Ok(())
            };
            call.finish(work).await
        });
    let (system, _runs) = counting(Namespace::new("system"), "ping");
    let router = Arc::new(router().namespace(run).namespace(system));
    for round in 1..=20 {
        for (method, message) in
            [("run.getRunState", "The method failed."), ("run.listActiveRuns", "The method failed."), ("run.cancel", "The work failed.")]
        {
            let answer = ask(&router, mutation(method, "k")).error().await;
            assert_eq!(answer, json!({"code": -32603, "message": message}), "{method}");
        }
        settle().await;
        assert_eq!(router.meter().read(), Figures { panicked: 3 * round, ..Figures::default() }, "permits come back");
    }
    assert_eq!(ask(&router, request("system.ping", json!({}))).result().await, json!({"ran": true}));
}

#[tokio::test(start_paused = true)]
async fn work_that_never_ends_does_not_hold_its_permit() {
    let (router, _release, _finished) = releasable();
    let router = Arc::new(router);
    let asked = ask(&router, mutation("run.cancel", "k"));
    settle().await;
    assert_eq!(router.meter().read().light_in_use, 1);
    advance(DISPATCH).await;
    assert_eq!(asked.code().await, -32603);
    settle().await;
    assert_eq!(router.meter().read(), Figures { timed_out: 1, ..Figures::default() });
}
