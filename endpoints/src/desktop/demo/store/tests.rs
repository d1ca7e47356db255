//! The statements' rules, on databases in memory.

use super::{
    outbox::{self, Edit, StopAndSendNow, Waiting, WorkspaceChatOutboxSubmitRequest},
    runs::{self, Ending},
    sessions::{self, NewSession},
    timeline::{self, End, Origin},
};
use crate::desktop::demo::{
    database, example,
    fault::Fault,
    id::{AppSessionId, ConversationId, EntryId, OperationId, ProjectId, QueueId, RunId, TurnId},
    limits::{OUTBOX_BYTES_MAX, OUTBOX_ENTRIES_MAX, PAGE_BYTES_MAX, TEXT_BYTES_MAX},
    model::{Agent, EntryKind, RunState},
};
use relay_protocol::desktop_error::DesktopError;
use rusqlite::Connection;
use serde_json::{Value, json};

const NOW: i64 = 1_789_214_400_000;

fn id(text: &'static str) -> AppSessionId {
    AppSessionId::fixed(text)
}

/// The example, and nothing else.
fn filled() -> Connection {
    let mut connection = database::in_memory();
    let transaction = connection.transaction().unwrap();
    example::fill(&transaction, NOW).unwrap();
    transaction.commit().unwrap();
    connection
}

fn request(change: impl FnOnce(&mut Value)) -> WorkspaceChatOutboxSubmitRequest {
    let mut request = json!({
        "queueId": "queue-201", "operationId": "operation-201", "sessionId": "demo", "userText": "Explain the settings flow.",
        "promptText": "Explain the settings flow.", "attachments": [], "speedMode": "standard", "createdAt": NOW, "updatedAt": NOW,
        "intent": "enqueue", "sendMode": "queue", "source": "composer",
    });
    change(&mut request);
    serde_json::from_value(request).unwrap()
}

/// Another message, by number.
fn numbered(number: usize) -> WorkspaceChatOutboxSubmitRequest {
    request(|request| {
        request["queueId"] = format!("queue-{number}").into();
        request["operationId"] = format!("operation-{number}").into();
    })
}

fn waiting(connection: &Connection) -> Vec<String> {
    let entries = outbox::list(connection, &id("demo")).unwrap();
    entries.into_iter().map(|entry| entry.operation_id.as_str().to_owned()).collect()
}

/// As the database does it: a refusal takes back what was done before it.
fn refusal<T>(connection: &mut Connection, work: impl FnOnce(&Connection) -> Result<T, Fault>) -> DesktopError {
    let transaction = connection.transaction().unwrap();
    match work(&transaction) {
        Err(Fault::Refused(error)) => error.kind,
        Err(Fault::Storage(error)) => panic!("{error}"),
        Ok(_) => panic!("it is not refused"),
    }
}

#[test]
fn an_operation_is_one_message_whatever_is_repeated_and_when() {
    let mut connection = filled();
    let first = outbox::submit(&connection, &numbered(1)).unwrap();
    assert_eq!(outbox::submit(&connection, &numbered(1)).unwrap(), first);
    assert_eq!(waiting(&connection), ["operation-1"]);
    runs::begin_all(&connection, NOW).unwrap();
    assert_eq!(outbox::submit(&connection, &numbered(1)).unwrap(), first, "it has left the outbox");
    assert!(waiting(&connection).is_empty());
    let other = WorkspaceChatOutboxSubmitRequest { user_text: "Another text.".to_owned(), ..numbered(1) };
    assert_eq!(refusal(&mut connection, |connection| outbox::submit(connection, &other)), DesktopError::Conflict);

    // In another session it is another operation.
    let elsewhere = WorkspaceChatOutboxSubmitRequest { session_id: id("demo-claude"), ..numbered(1) };
    outbox::submit(&connection, &elsewhere).unwrap();
    assert_eq!(outbox::list(&connection, &id("demo-claude")).unwrap().len(), 1);
}

