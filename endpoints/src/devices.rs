//! The account's devices over HTTP (device-lane section 2).

pub use crate::api::ApiError;
use crate::{address::RelayAddress, api::Api};
use hyper::Method;
use relay_protocol::{
    device::{Presence, Role},
    id::DeviceId,
    push::{AppId, Environment, Provider, PushAddress},
};
use serde::{Deserialize, Serialize};
use serde_json::json;

const PUSH_TOKEN: &str = "/api/devices/push-token";

/// What `POST /api/devices` takes.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewDevice {
    /// Chosen by the relay if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_id: Option<DeviceId>,
    /// Which side of the lane it is on.
    pub role: Role,
    /// For people.
    pub device_name: String,
    /// Such as `macos` or `ios`; compatibility rules name it.
    pub platform: String,
    /// Compatibility rules compare it.
    pub app_version: String,
    /// The relay's default if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relay_eligible: Option<bool>,
}

/// What `PATCH /api/devices/{id}` takes: only what changes.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceChange {
    /// A new name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
    /// Turning it off closes the device's sockets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relay_eligible: Option<bool>,
}

/// A device as the relay shows it. Fields that a newer relay adds are skipped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// The row's key.
    pub device_id: DeviceId,
    /// Which side of the lane it is on.
    pub role: Role,
    /// For people.
    pub device_name: String,
    /// As registered.
    pub platform: String,
    /// As registered.
    pub app_version: String,
    /// Whether it may use the relay.
    pub relay_eligible: bool,
    /// Stored status.
    #[serde(default)]
    pub status: Option<Presence>,
    /// Live presence.
    #[serde(default)]
    pub presence: Option<Presence>,
}

/// A client of the devices API for one account.
#[derive(Clone)]
pub struct Devices {
    api: Api,
}

impl Devices {
    /// A client; nothing is sent yet.
    pub fn new(address: RelayAddress, token: String) -> Result<Self, ApiError> {
        Ok(Devices { api: Api::new(address, token)? })
    }

    /// Registers a device, or updates the one with this ID.
    pub async fn register(&self, device: &NewDevice) -> Result<Device, ApiError> {
        self.api.json(Method::POST, "/api/devices", Some(device)).await
    }

    /// The account's devices.
    pub async fn list(&self) -> Result<Vec<Device>, ApiError> {
        #[derive(Deserialize)]
        struct List {
            devices: Vec<Device>,
        }
        let list: List = self.api.json(Method::GET, "/api/devices", None::<&()>).await?;
        Ok(list.devices)
    }

    /// Changes name or eligibility.
    pub async fn change(&self, device: DeviceId, change: &DeviceChange) -> Result<Device, ApiError> {
        self.api.json(Method::PATCH, &format!("/api/devices/{device}"), Some(change)).await
    }

    /// Claims a push token for a phone: whoever had it loses it.
    pub async fn claim_push_token(&self, device: DeviceId, address: &PushAddress) -> Result<(), ApiError> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Claim<'a> {
            device_id: DeviceId,
            provider: Provider,
            token: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            environment: Option<Environment>,
            #[serde(skip_serializing_if = "Option::is_none")]
            app_id: Option<&'a AppId>,
        }
        let PushAddress { provider, token, environment, app_id } = address;
        let environment = (*provider == Provider::Apns).then_some(*environment);
        let claim = Claim { device_id: device, provider: *provider, token: token.expose(), environment, app_id: app_id.as_ref() };
        self.api.done(Method::PUT, PUSH_TOKEN, Some(&claim)).await
    }

    /// Takes a phone's push token away, if it has one.
    pub async fn release_push_token(&self, device: DeviceId) -> Result<(), ApiError> {
        self.api.done(Method::DELETE, PUSH_TOKEN, Some(&json!({"deviceId": device}))).await
    }

    /// Forgets a device: its sockets are closed, its resume sessions invalid.
    pub async fn forget(&self, device: DeviceId) -> Result<(), ApiError> {
        self.api.done(Method::DELETE, &format!("/api/devices/{device}"), None::<&()>).await
    }
}
