//! Both layers together, by a clock that stands still; processes that are killed are real ones.

use super::*;
use futures_util::FutureExt;
use rusqlite::Connection;
use std::{
    cell::Cell,
    fs,
    future::pending,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Command, Stdio},
    sync::atomic::{AtomicI64, Ordering::Relaxed},
};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use relay_protocol::{
    contract,
    limits::desktop::{CLAIM_ROWS_MAX, CLAIM_WAITERS_MAX, FINISHED_CLAIMS_MAX, RUNNING_CLAIMS_MAX},
};

pub(super) const START: i64 = 1_789_214_400_000;
pub(super) const LEASE: i64 = 5 * 60 * 1_000;
pub(super) const KEPT: i64 = 48 * 60 * 60 * 1_000;
pub(super) const METHOD: &str = "session.rename";
pub(super) const SUBMIT: &str = "run.chatOutboxSubmit";
const APPEND: &str = "files.appendChatAttachmentUploadChunk";
/// Names the file to a process that is to be killed.
const FILE_VARIABLE: &str = "RELAY_TEST_IDEMPOTENCY_FILE";

/// A desktop's file, and the time.
pub(super) struct Rig {
    now: Arc<AtomicI64>,
    idempotency: Idempotency,
    folder: TempDir,
}

impl Rig {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let now = Arc::new(AtomicI64::new(START));
        let idempotency = open(&folder.path().join("keys.db"), &now);
        Rig { now, idempotency, folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("keys.db")
    }

    /// As another process, or this one after a restart, sees the file.
    fn again(&self) -> Idempotency {
        open(&self.path(), &self.now)
    }

    pub(super) fn restart(&mut self) {
        self.idempotency = self.again();
    }

    pub(super) fn at(&self, milliseconds: i64) {
        self.now.store(milliseconds, Relaxed);
    }

    /// The file itself.
    fn sql(&self, text: &str) {
        Connection::open(self.path()).unwrap().execute_batch(text).unwrap();
    }

    /// So many keys of another phone, forgotten at that time.
    fn fill(&self, rows: usize, expires_at: i64) {
        self.sql(&format!(
            "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {rows})
             INSERT INTO remote_rpc_idempotency
                 (user_id, device, method, idempotency_key, fingerprint, state, owner, lease_expires_at, expires_at, reply)
             SELECT 'u', 'd', 'm', n, x'00', 'result', x'00', 0, {expires_at}, '1' FROM numbers"
        ));
    }

    /// One copy, which answers `reply` if it runs.
    pub(super) async fn copy(&self, method: &'static str, key: &str, params: &str, reply: Reply) -> (Reply, Ran) {
        copy(&self.idempotency, method, key, params, reply).await
    }

    /// A copy that never ends by itself, once it runs.
    async fn running(&self, method: &'static str, key: &str) -> JoinHandle<()> {
        running(&self.idempotency, method, key, "{}").await
    }