#[test]
fn a_message_is_refused_that_does_not_fit() {
    let mut connection = filled();
    outbox::submit(&connection, &numbered(1)).unwrap();
    let with = |field: &str, value: Value| request(|request| request[field] = value);
    for (field, value, expected) in [
        ("sessionId", json!("nowhere"), DesktopError::NotFound),
        ("queueId", json!("queue-1"), DesktopError::Conflict),
        ("userText", json!(" "), DesktopError::Validation),
        ("promptText", json!("x".repeat(TEXT_BYTES_MAX + 1)), DesktopError::Validation),
        ("attachments", json!([{"id": "a"}]), DesktopError::NotImplemented),
        ("threadId", json!("another"), DesktopError::Conflict),
        ("expectedActiveRunId", json!("another"), DesktopError::Conflict),
        ("expectedChatSettings", json!({"model": "demo-codex", "speedMode": "fast", "accessMode": "readOnly"}), DesktopError::Conflict),
    ] {
        assert_eq!(refusal(&mut connection, |connection| outbox::submit(connection, &with(field, value))), expected, "{field}");
    }
    sessions::set_archived(&connection, &id("demo"), true, NOW).unwrap();
    assert_eq!(refusal(&mut connection, |connection| outbox::submit(connection, &numbered(2))), DesktopError::Conflict);
    assert_eq!(waiting(&connection), ["operation-1"]);

    sessions::set_archived(&connection, &id("demo"), false, NOW).unwrap();
    let thread = sessions::get(&connection, &id("demo")).unwrap().conversation_id;
    let settings = sessions::settings(&connection, &id("demo")).unwrap();
    let expecting = WorkspaceChatOutboxSubmitRequest { thread_id: Some(thread), expected_chat_settings: Some(settings), ..numbered(2) };
    outbox::submit(&connection, &expecting).unwrap();
}

#[test]
fn an_outbox_is_full_at_its_bounds_and_not_before() {
    let mut connection = filled();
    for number in 0..OUTBOX_ENTRIES_MAX {
        outbox::submit(&connection, &numbered(number)).unwrap();
    }
    assert_eq!(refusal(&mut connection, |connection| outbox::submit(connection, &numbered(OUTBOX_ENTRIES_MAX))), DesktopError::Conflict);
    assert_eq!(waiting(&connection).len(), OUTBOX_ENTRIES_MAX);

    let mut connection = filled();
    let long = |number| WorkspaceChatOutboxSubmitRequest { user_text: "x".repeat(TEXT_BYTES_MAX), ..numbered(number) };
    let fit = OUTBOX_BYTES_MAX / TEXT_BYTES_MAX - 1;
    for number in 0..fit {
        outbox::submit(&connection, &long(number)).unwrap();
    }
    assert_eq!(refusal(&mut connection, |connection| outbox::submit(connection, &long(fit))), DesktopError::Conflict);
    assert_eq!(waiting(&connection).len(), fit);
}

#[test]
fn an_edit_is_an_operation_of_its_own() {
    let mut connection = filled();
    outbox::submit(&connection, &numbered(1)).unwrap();
    let edit = |from: &'static str, to: &'static str, text: &str| Edit {
        session_id: id("demo"),
        queue_id: QueueId::fixed("queue-1"),
        operation_id: OperationId::fixed(from),
        new_operation_id: OperationId::fixed(to),
        user_text: text.to_owned(),
        prompt_text: text.to_owned(),
        updated_at: NOW + 1,
    };
    for _first_and_again in 0..2 {
        let receipt = outbox::update(&connection, &edit("operation-1", "edited", "New text.")).unwrap();
        assert_eq!(receipt.operation_id.as_str(), "edited");
    }
    let entries = outbox::list(&connection, &id("demo")).unwrap();
    assert_eq!((entries.len(), &*entries[0].user_text, entries[0].created_at), (1, "New text.", NOW));
    assert_eq!(outbox::submit(&connection, &numbered(1)).unwrap().queue_id.as_str(), "queue-1", "the first is known as before");
    for (from, to, expected) in [
        ("operation-1", "again", DesktopError::NotFound),
        ("edited", "operation-1", DesktopError::Conflict),
        ("edited", "edited", DesktopError::Conflict),
    ] {
        assert_eq!(refusal(&mut connection, |connection| outbox::update(connection, &edit(from, to, "Third."))), expected, "{from} {to}");
    }

    let stale = Waiting { session_id: id("demo"), queue_id: QueueId::fixed("queue-1"), operation_id: OperationId::fixed("operation-1") };
    assert_eq!(refusal(&mut connection, |connection| outbox::remove(connection, &stale)), DesktopError::NotFound);
    outbox::remove(&connection, &Waiting { operation_id: OperationId::fixed("edited"), ..stale }).unwrap();
    assert!(waiting(&connection).is_empty());
}

