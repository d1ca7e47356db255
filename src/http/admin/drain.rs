//! `POST /admin/drain`: has the process leave. It answers how far it is, so asking again is asking for the progress.

use crate::http::{Api, auth::Operator, body, error::ApiError, only};
use actix_web::{
    HttpResponse,
    web::{self, Payload, ServiceConfig},
};
use relay_actors::relay::Progress;
use serde::{Deserialize, Serialize};

pub(super) fn routes(config: &mut ServiceConfig) {
    config.service(web::resource("/admin/drain").post(drain).default_service(only("POST")));
}

/// How far the process is with leaving.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProgressView {
    phase: &'static str,
    in_flight: usize,
    sockets_left: usize,
    elapsed_ms: u128,
}

impl From<Progress> for ProgressView {
    fn from(Progress { phase, in_flight, sockets_left, elapsed }: Progress) -> Self {
        ProgressView { phase: phase.as_str(), in_flight, sockets_left, elapsed_ms: elapsed.as_millis() }
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Fields {
    #[serde(default)]
    exit_after_drain: bool,
}

async fn drain(_: Operator, payload: Payload, api: web::Data<Api>) -> Result<HttpResponse, ApiError> {
    let body = body::read(payload).await?;
    let Fields { exit_after_drain } = if body.is_empty() { Fields::default() } else { body::fields(&body)? };
    Ok(HttpResponse::Ok().json(ProgressView::from(api.relay.begin_drain(exit_after_drain))))
}
