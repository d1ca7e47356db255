//! `/livez` and `/readyz` on both listeners. Only the admin listener says why the process is not ready.

use super::{Api, only};
use crate::limits::READY_PING_TIMEOUT;
use actix_web::{
    HttpResponse,
    web::{self, ServiceConfig},
};
use serde::Serialize;

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
#[serde(rename_all = "camelCase")]
struct Health {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    storage: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    draining: Option<bool>,
}

struct Readiness {
    storage_answers: bool,
    draining: bool,
}

impl Readiness {
    async fn of(api: &Api) -> Self {
        let ping = tokio::time::timeout(READY_PING_TIMEOUT, api.store.ping()).await;
        Readiness { storage_answers: matches!(ping, Ok(Ok(()))), draining: api.relay.is_draining() }
    }

    fn answer(&self, detailed: bool) -> HttpResponse {
        let ready = self.storage_answers && !self.draining;
        let health = Health {
            status: if ready { "ready" } else { "notReady" },
            storage: detailed.then_some(if self.storage_answers { "ok" } else { "unavailable" }),
            draining: detailed.then_some(self.draining),
        };
        if ready { HttpResponse::Ok().json(health) } else { HttpResponse::ServiceUnavailable().json(health) }
    }
}

async fn live() -> HttpResponse {
    HttpResponse::Ok().json(Health { status: "live", storage: None, draining: None })
}

async fn ready(api: web::Data<Api>) -> HttpResponse {
    Readiness::of(&api).await.answer(false)
}

async fn ready_in_detail(api: web::Data<Api>) -> HttpResponse {
    Readiness::of(&api).await.answer(true)
}
