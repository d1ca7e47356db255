//! `GET /api/devices/{id}/presence`: how a device's presence changed, newest first (device-lane section 2).

use super::{
    Api,
    auth::Account,
    body,
    devices::{device_id, presence_shown},
    error::ApiError,
    only,
    time::{parse_rfc3339, rfc3339},
};
use actix_web::{
    HttpRequest, HttpResponse,
    web::{self, ServiceConfig},
};
use relay_actors::{clock::EpochMs, store::PresenceChange};
use relay_protocol::{
    device::{Presence, PresenceReason, Role},
    id::RelayInstanceId,
    limits::{PRESENCE_PAGE_DEFAULT, PRESENCE_PAGE_MAX},
};
use serde::{Deserialize, Serialize};

pub(super) fn routes(config: &mut ServiceConfig) {
    config.service(web::resource("/api/devices/{id}/presence").get(history).default_service(only("GET")));
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    limit: Option<String>,
    before: Option<String>,
}

/// Which part of the history is asked for.
#[derive(Debug, PartialEq, Eq)]
struct Page {
    limit: u32,
    before: Option<EpochMs>,
}

impl Page {
    fn read(query: &str) -> Result<Self, ApiError> {
        let fields: Fields = body::query(query, "limit and before only")?;
        let limit = match fields.limit {
            None => PRESENCE_PAGE_DEFAULT,
            Some(text) => text
                .parse()
                .ok()
                .filter(|limit| (1..=PRESENCE_PAGE_MAX).contains(limit))
                .ok_or_else(|| ApiError::InvalidPayload(format!("limit must be a number from 1 to {PRESENCE_PAGE_MAX}")))?,
        };
        let before = |text: String| parse_rfc3339(&text).ok_or_else(|| ApiError::InvalidPayload("before must be an RFC 3339 time".into()));
        Ok(Page { limit, before: fields.before.map(before).transpose()? })
    }
}

#[derive(Serialize)]
struct History {
    entries: Vec<Entry>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    status: Presence,
    reason: PresenceReason,
    at: String,
    relay_instance_id: RelayInstanceId,
}

impl Entry {
    fn new(role: Role, change: &PresenceChange) -> Self {
        Entry {
            status: presence_shown(role, change.status),
            reason: change.reason,
            at: rfc3339(change.at),
            relay_instance_id: change.instance,
        }
    }
}

async fn history(
    Account(caller): Account,
    id: web::Path<String>,
    request: HttpRequest,
    api: web::Data<Api>,
) -> Result<HttpResponse, ApiError> {
    let id = device_id(&id)?;
    let page = Page::read(request.query_string())?;
    let rows = api.store.look_up(&[id]).await?;
    let role = rows.iter().find(|row| row.user == caller.user).map(|row| row.role).ok_or(ApiError::DeviceNotFound)?;
    let changes = api.store.presence_history(id, page.before, page.limit).await?;
    Ok(HttpResponse::Ok().json(History { entries: changes.iter().map(|change| Entry::new(role, change)).collect() }))
}

#[cfg(test)]
#[path = "presence_tests.rs"]
mod tests;
