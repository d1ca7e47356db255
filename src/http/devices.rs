//! `/api/devices`: an account's devices (device-lane section 2).
//!
//! Storage is written first, then live sockets follow: a socket that registers in between already meets the new row. Where the
//! second step fails, the call is answered retryable, and repeating it does what is left.
//!
//! A device that is registered again under the other role, or not eligible, loses its live sockets (`notEligible`): none may go
//! on under a role that its row no longer has.

use super::{Api, auth::Account, body, error::ApiError, only, time::rfc3339};
use crate::limits::{APP_VERSION_CHARS_MAX, DEVICE_NAME_CHARS_MAX, PLATFORM_CHARS_MAX};
use actix_web::{
    HttpResponse,
    web::{self, Payload, ServiceConfig},
};
use relay_actors::{
    clock::EpochMs,
    relay::ConnectionInfo,
    store::{Device, DevicePatch, DeviceWrite},
};
use relay_protocol::{
    close::CloseReason,
    device::{Presence, Role},
    id::{DeviceId, UserId},
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

pub(super) fn routes(config: &mut ServiceConfig) {
    config.service(web::resource("/api/devices").post(register).get(list).default_service(only("GET, POST")));
    config.service(web::resource("/api/devices/{id}").patch(change).delete(forget).default_service(only("PATCH, DELETE")));
}

/// `POST /api/devices`: registers a device or updates the account's own. 201 for a new one, 200 otherwise.
async fn register(Account(caller): Account, payload: Payload, api: web::Data<Api>) -> Result<HttpResponse, ApiError> {
    let user = caller.user;
    let write = registration(&body::read(payload).await?, user)?;
    let upserted = api.store.upsert_device(write, EpochMs::now()).await?;
    if upserted.created {
        // Nothing can be connected under a row that was not there.
        return Ok(HttpResponse::Created().json(DeviceView::new(&upserted.device, &BTreeMap::new())));
    }
    let facts = &upserted.device.facts;
    let has_other_role = |connection: &ConnectionInfo| connection.route.device() == facts.id && connection.role != facts.role;
    if !facts.relay_eligible || api.relay.connections(Some(user)).iter().any(has_other_role) {
        api.relay.close_device(user, facts.id, CloseReason::NotEligible).await?;
    }
    Ok(HttpResponse::Ok().json(DeviceView::new(&upserted.device, &api.relay.presence(user).await?)))
}

/// `GET /api/devices`: the account's devices, oldest first.
async fn list(Account(caller): Account, api: web::Data<Api>) -> Result<HttpResponse, ApiError> {
    let user = caller.user;
    let devices = api.store.devices_of(user).await?;
    let presence = api.relay.presence(user).await?;
    let devices = devices.iter().map(|device| DeviceView::new(device, &presence)).collect();
    Ok(HttpResponse::Ok().json(DeviceList { devices }))
}

/// `PATCH /api/devices/{id}`: name and eligibility; what is left out stays. Eligibility off closes the device's sockets.
async fn change(Account(caller): Account, id: web::Path<String>, payload: Payload, api: web::Data<Api>) -> Result<HttpResponse, ApiError> {
    let user = caller.user;
    let id = device_id(&id)?;
    let patch = patch(&body::read(payload).await?)?;
    let device = api.store.patch_device(user, id, patch, EpochMs::now()).await?.ok_or(ApiError::DeviceNotFound)?;
    if !device.facts.relay_eligible {
        api.relay.close_device(user, id, CloseReason::NotEligible).await?;
    }
    Ok(HttpResponse::Ok().json(DeviceView::new(&device, &api.relay.presence(user).await?)))
}

/// `DELETE /api/devices/{id}`: forgets the device and closes its sockets; 204.
async fn forget(Account(caller): Account, id: web::Path<String>, api: web::Data<Api>) -> Result<HttpResponse, ApiError> {
    let user = caller.user;
    let id = device_id(&id)?;
    let forgotten = api.store.forget_device(user, id, EpochMs::now()).await?;
    // Also when there was no row: a repeated call closes what the first, answered 503, could not. It reaches only the account's own.
    api.relay.close_device(user, id, CloseReason::DeviceForgotten).await?;
    if forgotten { Ok(HttpResponse::NoContent().finish()) } else { Err(ApiError::DeviceNotFound) }
}

#[derive(Serialize)]
struct DeviceList {
    devices: Vec<DeviceView>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DeviceView {
    device_id: DeviceId,
    role: Role,
    device_name: String,
    platform: String,
    app_version: String,
    relay_eligible: bool,
    /// Live presence.
    presence: Presence,
    /// Stored presence, which storage trouble or a crash may leave behind the live one.
    status: Presence,
    status_at: Option<String>,
    created_at: String,
    updated_at: String,
}

impl DeviceView {
    fn new(device: &Device, live: &BTreeMap<DeviceId, Presence>) -> Self {
        let facts = &device.facts;
        DeviceView {
            device_id: facts.id,
            role: facts.role,
            device_name: device.name.clone(),
            platform: device.platform.clone(),
            app_version: device.app_version.clone(),
            relay_eligible: facts.relay_eligible,
            presence: presence_shown(facts.role, live.get(&facts.id).copied().unwrap_or(Presence::Disconnected)),
            status: presence_shown(facts.role, device.status),
            status_at: device.status_at.map(rfc3339),
            created_at: rfc3339(device.created_at),
            updated_at: rfc3339(device.updated_at),
        }
    }
}

/// A phone is online or disconnected: nobody waits for it to come back.
pub(super) fn presence_shown(role: Role, presence: Presence) -> Presence {
    match (role, presence) {
        (Role::Mobile, Presence::Reconnecting) => Presence::Disconnected,
        (Role::Mobile, Presence::Online | Presence::Disconnected) | (Role::Desktop, _) => presence,
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RegistrationFields<'a> {
    #[serde(borrow)]
    device_id: Option<&'a RawValue>,
    #[serde(borrow)]
    role: &'a RawValue,
    #[serde(borrow)]
    device_name: &'a RawValue,
    #[serde(borrow)]
    platform: &'a RawValue,
    #[serde(borrow)]
    app_version: &'a RawValue,
    #[serde(borrow)]
    relay_eligible: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PatchFields<'a> {
    #[serde(borrow)]
    device_name: Option<&'a RawValue>,
    #[serde(borrow)]
    relay_eligible: Option<&'a RawValue>,
}

fn registration(body: &[u8], user: UserId) -> Result<DeviceWrite, ApiError> {
    let fields: RegistrationFields<'_> = body::fields(body)?;
    Ok(DeviceWrite {
        id: match fields.device_id {
            Some(raw) => body::value("deviceId", raw, "a UUID")?,
            None => DeviceId(uuid::Uuid::new_v4()),
        },
        user,
        role: body::value("role", fields.role, "\"desktop\" or \"mobile\"")?,
        name: device_name(fields.device_name)?,
        platform: body::text("platform", fields.platform, PLATFORM_CHARS_MAX)?,
        app_version: body::text("appVersion", fields.app_version, APP_VERSION_CHARS_MAX)?,
        relay_eligible: fields.relay_eligible.map(relay_eligible).transpose()?,
    })
}

fn patch(body: &[u8]) -> Result<DevicePatch, ApiError> {
    let fields: PatchFields<'_> = body::fields(body)?;
    Ok(DevicePatch {
        name: fields.device_name.map(device_name).transpose()?,
        relay_eligible: fields.relay_eligible.map(relay_eligible).transpose()?,
    })
}

fn device_name(raw: &RawValue) -> Result<String, ApiError> {
    body::text("deviceName", raw, DEVICE_NAME_CHARS_MAX)
}

fn relay_eligible(raw: &RawValue) -> Result<bool, ApiError> {
    body::value("relayEligible", raw, "true or false")
}

pub(super) fn device_id(text: &str) -> Result<DeviceId, ApiError> {
    text.parse().map_err(|_not_a_uuid| ApiError::InvalidDeviceId)
}

#[cfg(test)]
#[path = "devices_tests.rs"]
mod tests;
