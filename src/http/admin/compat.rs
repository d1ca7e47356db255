//! `/admin/compat`: the compatibility rules (device-lane section 7). One that is added or removed is in force within `--policy-cache`, in
//! every process of this storage.

use crate::{
    http::{Api, auth::Operator, body, error::ApiError, only, time::rfc3339},
    limits::COMPATIBILITY_RULES_MAX,
};
use actix_web::{
    HttpResponse,
    web::{self, Payload, ServiceConfig},
};
use relay_actors::{clock::EpochMs, store::CompatibilityRule};
use relay_protocol::compatibility::{RuleId, RuleSpec};
use serde::Serialize;

pub(super) fn routes(config: &mut ServiceConfig) {
    config.service(web::resource("/admin/compat").get(list).post(add).default_service(only("GET, POST")));
    config.service(web::resource("/admin/compat/{id}").delete(remove).default_service(only("DELETE")));
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct View {
    id: RuleId,
    #[serde(flatten)]
    spec: RuleSpec,
    created_at: String,
}

impl From<CompatibilityRule> for View {
    fn from(CompatibilityRule { id, spec, created_at }: CompatibilityRule) -> Self {
        View { id, spec, created_at: rfc3339(created_at) }
    }
}

#[derive(Serialize)]
struct List {
    rules: Vec<View>,
}

async fn list(_: Operator, api: web::Data<Api>) -> Result<HttpResponse, ApiError> {
    let rules = api.store.compatibility_rules().await?.into_iter().map(View::from).collect();
    Ok(HttpResponse::Ok().json(List { rules }))
}

/// 201 with the rule. A second call adds a second rule.
async fn add(_: Operator, payload: Payload, api: web::Data<Api>) -> Result<HttpResponse, ApiError> {
    let body = body::read(payload).await?;
    let spec: RuleSpec = body::fields(&body)?;
    spec.validate().map_err(ApiError::InvalidPayload)?;
    let created_at = EpochMs::now();
    let added = api.store.add_compatibility_rule(spec.clone(), created_at, COMPATIBILITY_RULES_MAX).await?;
    let id = added.ok_or(ApiError::TooManyCompatibilityRules)?;
    tracing::info!(rule = %id, kind = %spec.kind, client = %spec.client, "compatibility rule added");
    Ok(HttpResponse::Created().json(View::from(CompatibilityRule { id, spec, created_at })))
}

async fn remove(_: Operator, id: web::Path<String>, api: web::Data<Api>) -> Result<HttpResponse, ApiError> {
    let id: RuleId = id.parse().map_err(|_no_id| ApiError::CompatibilityRuleNotFound)?;
    if !api.store.remove_compatibility_rule(id).await? {
        return Err(ApiError::CompatibilityRuleNotFound);
    }
    tracing::info!(rule = %id, "compatibility rule removed");
    Ok(HttpResponse::NoContent().finish())
}
