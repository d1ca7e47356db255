//! The contract suite: what every [`Store`] must do, sentence by sentence of the trait's documentation.
//!
//! A backend runs it by `store_contract_suite!(make)`, where `make` is an async function without arguments that gives a
//! [`Fixture`] with an empty store.

use crate::{
    clock::EpochMs,
    store::{
        ApiKey, ApiKeyHash, Device, DevicePatch, DeviceWrite, MinimumProtocolRule, PresenceChange, StatusWrite, Store, StoreError, Upserted,
    },
};
use async_trait::async_trait;
use futures_util::future::join_all;
use relay_protocol::{
    device::{DeviceFacts, Presence, PresenceReason, Role},
    id::{ApiKeyId, DeviceId, RelayInstanceId, UserId},
    limits::{DEVICES_PER_ACCOUNT_MAX, PRESENCE_HISTORY_MAX},
};
use std::{collections::BTreeSet, time::Duration};
use uuid::Uuid;

mod compatibility;
mod processes;
mod push_tokens;
pub(crate) use compatibility::*;
pub(crate) use processes::*;
pub(crate) use push_tokens::*;

/// One empty store, and what the suite needs beside the trait.
#[async_trait]
pub(crate) trait Fixture: Send + Sync {
    fn store(&self) -> &dyn Store;

    /// Adds a row to `compatibility_rules`.
    async fn add_rule(&self, kind: &str, client: &str, minimum_relay_protocol_version: Option<&str>);

    /// Makes the last renewal of a relay process, and its end, so much earlier.
    async fn age_process(&self, instance: RelayInstanceId, by: Duration);

    /// Rows of `relay_processes`, expired ones too.
    async fn process_rows(&self) -> usize;
}

macro_rules! store_contract_suite {
    ($make:path) => {
        $crate::store::contract::store_contract_suite!($make:
            first_registration_creates,
            second_registration_updates,
            absent_eligibility_keeps_what_is_stored,
            a_forgotten_device_comes_back_like_a_new_one,
            another_accounts_device_is_refused,
            listing_is_by_account_and_age,
            patch_changes_what_is_given,
            patch_and_forget_want_a_live_device_of_the_account,
            look_up_finds_what_is_there,
            look_up_takes_a_thousand_ids,
            status_writes_mark_many_devices,
            status_writes_pass_over_what_is_not_there,
            the_last_of_two_status_writes_counts,
            stale_statuses_of_other_processes_are_ended,
            history_is_newest_first_and_read_in_pages,
            a_repeated_write_and_one_of_the_same_millisecond_leave_one_change,
            history_of_devices_is_apart_and_of_forgotten_ones_gone,
            ended_statuses_enter_the_history,
            only_the_newest_changes_are_kept,
            an_account_has_so_many_devices,
            rules_with_a_minimum_are_read,
            compatibility_rules_are_listed_as_they_were_added,
            a_compatibility_rule_is_removed_once_and_its_id_not_used_again,
            there_are_at_most_so_many_compatibility_rules,
            texts_come_back_as_they_were,
            two_hundred_registrations_at_once,
            one_device_registered_by_two_accounts_at_once,
            an_api_key_is_found_by_its_hash_until_it_is_revoked,
            api_keys_are_listed_by_account_and_age,
            only_its_own_account_revokes_an_api_key,
            an_account_has_at_most_so_many_live_api_keys,
            api_keys_made_at_once_keep_the_bound,
            processes_are_listed_oldest_first_until_they_are_removed,
            a_process_says_how_long_ago_each_was_seen,
            statuses_of_a_live_process_are_not_stale,
            a_process_that_was_not_renewed_in_time_is_dead_and_its_row_goes,
            processes_that_find_each_other_expired_do_not_wait_for_each_other,
            a_claimed_token_is_the_phones_until_another_takes_its_place,
            a_claim_is_for_a_phone_of_the_account_that_is_there,
            c70_a_token_belongs_to_who_claimed_it_last,
            claims_at_once_end_with_one_owner_of_each_token,
            one_token_claimed_by_many_at_once_has_one_owner,
            a_dead_token_goes_unless_it_was_claimed_since,
            a_log_out_takes_the_tokens_of_the_device_or_of_the_account,
            a_device_that_may_not_be_reached_is_no_target,
            so_many_phones_of_an_account_are_targets,
            ping_answers,
        );
    };
    ($make:path: $($test:ident),* $(,)?) => {
        $(
            #[tokio::test]
            async fn $test() {
                let fixture = $make().await;
                $crate::store::contract::$test(&fixture).await;
            }
        )*
    };
}
pub(crate) use store_contract_suite;

