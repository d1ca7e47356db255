//! A switch from blue to green while everybody is connected, as clients, probes, the admin listeners and storage see it. C78.

use crate::{
    clients::{Client, History},
    stage::{Stage, get},
    support::{
        data_dir::DataDir,
        postgres::Server,
        raw_socket::{RawOptions, RawSocket},
        scale::scaled,
        wire::eventually,
    },
};
use futures_util::future::join_all;
use relay_endpoints::{
    admin::Admin,
    devices::{ApiError, Device},
};
use relay_protocol::device::{Presence, Role};
use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{task::JoinHandle, time::sleep};

const POLL_INTERVAL: Duration = Duration::from_millis(10);
const PHONES_PER_DESKTOP: usize = 4;

/// Asks something over and over until the switch is over: the answers, each once where it came several times in a row.
fn probe<T, F>(over: &Arc<AtomicBool>, ask: impl Fn() -> F + Send + 'static) -> JoinHandle<Vec<T>>
where
    T: PartialEq + Send + 'static,
    F: Future<Output = T> + Send,
{
    let over = Arc::clone(over);
    tokio::spawn(async move {
        let mut seen = Vec::new();
        while !over.load(Relaxed) {
            seen.push(ask().await);
            seen.dedup();
            sleep(POLL_INTERVAL).await;
        }
        seen
    })
}

/// Open sockets, registered or not; none where nobody answers.
async fn sockets(admin: &Admin) -> u64 {
    let Ok(status) = admin.status().await else { return 0 };
    ["desktop", "mobile", "unregistered"].iter().map(|kind| status["sockets"][kind].as_u64().unwrap()).sum()
}

/// The first line of the answer to an upgrade without a valid token, and whether it says when to come again. A process that leaves says
/// so before it looks at the token, and one that serves says 401, so no socket has to open for it.
async fn knock(options: RawOptions) -> (String, bool) {
    let answer = RawSocket::try_open(&options).await.err().expect("the token is wrong");
    let status = answer.split(' ').nth(1).unwrap().to_owned();
    (status, answer.to_ascii_lowercase().contains("\r\nretry-after: 1\r\n"))
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_everybody_moves_from_blue_to_green_and_is_bounced_once() {
    let stage = Stage::start(DataDir::with_postgres(Server::shared())).await;
    let mut accounts = Vec::new();
    for _ in 0..scaled(100, 400) {
        accounts.push(stage.account(1, PHONES_PER_DESKTOP).await);
    }
    let key = accounts[0].api_key("rpc,read").await;
    let mut clients: Vec<Client> = Vec::new();
    for account in &accounts {
        clients.push(Client::start(account.raw_desktop(), account.desktops[0]));
        clients.extend(account.phones.iter().map(|phone| Client::start(account.raw_phone(), *phone)));
    }
    let blue = stage.instance("blue").await;
    let all_at = async |instance: &str| clients.iter().all(|client| client.is_at(instance));
    eventually("everybody is at blue", async || all_at(&blue).await).await;
    stage.pair().await;

    let over = Arc::new(AtomicBool::new(false));
    let public = stage.public();
    let readiness = probe(&over, move || async move { get(public, "/readyz").await.expect("HAProxy answers").0 });
    let knocker = RawOptions::device_link(&stage.address(), "no-token", Role::Desktop, None);
    let upgrades = probe(&over, move || knock(knocker.clone()));
    // Green first: blue never gets sockets again, so what it has behind that, it had at that moment.
    let admins = [stage.admin("green"), stage.admin("blue")];
    let both = probe(&over, move || {
        let [green, blue] = admins.clone();
        async move { (sockets(&green).await > 0, sockets(&blue).await > 0) }
    });
    let blues = stage.direct("blue");
    let liveness = probe(&over, move || async move { get(blues, "/livez").await.map(|(status, _)| status) });

    let (code, said) = stage.run(&["switch"]).await;
    assert_eq!(code, 0, "{said}");
    let green = stage.instance("green").await;
    eventually("everybody is at green", async || all_at(&green).await).await;
    stage.pair().await;
    over.store(true, Relaxed);

    assert_eq!(readiness.await.unwrap(), [200, 503, 200]);
    let [serving, leaving] = [("401", false), ("503", true)].map(|(status, says_when)| (status.to_owned(), says_when));
    assert_eq!(upgrades.await.unwrap(), [serving.clone(), leaving, serving]);
    assert_eq!(liveness.await.unwrap(), [Some(200), None], "it lives until it ends");
    let both = both.await.unwrap();
    assert!(!both.contains(&(true, true)), "both held device sockets");
    assert_eq!((both.first(), both.last()), (Some(&(false, true)), Some(&(true, false))));

    for client in &clients {
        let History { registrations, closes, refusals, not_opened } = client.history();
        assert_eq!(registrations, [blue.clone(), green.clone()]);
        assert_eq!(closes, [Some((1012, "relayDraining".to_owned()))]);
        assert_eq!(refusals, [""; 0]);
        assert!(not_opened.iter().all(|(line, says_when)| line.starts_with("HTTP/1.1 503 ") && *says_when), "{not_opened:?}");
    }
    let log = stage.units.log("blue");
    let after = log.split_once(r#""draining""#).expect("it says so").1;
    assert!(!after.contains(r#""message":"registered""#), "the draining one took a registration");
    assert!(after.contains(r#""message":"stopped""#) && !stage.units.runs("blue"));
    assert_eq!(stage.units.seen(), ["start blue", "stop green", "start green", "stop blue"]);
    assert_eq!((stage.in_use().await, stage.file()), ("green".to_owned(), "in-use green\n".to_owned()));

    // Nothing is lost in storage: devices, keys, and the statuses, which are written behind.
    let is_complete = async |devices: &[Device]| {
        devices.len() == 1 + PHONES_PER_DESKTOP
            && devices.iter().all(|device| device.status == Some(Presence::Online) && device.presence == Some(Presence::Online))
    };
    eventually("all are stored as online", async || {
        let lists = join_all(accounts.iter().map(async |account| is_complete(&account.devices().list().await.unwrap()).await)).await;
        lists.iter().all(|complete| *complete)
    })
    .await;
    let with_key = accounts[0].with_token(&key.api_key);
    assert!(is_complete(&with_key.devices().list().await.unwrap()).await, "the key is still taken");
}

/// Back and forth, with HAProxy started anew in between: what is in use is not forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn the_choice_outlives_haproxy_and_a_second_switch_goes_back() {
    let mut stage = Stage::start(DataDir::with_sqlite()).await;
    let (code, said) = stage.run(&["switch", "blue"]).await;
    assert_eq!((code, stage.in_use().await.as_str()), (0, "blue"), "it is in use already: {said}");
    let (code, said) = stage.run(&["switch", "green"]).await;
    assert_eq!((code, stage.in_use().await.as_str()), (0, "green"), "{said}");
    stage.start_haproxy().await;
    assert_eq!(stage.in_use().await, "green");
    let mut pair = stage.pair().await;
    let (code, said) = stage.run(&["switch", "green"]).await;
    assert_eq!(code, 0, "{said}");
    pair.works().await;
    let (code, said) = stage.run(&["switch"]).await;
    assert_eq!((code, stage.in_use().await.as_str()), (0, "blue"), "{said}");
    assert!(stage.units.runs("blue") && !stage.units.runs("green"));
    stage.pair().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_no_process_is_clients_are_told_when_to_come_again() {
    let stage = Stage::start(DataDir::with_sqlite()).await;
    let account = stage.account(1, 0).await;
    let client = Client::start(account.raw_desktop(), account.desktops[0]);
    let first = stage.instance("blue").await;
    eventually("it is there", async || client.is_at(&first)).await;
    stage.units.signal("blue", "KILL");
    eventually("HAProxy answers", async || stage.get("/readyz").await == (503, Some("1".to_owned()))).await;
    let refused = account.devices().list().await;
    assert!(
        matches!(&refused, Err(ApiError::Refused { status: 503, error }) if error.code == "relayUnavailable" && error.retryable),
        "{refused:?}"
    );
    stage.units.start("blue").await;
    eventually("it is back", async || stage.status("blue").await.is_some_and(|status| status["sockets"]["desktop"] == 1)).await;
    assert_eq!(client.history().closes, [None], "nobody was left to say goodbye");
}
