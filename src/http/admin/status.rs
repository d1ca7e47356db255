//! `GET /admin/status`: what the process is, how far it is with leaving, and what it holds.

use super::drain::ProgressView;
use crate::http::{Api, auth::Operator, health::StorageView, only, time::rfc3339};
use actix_web::{
    HttpResponse,
    web::{self, ServiceConfig},
};
use relay_actors::{
    clock::EpochMs,
    drain::Phase,
    processes::SeenProcesses,
    relay::Load,
    store::{LiveProcess, ProcessRecord},
};
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
    #[serde(flatten)]
    processes: Processes,
}

#[derive(Serialize)]
struct Sockets {
    desktop: usize,
    mobile: usize,
    unregistered: usize,
}

/// The relay processes of this storage.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Processes {
    processes: Vec<Process>,
    /// When storage told so; absent before its first answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    processes_read_at: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Process {
    relay_instance_id: RelayInstanceId,
    #[serde(rename = "self")]
    is_self: bool,
    phase: &'static str,
    version: String,
    host: String,
    pid: u32,
    started_at: String,
    last_seen_at: String,
}

impl Processes {
    fn new(SeenProcesses { age, live }: SeenProcesses, own: RelayInstanceId, now: EpochMs) -> Self {
        let processes = live.into_iter().map(|process| Process::new(process, own, now)).collect();
        Processes { processes, processes_read_at: age.map(|age| rfc3339(now.minus(age))) }
    }
}

impl Process {
    fn new(LiveProcess { record, last_seen }: LiveProcess, own: RelayInstanceId, now: EpochMs) -> Self {
        let ProcessRecord { instance, version, host, pid, started_at, is_draining } = record;
        Process {
            relay_instance_id: instance,
            is_self: instance == own,
            phase: if is_draining { Phase::Draining } else { Phase::Serving }.as_str(),
            version,
            host,
            pid,
            started_at: rfc3339(started_at),
            last_seen_at: rfc3339(now.minus(last_seen)),
        }
    }
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
        processes: Processes::new(api.relay.processes(), api.relay.instance_id(), EpochMs::now()),
    })
}
