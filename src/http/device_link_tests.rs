use crate::{
    cli::Cli,
    http::{
        public_routes,
        testing::{ALICE, Fixture, api_key_of},
    },
    wiring::{self, Actors},
};
use actix_web::{App, dev::ServiceResponse, test};
use relay_actors::push::Gateways;
use relay_protocol::close::CloseReason;

/// A key is found good, and before its socket is in the table, sockets are closed: of this key, which is gone, or of another one.
#[actix_web::test]
async fn a_key_that_is_revoked_behind_its_look_up_opens_no_socket() {
    for is_revoked in [true, false] {
        let fixture = Fixture::new();
        let (_, bearer) = api_key_of(&fixture, ALICE, "rpc").await;
        let actors = wiring::start_actors(&Cli::serve_config(&[]), fixture.store.clone(), Gateways::default());
        let (store, table) = (fixture.store.clone(), actors.relay.sockets().table.clone());
        fixture.store.behind_next_key_look_up(move || {
            if is_revoked {
                store.clear_keys();
            }
            assert!(table.bar(|_| true, CloseReason::Revoked).is_empty(), "it is not in the table yet");
        });
        let answer = upgrade(&fixture, &actors, bearer).await;
        let (status, open) = if is_revoked { (401, 0) } else { (101, 1) };
        assert_eq!((answer.status().as_u16(), actors.relay.open_sockets()), (status, open));
        assert_eq!(fixture.store.key_look_ups(), 2, "looked up again");
    }
}

#[actix_web::test]
async fn a_drain_that_begins_behind_a_look_up_lets_no_socket_open() {
    let fixture = Fixture::new();
    let (_, bearer) = api_key_of(&fixture, ALICE, "rpc").await;
    let actors = wiring::start_actors(&Cli::serve_config(&[]), fixture.store.clone(), Gateways::default());
    let relay = actors.relay.clone();
    fixture.store.behind_next_key_look_up(move || relay.begin_drain(false));
    assert_eq!(upgrade(&fixture, &actors, bearer).await.status().as_u16(), 503);
    assert_eq!(actors.relay.open_sockets(), 0);
}

/// What a desktop's upgrade is answered with; the socket lives as long as this.
async fn upgrade(fixture: &Fixture, actors: &Actors, bearer: (&'static str, String)) -> ServiceResponse {
    let app = App::new().configure(|config| public_routes(config, fixture.api.clone(), &actors.device_link));
    let app = test::init_service(app).await;
    let upgrade = test::TestRequest::with_uri(super::PATH)
        .insert_header(bearer)
        .insert_header(("Connection", "Upgrade"))
        .insert_header(("Upgrade", "websocket"))
        .insert_header(("Sec-WebSocket-Version", "13"))
        .insert_header(("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="))
        .insert_header(("X-Client-Type", "desktop"));
    test::call_service(&app, upgrade.to_request()).await
}
