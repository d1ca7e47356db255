//! From an HTTP request to a device socket. What the handshake of the websocket crate lets through is checked here.

use super::{
    actor::{DeviceSocket, SocketConfig},
    gated_input::{GatedInput, Intake},
    input::SharedInput,
    outgoing::Outgoing,
    table::SocketTable,
    tcp::TcpHandle,
};
use crate::{clock, directory::Directory};
use actix_http::ws::Codec;
use actix_web::{
    HttpRequest, HttpResponse,
    http::{Method, Version, header},
    web::Payload,
};
use actix_web_actors::ws::{self, WebsocketContext};
use base64::{Engine, engine::general_purpose::STANDARD};
use relay_protocol::{device::Role, identity::Identity};
use std::{rc::Rc, sync::Arc};

/// A request that is no websocket upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAnUpgrade {
    /// Not a GET over HTTP/1.1, or headers missing, doubled or malformed. The text says which.
    BadRequest(&'static str),
    /// A version other than 13.
    UnsupportedVersion,
}

/// Checks the upgrade headers (RFC 6455, section 4.2.1).
///
/// # Errors
/// [`NotAnUpgrade`].
pub fn check_upgrade(request: &HttpRequest) -> Result<(), NotAnUpgrade> {
    let single = |name: header::HeaderName| {
        let mut values = request.headers().get_all(name);
        match (values.next().and_then(|value| value.to_str().ok()), values.next()) {
            (Some(value), None) => Some(value),
            (_, _) => None,
        }
    };
    if request.method() != Method::GET || request.version() != Version::HTTP_11 {
        return Err(NotAnUpgrade::BadRequest("a websocket opens with GET over HTTP/1.1"));
    }
    if !single(header::UPGRADE).is_some_and(|value| value.eq_ignore_ascii_case("websocket")) {
        return Err(NotAnUpgrade::BadRequest("the Upgrade header must be websocket"));
    }
    let mut connection =
        request.headers().get_all(header::CONNECTION).filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    if !connection.any(|token| token.trim().eq_ignore_ascii_case("upgrade")) {
        return Err(NotAnUpgrade::BadRequest("the Connection header must name upgrade"));
    }
    // What follows the head of an upgrade are frames. A proxy that reads it as a body would see other requests than the relay.
    if request.headers().contains_key(header::TRANSFER_ENCODING) || single(header::CONTENT_LENGTH).is_some_and(|length| length != "0") {
        return Err(NotAnUpgrade::BadRequest("a websocket opens without a body"));
    }
    if single(header::SEC_WEBSOCKET_VERSION) != Some("13") {
        return Err(NotAnUpgrade::UnsupportedVersion);
    }
    let key = single(header::SEC_WEBSOCKET_KEY).and_then(|key| STANDARD.decode(key).ok());
    if key.is_none_or(|key| key.len() != 16) {
        return Err(NotAnUpgrade::BadRequest("Sec-WebSocket-Key must be 16 bytes in base64"));
    }
    Ok(())
}

/// What every device socket of the process shares.
#[derive(Clone)]
pub struct Sockets {
    /// The open sockets.
    pub table: Arc<SocketTable>,
    /// Where accounts' routers are found.
    pub directory: Arc<Directory>,
    /// Limits and intervals.
    pub config: SocketConfig,
}

impl Sockets {
    /// Answers an upgrade request with a running device socket. The request must have passed [`check_upgrade`] and
    /// authentication.
    ///
    /// # Errors
    /// What the websocket crate's own handshake finds wrong.
    pub fn open(
        &self,
        request: &HttpRequest,
        payload: Payload,
        identity: Identity,
        role: Role,
        header_target: Option<String>,
        tcp: Option<Arc<TcpHandle>>,
    ) -> Result<HttpResponse, actix_web::Error> {
        let mut response = ws::handshake(request)?;
        let socket = self.table.open(identity, role, self.config.outbound_bytes_max, tcp);
        let link = socket.link().clone();
        tracing::debug!(socket = %link.id, %role, "socket opened");
        let input = SharedInput::new(payload, self.config.gate, role, clock::now());
        let intake = Rc::new(Intake::default());
        let gated = GatedInput::new(input.clone(), link.clone(), self.directory.counters().clone(), intake.clone());
        let actor = DeviceSocket::new(link, self.directory.clone(), self.config.heartbeat_interval, header_target, intake);
        // The gate has the real cap; the codec's own only must not be smaller.
        let codec = Codec::new().max_size(self.config.gate.message_bytes_max);
        let context = WebsocketContext::with_codec(actor, gated, codec);
        Ok(response.streaming(Outgoing::new(context, socket, input)))
    }
}
