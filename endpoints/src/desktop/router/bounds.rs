//! The sizes that the manifest pins of single methods, judged around their handlers so that no handler can forget them.
//!
//! A result that cannot be judged because it does not have the contract's shape is refused like one that is too large.

use super::HandlerError;
use relay_protocol::{
    contract::Method,
    desktop_error::DesktopError,
    limits::desktop::{
        COMMAND_OUTPUT_PAGE_BYTES_MAX, READ_BINARY_BYTES_MAX, RECONCILE_OUTBOX_ENTRIES_MAX, RECONCILE_RESULT_BYTES_MAX,
        RECONCILE_SESSIONS_MAX,
    },
};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::value::RawValue;
use std::borrow::Cow;

const RECONCILE: &str = "run.chatReconcileSessions";
const COMMAND_OUTPUT: &str = "run.chatCommandOutputRead";
const READ_BINARY: &str = "files.readBinary";

/// Judges params before their handler runs.
///
/// # Errors
/// -32602.
pub(super) fn check_params(method: &Method, params: Option<&RawValue>) -> Result<(), HandlerError> {
    #[derive(Deserialize)]
    struct Params {
        sessions: Vec<IgnoredAny>,
    }
    if method.name != RECONCILE {
        return Ok(());
    }
    let unfit = |error: serde_json::Error| HandlerError::new(DesktopError::InvalidParams, error.to_string());
    let params: Params = serde_json::from_str(params.map_or("{}", RawValue::get)).map_err(unfit)?;
    within(DesktopError::InvalidParams, "reconcileSessionsPerCall", params.sessions.len(), RECONCILE_SESSIONS_MAX)
}

/// Judges a result.
///
/// # Errors
/// -32044 `validation`, with the limit's name of the manifest.
pub(super) fn check_result(method: &Method, result: &RawValue) -> Result<(), HandlerError> {
    match method.name {
        RECONCILE => check_reconciled(result),
        COMMAND_OUTPUT => {
            #[derive(Deserialize)]
            struct Page<'a> {
                #[serde(borrow)]
                output: Cow<'a, str>,
            }
            let page: Page<'_> = read(result)?;
            within_result("commandOutputPageBytes", page.output.len(), COMMAND_OUTPUT_PAGE_BYTES_MAX)
        }
        READ_BINARY => {
            #[derive(Deserialize)]
            struct File<'a> {
                #[serde(borrow)]
                data: Cow<'a, str>,
            }
            let file: File<'_> = read(result)?;
            within_result("readBinaryBytes", raw_bytes_of_base64(&file.data), READ_BINARY_BYTES_MAX)
        }
        _ => Ok(()),
    }
}

fn check_reconciled(result: &RawValue) -> Result<(), HandlerError> {
    #[derive(Deserialize)]
    struct Reconciled {
        sessions: Vec<Session>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Session {
        outbox_entries: Vec<IgnoredAny>,
    }
    within_result("reconcileResultBytes", result.get().len(), RECONCILE_RESULT_BYTES_MAX)?;
    let reconciled: Reconciled = read(result)?;
    let most = reconciled.sessions.iter().map(|session| session.outbox_entries.len()).max().unwrap_or_default();
    within_result("reconcileOutboxEntriesPerSession", most, RECONCILE_OUTBOX_ENTRIES_MAX)
}

fn read<'a, T: Deserialize<'a>>(result: &'a RawValue) -> Result<T, HandlerError> {
    let unfit = |error: serde_json::Error| HandlerError::new(DesktopError::Validation, format!("The result breaks the contract: {error}"));
    serde_json::from_str(result.get()).map_err(unfit)
}

fn within_result(limit: &str, there: usize, max: usize) -> Result<(), HandlerError> {
    within(DesktopError::Validation, limit, there, max)
}

fn within(kind: DesktopError, limit: &str, there: usize, max: usize) -> Result<(), HandlerError> {
    if there <= max {
        return Ok(());
    }
    let message = format!("{there} is over the contract's {limit}, {max}.");
    Err(HandlerError::new(kind, message).with("limit", limit).with("max", max))
}

/// How many bytes a base64 text stands for, padded or not.
fn raw_bytes_of_base64(text: &str) -> usize {
    text.trim_end_matches('=').len() * 3 / 4
}