#[test]
fn each_idle_session_takes_up_its_first_message_and_an_archived_one_none() {
    let connection = filled();
    for number in 1..=2 {
        outbox::submit(&connection, &numbered(number)).unwrap();
    }
    outbox::submit(&connection, &WorkspaceChatOutboxSubmitRequest { session_id: id("demo-claude"), ..numbered(3) }).unwrap();
    sessions::set_archived(&connection, &id("demo-claude"), true, NOW).unwrap();
    runs::begin_all(&connection, NOW).unwrap();
    runs::begin_all(&connection, NOW).unwrap();
    let active = runs::all_active(&connection).unwrap();
    assert_eq!(active.iter().map(|run| run.operation_id.as_str()).collect::<Vec<_>>(), ["operation-1"]);
    assert_eq!(waiting(&connection), ["operation-2"]);
    let said = timeline::of_run(&connection, &id("demo"), &active[0].run_id).unwrap();
    assert_eq!(said.iter().map(|entry| (entry.sequence, entry.kind)).collect::<Vec<_>>(), [(121, EntryKind::UserMessage)]);
}

#[test]
fn a_run_ends_once_and_its_answer_comes_with_its_end() {
    let mut connection = filled();
    outbox::submit(&connection, &numbered(1)).unwrap();
    runs::begin_all(&connection, NOW).unwrap();
    let run = runs::active(&connection, &id("demo")).unwrap().unwrap();
    let completed = Ending::Completed { answer: "Done.", context_tokens: 7 };
    assert!(runs::end(&connection, &id("demo"), &run.run_id, completed, NOW + 1).unwrap());
    assert!(!runs::end(&connection, &id("demo"), &run.run_id, completed, NOW + 2).unwrap());
    let said = timeline::of_run(&connection, &id("demo"), &run.run_id).unwrap();
    assert_eq!(said.iter().map(|entry| &*entry.text).collect::<Vec<_>>(), ["Explain the settings flow.", "Done."]);
    assert_eq!(sessions::context_usage(&connection, &id("demo")).unwrap().unwrap().used_tokens, 7);
    let cancelled = |connection: &Connection| runs::cancel(connection, &id("demo"), &run.run_id, NOW + 3);
    assert_eq!(refusal(&mut connection, cancelled), DesktopError::Conflict, "it is over");
}

#[test]
fn only_the_run_that_was_named_is_cancelled() {
    let mut connection = filled();
    for number in 1..=2 {
        outbox::submit(&connection, &numbered(number)).unwrap();
    }
    runs::begin_all(&connection, NOW).unwrap();
    let run = runs::active(&connection, &id("demo")).unwrap().unwrap();
    for (session, other, expected) in
        [("demo", RunId::fixed("another"), DesktopError::NotFound), ("demo-claude", run.run_id.clone(), DesktopError::NotFound)]
    {
        assert_eq!(refusal(&mut connection, |connection| runs::cancel(connection, &id(session), &other, NOW)), expected);
    }
    assert_eq!(runs::cancel(&connection, &id("demo"), &run.run_id, NOW).unwrap().state, RunState::Cancelled);
    runs::begin_all(&connection, NOW).unwrap();
    let next = runs::active(&connection, &id("demo")).unwrap().unwrap();
    assert_eq!(next.operation_id.as_str(), "operation-2");
    assert_eq!(refusal(&mut connection, |connection| runs::cancel(connection, &id("demo"), &run.run_id, NOW)), DesktopError::Conflict);
    assert_eq!(runs::active(&connection, &id("demo")).unwrap(), Some(next));
}