const T1: EpochMs = EpochMs(1_700_000_000_001);
const T2: EpochMs = EpochMs(1_700_000_000_002);
const T3: EpochMs = EpochMs(1_700_000_000_003);

fn user(n: u128) -> UserId {
    UserId(Uuid::from_u128(n))
}

fn id(n: u128) -> DeviceId {
    DeviceId(Uuid::from_u128(n))
}

fn process(n: u128) -> RelayInstanceId {
    RelayInstanceId(Uuid::from_u128(n))
}

fn write(device: u128, owner: u128) -> DeviceWrite {
    DeviceWrite {
        id: id(device),
        user: user(owner),
        role: Role::Desktop,
        name: "Desk".into(),
        platform: "linux".into(),
        app_version: "1.2.3".into(),
        relay_eligible: None,
    }
}

fn facts(device: u128, owner: u128) -> DeviceFacts {
    DeviceFacts { id: id(device), user: user(owner), role: Role::Desktop, relay_eligible: true }
}

async fn add(fixture: &dyn Fixture, device: u128, owner: u128) -> Device {
    fixture.store().upsert_device(write(device, owner), T1).await.unwrap().device
}

/// The only device of the account.
async fn only(fixture: &dyn Fixture, owner: u128) -> Device {
    let mut devices = fixture.store().devices_of(user(owner)).await.unwrap();
    assert_eq!(devices.len(), 1, "{devices:?}");
    devices.remove(0)
}

async fn listed(fixture: &dyn Fixture, owner: u128) -> Vec<DeviceId> {
    fixture.store().devices_of(user(owner)).await.unwrap().iter().map(|device| device.facts.id).collect()
}

/// Some reason, another one for each status.
fn reason_of(status: Presence) -> PresenceReason {
    match status {
        Presence::Online => PresenceReason::Registered,
        Presence::Reconnecting => PresenceReason::Silent,
        Presence::Disconnected => PresenceReason::NotEligible,
    }
}

fn change(status: Presence, at: EpochMs, by: u128) -> PresenceChange {
    PresenceChange { status, reason: reason_of(status), at, instance: process(by) }
}

/// The whole history of a device.
async fn history(fixture: &dyn Fixture, device: u128) -> Vec<PresenceChange> {
    fixture.store().presence_history(id(device), None, u32::MAX).await.unwrap()
}

async fn set_status(fixture: &dyn Fixture, writes: &[(u128, Presence, EpochMs)], by: u128) {
    let writes: Vec<_> =
        writes.iter().map(|&(device, status, at)| StatusWrite { device: id(device), status, reason: reason_of(status), at }).collect();
    fixture.store().write_statuses(&writes, process(by)).await.unwrap();
}

pub(crate) async fn first_registration_creates(fixture: &dyn Fixture) {
    let expected = Device {
        facts: facts(1, 1),
        name: "Desk".into(),
        platform: "linux".into(),
        app_version: "1.2.3".into(),
        status: Presence::Disconnected,
        status_at: None,
        created_at: T1,
        updated_at: T1,
    };
    let upserted = fixture.store().upsert_device(write(1, 1), T1).await;
    assert_eq!(upserted, Ok(Upserted { device: expected.clone(), created: true }));
    assert_eq!(only(fixture, 1).await, expected);

    let ineligible = DeviceWrite { relay_eligible: Some(false), role: Role::Mobile, ..write(2, 2) };
    fixture.store().upsert_device(ineligible, T1).await.unwrap();
    assert_eq!(only(fixture, 2).await.facts, DeviceFacts { relay_eligible: false, role: Role::Mobile, ..facts(2, 2) });
}

