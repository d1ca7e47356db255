//! `/api/devices/push-token`: how phones of the account are reached while they sleep (device-lane sections 2 and 8).
//!
//! A token belongs to one device. Whoever claims it has proved nothing but that it knows it, which only the app that holds it does, so
//! a claim moves it: the phone was given to somebody else, or its app was installed anew.

use super::{Api, auth::Account, body, error::ApiError, only};
use actix_web::{
    HttpResponse,
    web::{self, Payload, ServiceConfig},
};
use relay_actors::store::PushClaim;
use relay_protocol::{
    id::DeviceId,
    push::{Environment, Malformed, Provider, PushAddress},
};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::{fmt::Display, str::FromStr};

/// Goes before `/api/devices/{id}`, which would take it for an id.
pub(super) fn routes(config: &mut ServiceConfig) {
    config.service(web::resource("/api/devices/push-token").put(claim).delete(release).default_service(only("PUT, DELETE")));
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClaimFields<'a> {
    #[serde(borrow)]
    device_id: &'a RawValue,
    #[serde(borrow)]
    provider: &'a RawValue,
    #[serde(borrow)]
    token: &'a RawValue,
    #[serde(borrow)]
    environment: Option<&'a RawValue>,
    #[serde(borrow)]
    app_id: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ReleaseFields<'a> {
    #[serde(borrow)]
    device_id: &'a RawValue,
}

/// `PUT`: 204 once it is stored that the token is this phone's, whoever had it.
async fn claim(Account(caller): Account, payload: Payload, api: web::Data<Api>) -> Result<HttpResponse, ApiError> {
    let user = caller.user;
    let body = body::read(payload).await?;
    let (device, address) = claimed(&body)?;
    let provider = address.provider;
    match api.relay.claim_push_token(user, device, address).await? {
        PushClaim::Claimed { moved_from: None } => tracing::info!(%user, %device, %provider, "push token claimed"),
        PushClaim::Claimed { moved_from: Some(former) } => {
            tracing::info!(%user, %device, %provider, %former, "push token moved from another device");
        }
        PushClaim::NoSuchDevice => return Err(ApiError::DeviceNotFound),
        PushClaim::NotAPhone => return Err(ApiError::NotAPhone),
    }
    Ok(HttpResponse::NoContent().finish())
}

/// `DELETE`: 204 once the device has no token, also when it had none, or had lost it.
async fn release(Account(caller): Account, payload: Payload, api: web::Data<Api>) -> Result<HttpResponse, ApiError> {
    let user = caller.user;
    let body = body::read(payload).await?;
    let fields: ReleaseFields<'_> = body::fields(&body)?;
    let device = device_id(fields.device_id)?;
    let released = api.relay.release_push_tokens(user, Some(device)).await?;
    if released > 0 {
        tracing::info!(%user, %device, "push token released");
    } else if !api.store.look_up(&[device]).await?.iter().any(|row| row.user == user) {
        return Err(ApiError::DeviceNotFound);
    }
    Ok(HttpResponse::NoContent().finish())
}

fn claimed(body: &[u8]) -> Result<(DeviceId, PushAddress), ApiError> {
    let fields: ClaimFields<'_> = body::fields(body)?;
    let device = device_id(fields.device_id)?;
    let provider: Provider = body::value("provider", fields.provider, "\"apns\" or \"fcm\"")?;
    let environment: Option<Environment> =
        fields.environment.map(|raw| body::value("environment", raw, "\"production\" or \"sandbox\"")).transpose()?;
    if environment.is_some() && provider != Provider::Apns {
        return Err(ApiError::InvalidPayload("environment is for apns only".to_owned()));
    }
    let address = PushAddress {
        provider,
        token: parsed("token", fields.token)?,
        environment: environment.unwrap_or_default(),
        app_id: fields.app_id.map(|raw| parsed("appId", raw)).transpose()?,
    };
    Ok((device, address))
}

fn device_id(raw: &RawValue) -> Result<DeviceId, ApiError> {
    body::value("deviceId", raw, "a UUID")
}

/// The value is told to nobody: it may be a token.
fn parsed<T: FromStr<Err = Malformed>>(name: &str, raw: &RawValue) -> Result<T, ApiError> {
    let refused = |problem: &dyn Display| ApiError::InvalidPayload(format!("{name} is not valid: {problem}"));
    let text: String = body::value(name, raw, "a string")?;
    text.parse().map_err(|problem: Malformed| refused(&problem))
}

#[cfg(test)]
#[path = "push_tokens_tests.rs"]
mod tests;