    /// The same with other params.
    pub(super) async fn running_with(&self, method: &'static str, key: &str, params: &str) -> JoinHandle<()> {
        running(&self.idempotency, method, key, params).await
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ran {
    Yes,
    No,
}

fn open(path: &Path, now: &Arc<AtomicI64>) -> Idempotency {
    let now = Arc::clone(now);
    Idempotency::open_with(path, Arc::new(move || now.load(Relaxed))).unwrap()
}

fn admit(idempotency: &Idempotency, method: &'static str, key: &str, params: &str) -> Admission {
    let user = UserId(Uuid::from_u128(1));
    let scope = Scope { user, device: Arc::from("phone::desktop"), method, key: Arc::from(key) };
    idempotency.admit(scope, Some(&raw(params)))
}

async fn copy(idempotency: &Idempotency, method: &'static str, key: &str, params: &str, reply: Reply) -> (Reply, Ran) {
    match admit(idempotency, method, key, params) {
        Admission::Run(claim) => {
            let ran = Cell::new(Ran::No);
            let work = async {
                ran.set(Ran::Yes);
                reply
            };
            let reply = tokio::task::unconstrained(claim_execute(claim, work)).await;
            (reply, ran.get())
        }
        Admission::Wait(joined) => (joined.reply().await.expect("the first copy ends"), Ran::No),
        Admission::Answer(reply) => (reply, Ran::No),
    }
}

/// [`Claim::execute`] wants work that may move between threads; that of a test need not.
async fn claim_execute(claim: Claim, work: impl Future<Output = Reply>) -> Reply {
    let (ask, mut asked) = tokio::sync::mpsc::channel::<tokio::sync::oneshot::Sender<Reply>>(1);
    let elsewhere = async move {
        let (answer, answered) = tokio::sync::oneshot::channel();
        ask.send(answer).await.unwrap();
        answered.await.unwrap()
    };
    let here = async {
        if let Some(answer) = asked.recv().await {
            answer.send(work.await).unwrap();
        }
    };
    tokio::join!(claim.execute(elsewhere), here).0
}

async fn running(idempotency: &Idempotency, method: &'static str, key: &str, params: &str) -> JoinHandle<()> {
    let Admission::Run(claim) = admit(idempotency, method, key, params) else { panic!("it may not run") };
    let (runs, does_run) = tokio::sync::oneshot::channel();
    let task = tokio::spawn(async move {
        claim
            .execute(async move {
                runs.send(()).unwrap();
                pending().await
            })
            .await
            .unwrap();
    });
    does_run.await.unwrap();
    task
}

pub(super) async fn cut_off(copy: JoinHandle<()>) {
    copy.abort();
    assert!(copy.await.unwrap_err().is_cancelled());
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

pub(super) fn ok(text: &str) -> Reply {
    Ok(raw(text))
}

pub(super) fn text(reply: &Reply) -> Result<&str, i64> {
    reply.as_ref().map(|result| result.get()).map_err(|error| error.code)
}

pub(super) fn code(error: DesktopError) -> Result<&'static str, i64> {
    Err(error.code().into())
}

const RUNNING: DesktopError = DesktopError::OperationRunning;
const UNKNOWN: DesktopError = DesktopError::OutcomeUnknown;

#[tokio::test]
async fn a_repeat_waits_for_the_first_copy_and_later_ones_get_the_stored_reply_in_every_process() {
    let mut rig = Rig::new();
    let Admission::Run(first) = admit(&rig.idempotency, METHOD, "k", "{}") else { panic!("nothing is known of it") };
    let Admission::Wait(joined) = admit(&rig.idempotency, METHOD, "k", "{}") else { panic!("the first copy runs") };
    let reply = first.execute(async { ok(r#"{ "n":1.0 }"#) }).await;
    assert_eq!(text(&reply), Ok(r#"{ "n":1.0 }"#));
    assert_eq!(text(&joined.reply().await.unwrap()), Ok(r#"{ "n":1.0 }"#));
    for _ in 0..2 {
        let (reply, ran) = rig.copy(METHOD, "k", "{}", ok("2")).await;
        assert_eq!((text(&reply), ran), (Ok(r#"{ "n":1.0 }"#), Ran::No));
        rig.restart();
    }
    let (reply, ran) = rig.copy(METHOD, "another", "{}", ok("2")).await;
    assert_eq!((text(&reply), ran), (Ok("2"), Ran::Yes));
}

#[tokio::test]
async fn the_key_of_another_phone_or_for_another_method_is_another_key() {
    let rig = Rig::new();
    assert_eq!(rig.copy(METHOD, "k", "{}", ok("1")).await.1, Ran::Yes);
    assert_eq!(rig.copy("session.archive", "k", "{}", ok("2")).await.1, Ran::Yes);
    let scope = Scope { user: UserId(Uuid::from_u128(1)), device: Arc::from("other::desktop"), method: METHOD, key: Arc::from("k") };
    assert!(matches!(rig.idempotency.admit(scope, None), Admission::Run(_)));
}

#[tokio::test]
async fn the_same_key_with_other_params_is_a_conflict_while_it_runs_afterwards_and_in_another_process() {
    let mut rig = Rig::new();
    let first = rig.running(METHOD, "k").await;
    let conflict = code(DesktopError::Conflict);
    let other = async |rig: &Rig| rig.copy(METHOD, "k", r#"{"a":1}"#, ok("2")).await;
    assert_eq!((text(&other(&rig).await.0), other(&rig).await.1), (conflict, Ran::No));
    cut_off(first).await;
    assert_eq!((text(&other(&rig).await.0), other(&rig).await.1), (conflict, Ran::No), "by the row that stays running");
    assert_eq!(rig.copy(METHOD, "finished", "{}", ok("1")).await.1, Ran::Yes);
    for _ in 0..2 {
        let (reply, ran) = rig.copy(METHOD, "finished", "{ }", ok("2")).await;
        assert_eq!((text(&reply), ran), (conflict, Ran::No), "the text counts");
        rig.restart();
    }
    // Absent params are none that could be sent.
    let scope = Scope { user: UserId(Uuid::from_u128(1)), device: Arc::from("phone::desktop"), method: METHOD, key: Arc::from("finished") };
    let Admission::Run(claim) = rig.idempotency.admit(scope, None) else { panic!("the file knows") };
    assert_eq!(text(&claim.execute(async { ok("3") }).await), conflict);
}

#[tokio::test]
async fn after_a_copy_that_was_cut_off_repeats_are_busy_until_the_lease_ends_and_never_run() {
    let mut rig = Rig::new();
    let first = rig.running(METHOD, "k").await;
    let Admission::Wait(joined) = admit(&rig.idempotency, METHOD, "k", "{}") else { panic!("the first copy runs") };
    cut_off(first).await;
    assert!(joined.reply().await.is_none(), "those who wait learn it");
    rig.at(START + LEASE - 1);
    for _ in 0..2 {
        let (reply, ran) = rig.copy(METHOD, "k", "{}", ok("2")).await;
        assert_eq!((text(&reply), ran), (code(RUNNING), Ran::No));
        assert!(reply.unwrap_err().retryable);
        rig.restart();
    }
    rig.at(START + LEASE);
    for _ in 0..2 {
        let (reply, ran) = rig.copy(METHOD, "k", "{}", ok("2")).await;
        assert_eq!((text(&reply), ran), (code(UNKNOWN), Ran::No));
        assert!(!reply.unwrap_err().retryable);
        rig.restart();
    }
    rig.at(START + LEASE + KEPT - 1);
    assert_eq!(text(&rig.copy(METHOD, "k", "{}", ok("2")).await.0), code(UNKNOWN));
    rig.restart();
    rig.at(START + LEASE + KEPT);
    assert_eq!(rig.copy(METHOD, "k", "{}", ok("2")).await.1, Ran::Yes);
}

#[tokio::test]
async fn a_key_is_forgotten_48_hours_after_its_reply_was_stored() {
    let mut rig = Rig::new();
    assert_eq!(rig.copy(METHOD, "in memory", "{}", ok("1")).await.1, Ran::Yes);
    assert_eq!(rig.copy(METHOD, "on disk", "{}", ok("1")).await.1, Ran::Yes);
    rig.at(START + KEPT - 1);
    assert_eq!(rig.copy(METHOD, "in memory", "{}", ok("2")).await.1, Ran::No);
    assert_eq!(copy(&rig.again(), METHOD, "on disk", "{}", ok("2")).await.1, Ran::No);
    // More have expired before them than both claims remove besides their own.
    rig.fill(200, START);
    rig.at(START + KEPT);
    assert_eq!(rig.copy(METHOD, "in memory", "{}", ok("2")).await.1, Ran::Yes);
    rig.restart();
    assert_eq!(rig.copy(METHOD, "on disk", "{}", ok("2")).await.1, Ran::Yes);
}

#[tokio::test]
async fn a_reply_that_a_restarted_process_repeats_is_forgotten_no_later() {
    let mut rig = Rig::new();
    assert_eq!(rig.copy(METHOD, "k", "{}", ok("1")).await.1, Ran::Yes);
    rig.restart();
    rig.at(START + KEPT - 1);
    let (reply, ran) = rig.copy(METHOD, "k", "{}", ok("2")).await;
    assert_eq!((text(&reply), ran), (Ok("1"), Ran::No));
    rig.at(START + KEPT);
    let (reply, ran) = rig.copy(METHOD, "k", "{}", ok("3")).await;
    assert_eq!((text(&reply), ran), (Ok("3"), Ran::Yes));
}

#[tokio::test]
async fn a_clock_that_is_wrong_for_a_while_makes_no_reply_be_forgotten_early() {
    let mut rig = Rig::new();
    assert_eq!(rig.copy(METHOD, "k", "{}", ok("1")).await.1, Ran::Yes);
    rig.at(START - KEPT / 2);
    assert_eq!(rig.copy(METHOD, "another", "{}", ok("1")).await.1, Ran::Yes);
    rig.restart();
    rig.at(START + KEPT - 1);
    let (reply, ran) = rig.copy(METHOD, "k", "{}", ok("2")).await;
    assert_eq!((text(&reply), ran), (Ok("1"), Ran::No));
}

#[tokio::test]
async fn at_most_32_copies_wait_for_one() {
    let rig = Rig::new();
    let first = rig.running(METHOD, "k").await;
    let mut waiting = Vec::new();
    for _ in 0..CLAIM_WAITERS_MAX {
        let Admission::Wait(joined) = admit(&rig.idempotency, METHOD, "k", "{}") else { panic!("there is room") };
        waiting.push(joined);
    }
    let Admission::Answer(reply) = admit(&rig.idempotency, METHOD, "k", "{}") else { panic!("there is no room") };
    assert_eq!(text(&reply), code(RUNNING));
    waiting.pop();
    assert!(matches!(admit(&rig.idempotency, METHOD, "k", "{}"), Admission::Wait(_)), "who left makes room");
    cut_off(first).await;
}

#[tokio::test]
async fn at_most_64_claims_run_at_a_time() {
    let rig = Rig::new();
    let mut claims: Vec<_> = (0..RUNNING_CLAIMS_MAX).map(|n| admit(&rig.idempotency, METHOD, &n.to_string(), "{}")).collect();
    assert!(claims.iter().all(|claim| matches!(claim, Admission::Run(_))));
    let (reply, ran) = rig.copy(METHOD, "one more", "{}", ok("1")).await;
    assert_eq!((text(&reply), ran), (code(DesktopError::TooManyKeys), Ran::No));
    assert!(reply.unwrap_err().retryable);
    claims.pop();
    assert_eq!(rig.copy(METHOD, "one more", "{}", ok("1")).await.1, Ran::Yes);
}

#[tokio::test]
async fn a_new_key_at_4096_rows_does_not_run_until_some_have_expired() {
    let rig = Rig::new();
    assert_eq!(rig.copy(METHOD, "known", "{}", ok("1")).await.1, Ran::Yes);
    rig.fill(CLAIM_ROWS_MAX - 1, START + KEPT + 1);
    let (reply, ran) = rig.copy(METHOD, "one more", "{}", ok("1")).await;
    assert_eq!((text(&reply), ran), (code(DesktopError::TooManyKeys), Ran::No));
    assert_eq!(text(&copy(&rig.again(), METHOD, "known", "{}", ok("2")).await.0), Ok("1"), "known keys are answered all the same");
    rig.at(START + KEPT);
    assert_eq!(rig.copy(METHOD, "one more", "{}", ok("1")).await.1, Ran::Yes, "the first row has expired");
    assert_eq!(rig.copy(METHOD, "and one", "{}", ok("1")).await.1, Ran::No);
    rig.at(START + KEPT + 1);
    assert_eq!(rig.copy(METHOD, "and one", "{}", ok("1")).await.1, Ran::Yes, "all others have, whether they are removed yet or not");
}

#[tokio::test]
async fn memory_keeps_512_replies_and_the_file_knows_the_others() {
    let rig = Rig::new();
    for n in 0..=FINISHED_CLAIMS_MAX {
        assert_eq!(rig.copy(METHOD, &n.to_string(), "{}", ok(&n.to_string())).await.1, Ran::Yes);
    }
    let is_in_memory = |key: &str| matches!(admit(&rig.idempotency, METHOD, key, "{}"), Admission::Answer(Ok(_)));
    assert_eq!((is_in_memory("0"), is_in_memory("1"), is_in_memory("512")), (false, true, true));
    let (reply, ran) = rig.copy(METHOD, "0", "{}", ok("7")).await;
    assert_eq!((text(&reply), ran), (Ok("0"), Ran::No));
}

#[tokio::test]
async fn what_an_error_means_decides_whether_a_repeat_gets_it_runs_or_is_told_that_nobody_knows() {
    let mut rig = Rig::new();
    let errors = DesktopError::ALL.into_iter().map(|error| (error.code(), false, error.class()));
    let flagged =
        [(DesktopError::Internal.code(), true, ErrorClass::Retryable), (DesktopError::NotFound.code(), true, ErrorClass::Retryable)];
    let strange = [(-1, false, ErrorClass::Ambiguous)];
    for (number, retryable, class) in errors.chain(flagged).chain(strange) {
        let error = raw(&format!(r#"{{"code":{number},"message":"m","data":{{"retryable":{retryable}}}}}"#));
        let key = format!("{number} {retryable}");
        let first = rig.copy(METHOD, &key, "{}", Err(RpcError::from_raw(error))).await;
        assert_eq!((text(&first.0), first.1), (Err(number.into()), Ran::Yes), "the first copy gets its own");
        let expected = match class {
            ErrorClass::Terminal => (Err(number.into()), Ran::No),
            ErrorClass::Ambiguous => (code(UNKNOWN), Ran::No),
            ErrorClass::Retryable => (Ok("7"), Ran::Yes),
        };
        let elsewhere = if class == ErrorClass::Retryable { None } else { Some(rig.again()) };
        for process in elsewhere.iter().chain([&rig.idempotency]) {
            let (reply, ran) = copy(process, METHOD, &key, "{}", ok("7")).await;
            assert_eq!((text(&reply), ran), expected, "{key}");
        }
    }
    // One that may run again may do so after a restart, too, and only with the same params.
    let later = || Err(HandlerError::new(DesktopError::Conflict, "m").retryable().to_rpc());
    assert_eq!(rig.copy(METHOD, "later", "{}", later()).await.1, Ran::Yes);
    rig.restart();
    assert_eq!(text(&rig.copy(METHOD, "later", r#"{"a":1}"#, ok("7")).await.0), code(DesktopError::Conflict));
    assert_eq!(rig.copy(METHOD, "later", "{}", ok("7")).await.1, Ran::Yes);
}

#[tokio::test]
async fn a_reply_over_256_kib_is_told_once_and_then_nobody_knows() {
    let mut rig = Rig::new();
    let of = |bytes: usize| ok(&format!("\"{}\"", "x".repeat(bytes - 2)));
    assert_eq!(rig.copy(METHOD, "fits", "{}", of(KEPT_REPLY_BYTES_MAX)).await.1, Ran::Yes);
    let (reply, _) = rig.copy(METHOD, "large", "{}", of(KEPT_REPLY_BYTES_MAX + 1)).await;
    assert_eq!(reply.unwrap().get().len(), KEPT_REPLY_BYTES_MAX + 1);
    for _ in 0..2 {
        assert_eq!(rig.copy(METHOD, "fits", "{}", ok("2")).await.0.unwrap().get().len(), KEPT_REPLY_BYTES_MAX);
        let (reply, ran) = rig.copy(METHOD, "large", "{}", ok("2")).await;
        assert_eq!((text(&reply), ran), (code(UNKNOWN), Ran::No));
        rig.restart();
    }
}

#[tokio::test]
async fn when_the_reply_cannot_be_stored_nobody_is_told_a_success() {
    let mut rig = Rig::new();
    rig.sql("CREATE TRIGGER full BEFORE UPDATE ON remote_rpc_idempotency BEGIN SELECT raise(ABORT, 'no room'); END");
    let (reply, ran) = rig.copy(METHOD, "k", "{}", ok("1")).await;
    assert_eq!((text(&reply), ran), (code(UNKNOWN), Ran::Yes));
    assert_eq!(text(&rig.copy(SUBMIT, "k", "{}", ok("1")).await.0), code(UNKNOWN));
    rig.sql("DROP TRIGGER full");
    let (reply, ran) = rig.copy(METHOD, "k", "{}", ok("2")).await;
    assert_eq!((text(&reply), ran), (code(UNKNOWN), Ran::No), "not busy: nobody is at it");
    assert_eq!(rig.copy(SUBMIT, "k", "{}", ok("2")).await.1, Ran::Yes, "this one is replay-safe");
    rig.restart();
    let (reply, ran) = rig.copy(METHOD, "k", "{}", ok("2")).await;
    assert_eq!((text(&reply), ran), (code(RUNNING), Ran::No));
}

#[tokio::test]
async fn when_the_claim_cannot_be_stored_nothing_runs_and_it_may_be_sent_again() {
    let rig = Rig::new();
    rig.sql("CREATE TRIGGER full BEFORE INSERT ON remote_rpc_idempotency BEGIN SELECT raise(ABORT, 'no room'); END");
    let (reply, ran) = rig.copy(METHOD, "k", "{}", ok("1")).await;
    assert_eq!((text(&reply), ran), (code(DesktopError::Database), Ran::No));
    assert!(reply.unwrap_err().retryable);
    rig.sql("DROP TRIGGER full");
    assert_eq!(rig.copy(METHOD, "k", "{}", ok("1")).await.1, Ran::Yes);
}

#[tokio::test]
async fn four_methods_run_again_after_a_copy_that_was_cut_off() {
    for method in [SUBMIT, APPEND, "files.finishChatAttachmentUpload", "files.cancelChatAttachmentUpload"] {
        let mut rig = Rig::new();
        cut_off(rig.running(method, "k").await).await;
        let (reply, ran) = rig.copy(method, "k", "{}", Err(HandlerError::new(DesktopError::Internal, "m").to_rpc())).await;
        assert_eq!((text(&reply), ran), (code(DesktopError::Internal), Ran::Yes), "{method}");
        rig.restart();
        let expected = if method == APPEND { (Ok("2"), Ran::Yes) } else { (code(UNKNOWN), Ran::No) };
        let (reply, ran) = rig.copy(method, "k", "{}", ok("2")).await;
        assert_eq!((text(&reply), ran), expected, "{method}: one that has finished was not cut off");
    }
}

#[tokio::test]
async fn an_appended_chunk_gives_its_claim_back() {
    let rig = Rig::new();
    for n in ["1", "2"] {
        let (reply, ran) = rig.copy(APPEND, "k", n, ok(n)).await;
        assert_eq!((text(&reply), ran), (Ok(n), Ran::Yes), "other params are no conflict either");
    }
    let (reply, ran) = copy(&rig.again(), APPEND, "k", "3", ok("3")).await;
    assert_eq!((text(&reply), ran), (Ok("3"), Ran::Yes));
}

#[tokio::test]
async fn two_processes_on_one_file_do_not_run_one_key() {
    let rig = Rig::new();
    let other = rig.again();
    let first = rig.running(METHOD, "k").await;
    let (reply, ran) = copy(&other, METHOD, "k", "{}", ok("2")).await;
    assert_eq!((text(&reply), ran), (code(RUNNING), Ran::No));
    cut_off(first).await;
}

#[tokio::test]
async fn a_claim_that_somebody_else_has_ended_meanwhile_is_no_success() {
    let rig = Rig::new();
    let Admission::Run(claim) = admit(&rig.idempotency, METHOD, "k", "{}") else { panic!("nothing is known of it") };
    let other = rig.again();
    let now = Arc::clone(&rig.now);
    let work = async move {
        now.store(START + LEASE, Relaxed);
        assert_eq!(text(&copy(&other, METHOD, "k", "{}", ok("2")).await.0), code(UNKNOWN));
        ok("1")
    };
    assert_eq!(text(&claim_execute(claim, work).await), code(UNKNOWN), "others have been told that nobody knows");
}

#[tokio::test]
async fn who_leaves_before_the_claim_is_stored_has_claimed_nothing() {
    let rig = Rig::new();
    for attempt in 0..50 {
        let Admission::Run(claim) = admit(&rig.idempotency, METHOD, "k", "{}") else { panic!("nothing is known of it") };
        let mut execution = Box::pin(claim.execute(async { unreachable!("nobody waits for it") }));
        // Handed to the file's thread, and left at once.
        assert!((&mut execution).now_or_never().is_none(), "{attempt}");
        drop(execution);
    }
    assert_eq!(rig.copy(METHOD, "k", "{}", ok("1")).await.1, Ran::Yes);
}

#[tokio::test]
async fn a_clock_that_is_set_back_makes_no_lease_longer_than_one_that_begins_now() {
    let mut rig = Rig::new();
    cut_off(rig.running(METHOD, "k").await).await;
    let back = START - 24 * 60 * 60 * 1_000;
    rig.at(back);
    assert_eq!(text(&rig.copy(METHOD, "k", "{}", ok("2")).await.0), code(RUNNING));
    rig.at(back + LEASE - 1);
    assert_eq!(text(&rig.copy(METHOD, "k", "{}", ok("2")).await.0), code(RUNNING), "and looking at it does not prolong it");
    rig.at(back + LEASE);
    assert_eq!(text(&rig.copy(METHOD, "k", "{}", ok("2")).await.0), code(UNKNOWN));
    rig.restart();
    rig.at(back + LEASE + KEPT);
    assert_eq!(rig.copy(METHOD, "k", "{}", ok("2")).await.1, Ran::Yes);
}

/// Not a test by itself: the process that is killed below. It claims, says so, and works for ever.
#[tokio::test]
async fn a_process_that_works_for_ever() {
    let Some(path) = std::env::var_os(FILE_VARIABLE) else { return };
    let idempotency = open(Path::new(&path), &Arc::new(AtomicI64::new(START)));
    let _copies = (running(&idempotency, METHOD, "k", "{}").await, running(&idempotency, SUBMIT, "k", "{}").await);
    copy(&idempotency, METHOD, "finished", "{}", ok("1")).await.0.unwrap();
    println!("\nclaimed");
    pending::<()>().await;
}

#[tokio::test]
async fn a_process_that_is_killed_between_claim_and_reply_leaves_its_claims_running() {
    let rig = Rig::new();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "--nocapture", "desktop::router::idempotency::tests::a_process_that_works_for_ever"]);
    let mut process = command.env(FILE_VARIABLE, rig.path()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "claimed"));
    process.kill().unwrap();
    process.wait().unwrap();

    assert_eq!(text(&rig.copy(METHOD, "finished", "{}", ok("2")).await.0), Ok("1"));
    let (reply, ran) = rig.copy(METHOD, "k", "{}", ok("2")).await;
    assert_eq!((text(&reply), ran), (code(RUNNING), Ran::No));
    let (reply, ran) = rig.copy(SUBMIT, "k", "{}", ok("2")).await;
    assert_eq!((text(&reply), ran), (Ok("2"), Ran::Yes));
    rig.at(START + LEASE);
    let (reply, ran) = rig.copy(METHOD, "k", "{}", ok("2")).await;
    assert_eq!((text(&reply), ran), (code(UNKNOWN), Ran::No));
}

#[test]
fn the_file_is_its_owners_and_that_of_a_newer_version_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.db");
    for _ in 0..2 {
        drop(Idempotency::open(&path).unwrap());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    }
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 2).unwrap();
    let told = Idempotency::open(&path).err().unwrap().to_string();
    assert_eq!(told, "a newer version has used it: it has version 2, this program knows 1");
    let missing = Idempotency::open(&folder.path().join("none/keys.db")).err().unwrap();
    assert!(matches!(missing, OpenError::File(_)), "{missing}");
}

#[test]
fn what_is_replay_safe_is_a_mutation_of_the_contract() {
    assert!(REPLAY_SAFE.iter().all(|name| contract::find(name).is_some_and(|method| method.mutation)));
    assert!(REPLAY_SAFE.contains(&RELEASED_WHEN_FINISHED));
}
