//! TLS. The test server's certificate is for `localhost` and `127.0.0.1`, and signed by an authority that no system trusts.

use super::{super::migrate::MIGRATIONS, *};

async fn opened(database: &Database, host: Option<&str>, query: &str) -> Result<PostgresStore, String> {
    let port = database::server().get_ports()[0];
    let url = host.map_or_else(|| database.url(), |host| database.url_at(&format!("{host}:{port}")));
    let settings = Settings::parse(&format!("{url}?{query}")).map_err(|error| error.to_string())?;
    let opened = open::open(&settings, POOL_SIZE, MIGRATIONS, open::START_WAIT).await;
    opened.map(|(pool, migrations)| PostgresStore::new(pool, migrations)).map_err(|error| error.to_string())
}

async fn is_encrypted(database: &Database) -> bool {
    let encrypted = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                     WHERE datname = $1 AND application_name = 'relay'";
    database.client().await.query_one(encrypted, &[&database.name()]).await.unwrap().get(0)
}

#[tokio::test]
async fn the_servers_name_and_chain_are_verified() {
    let database = Database::create().await;
    for host in ["localhost", "127.0.0.1"] {
        for mode in ["", "&sslmode=require", "&sslmode=verify-full"] {
            let store = opened(&database, Some(host), &format!("sslrootcert={}{mode}", database::ca_file())).await.unwrap();
            assert_eq!(store.ping().await, Ok(()));
            assert!(is_encrypted(&database).await);
        }
    }
}

#[tokio::test]
async fn another_name_and_another_authority_are_refused_at_once() {
    let database = Database::create().await;
    // The same server by a name that its certificate does not have.
    let impostor = format!("hostaddr=127.0.0.1&sslrootcert={}", database::ca_file());
    let refused = opened(&database, Some("impostor.test"), &impostor).await.err().unwrap();
    assert!(refused.contains("invalid peer certificate") && refused.contains("impostor.test"), "{refused}");
    for mode in ["require", "verify-full"] {
        let refused = opened(&database, None, &format!("sslmode={mode}")).await.err().unwrap();
        assert!(refused.contains("UnknownIssuer") || refused.contains("trusts no certificate"), "{refused}");
    }
}

#[tokio::test]
async fn a_ca_file_that_is_none_is_named() {
    let database = Database::create().await;
    let directory = tempfile::tempdir().unwrap();
    let empty = directory.path().join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    for (path, problem) in [(directory.path().join("missing.pem"), "missing.pem"), (empty, "no certificate")] {
        let refused = opened(&database, None, &format!("sslrootcert={}", path.display())).await.err().unwrap();
        assert!(refused.contains(problem), "{refused}");
    }
}

#[tokio::test]
async fn without_a_word_tls_is_used_where_it_is_offered() {
    let database = Database::create().await;
    let store = opened(&database, None, "").await.unwrap();
    assert!(is_encrypted(&database).await);
    drop(store);
    let _store = opened(&database, None, "sslmode=disable&application_name=plain").await.unwrap();
    let plain = "SELECT bool_or(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'plain'";
    assert!(!database.client().await.query_one(plain, &[]).await.unwrap().get::<_, bool>(0));
}

#[tokio::test]
async fn a_socket_of_the_file_system_needs_no_tls() {
    let database = Database::create().await;
    let directories = database.client().await.query_one("SHOW unix_socket_directories", &[]).await.unwrap();
    let host = directories.get::<_, &str>(0).replace('/', "%2F");
    for query in ["", "sslmode=prefer", "sslmode=disable"] {
        assert_eq!(opened(&database, Some(&host), query).await.unwrap().ping().await, Ok(()), "{query}");
    }
    let verified = format!("sslmode=require&sslrootcert={}", database::ca_file());
    let refused = opened(&database, Some(&host), &verified).await.err().unwrap();
    assert!(refused.contains("TLS"), "{refused}");
}