pub(crate) async fn second_registration_updates(fixture: &dyn Fixture) {
    add(fixture, 1, 1).await;
    set_status(fixture, &[(1, Presence::Online, T2)], 1).await;
    let again = DeviceWrite {
        role: Role::Mobile,
        name: "Phone".into(),
        platform: "ios".into(),
        app_version: "2.0".into(),
        relay_eligible: Some(false),
        ..write(1, 1)
    };
    let expected = Device {
        facts: DeviceFacts { id: id(1), user: user(1), role: Role::Mobile, relay_eligible: false },
        name: "Phone".into(),
        platform: "ios".into(),
        app_version: "2.0".into(),
        status: Presence::Online,
        status_at: Some(T2),
        created_at: T1,
        updated_at: T3,
    };
    assert_eq!(fixture.store().upsert_device(again, T3).await, Ok(Upserted { device: expected.clone(), created: false }));
    assert_eq!(only(fixture, 1).await, expected);
}

pub(crate) async fn absent_eligibility_keeps_what_is_stored(fixture: &dyn Fixture) {
    for stored in [false, true] {
        fixture.store().upsert_device(DeviceWrite { relay_eligible: Some(stored), ..write(1, 1) }, T1).await.unwrap();
        fixture.store().upsert_device(write(1, 1), T2).await.unwrap();
        assert_eq!(only(fixture, 1).await.facts.relay_eligible, stored);
    }
}

pub(crate) async fn a_forgotten_device_comes_back_like_a_new_one(fixture: &dyn Fixture) {
    fixture.store().upsert_device(DeviceWrite { relay_eligible: Some(false), ..write(1, 1) }, T1).await.unwrap();
    set_status(fixture, &[(1, Presence::Online, T2)], 1).await;
    assert_eq!(fixture.store().forget_device(user(1), id(1), T2).await, Ok(true));

    let back = fixture.store().upsert_device(write(1, 1), T3).await.unwrap();
    assert!(back.created);
    assert_eq!(back.device.facts, facts(1, 1));
    assert_eq!((back.device.status, back.device.status_at), (Presence::Disconnected, None));
    assert_eq!((back.device.created_at, back.device.updated_at), (T1, T3));
    assert_eq!(only(fixture, 1).await, back.device);
    assert_eq!(fixture.store().look_up(&[id(1)]).await, Ok(vec![facts(1, 1)]));
    // It is an ordinary device again.
    assert!(!fixture.store().upsert_device(write(1, 1), T3).await.unwrap().created);

    assert_eq!(fixture.store().forget_device(user(1), id(1), T3).await, Ok(true));
    let ineligible = DeviceWrite { relay_eligible: Some(false), ..write(1, 1) };
    assert!(!fixture.store().upsert_device(ineligible, T3).await.unwrap().device.facts.relay_eligible);
}

pub(crate) async fn another_accounts_device_is_refused(fixture: &dyn Fixture) {
    let before = add(fixture, 1, 1).await;
    let theft = DeviceWrite { name: "Stolen".into(), ..write(1, 2) };
    assert_eq!(fixture.store().upsert_device(theft.clone(), T2).await, Err(StoreError::OtherAccount));
    assert_eq!(only(fixture, 1).await, before);

    fixture.store().forget_device(user(1), id(1), T2).await.unwrap();
    assert_eq!(fixture.store().upsert_device(theft, T3).await, Err(StoreError::OtherAccount));
    assert_eq!(listed(fixture, 2).await, []);
    assert_eq!(fixture.store().look_up(&[id(1)]).await, Ok(vec![]));
}

pub(crate) async fn listing_is_by_account_and_age(fixture: &dyn Fixture) {
    // Ids, insertion and ages in three different orders.
    for (device, at) in [(4, T2), (1, T3), (3, T2), (2, T1), (5, T1)] {
        fixture.store().upsert_device(write(device, 1), at).await.unwrap();
    }
    add(fixture, 6, 2).await;
    fixture.store().forget_device(user(1), id(5), T3).await.unwrap();
    // A later change is not a later creation.
    fixture.store().upsert_device(write(2, 1), EpochMs(T3.0 + 1)).await.unwrap();
    assert_eq!(listed(fixture, 1).await, [id(2), id(3), id(4), id(1)]);
    assert_eq!(listed(fixture, 2).await, [id(6)]);
    assert_eq!(listed(fixture, 3).await, []);
}

