//! What a new demo desktop begins with: a project with a session of each agent, one long enough that paging is seen.

use super::{
    id::{AppSessionId, ProjectId},
    model::{Agent, EntryKind, ReplyStyle},
    script,
    store::{
        sessions::{self, NewSession},
        timeline::{self, Origin},
    },
};
use rusqlite::Transaction;

/// The project.
const PROJECT: &str = "example";
/// The long session, of Codex.
const LONG_SESSION: &str = "demo";
/// A short one, of Claude.
const SHORT_SESSION: &str = "demo-claude";
/// Questions in the long session; each has its answer.
const LONG_QUESTIONS: i64 = 60;
/// Between two entries, in milliseconds.
const ENTRY_INTERVAL_MS: i64 = 60 * 1_000;

/// Writes it. The newest entry is of this moment.
pub(super) fn fill(transaction: &Transaction<'_>, now: i64) -> rusqlite::Result<()> {
    let begin = now - 2 * LONG_QUESTIONS * ENTRY_INTERVAL_MS;
    let project = ProjectId::fixed(PROJECT);
    sessions::add_project(transaction, &project, "Example project", begin)?;
    for (id, agent, title, questions) in
        [(SHORT_SESSION, Agent::Claude, "A short session", 1), (LONG_SESSION, Agent::Codex, "A long session", LONG_QUESTIONS)]
    {
        let id = AppSessionId::fixed(id);
        let new = NewSession { id: id.clone(), project: project.clone(), agent, conversation: None, title: title.to_owned() };
        sessions::insert(transaction, &new, begin)?;
        for number in 1..=questions {
            let at = now - 2 * (questions - number) * ENTRY_INTERVAL_MS;
            let question = format!("Question {number} of {questions}: what does this line show?");
            let answer = script::answer(&question, ReplyStyle::Default);
            timeline::append(transaction, &id, EntryKind::UserMessage, &question, Origin::default(), at - ENTRY_INTERVAL_MS)?;
            timeline::append(transaction, &id, EntryKind::AgentMessage, &answer, Origin::default(), at)?;
        }
        transaction.execute("UPDATE sessions SET read_through = latest_sequence WHERE session_id = ?1", [&id])?;
    }
    Ok(())
}