#[test]
fn a_message_is_sent_now_only_in_the_place_of_the_run_that_was_seen() {
    let mut connection = filled();
    for number in 1..=3 {
        outbox::submit(&connection, &numbered(number)).unwrap();
    }
    runs::begin_all(&connection, NOW).unwrap();
    let run = runs::active(&connection, &id("demo")).unwrap().unwrap();
    let right = StopAndSendNow {
        session_id: id("demo"),
        queue_id: QueueId::fixed("queue-3"),
        operation_id: OperationId::fixed("operation-3"),
        expected_run_id: run.run_id.clone(),
        expected_thread_id: run.thread_id.clone(),
        expected_turn_id: run.turn_id.clone(),
    };
    for (wrong, expected) in [
        (StopAndSendNow { expected_run_id: RunId::fresh(), ..right.clone() }, DesktopError::Conflict),
        (StopAndSendNow { expected_thread_id: ConversationId::fresh(), ..right.clone() }, DesktopError::Conflict),
        (StopAndSendNow { expected_turn_id: TurnId::fresh(), ..right.clone() }, DesktopError::Conflict),
        (StopAndSendNow { operation_id: OperationId::fixed("operation-2"), ..right.clone() }, DesktopError::NotFound),
    ] {
        assert_eq!(refusal(&mut connection, |connection| outbox::stop_and_send_now(connection, &wrong, NOW)), expected);
    }
    assert_eq!(runs::active(&connection, &id("demo")).unwrap().as_ref(), Some(&run));
    outbox::stop_and_send_now(&connection, &right, NOW).unwrap();
    assert_eq!(runs::get(&connection, &id("demo"), &run.run_id).unwrap().state, RunState::Cancelled);
    assert_eq!(runs::active(&connection, &id("demo")).unwrap().unwrap().operation_id.as_str(), "operation-3");
    assert_eq!(waiting(&connection), ["operation-2"]);
    assert_eq!(refusal(&mut connection, |connection| outbox::stop_and_send_now(connection, &right, NOW)), DesktopError::NotFound);
}

#[test]
fn pages_have_neither_gap_nor_double_while_entries_are_added() {
    let connection = filled();
    for entries_max in [1, 7, 50, 119, 120, 121] {
        let mut end = Some(End::NEWEST);
        let mut seen = Vec::new();
        let newest = sessions::get(&connection, &id("demo")).unwrap().latest_sequence;
        while let Some(before) = end {
            let page = timeline::page(&connection, &id("demo"), before, entries_max, PAGE_BYTES_MAX).unwrap();
            seen.splice(0..0, page.entries.iter().map(|entry| entry.sequence));
            assert!(seen.len() <= usize::try_from(newest).unwrap(), "it does not end: {seen:?}");
            timeline::append(&connection, &id("demo"), EntryKind::Notice, "meanwhile", Origin::default(), NOW).unwrap();
            end = page.older_cursor.as_deref().map(|cursor| End::of_cursor(cursor).unwrap());
        }
        assert_eq!(seen, (1..=newest).collect::<Vec<_>>(), "{entries_max}");
    }
}