pub(crate) async fn patch_changes_what_is_given(fixture: &dyn Fixture) {
    let added = add(fixture, 1, 1).await;
    let patch = |name: Option<&str>, relay_eligible| DevicePatch { name: name.map(Into::into), relay_eligible };
    let mut expected = Device { name: "Den".into(), updated_at: T2, ..added };
    assert_eq!(fixture.store().patch_device(user(1), id(1), patch(Some("Den"), None), T2).await, Ok(Some(expected.clone())));
    expected.facts.relay_eligible = false;
    expected.updated_at = T3;
    assert_eq!(fixture.store().patch_device(user(1), id(1), patch(None, Some(false)), T3).await, Ok(Some(expected.clone())));
    let renamed = fixture.store().patch_device(user(1), id(1), patch(Some("Den"), None), T3).await;
    assert_eq!(renamed, Ok(Some(expected.clone())), "still not eligible");
    assert_eq!(only(fixture, 1).await, expected);
}

pub(crate) async fn patch_and_forget_want_a_live_device_of_the_account(fixture: &dyn Fixture) {
    let before = add(fixture, 1, 1).await;
    let patch = || DevicePatch { name: Some("Mine".into()), relay_eligible: Some(false) };
    for (owner, device) in [(2, 1), (1, 9)] {
        assert_eq!(fixture.store().patch_device(user(owner), id(device), patch(), T2).await, Ok(None));
        assert_eq!(fixture.store().forget_device(user(owner), id(device), T2).await, Ok(false));
    }
    assert_eq!(only(fixture, 1).await, before);

    assert_eq!(fixture.store().forget_device(user(1), id(1), T2).await, Ok(true));
    assert_eq!(fixture.store().forget_device(user(1), id(1), T2).await, Ok(false));
    assert_eq!(fixture.store().patch_device(user(1), id(1), patch(), T2).await, Ok(None));
    assert_eq!(listed(fixture, 1).await, []);
}

pub(crate) async fn look_up_finds_what_is_there(fixture: &dyn Fixture) {
    add(fixture, 1, 1).await;
    add(fixture, 2, 2).await;
    add(fixture, 3, 1).await;
    fixture.store().forget_device(user(1), id(3), T2).await.unwrap();
    assert_eq!(fixture.store().look_up(&[]).await, Ok(vec![]));
    assert_eq!(fixture.store().look_up(&[id(9)]).await, Ok(vec![]));
    assert_eq!(fixture.store().look_up(&[id(1), id(1)]).await, Ok(vec![facts(1, 1)]));
    let mut found = fixture.store().look_up(&[id(9), id(2), id(3), id(1), id(2)]).await.unwrap();
    found.sort_by_key(|facts| facts.id);
    assert_eq!(found, [facts(1, 1), facts(2, 2)]);
}

pub(crate) async fn look_up_takes_a_thousand_ids(fixture: &dyn Fixture) {
    for device in [1, 500, 1_000] {
        add(fixture, device, 1).await;
    }
    let ids: Vec<_> = (1..=1_000).map(id).collect();
    let mut found = fixture.store().look_up(&ids).await.unwrap();
    found.sort_by_key(|facts| facts.id);
    assert_eq!(found, [facts(1, 1), facts(500, 1), facts(1_000, 1)]);
}

pub(crate) async fn status_writes_mark_many_devices(fixture: &dyn Fixture) {
    for device in 1..=3 {
        add(fixture, device, device).await;
    }
    set_status(fixture, &[(1, Presence::Online, T2), (2, Presence::Reconnecting, T3)], 1).await;
    let mut seen = Vec::new();
    for owner in 1..=3 {
        let device = only(fixture, owner).await;
        // Presence is no change over HTTP.
        assert_eq!(device.updated_at, T1);
        seen.push((device.status, device.status_at));
    }
    assert_eq!(seen, [(Presence::Online, Some(T2)), (Presence::Reconnecting, Some(T3)), (Presence::Disconnected, None)]);
    set_status(fixture, &[], 1).await;
    // Arrival decides, not the wall clock, which may be set back.
    set_status(fixture, &[(1, Presence::Disconnected, T1)], 1).await;
    let device = only(fixture, 1).await;
    assert_eq!((device.status, device.status_at), (Presence::Disconnected, Some(T1)));
}

pub(crate) async fn status_writes_pass_over_what_is_not_there(fixture: &dyn Fixture) {
    for device in [1, 2] {
        add(fixture, device, device).await;
    }
    fixture.store().forget_device(user(2), id(2), T1).await.unwrap();
    set_status(fixture, &[(9, Presence::Online, T2), (2, Presence::Online, T2), (1, Presence::Online, T2)], 1).await;
    assert_eq!(only(fixture, 1).await.status, Presence::Online);
    assert_eq!(fixture.store().look_up(&[id(9), id(2)]).await, Ok(vec![]));
    assert_eq!(fixture.store().disconnect_stale(process(2), T3).await, Ok(1), "the forgotten row is not among them");
}

