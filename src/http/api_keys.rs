//! `/api/api-keys`: an account's API keys (device-lane section 1). For the account's own token only.

use super::{
    Api,
    auth::{Owner, api_key},
    body,
    error::ApiError,
    only,
    time::rfc3339,
};
use crate::limits::{API_KEY_NAME_CHARS_MAX, API_KEYS_PER_ACCOUNT_MAX};
use actix_web::{
    HttpResponse,
    web::{self, Payload, ServiceConfig},
};
use relay_actors::{clock::EpochMs, store::ApiKey};
use relay_protocol::{
    id::{ApiKeyId, UserId},
    identity::Scopes,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

pub(super) fn routes(config: &mut ServiceConfig) {
    config.service(web::resource("/api/api-keys").post(create).get(list).default_service(only("GET, POST")));
    config.service(web::resource("/api/api-keys/{id}").delete(revoke).default_service(only("DELETE")));
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Fields<'a> {
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    scopes: &'a RawValue,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct View<'a> {
    api_key_id: ApiKeyId,
    name: Option<&'a str>,
    scopes: Scopes,
    created_at: String,
}

impl<'a> View<'a> {
    fn new(key: &'a ApiKey) -> Self {
        View { api_key_id: key.id, name: key.name.as_deref(), scopes: key.scopes, created_at: rfc3339(key.created_at) }
    }
}

/// The one answer that shows the key itself.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Created<'a> {
    #[serde(flatten)]
    view: View<'a>,
    api_key: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List<'a> {
    api_keys: Vec<View<'a>>,
}

/// `POST /api/api-keys`: makes a key; 201.
async fn create(Owner(user): Owner, payload: Payload, api: web::Data<Api>) -> Result<HttpResponse, ApiError> {
    let key = new_key(&body::read(payload).await?, user, EpochMs::now())?;
    let secret = api_key::generate();
    if !api.store.create_api_key(key.clone(), api_key::hash(&secret), API_KEYS_PER_ACCOUNT_MAX).await? {
        return Err(ApiError::TooManyApiKeys);
    }
    tracing::info!(%user, api_key = %key.id, scopes = %key.scopes, "api key made");
    Ok(HttpResponse::Created().json(Created { view: View::new(&key), api_key: secret.expose() }))
}

/// `GET /api/api-keys`: the account's keys that are not revoked, oldest first.
async fn list(Owner(user): Owner, api: web::Data<Api>) -> Result<HttpResponse, ApiError> {
    let keys = api.store.api_keys_of(user).await?;
    Ok(HttpResponse::Ok().json(List { api_keys: keys.iter().map(View::new).collect() }))
}

/// `DELETE /api/api-keys/{id}`: revokes the key, closes the sockets that it opened and ends their sessions; 204.
async fn revoke(Owner(user): Owner, id: web::Path<String>, api: web::Data<Api>) -> Result<HttpResponse, ApiError> {
    let id: ApiKeyId = id.parse().map_err(|_not_a_uuid| ApiError::ApiKeyNotFound)?;
    let revoked = api.store.revoke_api_key(user, id, EpochMs::now()).await?;
    if revoked {
        tracing::info!(%user, api_key = %id, "api key revoked");
    }
    // Also when it was revoked already: a repeated call closes what the first, answered 503, could not. It reaches only the account's own.
    api.relay.revoke(user, id).await?;
    if revoked { Ok(HttpResponse::NoContent().finish()) } else { Err(ApiError::ApiKeyNotFound) }
}

fn new_key(body: &[u8], user: UserId, now: EpochMs) -> Result<ApiKey, ApiError> {
    let fields: Fields<'_> = body::fields(body)?;
    let name = fields.name.map(|raw| body::text("name", raw, API_KEY_NAME_CHARS_MAX)).transpose()?;
    let scopes: Scopes = body::value("scopes", fields.scopes, "a list of \"rpc\", \"read\", \"write\"")?;
    if scopes.is_empty() {
        return Err(ApiError::InvalidPayload("scopes must name at least one".into()));
    }
    Ok(ApiKey { id: ApiKeyId(Uuid::new_v4()), user, name, scopes, created_at: now })
}

#[cfg(test)]
#[path = "api_keys_tests.rs"]
mod tests;
