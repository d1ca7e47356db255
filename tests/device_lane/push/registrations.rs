//! A desktop that comes back is told to every phone with a token.

use super::{Providers, apple_saw, ask, pair, token};
use crate::support::{
    account::Account,
    metrics::Scrape,
    relay_process::RelayProcess,
    wire::{next_status, registered},
};
use relay_protocol::push::Provider;

const GRACE: [&str; 2] = ["--reconnect-grace", "300ms"];

/// C76: neither a phone that is connected nor machines that are suppress it; a replacement and a return within the wait do.
#[tokio::test(flavor = "multi_thread")]
async fn c76_each_phone_with_a_token_is_told_when_a_desktop_had_been_gone_whoever_is_connected() {
    let providers = Providers::start().await;
    let relay = providers.relay(&GRACE).await;
    let account = Account::new(&relay, 2, 3).await;
    account.claim(account.phones[0], "connected").await;
    account.devices().claim_push_token(account.phones[1], &token(Provider::Fcm, "asleep")).await.unwrap();
    let other = registered(&account.raw_desktop(), account.desktops[1]).await;
    assert_eq!(apple_saw(&providers.apple.seen(1).await), [pair("connected", "desktop_online")]);
    providers.google.seen(1).await;

    let mut phone = registered(&account.raw_phone(), account.phones[0]).await;
    let desktop = registered(&account.raw_desktop(), account.desktops[0]).await;
    assert_eq!(next_status(&mut phone).await.0, "online");
    let seen = providers.google.seen(2).await;
    assert_eq!(seen[1].body["message"]["token"], "asleep");
    assert_eq!(seen[1].body["message"]["data"]["desktopDeviceId"], account.desktops[0].to_string());
    providers.apple.seen(2).await;

    let replacement = registered(&account.raw_desktop(), account.desktops[0]).await;
    assert_eq!(next_status(&mut phone).await.0, "online");
    drop((desktop, replacement));
    assert_eq!(next_status(&mut phone).await.0, "reconnecting");
    assert_eq!(next_status(&mut phone).await.0, "disconnected");
    let _desktop = registered(&account.raw_desktop(), account.desktops[0]).await;
    let seen = providers.google.seen(3).await;
    assert!(seen.iter().all(|push| push.body["message"].get("notification").is_none()), "nothing is shown");
    providers.apple.seen(3).await;
    let scrape = Scrape::of(&relay).await;
    assert_eq!(scrape.get(r#"relay_push_desktop_online_total{outcome="told"}"#), 3.0, "the replacement caused none");
    drop(other);
}

/// A relay that was restarted knows nothing of who was there: every registration counts, and tokens are still known.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_of_the_relay_every_registration_counts() {
    let providers = Providers::start().await;
    let mut relay = providers.relay(&[]).await;
    let account = Account::new(&relay, 1, 1).await;
    account.claim(account.phones[0], "t").await;
    let desktop = registered(&account.raw_desktop(), account.desktops[0]).await;
    providers.apple.seen(1).await;
    relay.signal("TERM");
    relay.exited().await;
    drop(desktop);
    let relay = providers.relay_on(relay.data_dir()).await;
    let account = Account { address: relay.address(), ..account };
    let mut desktop = registered(&account.raw_desktop(), account.desktops[0]).await;
    assert_eq!(apple_saw(&providers.apple.seen(2).await)[1], pair("t", "desktop_online"));
    assert_eq!(ask(&mut desktop, "n").await, "accepted");
    providers.apple.seen(3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_is_set_up_for_nothing_counts_and_goes_on() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 1).await;
    account.claim(account.phones[0], "t").await;
    let mut desktop = registered(&account.raw_desktop(), account.desktops[0]).await;
    assert_eq!(ask(&mut desktop, "n").await, "notConfigured");
    let scrape = Scrape::of(&relay).await;
    assert_eq!(scrape.get(r#"relay_push_desktop_online_total{outcome="notConfigured"}"#), 1.0);
    assert_eq!(scrape.get(r#"relay_push_notifications_total{outcome="notConfigured"}"#), 1.0);
}
