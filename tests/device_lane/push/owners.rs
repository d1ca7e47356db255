//! Whose a push token is.

use super::{Providers, apple_saw, ask, pair, token};
use crate::support::{account::Account, wire::registered};
use futures_util::future::join_all;
use relay_endpoints::devices::ApiError;
use relay_protocol::{device::Role, id::DeviceId, push::Provider};
use serde_json::json;
use uuid::Uuid;

fn code(answer: Result<(), ApiError>) -> String {
    match answer {
        Ok(()) => "done".to_owned(),
        Err(ApiError::Refused { error, .. }) => error.code,
        Err(other) => panic!("{other}"),
    }
}

/// C70: a phone goes to another account; its former owner never logged out, and logs out late.
#[tokio::test(flavor = "multi_thread")]
async fn c70_a_token_follows_the_account_that_claimed_it_last() {
    let providers = Providers::start().await;
    let relay = providers.relay(&[]).await;
    let (former, latter) = (Account::new(&relay, 1, 1).await, Account::new(&relay, 1, 1).await);
    former.claim(former.phones[0], "t").await;
    latter.claim(latter.phones[0], "t").await;
    let mut of_former = registered(&former.raw_desktop(), former.desktops[0]).await;
    let mut of_latter = registered(&latter.raw_desktop(), latter.desktops[0]).await;
    assert_eq!(ask(&mut of_former, "n").await, "noDevices");
    assert_eq!(ask(&mut of_latter, "n").await, "accepted");
    assert_eq!(apple_saw(&providers.apple.seen(2).await), [pair("t", "agent_notification"), pair("t", "desktop_online")]);

    assert_eq!(code(former.devices().release_push_token(former.phones[0]).await), "done", "it has none, which is fine");
    assert_eq!(former.log_out(&json!({})).await, 204);
    assert_eq!(ask(&mut of_latter, "m").await, "accepted");
    providers.apple.seen(3).await;

    former.claim(former.phones[0], "t").await;
    assert_eq!(ask(&mut of_latter, "o").await, "noDevices");
    let mut of_former = registered(&former.raw_desktop(), former.desktops[0]).await;
    assert_eq!(ask(&mut of_former, "o").await, "accepted");
    let log = relay.log();
    assert!(log.contains("push token moved from another device") && !log.contains("\"t\""), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn c70_of_many_who_claim_a_token_at_once_one_has_it() {
    let providers = Providers::start().await;
    let relay = providers.relay(&[]).await;
    let mut accounts = Vec::new();
    for _ in 0..8 {
        accounts.push(Account::new(&relay, 1, 1).await);
    }
    join_all(accounts.iter().map(|account| account.claim(account.phones[0], "t"))).await;
    let mut accepted = 0;
    for account in &accounts {
        let mut desktop = registered(&account.raw_desktop(), account.desktops[0]).await;
        accepted += usize::from(ask(&mut desktop, "n").await == "accepted");
    }
    assert_eq!(accepted, 1);
}

/// C87: refused exactly as if there were none, and nobody loses anything.
#[tokio::test(flavor = "multi_thread")]
async fn c87_another_accounts_device_can_be_given_no_token_and_loses_none() {
    let providers = Providers::start().await;
    let relay = providers.relay(&[]).await;
    let (owner, stranger) = (Account::new(&relay, 1, 1).await, Account::new(&relay, 0, 1).await);
    owner.claim(owner.phones[0], "t").await;
    let unknown = DeviceId(Uuid::new_v4());
    for device in [owner.phones[0], unknown] {
        let claim = stranger.devices().claim_push_token(device, &token(Provider::Apns, "t")).await;
        assert_eq!(
            (code(claim), code(stranger.devices().release_push_token(device).await)),
            ("deviceNotFound".into(), "deviceNotFound".into())
        );
    }
    assert_eq!(code(owner.devices().claim_push_token(owner.desktops[0], &token(Provider::Apns, "u")).await), "notAPhone");
    let mut desktop = registered(&owner.raw_desktop(), owner.desktops[0]).await;
    assert_eq!(ask(&mut desktop, "n").await, "accepted");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_takes_a_phone_away_takes_its_token_too() {
    let providers = Providers::start().await;
    let relay = providers.relay(&[]).await;
    let mut account = Account::new(&relay, 1, 3).await;
    for (phone, text) in account.phones.iter().zip(["forgotten", "left", "stays"]) {
        account.claim(*phone, text).await;
    }
    account.devices().forget(account.phones[0]).await.unwrap();
    assert_eq!(account.log_out(&json!({"deviceId": account.phones[1]})).await, 204);
    let mut desktop = registered(&account.raw_desktop(), account.desktops[0]).await;
    assert_eq!(ask(&mut desktop, "n").await, "accepted");
    let seen = apple_saw(&providers.apple.seen(2).await);
    assert_eq!(seen, [pair("stays", "agent_notification"), pair("stays", "desktop_online")]);
    drop(desktop);
    assert_eq!(account.log_out(&json!({})).await, 204);
    account.phones.push(account.add(Role::Mobile).await);
    let mut desktop = registered(&account.raw_desktop(), account.desktops[0]).await;
    assert_eq!(ask(&mut desktop, "m").await, "noDevices");
}
