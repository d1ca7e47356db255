//! The made-up agents: they take messages out of outboxes and answer them, a word at each step.
//!
//! What is to be done stands in the database, and what is being done in [`Progress`]. A run without a task gets one, be it new or left
//! over from a process that was killed; a run that somebody stops is over in the database first, so that its task cannot finish it.

use super::{
    database::Database,
    id::{AppSessionId, RunId},
    model::{Entry, Run, RunState},
    script,
    store::{runs, sessions, timeline},
};
use crate::{
    clock,
    desktop::{Publisher, router::HandlerError},
};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep},
};

/// How long an agent waits before it tries again what its storage refused.
const RETRY_WAIT: Duration = Duration::from_secs(1);

/// What the agents are at, for the handlers. A session has one task at a time, so that the end of a run is told before the next begins.
#[derive(Debug, Default)]
pub(super) struct Progress {
    work: Notify,
    sessions: Mutex<BTreeMap<AppSessionId, Active>>,
}

#[derive(Debug)]
struct Active {
    run: RunId,
    stop: watch::Sender<bool>,
    draft: String,
}

impl Progress {
    /// Something in the database is to be done.
    pub(super) fn look(&self) {
        self.work.notify_one();
    }

    /// A run is over in the database: its task need not go on.
    pub(super) fn stop(&self, session: &AppSessionId, run: &RunId) {
        if let Some(active) = self.sessions().get(session).filter(|active| active.run == *run) {
            active.stop.send_replace(true);
        }
        self.look();
    }

    /// What a run has said so far.
    pub(super) fn draft(&self, run: &Run) -> Option<String> {
        let sessions = self.sessions();
        let active = sessions.get(&run.session_id).filter(|active| active.run == run.run_id)?;
        (!active.draft.is_empty()).then(|| active.draft.clone())
    }

    /// `None`: the session has a task, which has this looked at again when it ends.
    fn begin(&self, run: &Run) -> Option<watch::Receiver<bool>> {
        let mut sessions = self.sessions();
        if sessions.contains_key(&run.session_id) {
            return None;
        }
        let (stop, stopped) = watch::channel(false);
        sessions.insert(run.session_id.clone(), Active { run: run.run_id.clone(), stop, draft: String::new() });
        Some(stopped)
    }

    fn say(&self, run: &Run, draft: &str) {
        if let Some(active) = self.sessions().get_mut(&run.session_id) {
            draft.clone_into(&mut active.draft);
        }
    }

    fn end(&self, run: &Run) {
        self.sessions().remove(&run.session_id);
        self.look();
    }