pub(crate) async fn the_last_of_two_status_writes_counts(fixture: &dyn Fixture) {
    add(fixture, 1, 1).await;
    for last in [Presence::Disconnected, Presence::Reconnecting, Presence::Online] {
        let earlier = [Presence::Online, Presence::Reconnecting, Presence::Disconnected].map(|status| (1, status, T2));
        set_status(fixture, &[&earlier[..], &[(1, last, T3)]].concat(), 1).await;
        let device = only(fixture, 1).await;
        assert_eq!((device.status, device.status_at), (last, Some(T3)));
    }
}

pub(crate) async fn stale_statuses_of_other_processes_are_ended(fixture: &dyn Fixture) {
    for device in 1..=6 {
        add(fixture, device, device).await;
    }
    set_status(fixture, &[(1, Presence::Online, T1), (2, Presence::Reconnecting, T1), (3, Presence::Disconnected, T1)], 1).await;
    set_status(fixture, &[(4, Presence::Online, T1), (5, Presence::Online, T1)], 1).await;
    // Device 4 came back to the new process; device 5 was forgotten while online; device 6 never connected.
    set_status(fixture, &[(4, Presence::Reconnecting, T2)], 2).await;
    fixture.store().forget_device(user(5), id(5), T2).await.unwrap();

    assert_eq!(fixture.store().disconnect_stale(process(2), T3).await, Ok(2));
    let mut seen = Vec::new();
    for owner in [1, 2, 3, 4, 6] {
        let device = only(fixture, owner).await;
        seen.push((device.status, device.status_at));
    }
    let gone = Presence::Disconnected;
    assert_eq!(seen, [(gone, Some(T3)), (gone, Some(T3)), (gone, Some(T1)), (Presence::Reconnecting, Some(T2)), (gone, None)]);
    assert_eq!(fixture.store().disconnect_stale(process(2), T3).await, Ok(0));
    assert_eq!(fixture.store().disconnect_stale(process(3), T3).await, Ok(1), "a third process ends what the second left");
}

pub(crate) async fn history_is_newest_first_and_read_in_pages(fixture: &dyn Fixture) {
    add(fixture, 1, 1).await;
    assert_eq!(history(fixture, 1).await, []);
    // The clock was set back before the last one.
    set_status(fixture, &[(1, Presence::Online, T1)], 1).await;
    set_status(fixture, &[(1, Presence::Disconnected, T3)], 1).await;
    set_status(fixture, &[(1, Presence::Reconnecting, T2)], 2).await;
    let all = [change(Presence::Disconnected, T3, 1), change(Presence::Reconnecting, T2, 2), change(Presence::Online, T1, 1)];
    assert_eq!(history(fixture, 1).await, all);
    let after = EpochMs(T3.0 + 1);
    for (before, limit, expected) in [
        (None, 1, &all[..1]),
        (None, 2, &all[..2]),
        (None, 3, &all[..]),
        (Some(after), 3, &all[..]),
        (Some(T3), 3, &all[1..]),
        (Some(T2), 3, &all[2..]),
        (Some(T1), 3, &[]),
        (Some(T3), 1, &all[1..2]),
        (Some(EpochMs(i64::MAX)), 1, &all[..1]),
        (Some(EpochMs(i64::MIN)), 1, &[]),
        (None, 0, &[]),
    ] {
        assert_eq!(fixture.store().presence_history(id(1), before, limit).await.unwrap(), expected, "{before:?} {limit}");
    }
}

pub(crate) async fn a_repeated_write_and_one_of_the_same_millisecond_leave_one_change(fixture: &dyn Fixture) {
    add(fixture, 1, 1).await;
    for _ in 0..2 {
        set_status(fixture, &[(1, Presence::Online, T1)], 1).await;
        assert_eq!(history(fixture, 1).await, [change(Presence::Online, T1, 1)]);
    }
    set_status(fixture, &[(1, Presence::Reconnecting, T1)], 2).await;
    assert_eq!(history(fixture, 1).await, [change(Presence::Reconnecting, T1, 2)], "the later one");
    set_status(fixture, &[(1, Presence::Online, T2), (1, Presence::Disconnected, T3)], 2).await;
    let last = [change(Presence::Disconnected, T3, 2), change(Presence::Reconnecting, T1, 2)];
    assert_eq!(history(fixture, 1).await, last, "of several in one batch the last");
}

