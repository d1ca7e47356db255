//! `/admin/connections`: who is connected, and the end of one of them.

use crate::http::{Api, auth::Operator, body, error::ApiError, only, time::rfc3339};
use actix_web::{
    HttpRequest, HttpResponse,
    web::{self, ServiceConfig},
};
use relay_actors::{clock::EpochMs, relay::ConnectionInfo};
use relay_protocol::{
    device::Role,
    id::{ConnectionId, UserId},
};
use serde::{Deserialize, Serialize};

pub(super) fn routes(config: &mut ServiceConfig) {
    config.service(web::resource("/admin/connections").get(connections).default_service(only("GET")));
    config.service(web::resource("/admin/connections/{id}/close").post(close).default_service(only("POST")));
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConnectionsQuery {
    user: Option<UserId>,
}

#[derive(Serialize)]
struct Connections {
    connections: Vec<ConnectionView>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ConnectionView {
    connection_id: ConnectionId,
    user_id: UserId,
    role: Role,
    route: String,
    connected_at: String,
    last_inbound_at: String,
    queued_bytes: usize,
}

impl ConnectionView {
    fn new(connection: &ConnectionInfo, now: EpochMs) -> Self {
        ConnectionView {
            connection_id: connection.connection_id,
            user_id: connection.user,
            role: connection.role,
            route: connection.route.to_string(),
            connected_at: rfc3339(now.minus(connection.connected_for)),
            last_inbound_at: rfc3339(now.minus(connection.silent_for)),
            queued_bytes: connection.queued_bytes,
        }
    }
}

/// `GET /admin/connections[?user=UUID]`: registered sockets, of one account or of all.
async fn connections(_: Operator, request: HttpRequest, api: web::Data<Api>) -> Result<HttpResponse, ApiError> {
    let query: ConnectionsQuery = body::query(request.query_string(), "user=UUID only")?;
    let now = EpochMs::now();
    let connections = api.relay.connections(query.user).iter().map(|connection| ConnectionView::new(connection, now)).collect();
    Ok(HttpResponse::Ok().json(Connections { connections }))
}

/// `POST /admin/connections/{id}/close`: closes one registered socket with 1012 `closedByOperator`. One that is closing already is
/// answered like the first time; once it has ended it is unknown.
async fn close(_: Operator, path: web::Path<String>, api: web::Data<Api>) -> Result<HttpResponse, ApiError> {
    let connection: ConnectionId = path.parse().map_err(|_not_a_uuid| ApiError::ConnectionNotFound)?;
    if !api.relay.close_connection(connection) {
        return Err(ApiError::ConnectionNotFound);
    }
    tracing::info!(%connection, "closed by an operator");
    Ok(HttpResponse::NoContent().finish())
}