    fn sessions(&self) -> MutexGuard<'_, BTreeMap<AppSessionId, Active>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All agents of a desktop.
#[derive(Clone)]
pub(super) struct Agents {
    pub(super) database: Database,
    pub(super) progress: Arc<Progress>,
    pub(super) publisher: Publisher,
    /// Between two words; not zero.
    pub(super) pace: Duration,
}

impl Agents {
    /// Works for as long as it is polled.
    pub(super) async fn work(self) {
        let mut tasks = JoinSet::new();
        loop {
            let now = clock::epoch_ms_signed();
            let active = self.database.write(move |transaction| {
                runs::begin_all(transaction, now)?;
                runs::all_active(transaction)
            });
            match active.await {
                Ok(active) => {
                    for run in active {
                        // Stopped before it is registered here, it is found over at its first step.
                        if let Some(stopped) = self.progress.begin(&run) {
                            tasks.spawn(self.clone().follow(run, stopped));
                        }
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the agents cannot see what is to be done; they try again");
                    sleep(RETRY_WAIT).await;
                    continue;
                }
            }
            tokio::select! {
                () = self.progress.work.notified() => {}
                Some(ended) = tasks.join_next() => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "an agent failed");
                    }
                }
            }
        }
    }

    /// Answers one message.
    async fn follow(self, run: Run, mut stopped: watch::Receiver<bool>) {
        let mut told = self.tell_entries(&run, 0).await;
        self.tell_run(&run).await;
        let answer = script::answer(&run.prompt_text, run.reply_style);
        if self.is_active(&run).await {
            tokio::select! {
                () = self.write(&run, &answer) => {}
                // The sender lives until this task ends it.
                _ = stopped.wait_for(|stop| *stop) => {}
            }
        }
        let over = self.until_over(&run, &answer).await;
        told = self.tell_entries(&run, told).await;
        tracing::debug!(run = run.run_id.as_str(), newest = told, "a run is over");
        self.tell_run(&over).await;
        self.progress.end(&run);
    }

    /// Whether it is not over. Asked once its task can be told to stop, so that no stop is missed.
    async fn is_active(&self, run: &Run) -> bool {
        let (session, id) = (run.session_id.clone(), run.run_id.clone());
        let now = self.database.read(move |connection| runs::get(connection, &session, &id)).await;
        now.is_ok_and(|run| run.state == RunState::Running)
    }

    /// A draft that grows by a word at each step.
    async fn write(&self, run: &Run, answer: &str) {
        let mut steps = interval(self.pace);
        steps.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first one is at once.
        steps.tick().await;
        let key = run.timeline_key();
        for draft in script::drafts(answer) {
            steps.tick().await;
            self.progress.say(run, draft);
            let fields = || fields("draft", json!({"runId": run.run_id, "text": draft}));
            self.publisher.timeline(run.session_id.as_str(), Some(&key), fields).await;
        }
    }

    /// Ends the run with its answer, unless it is over, and says how it ended.
    async fn until_over(&self, run: &Run, answer: &str) -> Run {
        loop {
            let (session, id, answer) = (run.session_id.clone(), run.run_id.clone(), answer.to_owned());
            let context_tokens = script::tokens(&run.prompt_text, &answer);
            let now = clock::epoch_ms_signed();
            let ended = self.database.write(move |transaction| {
                runs::end(transaction, &session, &id, runs::Ending::Completed { answer: &answer, context_tokens }, now)?;
                runs::get(transaction, &session, &id)
            });
            match ended.await {
                Ok(run) => return run,
                Err(error) if is_gone(&error) => return Run { state: RunState::Cancelled, ..run.clone() },
                Err(error) => {
                    tracing::warn!(%error, "an answer cannot be kept; its agent tries again");
                    sleep(RETRY_WAIT).await;
                }
            }
        }
    }

    /// Publishes what the run has added behind this sequence, and returns the newest one.
    async fn tell_entries(&self, run: &Run, after: i64) -> i64 {
        let (session, id) = (run.session_id.clone(), run.run_id.clone());
        let entries = match self.database.read(move |connection| timeline::of_run(connection, &session, &id)).await {
            Ok(entries) => entries,
            Err(error) => {
                tracing::warn!(%error, "entries cannot be told; phones find them when they load");
                return after;
            }
        };
        let mut newest = after;
        for entry in entries.into_iter().filter(|entry| entry.sequence > after) {
            newest = entry.sequence;
            self.tell_entry(&run.session_id, &entry).await;
        }
        newest
    }

    async fn tell_entry(&self, session: &AppSessionId, entry: &Entry) {
        self.publisher.timeline(session.as_str(), None, || fields("entry", json!({ "entry": entry }))).await;
    }

    /// The runtime event: the run, and what the agent has measured.
    async fn tell_run(&self, run: &Run) {
        let session = run.session_id.clone();
        let usage = self.database.read(move |connection| sessions::context_usage(connection, &session)).await.ok().flatten();
        let fields = || fields("runtime", json!({"run": run, "contextUsage": usage}));
        self.publisher.timeline(run.session_id.as_str(), None, fields).await;
    }
}

fn is_gone(error: &HandlerError) -> bool {
    error.kind == relay_protocol::desktop_error::DesktopError::NotFound
}

/// Fields of a `chat:stream` frame.
fn fields(kind: &str, rest: impl Serialize) -> Map<String, Value> {
    let mut fields = match serde_json::to_value(rest) {
        Ok(Value::Object(fields)) => fields,
        Ok(_) | Err(_) => Map::new(),
    };
    fields.insert("kind".to_owned(), kind.into());
    fields
}
