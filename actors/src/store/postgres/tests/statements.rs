//! Statements: their plans, their locks, and what the server refuses.

use super::{super::statements as sql, *};
use futures_util::future::join_all;

#[tokio::test]
async fn look_ups_and_listings_use_an_index() {
    let PostgresFixture { database, .. } = fixture().await;
    let client = database.client().await;
    let rows = "INSERT INTO devices (id, user_id, role, name, platform, app_version, relay_eligible, created_at, updated_at) \
                SELECT gen_random_uuid(), gen_random_uuid(), 'mobile', '', '', '', true, n, n FROM generate_series(1, 20000) AS n; \
                ANALYZE devices";
    client.batch_execute(rows).await.unwrap();
    for (statement, parameter) in [(sql::LOOK_UP, "array[gen_random_uuid()]"), (sql::DEVICES_OF, "gen_random_uuid()")] {
        // A prepared statement may get either kind of plan.
        for mode in ["force_custom_plan", "force_generic_plan"] {
            client.batch_execute(&format!("SET plan_cache_mode = {mode}; PREPARE it AS {statement}")).await.unwrap();
            let explained = client.query(&format!("EXPLAIN EXECUTE it ({parameter})"), &[]).await.unwrap();
            let plan: String = explained.iter().map(|row| row.get::<_, &str>(0).to_owned() + "\n").collect();
            assert!(plan.contains("Index") && !plan.contains("Seq Scan"), "{mode}: {plan}");
            client.batch_execute("DEALLOCATE it").await.unwrap();
        }
    }
}

/// Without an order of locks, some of these would be ended by the server as deadlocks.
#[tokio::test]
async fn batches_over_the_same_devices_never_wait_for_each_other_in_a_circle() {
    let PostgresFixture { store, database: _database } = fixture().await;
    let devices = 300;
    for device in 1..=devices {
        store.upsert_device(write(device), NOW).await.unwrap();
    }
    let process = |n| RelayInstanceId(Uuid::from_u128(n));
    let online = |device| StatusWrite { device: id(device), status: Presence::Online, reason: PresenceReason::Registered, at: NOW };
    let writes: Vec<_> = (1..=devices).map(online).collect();
    let reversed: Vec<_> = writes.iter().rev().copied().collect();
    for _ in 0..5 {
        let written = join_all((0..8).map(|n| store.write_statuses(if n % 2 == 0 { &writes } else { &reversed }, process(n))));
        let ended = join_all((8..10).map(|n| store.disconnect_stale(process(n), NOW)));
        let (written, ended) = tokio::join!(written, ended);
        assert!(written.iter().all(Result::is_ok) && ended.iter().all(Result::is_ok), "{written:?} {ended:?}");
    }
}

#[tokio::test]
async fn more_stale_statuses_than_one_statement_takes_are_all_ended() {
    let PostgresFixture { store, database } = fixture().await;
    let count = STALE_BATCH_DEVICES_MAX + 1;
    let rows = "INSERT INTO devices (id, user_id, role, name, platform, app_version, relay_eligible, created_at, updated_at, status) \
                SELECT gen_random_uuid(), $1, 'desktop', '', '', '', true, 0, 0, 'online' FROM generate_series(1, $2::bigint)";
    database.client().await.execute(rows, &[&user().0, &count]).await.unwrap();
    assert_eq!(store.disconnect_stale(RelayInstanceId(Uuid::nil()), NOW).await, Ok(u64::try_from(count).unwrap()));
    assert!(store.devices_of(user()).await.unwrap().iter().all(|device| device.status == Presence::Disconnected));
}

/// C69: HTTP refuses it first. Here it fails once, and harms nothing else.
#[tokio::test]
async fn a_text_with_nul_is_refused_at_once_and_leaves_the_connection_in_order() {
    let PostgresFixture { store, database } = fixture_with(NonZero::<u16>::MIN).await;
    let before = database.backends().await;
    let refused = unavailable(store.upsert_device(DeviceWrite { name: "a\0b".into(), ..write(1) }, NOW).await);
    assert!(refused.contains("22021") && !refused.contains("a\0b"), "{refused}");
    assert!(store.upsert_device(write(1), NOW).await.unwrap().created);
    assert_eq!(database.backends().await, before);
}

