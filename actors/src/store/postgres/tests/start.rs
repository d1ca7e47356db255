//! What a start waits for, and what it does not.

use super::{super::migrate::MIGRATIONS, *};
use crate::clock;
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    time::timeout,
};

const BRIEFLY: Duration = Duration::from_secs(2);

async fn open_within(url: &str, wait: Duration) -> Result<(), OpenError> {
    open::open(&Settings::parse(url).unwrap(), POOL_SIZE, MIGRATIONS, wait).await.map(drop)
}

async fn absence(url: &str) -> String {
    match open_within(url, BRIEFLY).await {
        Err(OpenError::Absent { cause, .. }) => cause,
        Err(other) => panic!("{other}"),
        Ok(()) => panic!("it was opened"),
    }
}

async fn refusal(url: &str) -> String {
    let began = clock::now();
    let refused = open_within(url, open::START_WAIT).await;
    assert!(clock::now() - began < open::START_WAIT / 2, "it is not waited for");
    match refused {
        Err(OpenError::Refused { cause, .. } | OpenError::Tls(cause)) => cause,
        Err(other) => panic!("{other}"),
        Ok(()) => panic!("it was opened"),
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_waited_for_and_then_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let began = clock::now();
    let cause = absence(&format!("postgres://u:hush@{address}/d")).await;
    assert!(cause.contains("refused"), "{cause}");
    assert!(clock::now() - began >= BRIEFLY - Duration::from_secs(1));
}

#[tokio::test]
async fn a_server_that_is_starting_is_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let mut connections = 0;
        loop {
            let (mut connection, _from) = listener.accept().await.unwrap();
            let mut startup = [0; 8];
            connection.read_exact(&mut startup).await.unwrap();
            let fields = b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0";
            let length = u32::try_from(fields.len() + 4).unwrap().to_be_bytes();
            connection.write_all(&[&b"E"[..], &length, fields].concat()).await.unwrap();
            connections += 1;
            if connections == 2 {
                return;
            }
            // What the client sent and nobody reads would turn the end into a reset.
            let _ = connection.read_to_end(&mut Vec::new()).await;
        }
    });
    let opening = tokio::spawn(async move { absence(&format!("postgres://u:p@{address}/d?sslmode=disable")).await });
    server.await.unwrap();
    opening.await.unwrap();
}

/// A host that is frozen or swaps: the way to it is open, and nothing comes back.
#[tokio::test]
async fn a_server_that_falls_silent_after_its_greeting_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let _server = tokio::spawn(async move {
        let mut silent = Vec::new();
        loop {
            let (mut connection, _from) = listener.accept().await.unwrap();
            let length = connection.read_u32().await.unwrap();
            connection.read_exact(&mut vec![0; usize::try_from(length).unwrap() - 4]).await.unwrap();
            // Authenticated, and ready for a question.
            connection.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I").await.unwrap();
            silent.push(connection);
        }
    });
    let given_up = timeout(open::ATTEMPT_TIMEOUT * 2, absence(&format!("postgres://u:p@{address}/d?sslmode=disable"))).await;
    assert_eq!(given_up.as_deref(), Ok("it does not answer"));
}

#[tokio::test]
async fn a_server_without_room_is_waited_for_until_it_has_some() {
    let database = Database::create_owned().await;
    let limit = |connections: i32| format!("ALTER ROLE {} CONNECTION LIMIT {connections}", database.owner());
    let superuser = database.client().await;
    superuser.batch_execute(&limit(0)).await.unwrap();
    assert!(absence(&database.url()).await.contains("53300"));

    let settings = database.settings();
    let mut opening = std::pin::pin!(PostgresStore::open(&settings, POOL_SIZE));
    assert!(timeout(Duration::from_secs(1), &mut opening).await.is_err());
    superuser.batch_execute(&limit(-1)).await.unwrap();
    assert_eq!(opening.await.unwrap().ping().await, Ok(()));
}

#[tokio::test]
async fn what_waiting_does_not_help_fails_at_once() {
    let database = Database::create_owned().await;
    let wrong_password = database.url().replace(&format!(":{}@", database.owner()), ":hush@");
    let cause = refusal(&wrong_password).await;
    assert!(cause.contains("28P01") && !cause.contains("hush"), "{cause}");
    assert!(refusal(&database.url().replace(database.name(), "nowhere")).await.contains("3D000"));
    let no_password = database.url().replace(&format!(":{}@", database.owner()), "@");
    assert!(refusal(&no_password).await.contains("password missing"));
}

#[tokio::test]
async fn a_database_that_cannot_hold_every_name_is_refused() {
    let database = Database::create_with("ENCODING 'LATIN1' LOCALE 'C'", None).await;
    assert!(refusal(&database.url()).await.contains("LATIN1"));
}