pub(crate) async fn history_of_devices_is_apart_and_of_forgotten_ones_gone(fixture: &dyn Fixture) {
    for device in [1, 2] {
        add(fixture, device, 1).await;
    }
    set_status(fixture, &[(1, Presence::Online, T1), (2, Presence::Reconnecting, T1), (9, Presence::Online, T1)], 1).await;
    assert_eq!(history(fixture, 1).await, [change(Presence::Online, T1, 1)]);
    assert_eq!(history(fixture, 9).await, [], "no such row");

    assert_eq!(fixture.store().forget_device(user(2), id(1), T2).await, Ok(false));
    assert_eq!(history(fixture, 1).await.len(), 1, "another account forgets nothing");
    assert_eq!(fixture.store().forget_device(user(1), id(1), T2).await, Ok(true));
    assert_eq!(history(fixture, 1).await, []);
    // Its sockets are closed after it was forgotten, and that is written too.
    set_status(fixture, &[(1, Presence::Disconnected, T2)], 1).await;
    add(fixture, 1, 1).await;
    assert_eq!(history(fixture, 1).await, [], "a device that comes back starts anew");
    set_status(fixture, &[(1, Presence::Online, T3)], 1).await;
    assert_eq!(history(fixture, 1).await, [change(Presence::Online, T3, 1)]);
    assert_eq!(history(fixture, 2).await, [change(Presence::Reconnecting, T1, 1)]);
}

pub(crate) async fn ended_statuses_enter_the_history(fixture: &dyn Fixture) {
    for device in 1..=3 {
        add(fixture, device, device).await;
    }
    set_status(fixture, &[(1, Presence::Online, T1), (2, Presence::Disconnected, T1), (3, Presence::Reconnecting, T1)], 1).await;
    set_status(fixture, &[(3, Presence::Online, T2)], 2).await;
    assert_eq!(fixture.store().disconnect_stale(process(2), T3).await, Ok(1));
    let ended = PresenceChange { reason: PresenceReason::GraceElapsed, ..change(Presence::Disconnected, T3, 2) };
    assert_eq!(history(fixture, 1).await, [ended, change(Presence::Online, T1, 1)]);
    assert_eq!(history(fixture, 2).await, [change(Presence::Disconnected, T1, 1)]);
    assert_eq!(history(fixture, 3).await, [change(Presence::Online, T2, 2), change(Presence::Reconnecting, T1, 1)]);
}

pub(crate) async fn only_the_newest_changes_are_kept(fixture: &dyn Fixture) {
    const DEVICES: u128 = 3;
    for device in 1..=DEVICES {
        add(fixture, device, device).await;
    }
    let kept = i64::from(PRESENCE_HISTORY_MAX);
    for at in 0..kept {
        set_status(fixture, &[(1, Presence::Online, EpochMs(at)), (2, Presence::Online, EpochMs(at))], 1).await;
    }
    set_status(fixture, &[(3, Presence::Online, EpochMs(0))], 1).await;
    let times = |changes: &[PresenceChange]| changes.iter().map(|change| change.at.0).collect::<Vec<_>>();
    assert_eq!(times(&history(fixture, 1).await), (0..kept).rev().collect::<Vec<_>>(), "as many as may be");
    set_status(fixture, &[(1, Presence::Online, EpochMs(kept))], 1).await;
    assert_eq!(times(&history(fixture, 1).await), (1..=kept).rev().collect::<Vec<_>>());
    assert_eq!(times(&history(fixture, 2).await), (0..kept).rev().collect::<Vec<_>>(), "it was not written");
    assert_eq!(fixture.store().disconnect_stale(process(2), EpochMs(kept + 1)).await, Ok(3));
    assert_eq!(times(&history(fixture, 1).await), (2..=kept + 1).rev().collect::<Vec<_>>());
    assert_eq!(times(&history(fixture, 3).await), [kept + 1, 0]);
}

