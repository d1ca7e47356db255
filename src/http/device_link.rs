//! `GET /ws/device-link`: the way from the public listener into the socket layer (device-lane section 3).

use super::{Api, Mount, auth, error::ApiError, only};
use actix_web::{
    HttpRequest, HttpResponse,
    dev::Extensions,
    http::header::HeaderMap,
    web::{self, Payload},
};
use relay_actors::{
    device_socket::{NotAnUpgrade, TcpHandle, check_upgrade},
    relay::Relay,
};
use relay_protocol::{
    device::Role,
    identity::{Identity, Scope},
};
use std::{any::Any, sync::Arc, time::Duration};

/// Where device sockets open.
pub const PATH: &str = "/ws/device-link";
const CLIENT_TYPE: &str = "X-Client-Type";
const TARGET_DESKTOP: &str = "X-Target-Desktop-Device-ID";

/// Mounts the route for this relay.
pub fn mount(relay: &Relay) -> Mount {
    let relay = web::Data::new(relay.clone());
    Arc::new(move |config| {
        let route = web::resource(PATH).app_data(relay.clone()).get(open).default_service(only("GET"));
        config.service(route);
    })
}

/// Keeps each connection's TCP socket, so that the sweep can end it, and lets the kernel end one whose peer has vanished.
pub fn on_connect(unacknowledged_max: Duration) -> impl Fn(&dyn Any, &mut Extensions) + Send + Sync {
    move |connection, extensions| match TcpHandle::keep(connection, unacknowledged_max) {
        Ok(handle) => drop(extensions.insert(Arc::new(handle))),
        Err(error) => tracing::warn!(%error, "the connection cannot be ended from outside of its actor"),
    }
}

async fn open(
    request: HttpRequest,
    payload: Payload,
    api: web::Data<Api>,
    relay: web::Data<Relay>,
) -> Result<HttpResponse, actix_web::Error> {
    let opened = open_socket(&request, payload, &api, &relay).await;
    if let Err(error) = &opened {
        api.handshakes.count_refusal(error.as_error::<ApiError>().map_or("", ApiError::code));
    }
    opened
}

async fn open_socket(request: &HttpRequest, payload: Payload, api: &Api, relay: &Relay) -> Result<HttpResponse, actix_web::Error> {
    if relay.is_draining() {
        return Err(ApiError::RelayDraining.into());
    }
    let table = &relay.sockets().table;
    let bars = table.bars();
    let identity = admitted(request, api).await?;
    if relay.is_draining() {
        // It began while the token was being judged.
        return Err(ApiError::RelayDraining.into());
    }
    auth::require(&identity, Scope::Rpc)?;
    let role = single(request.headers(), CLIENT_TYPE)?
        .and_then(|role| role.parse::<Role>().ok())
        .ok_or_else(|| ApiError::InvalidPayload(format!("{CLIENT_TYPE} must be desktop or mobile")))?;
    let target = single(request.headers(), TARGET_DESKTOP)?.map(str::to_owned);
    let tcp = request.conn_data::<Arc<TcpHandle>>().cloned();
    let response = relay.sockets().open(request, payload, identity, role, target, tcp)?;
    // A key that was revoked behind its look-up had its sockets closed, but this one may not have been in the table yet.
    if identity.api_key.is_some() && table.bars() != bars {
        api.authenticate(request.headers()).await?;
    }
    Ok(response)
}

/// Who opens a socket. Each attempt is counted, whatever becomes of it.
async fn admitted(request: &HttpRequest, api: &Api) -> Result<Identity, ApiError> {
    let admitted = match check_upgrade(request) {
        Ok(()) => api.authenticate(request.headers()).await,
        Err(fault) => Err(fault.into()),
    };
    api.handshakes.count(request, admitted.as_ref().ok().map(|identity| identity.user))?;
    admitted
}

/// A header that may stand there once.
fn single<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, ApiError> {
    let mut values = headers.get_all(name);
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => {
            value.to_str().map(Some).map_err(|_not_ascii| ApiError::InvalidPayload(format!("{name} must be plain ASCII")))
        }
        (Some(_), Some(_)) => Err(ApiError::InvalidPayload(format!("{name} stands there more than once"))),
    }
}

impl From<NotAnUpgrade> for ApiError {
    fn from(fault: NotAnUpgrade) -> Self {
        match fault {
            NotAnUpgrade::BadRequest(fault) => ApiError::InvalidPayload(fault.to_owned()),
            NotAnUpgrade::UnsupportedVersion => ApiError::UpgradeRequired,
        }
    }
}

#[cfg(test)]
#[path = "device_link_tests.rs"]
mod tests;