#[tokio::test]
async fn a_row_that_no_relay_wrote_is_unavailable_and_no_panic() {
    let PostgresFixture { store, database } = fixture().await;
    store.upsert_device(write(1), NOW).await.unwrap();
    let odd = "ALTER TABLE devices DROP CONSTRAINT devices_role_check; UPDATE devices SET role = 'toaster'";
    database.client().await.batch_execute(odd).await.unwrap();
    assert!(unavailable(store.look_up(&[id(1)]).await).contains("role"));
}

/// What the server says of a row that it refuses quotes the row, and that is somebody's own.
#[tokio::test]
async fn a_refusal_does_not_quote_the_row() {
    let PostgresFixture { store, database } = fixture().await;
    database.client().await.batch_execute("ALTER TABLE devices ADD CHECK (platform <> 'linux')").await.unwrap();
    let refused = unavailable(store.upsert_device(DeviceWrite { name: "Private".into(), ..write(1) }, NOW).await);
    assert!(refused.contains("23514") && !refused.contains("Private"), "{refused}");
}

/// A write that was given up may still reach the server, behind a later one.
#[tokio::test]
async fn a_late_write_of_an_earlier_status_changes_nothing() {
    let PostgresFixture { store, database: _database } = fixture().await;
    store.upsert_device(write(1), NOW).await.unwrap();
    let change = |status, reason, ms| StatusWrite { device: id(1), status, reason, at: EpochMs(NOW.0 + ms) };
    let online = change(Presence::Online, PresenceReason::Registered, 2);
    let reconnecting = change(Presence::Reconnecting, PresenceReason::SocketClosed, 1);
    let (process, other) = (RelayInstanceId(Uuid::from_u128(1)), RelayInstanceId(Uuid::from_u128(2)));
    let stored = async || {
        let status = store.devices_of(user()).await.unwrap()[0].status;
        let history = store.presence_history(id(1), None, 10).await.unwrap();
        (status, history.iter().map(|change| change.status).collect::<Vec<_>>())
    };
    store.pool.query(sql::write_statuses(&[online], process, 2)).await.unwrap();
    store.pool.query(sql::write_statuses(&[reconnecting], process, 1)).await.unwrap();
    assert_eq!(stored().await, (Presence::Online, vec![Presence::Online]));

    // Another process counts anew.
    let gone = change(Presence::Disconnected, PresenceReason::GraceElapsed, 3);
    store.pool.query(sql::write_statuses(&[gone], other, 1)).await.unwrap();
    assert_eq!(stored().await, (Presence::Disconnected, vec![Presence::Disconnected, Presence::Online]));
}

/// Whoever holds one account's lock holds up no other account.
#[tokio::test]
async fn calls_that_wait_for_an_accounts_lock_leave_connections_to_others() {
    let PostgresFixture { store, database } = fixture_with(NonZero::new(2).unwrap()).await;
    let holder = database.client().await;
    holder.batch_execute("BEGIN").await.unwrap();
    let lock = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))";
    holder.execute(lock, &[&user().to_string()]).await.unwrap();
    let writes = join_all((1..=4).map(|device| store.upsert_device(write(device), NOW)));
    let others = async {
        for _ in 0..20 {
            store.ping().await.unwrap();
        }
        holder.batch_execute("COMMIT").await.unwrap();
    };
    let (written, ()) = tokio::join!(writes, others);
    assert!(written.iter().all(Result::is_ok), "{written:?}");
}

/// The statement has seen the row of another process; by the time that it has the lock, the row is this process's.
#[tokio::test]
async fn a_device_that_comes_back_while_stale_statuses_are_ended_stays_online() {
    let PostgresFixture { store, database } = fixture().await;
    let (own, dead) = (RelayInstanceId(Uuid::from_u128(1)), RelayInstanceId(Uuid::from_u128(2)));
    store.upsert_device(write(1), NOW).await.unwrap();
    let online = StatusWrite { device: id(1), status: Presence::Online, reason: PresenceReason::Registered, at: NOW };
    store.write_statuses(&[online], dead).await.unwrap();
    let (holder, watcher) = (database.client().await, database.client().await);
    holder.batch_execute("BEGIN").await.unwrap();
    holder.execute("UPDATE devices SET status_instance = $1", &[&own.0]).await.unwrap();
    let comes_back = async {
        let waits = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        while watcher.query(waits, &[]).await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        holder.batch_execute("COMMIT").await.unwrap();
    };
    let (ended, ()) = tokio::join!(store.disconnect_stale(own, NOW), comes_back);
    assert_eq!(ended, Ok(0));
    assert_eq!(store.devices_of(user()).await.unwrap()[0].status, Presence::Online);
}