pub(crate) async fn an_account_has_so_many_devices(fixture: &dyn Fixture) {
    let limit = u128::from(DEVICES_PER_ACCOUNT_MAX);
    for device in 1..limit {
        add(fixture, device, 1).await;
    }
    fixture.store().forget_device(user(1), id(1), T2).await.unwrap();
    assert!(fixture.store().upsert_device(write(limit, 1), T1).await.unwrap().created, "the last one");
    for _ in 0..2 {
        assert_eq!(fixture.store().upsert_device(write(limit + 1, 1), T2).await, Err(StoreError::TooManyDevices));
    }
    assert_eq!(fixture.store().look_up(&[id(limit + 1)]).await, Ok(vec![]));
    assert!(!fixture.store().upsert_device(write(2, 1), T2).await.unwrap().created, "what is there can be updated");
    assert!(fixture.store().upsert_device(write(1, 1), T2).await.unwrap().created, "and come back");
    add(fixture, limit + 1, 2).await;
}

pub(crate) async fn rules_with_a_minimum_are_read(fixture: &dyn Fixture) {
    assert_eq!(fixture.store().minimum_protocol_rules().await, Ok(vec![]));
    fixture.add_rule("minimum", "desktop", Some("1.10")).await;
    fixture.add_rule("minimum", "mobile", None).await;
    fixture.add_rule("block", "mobile", Some("not a version")).await;
    fixture.add_rule("pair", "desktop", Some("")).await;
    let rules = fixture.store().minimum_protocol_rules().await.unwrap();
    let expected = ["1.10", "not a version", ""].map(|text| MinimumProtocolRule { minimum_relay_protocol_version: text.into() });
    assert_eq!(rules, expected);
}

pub(crate) async fn texts_come_back_as_they_were(fixture: &dyn Fixture) {
    let odd = [
        String::new(),
        " \t\r\n ".into(),
        "'; DROP TABLE devices; --".into(),
        "\\ \" % _ ?1 :a $1 {}".into(),
        // Composed and decomposed forms, a joined emoji, right to left, no characters and private use, a byte-order mark.
        "\u{e9} e\u{301} \u{1f469}\u{200d}\u{1f4bb} \u{202e}abc \u{ffff} \u{10ffff} \u{e000} \u{feff}".into(),
        "\u{1}\u{7f}\u{80}\u{2028}".into(),
        "long \u{1f4be}".repeat(10_000),
    ];
    for text in odd {
        let odd = DeviceWrite { name: text.clone(), platform: text.clone(), app_version: text.clone(), ..write(1, 1) };
        fixture.store().upsert_device(odd, T1).await.unwrap();
        let device = only(fixture, 1).await;
        assert_eq!((&device.name, &device.platform, &device.app_version), (&text, &text, &text));
        let patch = DevicePatch { name: Some(text.clone()), relay_eligible: None };
        assert_eq!(fixture.store().patch_device(user(1), id(1), patch, T2).await.unwrap().unwrap().name, text);
    }
}

pub(crate) async fn two_hundred_registrations_at_once(fixture: &dyn Fixture) {
    let answers = join_all((1..=200).map(|device| fixture.store().upsert_device(write(device, 1), T1))).await;
    assert!(answers.iter().all(|answer| answer.as_ref().is_ok_and(|upserted| upserted.created)), "{answers:?}");
    let stored: BTreeSet<_> = listed(fixture, 1).await.into_iter().collect();
    assert_eq!(stored, (1..=200).map(id).collect());
    // The same row two hundred times: one of them is the first.
    let answers = join_all((1..=200).map(|_| fixture.store().upsert_device(write(201, 2), T1))).await;
    assert_eq!(answers.iter().filter(|answer| answer.as_ref().is_ok_and(|upserted| upserted.created)).count(), 1);
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

pub(crate) async fn one_device_registered_by_two_accounts_at_once(fixture: &dyn Fixture) {
    let answers = join_all((1..=2).map(|owner| fixture.store().upsert_device(write(1, owner), T1))).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "{answers:?}");
    assert_eq!(answers.iter().filter(|answer| **answer == Err(StoreError::OtherAccount)).count(), 1, "{answers:?}");
    assert_eq!(listed(fixture, 1).await.len() + listed(fixture, 2).await.len(), 1);
}

fn key(number: u128, owner: u128) -> ApiKey {
    let scopes = if number.is_multiple_of(2) { "rpc" } else { "read,write" }.parse().unwrap();
    ApiKey { id: ApiKeyId(Uuid::from_u128(number)), user: user(owner), name: Some("CI".into()), scopes, created_at: T1 }
}

