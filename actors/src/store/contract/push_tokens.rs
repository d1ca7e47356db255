//! What every store must do about push tokens (device-lane section 8).

use super::{Fixture, T1, T2, T3, add, id, user, write};
use crate::{
    clock::EpochMs,
    store::{DevicePatch, DeviceWrite, PUSH_TARGETS_MAX, PushClaim, PushTarget},
};
use futures_util::future::join_all;
use relay_protocol::{
    device::Role,
    push::{Environment, Provider, PushAddress},
};

const CLAIMED: PushClaim = PushClaim::Claimed { moved_from: None };

fn address(provider: Provider, token: &str) -> PushAddress {
    PushAddress { provider, token: token.parse().unwrap(), environment: Environment::Production, app_id: None }
}

fn fcm(token: &str) -> PushAddress {
    address(Provider::Fcm, token)
}

fn target(device: u128, address: PushAddress, claimed_at: EpochMs) -> PushTarget {
    PushTarget { device: id(device), address, claimed_at }
}

async fn phone(fixture: &dyn Fixture, device: u128, owner: u128) {
    fixture.store().upsert_device(DeviceWrite { role: Role::Mobile, ..write(device, owner) }, T1).await.unwrap();
}

async fn claim(fixture: &dyn Fixture, owner: u128, device: u128, address: PushAddress, now: EpochMs) -> PushClaim {
    fixture.store().claim_push_token(user(owner), id(device), address, now).await.unwrap()
}

async fn targets(fixture: &dyn Fixture, owner: u128) -> Vec<PushTarget> {
    fixture.store().push_targets(user(owner)).await.unwrap()
}

pub(crate) async fn a_claimed_token_is_the_phones_until_another_takes_its_place(fixture: &dyn Fixture) {
    phone(fixture, 1, 1).await;
    phone(fixture, 2, 1).await;
    assert_eq!(targets(fixture, 1).await, []);
    let sandbox = PushAddress {
        environment: Environment::Sandbox,
        app_id: Some("org.example.app".parse().unwrap()),
        ..address(Provider::Apns, "00fc")
    };
    assert_eq!(claim(fixture, 1, 1, sandbox.clone(), T1).await, CLAIMED);
    assert_eq!(claim(fixture, 1, 2, fcm("t"), T2).await, CLAIMED);
    assert_eq!(targets(fixture, 1).await, [target(2, fcm("t"), T2), target(1, sandbox.clone(), T1)], "the latest claim first");
    assert_eq!(fixture.store().push_target(id(1)).await, Ok(Some(target(1, sandbox, T1))));
    assert_eq!(fixture.store().push_target(id(9)).await, Ok(None));
    assert_eq!(claim(fixture, 1, 1, fcm("u"), T3).await, CLAIMED);
    assert_eq!(targets(fixture, 1).await, [target(1, fcm("u"), T3), target(2, fcm("t"), T2)], "the token was rotated");
}

pub(crate) async fn a_claim_is_for_a_phone_of_the_account_that_is_there(fixture: &dyn Fixture) {
    add(fixture, 1, 1).await;
    phone(fixture, 2, 2).await;
    phone(fixture, 3, 1).await;
    fixture.store().forget_device(user(1), id(3), T2).await.unwrap();
    assert_eq!(claim(fixture, 2, 2, fcm("t"), T1).await, CLAIMED);
    for (device, expected) in
        [(1, PushClaim::NotAPhone), (2, PushClaim::NoSuchDevice), (3, PushClaim::NoSuchDevice), (9, PushClaim::NoSuchDevice)]
    {
        assert_eq!(claim(fixture, 1, device, fcm("t"), T2).await, expected, "{device}");
    }
    assert_eq!(targets(fixture, 2).await, [target(2, fcm("t"), T1)], "who may not claim it takes it from nobody");
    assert_eq!(targets(fixture, 1).await, []);
}

/// C70: a phone goes to another account, whose former owner never logged out.
pub(crate) async fn c70_a_token_belongs_to_who_claimed_it_last(fixture: &dyn Fixture) {
    phone(fixture, 1, 1).await;
    phone(fixture, 2, 2).await;
    assert_eq!(claim(fixture, 1, 1, fcm("t"), T1).await, CLAIMED);
    assert_eq!(claim(fixture, 2, 2, fcm("t"), T2).await, PushClaim::Claimed { moved_from: Some(id(1)) });
    assert_eq!((targets(fixture, 1).await, targets(fixture, 2).await), (vec![], vec![target(2, fcm("t"), T2)]));
    assert_eq!(fixture.store().release_push_tokens(user(1), Some(id(1))).await, Ok(0), "too late");
    assert_eq!(fixture.store().release_push_tokens(user(1), None).await, Ok(0));
    assert_eq!(targets(fixture, 2).await.len(), 1);
    assert_eq!(claim(fixture, 1, 1, fcm("t"), T3).await, PushClaim::Claimed { moved_from: Some(id(2)) });
    assert_eq!((targets(fixture, 1).await.len(), targets(fixture, 2).await.len()), (1, 0));
    // The same text of another provider is another token.
    assert_eq!(claim(fixture, 2, 2, address(Provider::Apns, "t"), T3).await, CLAIMED);
    assert_eq!((targets(fixture, 1).await.len(), targets(fixture, 2).await.len()), (1, 1));
}