#[test]
fn a_page_keeps_to_its_bytes_and_what_did_not_fit_is_on_the_next() {
    let connection = filled();
    let page = |end, bytes_max| timeline::page(&connection, &id("demo"), end, 200, bytes_max).unwrap();
    let two: usize = page(End::NEWEST, PAGE_BYTES_MAX).entries[118..].iter().map(timeline::json_bytes).sum();
    for (bytes_max, expected) in [(two, 2), (two - 1, 1), (10, 0)] {
        let short = page(End::NEWEST, bytes_max);
        assert_eq!(short.entries.len(), expected);
        let rest = page(End::of_cursor(&short.older_cursor.unwrap()).unwrap(), PAGE_BYTES_MAX);
        assert_eq!(rest.entries.last().map(|entry| entry.sequence), i64::try_from(120 - expected).ok());
    }
    let behind = |known, bytes_max| timeline::page_behind(&connection, &id("demo"), known, 200, bytes_max).unwrap();
    assert_eq!((behind(118, two).entries.len(), behind(118, two).older_cursor), (2, None));
    assert_eq!(behind(117, two).older_cursor.as_deref(), Some("before-119"));
    assert_eq!((behind(120, two).entries.len(), behind(500, two).older_cursor), (0, None));
    for wrong in ["", "119", "before-", "before-1", "before--3", "before-x", "after-3"] {
        assert!(End::of_cursor(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_session_that_holds_the_conversation_is_found_and_not_made_twice() {
    let mut connection = filled();
    let new = |agent, conversation: &'static str| NewSession {
        id: AppSessionId::fresh(),
        project: ProjectId::fixed("example"),
        agent,
        conversation: Some(ConversationId::fixed(conversation)),
        title: " A title ".to_owned(),
    };
    let (first, created) = sessions::create(&connection, &new(Agent::Codex, "thread-1"), NOW).unwrap();
    assert!(created && first.title == "A title");
    let (again, created) = sessions::create(&connection, &new(Agent::Codex, "thread-1"), NOW + 1).unwrap();
    assert!(!created);
    assert_eq!(again, first);
    for other in [new(Agent::Codex, "thread-2"), new(Agent::Claude, "thread-1")] {
        assert!(sessions::create(&connection, &other, NOW).unwrap().1);
    }
    let elsewhere = NewSession { project: ProjectId::fixed("nowhere"), ..new(Agent::Codex, "thread-1") };
    assert_eq!(refusal(&mut connection, |connection| sessions::create(connection, &elsewhere, NOW)), DesktopError::NotFound);
    let untitled = NewSession { title: " ".to_owned(), ..new(Agent::Codex, "thread-3") };
    assert_eq!(refusal(&mut connection, |connection| sessions::create(connection, &untitled, NOW)), DesktopError::Validation);
}

#[test]
fn a_session_goes_with_all_that_is_of_it_but_not_while_it_runs() {
    let mut connection = filled();
    outbox::submit(&connection, &numbered(1)).unwrap();
    runs::begin_all(&connection, NOW).unwrap();
    assert_eq!(refusal(&mut connection, |connection| sessions::delete(connection, &id("demo"))), DesktopError::Conflict);
    let run = runs::active(&connection, &id("demo")).unwrap().unwrap();
    runs::cancel(&connection, &id("demo"), &run.run_id, NOW).unwrap();
    outbox::submit(&connection, &numbered(2)).unwrap();
    sessions::delete(&connection, &id("demo")).unwrap();
    for table in ["sessions", "entries", "outbox", "operations", "runs"] {
        let count = format!("SELECT count(*) FROM {table} WHERE session_id = 'demo'");
        assert_eq!(connection.query_row(&count, (), |row| row.get::<_, i64>(0)).unwrap(), 0, "{table}");
    }
    assert_eq!(refusal(&mut connection, |connection| sessions::delete(connection, &id("demo"))), DesktopError::NotFound);
}

#[test]
fn what_has_been_read_stays_read() {
    let connection = filled();
    timeline::append(&connection, &id("demo"), EntryKind::Notice, "new", Origin::default(), NOW).unwrap();
    timeline::append(&connection, &id("demo"), EntryKind::Notice, "newer", Origin::default(), NOW).unwrap();
    for (through, expected) in [(Some(121), 121), (Some(3), 121), (Some(999), 122), (None, 122)] {
        assert_eq!(sessions::mark_read(&connection, &id("demo"), through).unwrap().read_through_sequence, expected, "{through:?}");
    }
}

#[test]
fn a_search_takes_its_text_literally_and_shows_titles_first() {
    let connection = filled();
    timeline::append(&connection, &id("demo"), EntryKind::Notice, "100% of a_b \\ LONG", Origin::default(), NOW).unwrap();
    let found = |query: &str| {
        let matches = sessions::search(&connection, query, 3).unwrap();
        matches.into_iter().map(|found| (found.session_id.as_str().to_owned(), found.sequence)).collect::<Vec<_>>()
    };
    for query in ["100%", "a_b", "\\ l"] {
        assert_eq!(found(query), [("demo".to_owned(), Some(121))], "{query}");
    }
    assert_eq!(found("long"), [("demo".to_owned(), None), ("demo".to_owned(), Some(121))]);
    assert_eq!(found("question").len(), 3);
    assert_eq!(found("axb"), []);
    assert!(sessions::search(&connection, " ", 3).is_err());
}

#[test]
fn an_entry_has_an_id_of_its_own() {
    let connection = filled();
    let entries = timeline::page(&connection, &id("demo"), End::NEWEST, 200, PAGE_BYTES_MAX).unwrap().entries;
    let ids: std::collections::BTreeSet<&EntryId> = entries.iter().map(|entry| &entry.entry_id).collect();
    assert_eq!(ids.len(), 120);
}
