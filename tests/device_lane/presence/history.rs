//! Presence history over HTTP: what was told live stands there afterwards, newest first, also what an earlier process left.

use super::watch::{desktop_socket, phone_socket, until};
use crate::support::{account::Account, relay_process::RelayProcess};
use relay_protocol::{device::Role, id::DeviceId};
use serde_json::{Value, json};

async fn get(account: &Account, device: DeviceId, query: &str) -> (u16, Value) {
    let url = account.address.http(&format!("/api/devices/{device}/presence{query}"));
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer = client.get(url).bearer_auth(&account.token).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

async fn entries(account: &Account, device: DeviceId, query: &str) -> Vec<Value> {
    let (status, body) = get(account, device, query).await;
    assert_eq!(status, 200, "{body}");
    body["entries"].as_array().unwrap().clone()
}

/// Status and reason of each entry.
fn words(entries: &[Value]) -> Vec<(&str, &str)> {
    entries.iter().map(|entry| (entry["status"].as_str().unwrap(), entry["reason"].as_str().unwrap())).collect()
}

/// Waits until the newest entry is this one.
async fn newest(account: &Account, device: DeviceId, status: &str, reason: &str) {
    until(&format!("{status} {reason} is stored"), async || {
        entries(account, device, "?limit=1").await.first().is_some_and(|entry| entry["status"] == status && entry["reason"] == reason)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_life_is_told_newest_first_with_reasons_and_by_whom() {
    let flags = ["--reconnect-grace", "1s"];
    let mut relay = RelayProcess::start(&flags).await;
    let account = Account::new(&relay, 1, 1).await;
    let (desktop, phone) = (account.desktops[0], account.phones[0]);
    assert_eq!(get(&account, desktop, "").await, (200, json!({"entries": []})));
    let socket = desktop_socket(&account, 0).await;
    newest(&account, desktop, "online", "registered").await;
    drop(socket);
    newest(&account, desktop, "disconnected", "graceElapsed").await;
    let _socket = desktop_socket(&account, 0).await;
    newest(&account, desktop, "online", "registered").await;
    let _phone_socket = phone_socket(&account, 0, 0).await;
    newest(&account, phone, "online", "registered").await;
    let first = relay.ready().relay_instance_id.clone();
    relay.kill();

    let relay = RelayProcess::start_on(relay.data_dir(), &flags).await;
    let account = Account { address: relay.address(), ..account };
    newest(&account, desktop, "disconnected", "graceElapsed").await;
    newest(&account, phone, "disconnected", "graceElapsed").await;
    let all = entries(&account, desktop, "").await;
    let expected = [
        ("disconnected", "graceElapsed"),
        ("online", "registered"),
        ("disconnected", "graceElapsed"),
        ("reconnecting", "socketClosed"),
        ("online", "registered"),
    ];
    assert_eq!(words(&all), expected);
    let second = relay.ready().relay_instance_id.as_str();
    let writers: Vec<&str> = all.iter().map(|entry| entry["relayInstanceId"].as_str().unwrap()).collect();
    assert_eq!(writers, [second, first.as_str(), first.as_str(), first.as_str(), first.as_str()]);
    let times: Vec<&str> = all.iter().map(|entry| entry["at"].as_str().unwrap()).collect();
    assert!(times.is_sorted_by(|later, earlier| later > earlier), "{times:?}");
    assert_eq!(entries(&account, desktop, &format!("?limit=2&before={}", times[1])).await, all[2..4]);
    assert_eq!(words(&entries(&account, phone, "").await), [("disconnected", "graceElapsed"), ("online", "registered")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_history_is_its_accounts_own_and_goes_with_the_device() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 0).await;
    let stranger = Account::new(&relay, 0, 0).await;
    let desktop = account.desktops[0];
    let _socket = desktop_socket(&account, 0).await;
    newest(&account, desktop, "online", "registered").await;
    let (status, refusal) = get(&stranger, desktop, "").await;
    assert_eq!((status, &refusal["error"]["code"]), (404, &json!("deviceNotFound")));

    account.devices().forget(desktop).await.unwrap();
    assert_eq!(get(&account, desktop, "").await, (404, refusal.clone()));
    let other = account.add(Role::Desktop).await;
    assert_eq!(entries(&account, other, "").await, [Value::Null; 0]);
}
