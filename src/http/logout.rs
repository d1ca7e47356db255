//! `POST /api/auth/logout`: ends what was opened, and lets none of it be resumed (device-lane section 2).
//!
//! Tokens stay valid: a JWT until it expires, an API key until it is revoked. Whoever has one may open and register sockets anew.

use super::{Api, auth::Account, body, error::ApiError, only};
use actix_web::{
    HttpResponse,
    web::{self, Payload, ServiceConfig},
};
use relay_protocol::{close::CloseReason, id::DeviceId};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

pub(super) fn routes(config: &mut ServiceConfig) {
    config.service(web::resource("/api/auth/logout").post(log_out).default_service(only("POST")));
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Fields<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    device_id: Option<&'a RawValue>,
}

/// A null is no absent field: a client that has lost its device id must not log the whole account out.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Closes the sockets of one device, or of the whole account, ends their resume sessions and drops their push tokens; 204. Sockets are closed even while
/// storage is away and cannot say whether there is such a device: a router holds its own account's only.
async fn log_out(Account(caller): Account, payload: Payload, api: web::Data<Api>) -> Result<HttpResponse, ApiError> {
    let user = caller.user;
    let body = body::read(payload).await?;
    let fields: Fields<'_> = body::fields(&body)?;
    match fields.device_id {
        Some(raw) => {
            let device: DeviceId = body::value("deviceId", raw, "a UUID")?;
            api.relay.close_device(user, device, CloseReason::LoggedOut).await?;
            api.relay.release_push_tokens(user, Some(device)).await?;
            if !api.store.look_up(&[device]).await?.iter().any(|row| row.user == user) {
                return Err(ApiError::DeviceNotFound);
            }
            tracing::info!(%user, %device, "device logged out");
        }
        None => {
            api.relay.log_out(user).await?;
            api.relay.release_push_tokens(user, None).await?;
            tracing::info!(%user, "account logged out");
        }
    }
    Ok(HttpResponse::NoContent().finish())
}

#[cfg(test)]
#[path = "logout_tests.rs"]
mod tests;
