//! The account's devices over HTTP (device-lane section 2).

use crate::{address::RelayAddress, frame::ErrorFrame};
use relay_protocol::{
    device::{Presence, Role},
    id::DeviceId,
};
use reqwest::{Method, StatusCode};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{fmt, time::Duration};

/// One HTTP call, from connecting to the last byte.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);

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

/// Why a call failed.
#[derive(Debug)]
pub enum ApiError {
    /// No answer: nothing listens there, or it took too long.
    Unreachable(String),
    /// The relay said no.
    Refused {
        /// The HTTP status.
        status: u16,
        /// The body's error object.
        error: ErrorFrame,
    },
    /// An answer that no relay gives.
    Unexpected {
        /// The HTTP status.
        status: u16,
        /// What was wrong with it.
        detail: String,
    },
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ApiError::Unreachable(detail) => write!(f, "no answer: {detail}"),
            ApiError::Refused { status, error } => write!(f, "{error} (status {status})"),
            ApiError::Unexpected { status, detail } => write!(f, "an answer that no relay gives (status {status}): {detail}"),
        }
    }
}

impl std::error::Error for ApiError {}

/// A client of the devices API for one account.
#[derive(Clone)]
pub struct Devices {
    http: reqwest::Client,
    address: RelayAddress,
    token: String,
}

impl Devices {
    /// A client; nothing is sent yet.
    pub fn new(address: RelayAddress, token: String) -> Result<Self, ApiError> {
        // A relay is an address of the user's own choice: no proxy from the environment comes in between.
        let http = reqwest::Client::builder().timeout(CALL_TIMEOUT).no_proxy().build().map_err(unreachable_error)?;
        Ok(Devices { http, address, token })
    }

    /// Registers a device, or updates the one with this ID.
    pub async fn register(&self, device: &NewDevice) -> Result<Device, ApiError> {
        self.json(Method::POST, "/api/devices", Some(device)).await
    }

    /// The account's devices.
    pub async fn list(&self) -> Result<Vec<Device>, ApiError> {
        #[derive(Deserialize)]
        struct List {
            devices: Vec<Device>,
        }
        let list: List = self.json(Method::GET, "/api/devices", None::<&()>).await?;
        Ok(list.devices)
    }

    /// Changes name or eligibility.
    pub async fn change(&self, device: DeviceId, change: &DeviceChange) -> Result<Device, ApiError> {
        self.json(Method::PATCH, &format!("/api/devices/{device}"), Some(change)).await
    }

    /// Forgets a device: its sockets are closed, its resume sessions invalid.
    pub async fn forget(&self, device: DeviceId) -> Result<(), ApiError> {
        let (status, body) = self.send(Method::DELETE, &format!("/api/devices/{device}"), None::<&()>).await?;
        succeeded(status, &body)
    }

    async fn json<T: DeserializeOwned>(&self, method: Method, path: &str, body: Option<&impl Serialize>) -> Result<T, ApiError> {
        let (status, body) = self.send(method, path, body).await?;
        succeeded(status, &body)?;
        serde_json::from_slice(&body).map_err(|error| ApiError::Unexpected { status: status.as_u16(), detail: error.to_string() })
    }

    async fn send(&self, method: Method, path: &str, body: Option<&impl Serialize>) -> Result<(StatusCode, Vec<u8>), ApiError> {
        let mut request = self.http.request(method, self.address.http(path)).bearer_auth(&self.token);
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send().await.map_err(unreachable_error)?;
        let status = answer.status();
        let body = answer.bytes().await.map_err(unreachable_error)?;
        Ok((status, body.to_vec()))
    }
}

fn succeeded(status: StatusCode, body: &[u8]) -> Result<(), ApiError> {
    #[derive(Deserialize)]
    struct Refusal {
        error: ErrorFrame,
    }
    if status.is_success() {
        return Ok(());
    }
    let status = status.as_u16();
    match serde_json::from_slice::<Refusal>(body) {
        Ok(refusal) => Err(ApiError::Refused { status, error: refusal.error }),
        Err(error) => Err(ApiError::Unexpected { status, detail: error.to_string() }),
    }
}

/// The innermost cause: reqwest's own texts repeat the address and say little.
fn unreachable_error(error: reqwest::Error) -> ApiError {
    let mut innermost: &dyn std::error::Error = &error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    ApiError::Unreachable(innermost.to_string())
}
