//! `/livez` and `/readyz` on both listeners. Only the admin listener says why the process is not ready.

use super::{Api, only, time::rfc3339};
use crate::limits::READY_PING_TIMEOUT;
use actix_web::{
    HttpResponse,
    web::{self, ServiceConfig},
};
use relay_actors::{clock::EpochMs, relay::StorageHealth};
use serde::Serialize;
use std::collections::BTreeMap;

/// The public listener's.
pub(super) fn public_routes(config: &mut ServiceConfig) {
    config.service(web::resource("/livez").get(live).default_service(only("GET")));
    config.service(web::resource("/readyz").get(ready).default_service(only("GET")));
}

/// The admin listener's.
pub(super) fn admin_routes(config: &mut ServiceConfig) {
    config.service(web::resource("/livez").get(live).default_service(only("GET")));
    config.service(web::resource("/readyz").get(ready_in_detail).default_service(only("GET")));
}

#[derive(Serialize)]
struct Health {
    status: &'static str,
    #[serde(flatten)]
    detail: Option<Detail>,
}

#[derive(Serialize)]
struct Detail {
    #[serde(flatten)]
    storage: StorageView,
    draining: bool,
}

/// How storing goes, for operators.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StorageView {
    storage: &'static str,
    /// By statement: since when its runs fail. It may go on failing while storage answers otherwise.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    failing_since: BTreeMap<&'static str, String>,
    unwritten_statuses: usize,
}

impl StorageView {
    /// Asks storage for a sign of life.
    pub(super) async fn of(api: &Api) -> Self {
        StorageView::new(storage_answers(api).await, &api.relay.storage_health(), EpochMs::now())
    }

    fn new(answers: bool, health: &StorageHealth, now: EpochMs) -> Self {
        StorageView {
            storage: match (answers, health.failing_for.is_empty()) {
                (true, true) => "ok",
                (true, false) => "failing",
                (false, _) => "unavailable",
            },
            failing_since: health.failing_for.iter().map(|(statement, time)| (statement.as_str(), rfc3339(now.minus(*time)))).collect(),
            unwritten_statuses: health.unwritten_statuses,
        }
    }
}

async fn storage_answers(api: &Api) -> bool {
    matches!(tokio::time::timeout(READY_PING_TIMEOUT, api.store.ping()).await, Ok(Ok(())))
}

struct Readiness {
    storage_answers: bool,
    draining: bool,
}

impl Readiness {
    async fn of(api: &Api) -> Self {
        Readiness { storage_answers: storage_answers(api).await, draining: api.relay.is_draining() }
    }

    fn detail(&self, storage: &StorageHealth, now: EpochMs) -> Detail {
        Detail { storage: StorageView::new(self.storage_answers, storage, now), draining: self.draining }
    }

    fn answer(&self, detail: Option<Detail>) -> HttpResponse {
        let ready = self.storage_answers && !self.draining;
        let health = Health { status: if ready { "ready" } else { "notReady" }, detail };
        if ready { HttpResponse::Ok().json(health) } else { HttpResponse::ServiceUnavailable().json(health) }
    }
}

async fn live() -> HttpResponse {
    HttpResponse::Ok().json(Health { status: "live", detail: None })
}

async fn ready(api: web::Data<Api>) -> HttpResponse {
    Readiness::of(&api).await.answer(None)
}

async fn ready_in_detail(api: web::Data<Api>) -> HttpResponse {
    let readiness = Readiness::of(&api).await;
    readiness.answer(Some(readiness.detail(&api.relay.storage_health(), EpochMs::now())))
}
