//! Connections that break, statements that take too long, callers that leave.

use super::{
    super::pool::{CALL_TIMEOUT, STATEMENT_TIMEOUT},
    *,
};
use crate::clock;
use futures_util::future::join_all;
use stall_proxy::{Network, StallProxy};
use std::{net::ToSocketAddrs, sync::Arc, time::Duration};
use tokio_postgres::config::Host;

#[path = "../../../../../tests/support/stall_proxy.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "shared with the tests over sockets, which use more of it")]
mod stall_proxy;

/// The answer's way back, on a machine that is busy with other tests.
const SLACK: Duration = Duration::from_secs(1);

async fn proxy_to_the_server() -> StallProxy {
    let server = database::server();
    let Some(Host::Tcp(host)) = server.get_hosts().first() else { panic!("no host") };
    StallProxy::start((host.as_str(), server.get_ports()[0]).to_socket_addrs().unwrap().next().unwrap()).await
}

/// A store behind a proxy, with every connection of its pool open and used.
async fn behind_a_proxy(pool_size: NonZero<u16>) -> (PostgresFixture, StallProxy) {
    let database = Database::create().await;
    let proxy = proxy_to_the_server().await;
    let settings = Settings::parse(&database.url_at(&proxy.address().to_string())).unwrap();
    let store = PostgresStore::open(&settings, pool_size).await.unwrap();
    let fixture = PostgresFixture { store, database };
    fill(&fixture, pool_size).await;
    (fixture, proxy)
}

/// Opens all connections of the pool, and puts them back.
async fn fill(fixture: &PostgresFixture, pool_size: NonZero<u16>) {
    let connections = fixture.store.pool.connections();
    let open_all = move |_caller| async move {
        let opened = join_all((0..pool_size.get()).map(|_| connections.acquire())).await;
        assert!(opened.iter().all(Result::is_ok));
        Ok(())
    };
    fixture.store.pool.drive(open_all).await.unwrap();
    assert_eq!(fixture.database.backends().await.len(), usize::from(pool_size.get()));
}

async fn all_succeed(fixture: &PostgresFixture, first: u128) {
    let answers = join_all((first..first + 20).map(|device| fixture.store.upsert_device(write(device), NOW))).await;
    assert!(answers.iter().all(|answer| answer.as_ref().is_ok_and(|upserted| upserted.created)), "{answers:?}");
}

/// C65
#[tokio::test]
async fn connections_that_the_server_ended_are_not_handed_out() {
    let fixture = fixture().await;
    for round in 0..3 {
        fill(&fixture, POOL_SIZE).await;
        let before = fixture.database.backends().await;
        assert_eq!(fixture.database.terminate_all().await, i64::from(POOL_SIZE.get()));
        all_succeed(&fixture, 1 + round * 100).await;
        assert!(fixture.database.backends().await.iter().all(|backend| !before.contains(backend)));
    }
}

/// C65
#[tokio::test]
async fn connections_that_the_network_ended_are_not_handed_out() {
    let (fixture, proxy) = behind_a_proxy(POOL_SIZE).await;
    proxy.cut();
    all_succeed(&fixture, 1).await;
    fill(&fixture, POOL_SIZE).await;
    proxy.reset();
    all_succeed(&fixture, 101).await;
}

#[tokio::test]
async fn a_statement_that_takes_too_long_fails_in_time_and_its_connection_is_closed() {
    let fixture = fixture_with(NonZero::<u16>::MIN).await;
    fixture.store.upsert_device(write(1), NOW).await.unwrap();
    let before = fixture.database.backends().await;
    let holder = fixture.database.client().await;
    holder.batch_execute("BEGIN; LOCK TABLE devices").await.unwrap();
    let began = clock::now();
    let refused = unavailable(fixture.store.upsert_device(write(1), NOW).await);
    let took = clock::now() - began;
    assert!(refused.contains("57014"), "the server's own limit comes first: {refused}");
    assert!((STATEMENT_TIMEOUT..STATEMENT_TIMEOUT + SLACK).contains(&took), "{took:?}");
    holder.batch_execute("COMMIT").await.unwrap();
    assert!(!fixture.store.upsert_device(write(1), NOW).await.unwrap().created);
    assert!(!fixture.database.backends().await.contains(&before[0]));
}

#[tokio::test]
async fn a_server_that_says_nothing_fails_calls_in_time_and_is_used_again_when_it_speaks() {
    let (fixture, proxy) = behind_a_proxy(NonZero::new(2).unwrap()).await;
    let before = fixture.database.backends().await;
    proxy.set(Network::Stalls);
    let began = clock::now();
    let answers = join_all((0..6).map(|_| fixture.store.look_up(&[]))).await;
    let took = clock::now() - began;
    assert!(answers.iter().all(|answer| matches!(answer, Err(StoreError::Unavailable(_)))), "{answers:?}");
    assert!(took < CALL_TIMEOUT + SLACK, "{took:?}");
    proxy.set(Network::Works);
    assert_eq!(fixture.store.look_up(&[]).await, Ok(vec![]));
    assert_eq!(fixture.store.look_up(&[]).await, Ok(vec![]));
    let mut after = fixture.database.backends().await;
    after.retain(|backend| !before.contains(backend));
    assert!(!after.is_empty());
}

/// C67
#[tokio::test]
async fn a_pool_of_one_serves_all_who_wait_and_loses_nothing_to_those_who_leave() {
    let fixture = fixture_with(NonZero::<u16>::MIN).await;
    let store = Arc::new(fixture.store);
    let holder = fixture.database.client().await;
    holder.batch_execute("BEGIN; LOCK TABLE devices").await.unwrap();
    let calls: Vec<_> = (1..=200)
        .map(|device| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.upsert_device(write(device), NOW).await })
        })
        .collect();
    fixture.database.wait_for_blocked(1).await;
    // Every second caller leaves, the one whose statement runs or another.
    for call in calls.iter().step_by(2) {
        call.abort();
    }
    holder.batch_execute("COMMIT").await.unwrap();
    for (index, call) in calls.into_iter().enumerate() {
        match call.await {
            Ok(answer) => assert!(answer.is_ok_and(|upserted| upserted.created)),
            Err(left) => assert!(left.is_cancelled() && index % 2 == 0, "{left}"),
        }
    }
    // The pool is whole: the same connection, free.
    assert_eq!(fixture.database.backends().await.len(), 1);
    assert_eq!(store.ping().await, Ok(()));
    let registered = store.devices_of(user()).await.unwrap().len();
    assert!((100..=101).contains(&registered), "of those who left, at most the one whose statement ran: {registered}");
}

/// C67
#[tokio::test]
async fn who_waits_for_a_connection_waits_for_a_bounded_time() {
    let fixture = fixture_with(NonZero::<u16>::MIN).await;
    let holder = fixture.database.client().await;
    holder.batch_execute("BEGIN; LOCK TABLE devices").await.unwrap();
    let began = clock::now();
    let answers = join_all((1..=50).map(|device| fixture.store.upsert_device(write(device), NOW))).await;
    assert!(clock::now() - began < CALL_TIMEOUT + SLACK);
    assert!(answers.iter().all(|answer| matches!(answer, Err(StoreError::Unavailable(_)))), "{answers:?}");
    holder.batch_execute("COMMIT").await.unwrap();
    all_succeed(&fixture, 1).await;
}
