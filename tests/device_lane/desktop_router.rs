//! The desktop router behind the real relay: what a phone gets from a desktop that is built on it.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use crate::support::{PATIENCE, account::Account, relay_process::RelayProcess, running_desktop::RunningDesktop, token::fresh_user};
use relay_endpoints::{
    desktop::router::{Call, Figures, Meter, Namespace, NoParams, Router},
    frame::Outcome,
    phone::{CallError, Phone, Request, Step},
};
use relay_protocol::limits::desktop::HEAVY_PERMITS;
use serde_json::{Value, json, value::RawValue};
use std::sync::Arc;
use tokio::{sync::Semaphore, task::JoinSet, time::timeout};

/// Reads wait until the test releases them; a cancel says which key it came with.
fn namespaces(router: Router, released: Arc<Semaphore>) -> Router {
    let read = move |call: Call, _: Value| {
        let released = Arc::clone(&released);
        async move {
            call.progress(&json!({"bytesRead": 0})).await?;
            released.acquire().await.unwrap().forget();
            Ok(json!({"data": "AAAA"}))
        }
    };
    router
        .namespace(Namespace::new("files").on("readBinary", read))
        .namespace(
            Namespace::new("run").on("cancel", |call: Call, _: NoParams| async move { Ok(call.idempotency_key.unwrap().to_string()) }),
        )
        .namespace(
            Namespace::new("system")
                .on("ping", |_call, _: NoParams| async { Ok(json!({"ok": true})) })
                .on("listModels", |_call, _: NoParams| async { Ok(json!([{"model_name": "m"}])) }),
        )
}

struct Parties {
    _relay: RelayProcess,
    _desktop: RunningDesktop,
    phone: Arc<Phone>,
    released: Arc<Semaphore>,
    meter: Meter,
}

/// A desktop that believes to be signed in to this account, or to the one that it is signed in to.
async fn parties(of_another_account: bool) -> Parties {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 1).await;
    let released = Arc::new(Semaphore::new(0));
    let user = if of_another_account { fresh_user() } else { account.user };
    let router = namespaces(Router::new(user), Arc::clone(&released));
    let meter = router.meter();
    let (desktop, _) = RunningDesktop::start(account.desktop(0), router).await;
    let phone = Arc::new(Phone::connect(account.phone(0, 0)).await.unwrap());
    Parties { _relay: relay, _desktop: desktop, phone, released, meter }
}

impl Parties {
    async fn call(&self, method: &str, params: Value, key: Option<&str>) -> Result<Value, i64> {
        let params = RawValue::from_string(params.to_string()).unwrap();
        match timeout(PATIENCE, self.phone.call(method, Some(&params), key.map(str::to_owned))).await.expect("an answer") {
            Ok(result) => Ok(serde_json::from_str(result.get()).unwrap()),
            Err(CallError::Refused(error)) => Err(error.code),
            Err(other) => panic!("{other}"),
        }
    }
}

/// Twenty reads that do not end until the pings are answered: two run, the others wait for their permits.
#[tokio::test(flavor = "multi_thread")]
async fn slow_media_reads_do_not_delay_a_ping() {
    let parties = parties(false).await;
    let mut reads = JoinSet::new();
    let (started, mut has_started) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..20 {
        let (phone, started) = (Arc::clone(&parties.phone), started.clone());
        reads.spawn(async move {
            let mut call = phone.start(Request::new("files.readBinary")).await.unwrap();
            loop {
                match call.next().await {
                    Ok(Step::Progress(Outcome::Result(progress))) => started.send(progress.get().to_owned()).unwrap(),
                    Ok(Step::Final(result)) => return result.get().to_owned(),
                    Ok(Step::Progress(Outcome::Error(error))) | Err(CallError::Refused(error)) => return error.to_string(),
                    Err(other) => panic!("{other}"),
                }
            }
        });
    }
    for _ in 0..HEAVY_PERMITS {
        assert_eq!(timeout(PATIENCE, has_started.recv()).await.unwrap().unwrap(), r#"{"bytesRead":0}"#);
    }
    for _ in 0..50 {
        assert_eq!(parties.call("system.ping", json!({}), None).await, Ok(json!({"ok": true})));
    }
    assert_eq!(parties.meter.read().heavy_in_use, HEAVY_PERMITS);
    assert!(has_started.try_recv().is_err(), "no third read runs");
    parties.released.add_permits(20);
    for result in reads.join_all().await {
        assert_eq!(result, r#"{"data":"AAAA"}"#);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_router_refuses_reaches_the_phone_with_its_number() {
    let parties = parties(false).await;
    for (method, params, key, answer) in [
        ("run.cancel", json!({}), Some("k"), Ok(json!("k"))),
        // The relay passes it: whether it is a key is for the desktop to say.
        ("run.cancel", json!({}), Some(""), Err(-32602)),
        ("run.cancel", json!({"runId": "r"}), Some("k2"), Err(-32602)),
        ("system.listModels", json!({}), None, Err(-32044)),
        ("system.getReplyStyle", json!({}), None, Err(-32601)),
        ("system.ping", json!({}), None, Ok(json!({"ok": true}))),
    ] {
        assert_eq!(parties.call(method, params, key).await, answer, "{method}");
    }
    assert_eq!(parties.call("run.cancel", json!({}), Some(&"k".repeat(256))).await, Ok(json!("k".repeat(256))));
    assert_eq!(parties.call("run.cancel", json!({}), Some(&"k".repeat(257))).await, Err(-32602));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_desktop_of_another_sign_in_does_nothing() {
    let parties = parties(true).await;
    assert_eq!(parties.call("system.ping", json!({}), None).await, Err(-32041));
    assert_eq!(parties.meter.read(), Figures { forbidden: 1, ..Figures::default() });
}

#[tokio::test(flavor = "multi_thread")]
async fn detached_work_may_finish_when_its_desktop_has_stopped() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 1).await;
    let (released, finished) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (waiting, done) = (Arc::clone(&released), Arc::clone(&finished));
    let stop_and_send = move |call: Call, _: NoParams| {
        let (waiting, done, telling) = (Arc::clone(&waiting), Arc::clone(&done), call.clone());
        let work = async move {
            telling.progress(&"started").await?;
            waiting.acquire().await.unwrap().forget();
            done.add_permits(1);
            Ok(())
        };
        async move { call.finish(work).await }
    };
    let router = Router::new(account.user).namespace(Namespace::new("run").on("chatOutboxStopAndSendNow", stop_and_send));
    let detached = router.detached();
    let (desktop, _) = RunningDesktop::start(account.desktop(0), router).await;
    let phone = Phone::connect(account.phone(0, 0)).await.unwrap();
    let mut call = phone.start(Request::new("run.chatOutboxStopAndSendNow")).await.unwrap();
    assert!(matches!(call.next().await, Ok(Step::Progress(_))));
    desktop.stop().await;
    assert_eq!((detached.running(), finished.available_permits()), (1, 0));
    released.add_permits(1);
    timeout(PATIENCE, detached.finished()).await.unwrap();
    assert_eq!((detached.running(), finished.available_permits()), (0, 1));
}