fn key_hash(number: u128) -> ApiKeyHash {
    let mut hash = [0xa5; 32];
    hash[16..].copy_from_slice(&number.to_be_bytes());
    ApiKeyHash(hash)
}

/// Stores a key with the hash of its number.
async fn add_key(fixture: &dyn Fixture, key: ApiKey, live_max: u32) -> bool {
    let hash = key_hash(key.id.0.as_u128());
    fixture.store().create_api_key(key, hash, live_max).await.unwrap()
}

async fn revoke(fixture: &dyn Fixture, owner: u128, number: u128) -> bool {
    fixture.store().revoke_api_key(user(owner), key(number, owner).id, T2).await.unwrap()
}

pub(crate) async fn an_api_key_is_found_by_its_hash_until_it_is_revoked(fixture: &dyn Fixture) {
    let nameless = ApiKey { name: None, ..key(2, 1) };
    let odd = ApiKey { name: Some("'; -- \u{1f511}".into()), ..key(3, 2) };
    for key in [key(1, 1), nameless.clone(), odd.clone()] {
        assert!(add_key(fixture, key, 10).await);
    }
    for key in [key(1, 1), nameless, odd] {
        assert_eq!(fixture.store().api_key(key_hash(key.id.0.as_u128())).await, Ok(Some(key)));
    }
    assert_eq!(fixture.store().api_key(key_hash(9)).await, Ok(None));
    assert!(revoke(fixture, 1, 1).await);
    assert_eq!(fixture.store().api_key(key_hash(1)).await, Ok(None));
    assert!(fixture.store().api_key(key_hash(2)).await.unwrap().is_some(), "another key of the account stays");
}

pub(crate) async fn api_keys_are_listed_by_account_and_age(fixture: &dyn Fixture) {
    for (number, at) in [(4, T2), (1, T3), (3, T2), (2, T1), (5, T1)] {
        assert!(add_key(fixture, ApiKey { created_at: at, ..key(number, 1) }, 10).await);
    }
    add_key(fixture, key(6, 2), 10).await;
    assert!(revoke(fixture, 1, 5).await);
    let listed = async |owner| fixture.store().api_keys_of(user(owner)).await.unwrap();
    let numbers = |keys: Vec<ApiKey>| keys.iter().map(|key| key.id.0.as_u128()).collect::<Vec<_>>();
    assert_eq!(numbers(listed(1).await), [2, 3, 4, 1]);
    assert_eq!(listed(2).await, [key(6, 2)]);
    assert_eq!(listed(3).await, []);
}

pub(crate) async fn only_its_own_account_revokes_an_api_key(fixture: &dyn Fixture) {
    add_key(fixture, key(1, 1), 10).await;
    assert!(!revoke(fixture, 2, 1).await, "another account");
    assert!(!revoke(fixture, 1, 9).await, "no such key");
    assert!(fixture.store().api_key(key_hash(1)).await.unwrap().is_some());
    assert!(revoke(fixture, 1, 1).await);
    assert!(!revoke(fixture, 1, 1).await, "revoked already");
}

pub(crate) async fn an_account_has_at_most_so_many_live_api_keys(fixture: &dyn Fixture) {
    for number in 1..=3 {
        assert!(add_key(fixture, key(number, 1), 3).await);
    }
    assert!(!add_key(fixture, key(4, 1), 3).await);
    assert_eq!(fixture.store().api_key(key_hash(4)).await, Ok(None), "nothing was stored");
    assert!(add_key(fixture, key(5, 2), 3).await, "accounts are counted apart");
    assert!(revoke(fixture, 1, 2).await);
    assert!(add_key(fixture, key(4, 1), 3).await, "a revoked key is not counted");
    assert!(!add_key(fixture, key(6, 1), 3).await);
}

pub(crate) async fn api_keys_made_at_once_keep_the_bound(fixture: &dyn Fixture) {
    let made = join_all((1..=50).map(|number| add_key(fixture, key(number, 1), 7))).await;
    assert_eq!(made.iter().filter(|made| **made).count(), 7);
    assert_eq!(fixture.store().api_keys_of(user(1)).await.unwrap().len(), 7);
}

pub(crate) async fn ping_answers(fixture: &dyn Fixture) {
    assert_eq!(fixture.store().ping().await, Ok(()));
}
