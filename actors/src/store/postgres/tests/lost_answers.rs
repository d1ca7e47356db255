//! A statement that ran, and whose answer was lost with its connection: the repeat answers as the first would have.

use super::*;
use relay_protocol::compatibility::RuleSpec;
use std::{
    net::{SocketAddr, ToSocketAddrs},
    sync::{Arc, Mutex},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy},
    net::{TcpListener, TcpStream},
};
use tokio_postgres::config::Host;

/// A way to the server that ends, once, in place of an answer.
struct LosingProxy {
    address: SocketAddr,
    /// The tag of the command whose answer is lost next.
    tag: Arc<Mutex<Option<&'static str>>>,
}

impl LosingProxy {
    async fn start() -> Self {
        let server = database::server();
        let Some(Host::Tcp(host)) = server.get_hosts().first() else { panic!("no host") };
        let server = (host.as_str(), server.get_ports()[0]).to_socket_addrs().unwrap().next().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tag = Arc::new(Mutex::new(None));
        let watched = Arc::clone(&tag);
        tokio::spawn(async move {
            loop {
                let (client, _from) = listener.accept().await.unwrap();
                tokio::spawn(forward(client, TcpStream::connect(server).await.unwrap(), Arc::clone(&watched)));
            }
        });
        LosingProxy { address, tag }
    }
}

async fn forward(mut client: TcpStream, mut server: TcpStream, tag: Arc<Mutex<Option<&'static str>>>) {
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let answers = async {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let read = from_server.read(&mut buffer).await.unwrap_or(0);
            let answer = &buffer[..read];
            let is_lost = |tag: &mut &str| answer.windows(tag.len() + 1).any(|bytes| bytes == format!("{tag}\0").as_bytes());
            if read == 0 || tag.lock().unwrap().take_if(is_lost).is_some() || to_client.write_all(answer).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = answers => {}
        _ = copy(&mut from_client, &mut to_server) => {}
    }
}

#[tokio::test]
async fn a_repeat_answers_as_the_statement_whose_answer_was_lost() {
    let database = Database::create().await;
    let proxy = LosingProxy::start().await;
    let settings = Settings::parse(&format!("{}?sslmode=disable", database.url_at(&proxy.address.to_string()))).unwrap();
    let store = PostgresStore::open(&settings, NonZero::<u16>::MIN).await.unwrap();
    let lose = async |tag| {
        // A connection that was never used before is not repeated on.
        store.ping().await.unwrap();
        *proxy.tag.lock().unwrap() = Some(tag);
    };
    let is_lost = || assert_eq!(*proxy.tag.lock().unwrap(), None, "no answer had this tag");
    let later = |ms| EpochMs(NOW.0 + ms);

    // New, there already, forgotten, back again.
    for (at, created) in [(NOW, true), (later(1), false)] {
        lose("COMMIT").await;
        assert_eq!(store.upsert_device(write(1), at).await.unwrap().created, created);
        is_lost();
    }
    lose("SELECT 1").await;
    assert_eq!(store.forget_device(user(), id(1), later(2)).await, Ok(true));
    is_lost();
    assert_eq!(store.forget_device(user(), id(1), later(2)).await, Ok(false), "another call, though of the same time");
    lose("COMMIT").await;
    assert!(store.upsert_device(write(1), later(3)).await.unwrap().created);
    is_lost();
    assert!(!store.upsert_device(write(1), later(3)).await.unwrap().created, "another call, though of the same time");

    let key = ApiKey { id: ApiKeyId(Uuid::nil()), user: user(), name: None, scopes: "rpc".parse().unwrap(), created_at: NOW };
    lose("COMMIT").await;
    assert_eq!(store.create_api_key(key.clone(), ApiKeyHash([1; 32]), 1).await, Ok(true));
    is_lost();
    lose("UPDATE 1").await;
    assert_eq!(store.revoke_api_key(user(), key.id, later(1)).await, Ok(true));
    is_lost();
    assert_eq!(store.revoke_api_key(user(), key.id, later(1)).await, Ok(false), "another call, though of the same time");

    let rule: RuleSpec = serde_json::from_str(r#"{"kind":"block","client":"mobile","platform":"ios"}"#).unwrap();
    lose("SELECT 1").await;
    let added = store.add_compatibility_rule(rule.clone(), NOW, 2).await.unwrap().unwrap();
    is_lost();
    let other = store.add_compatibility_rule(rule, NOW, 2).await.unwrap().unwrap();
    assert_eq!(store.compatibility_rules().await.unwrap().iter().map(|rule| rule.id).collect::<Vec<_>>(), [added, other]);
    lose("SELECT 1").await;
    assert_eq!(store.remove_compatibility_rule(added).await, Ok(true));
    is_lost();
    assert_eq!(store.remove_compatibility_rule(added).await, Ok(false), "another call");
}
