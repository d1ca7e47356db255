//! `GET` and `PUT /admin/log`: what is logged, changed while the process runs. It lasts until the process ends.

use crate::{
    http::{Api, auth::Operator, body, error::ApiError, only},
    telemetry::FilterError,
};
use actix_web::{
    HttpResponse,
    web::{self, ServiceConfig},
};
use serde::{Deserialize, Serialize};

pub(super) fn routes(config: &mut ServiceConfig) {
    config.service(web::resource("/admin/log").get(show).put(replace).default_service(only("GET, PUT")));
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Filter {
    filter: String,
}

/// `{"filter":"info,relay_actors=debug"}`, as it was given.
async fn show(_: Operator, api: web::Data<Api>) -> HttpResponse {
    HttpResponse::Ok().json(Filter { filter: api.log.text() })
}

/// Takes effect at once, also for what is running. A filter that does not parse is answered 400, which names its faulty part, and
/// changes nothing.
async fn replace(_: Operator, payload: web::Payload, api: web::Data<Api>) -> Result<HttpResponse, ApiError> {
    let body = body::read(payload).await?;
    let Filter { filter } = body::fields(&body)?;
    match api.log.replace(&filter) {
        Ok(()) => {}
        Err(error @ (FilterError::Empty | FilterError::NotAPart { .. })) => {
            return Err(ApiError::InvalidPayload(format!("`filter` {error}")));
        }
        Err(FilterError::Ended) => return Err(ApiError::InvalidPayload("the process ends".into())),
    }
    tracing::info!(filter, "log filter replaced");
    Ok(HttpResponse::Ok().json(Filter { filter }))
}
