//! The HTTP side: what clients and operators may call.
//!
//! [`Api`] is what every handler needs; [`public_routes`] and [`admin_routes`] say what each listener serves. The websocket route
//! is mounted from outside, since it is the socket layer's way in, see [`Mount`].

pub mod addresses;
pub mod admin;
pub mod api_keys;
pub mod auth;
pub mod body;
pub mod compatibility;
pub mod device_link;
pub mod devices;
pub mod error;
pub mod handshakes;
pub mod health;
pub mod logout;
pub mod port;
pub mod presence;
pub mod push_tokens;
pub mod time;

#[cfg(test)]
mod health_tests;
#[cfg(test)]
pub(crate) mod testing;

use self::{
    auth::{AdminToken, Authenticator},
    compatibility::PolicyCache,
    error::ApiError,
    handshakes::Handshakes,
    port::RelayPort,
};
use crate::{telemetry::LogFilter, tls::Certificate};
use actix_web::{
    HttpRequest, HttpResponse, ResponseError,
    http::header,
    middleware::DefaultHeaders,
    web::{self, ServiceConfig},
};
use relay_actors::{clock::EpochMs, store::Store};
use relay_protocol::identity::Identity;
use std::sync::Arc;

/// What handlers work with; one for both listeners.
pub struct Api {
    /// Durable state.
    pub store: Arc<dyn Store>,
    /// The running actors.
    pub relay: Arc<dyn RelayPort>,
    /// Checks account tokens.
    pub authenticator: Authenticator,
    /// Checks the admin token.
    pub admin_token: AdminToken,
    /// Counts handshakes, and calls without a valid token or without any, for each address.
    pub handshakes: Handshakes,
    /// The compatibility rules.
    pub policy: PolicyCache,
    /// What is logged.
    pub log: LogFilter,
    /// Of the public listener; none where it speaks plain HTTP.
    pub certificate: Option<Certificate>,
}

impl Api {
    /// The bearer of the token that these headers carry now.
    ///
    /// # Errors
    /// As [`Authenticator::authenticate`].
    pub async fn authenticate(&self, headers: &header::HeaderMap) -> Result<Identity, ApiError> {
        self.authenticator.authenticate(headers, EpochMs::now()).await
    }
}

/// Adds routes to the public listener. The socket layer's mounts `/ws/device-link`.
pub type Mount = Arc<dyn Fn(&mut ServiceConfig) + Send + Sync>;

/// Everything that the public listener serves.
pub fn public_routes(config: &mut ServiceConfig, api: web::Data<Api>, device_link: &Mount) {
    config.app_data(api);
    health::public_routes(config);
    push_tokens::routes(config);
    devices::routes(config);
    presence::routes(config);
    api_keys::routes(config);
    logout::routes(config);
    compatibility::routes(config);
    device_link(config);
    config.default_service(web::to(not_found));
}

/// Everything that the admin listener serves.
pub fn admin_routes(config: &mut ServiceConfig, api: web::Data<Api>) {
    config.app_data(api);
    health::admin_routes(config);
    admin::routes(config);
    config.default_service(web::to(not_found));
}

/// Headers of every answer: what a call tells is for its caller only and for now only.
pub fn default_headers() -> DefaultHeaders {
    DefaultHeaders::new().add((header::CACHE_CONTROL, "no-store")).add((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
}

async fn not_found(_: HttpRequest) -> HttpResponse {
    ApiError::NotFound.error_response()
}

/// What a path answers to the methods that it does not take.
fn only(allow: &'static str) -> actix_web::Route {
    web::to(move || async move { ApiError::MethodNotAllowed { allow }.error_response() })
}