pub(crate) async fn claims_at_once_end_with_one_owner_of_each_token(fixture: &dyn Fixture) {
    for device in 1..=8 {
        phone(fixture, device, device).await;
    }
    for round in 0..10 {
        // Everybody takes what its neighbour has, in both directions.
        let claims = (1..=8).flat_map(|device| [(device, format!("t{device}")), (device, format!("t{}", device % 8 + 1))]);
        let claimed =
            join_all(claims.map(|(device, token)| async move { claim(fixture, device, device, fcm(&token), EpochMs(round)).await })).await;
        assert!(claimed.iter().all(|claim| matches!(claim, PushClaim::Claimed { .. })), "{claimed:?}");
        let mut owned = Vec::new();
        for device in 1..=8 {
            owned.extend(targets(fixture, device).await.into_iter().map(|target| target.address.token));
        }
        let all = owned.len();
        owned.sort();
        owned.dedup();
        assert_eq!(owned.len(), all, "a token with two owners");
        let last = claim(fixture, 1, 1, fcm("t1"), EpochMs(round)).await;
        assert!(matches!(last, PushClaim::Claimed { .. }));
        assert_eq!(targets(fixture, 1).await.len(), 1);
    }
}

pub(crate) async fn one_token_claimed_by_many_at_once_has_one_owner(fixture: &dyn Fixture) {
    for device in 1..=16 {
        phone(fixture, device, device).await;
    }
    let claims = join_all((1..=16).map(|device| claim(fixture, device, device, fcm("t"), T1))).await;
    assert_eq!(claims.iter().filter(|claim| **claim == CLAIMED).count(), 1, "all others took it from the one before: {claims:?}");
    let mut owners = 0;
    for device in 1..=16 {
        owners += targets(fixture, device).await.len();
    }
    assert_eq!(owners, 1);
}

pub(crate) async fn a_dead_token_goes_unless_it_was_claimed_since(fixture: &dyn Fixture) {
    phone(fixture, 1, 1).await;
    claim(fixture, 1, 1, fcm("t"), T2).await;
    // The clock was set back meanwhile.
    claim(fixture, 1, 1, fcm("t"), T1).await;
    let again = targets(fixture, 1).await;
    assert_eq!(again, [target(1, fcm("t"), T3)], "later than the claim before");
    assert_eq!(fixture.store().drop_push_token(id(1), T2).await, Ok(false));
    assert_eq!(targets(fixture, 1).await, again);
    assert_eq!(fixture.store().drop_push_token(id(1), T3).await, Ok(true));
    assert_eq!(fixture.store().drop_push_token(id(1), T3).await, Ok(false));
    assert_eq!(targets(fixture, 1).await, []);
}

pub(crate) async fn a_log_out_takes_the_tokens_of_the_device_or_of_the_account(fixture: &dyn Fixture) {
    for (device, owner) in [(1, 1), (2, 1), (3, 1), (4, 2)] {
        phone(fixture, device, owner).await;
        claim(fixture, owner, device, fcm(&format!("t{device}")), T1).await;
    }
    assert_eq!(fixture.store().release_push_tokens(user(2), Some(id(1))).await, Ok(0), "another account's");
    assert_eq!(fixture.store().release_push_tokens(user(1), Some(id(1))).await, Ok(1));
    assert_eq!(targets(fixture, 1).await.len(), 2);
    assert_eq!(fixture.store().release_push_tokens(user(1), None).await, Ok(2));
    assert_eq!((targets(fixture, 1).await.len(), targets(fixture, 2).await.len()), (0, 1));
}

pub(crate) async fn a_device_that_may_not_be_reached_is_no_target(fixture: &dyn Fixture) {
    phone(fixture, 1, 1).await;
    claim(fixture, 1, 1, fcm("t"), T1).await;
    let eligible = |is_eligible| DevicePatch { name: None, relay_eligible: Some(is_eligible) };
    fixture.store().patch_device(user(1), id(1), eligible(false), T2).await.unwrap();
    assert_eq!((targets(fixture, 1).await, fixture.store().push_target(id(1)).await), (vec![], Ok(None)));
    fixture.store().patch_device(user(1), id(1), eligible(true), T2).await.unwrap();
    assert_eq!(targets(fixture, 1).await.len(), 1);
    add(fixture, 1, 1).await;
    assert_eq!(targets(fixture, 1).await, [], "it is a desktop now");
    phone(fixture, 1, 1).await;
    fixture.store().forget_device(user(1), id(1), T3).await.unwrap();
    assert_eq!(targets(fixture, 1).await, []);
    phone(fixture, 1, 1).await;
    assert_eq!(targets(fixture, 1).await, [], "a device that comes back has no token");
}

pub(crate) async fn so_many_phones_of_an_account_are_targets(fixture: &dyn Fixture) {
    for device in 0..=u128::from(PUSH_TARGETS_MAX) {
        phone(fixture, device, 1).await;
        claim(fixture, 1, device, fcm(&format!("t{device}")), EpochMs(i64::try_from(device).unwrap())).await;
    }
    let targets = targets(fixture, 1).await;
    assert_eq!(targets.len(), PUSH_TARGETS_MAX as usize);
    assert!(targets.iter().all(|target| target.device != id(0)), "the oldest claim is left out");
}
