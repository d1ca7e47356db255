//! Settings of the whole desktop.

use crate::desktop::demo::{fault::Fault, model::ReplyStyle};
use rusqlite::Connection;

pub(in crate::desktop::demo) fn reply_style(connection: &Connection) -> Result<ReplyStyle, Fault> {
    Ok(connection.query_row("SELECT reply_style FROM desktop", (), |row| row.get(0))?)
}

pub(in crate::desktop::demo) fn set_reply_style(connection: &Connection, style: ReplyStyle) -> Result<(), Fault> {
    connection.execute("UPDATE desktop SET reply_style = ?1", [style])?;
    Ok(())
}
