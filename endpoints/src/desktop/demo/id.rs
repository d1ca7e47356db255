//! Ids of a demo desktop's things. Those of a phone's choosing may hold any text, within bounds.

use rusqlite::{
    ToSql,
    types::{FromSql, FromSqlResult, ToSqlOutput, ValueRef},
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Longest id, in bytes: as long as a request's own id may be.
const ID_BYTES_MAX: usize = 128;

/// Text that names something: not blank, no blanks around it, no control characters.
fn check(text: &str) -> Result<(), &'static str> {
    if text.is_empty() || text.trim().len() != text.len() {
        return Err("an id is not empty and has no blanks around it");
    }
    if text.len() > ID_BYTES_MAX {
        return Err("an id has at most 128 bytes");
    }
    if text.chars().any(char::is_control) {
        return Err("an id has no control characters");
    }
    Ok(())
}

macro_rules! text_ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String")]
        pub(super) struct $name(String);

        #[allow(dead_code, reason = "not each id is made here, nor read as text")]
        impl $name {
            /// One that nothing has.
            pub(super) fn fresh() -> Self {
                $name(Uuid::new_v4().to_string())
            }

            /// One that this program writes down.
            pub(super) fn fixed(text: &'static str) -> Self {
                $name(text.to_owned())
            }

            pub(super) fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = &'static str;

            fn try_from(text: String) -> Result<Self, &'static str> {
                check(&text)?;
                Ok($name(text))
            }
        }

        impl ToSql for $name {
            fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
                self.0.to_sql()
            }
        }

        impl FromSql for $name {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                String::column_result(value).map($name)
            }
        }
    )*};
}

text_ids! {
    /// A folder that agents work in.
    ProjectId;
    /// A session, which leases and `chat:stream` call `appSessionId`.
    AppSessionId;
    /// A saved conversation of an agent: a Codex thread or a Claude session.
    ConversationId;
    /// A place in the outbox, chosen by the phone.
    QueueId;
    /// One thing that somebody wanted once, chosen by the phone.
    OperationId;
    /// One piece of work of an agent.
    RunId;
    /// What that piece is called within its conversation.
    TurnId;
    /// A piece of the timeline.
    EntryId;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_plain_text_within_bounds() {
        for good in ["q", "queue-201", "a b", "ü", &"x".repeat(ID_BYTES_MAX)] {
            assert!(QueueId::try_from(good.to_owned()).is_ok(), "{good}");
        }
        for wrong in ["", " ", " q", "q\n", "a\0b", &"x".repeat(ID_BYTES_MAX + 1)] {
            assert!(QueueId::try_from(wrong.to_owned()).is_err(), "{wrong:?}");
        }
    }
}
