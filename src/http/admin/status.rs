//! `GET /admin/status`: what the process is, how far it is with leaving, and what it holds.

use super::drain::ProgressView;
use crate::http::{Api, auth::Operator, health::StorageView, only, time::rfc3339};
use actix_web::{
    HttpResponse,
    web::{self, ServiceConfig},
};
use relay_actors::relay::Load;
use relay_protocol::id::RelayInstanceId;
use serde::Serialize;

pub(super) fn routes(config: &mut ServiceConfig) {
    config.service(web::resource("/admin/status").get(status).default_service(only("GET")));
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    relay_instance_id: RelayInstanceId,
    version: &'static str,
    started_at: String,
    uptime_ms: u128,
    drain: ProgressView,
    sockets: Sockets,
    accounts: usize,
    pending: usize,
    leases: usize,
    #[serde(flatten)]
    storage: StorageView,
}

#[derive(Serialize)]
struct Sockets {
    desktop: usize,
    mobile: usize,
    unregistered: usize,
}

async fn status(_: Operator, api: web::Data<Api>) -> HttpResponse {
    let storage = StorageView::of(&api).await;
    let (started_at, uptime) = api.relay.started();
    let Load { desktops, phones, unregistered, accounts, pending, leases } = api.relay.load();
    HttpResponse::Ok().json(Status {
        relay_instance_id: api.relay.instance_id(),
        version: env!("CARGO_PKG_VERSION"),
        started_at: rfc3339(started_at),
        uptime_ms: uptime.as_millis(),
        drain: api.relay.progress().into(),
        sockets: Sockets { desktop: desktops, mobile: phones, unregistered },
        accounts,
        pending,
        leases,
        storage,
    })
}
