//! Compatibility rules: added, listed, removed.

use super::{Fixture, T1, T2};
use crate::{clock::EpochMs, store::CompatibilityRule};
use relay_protocol::{
    compatibility::{RuleId, RuleKind, RuleSpec},
    device::Role,
};

/// More than these tests add.
const ENOUGH: u32 = 10;

fn block(platform: &str) -> RuleSpec {
    RuleSpec {
        kind: RuleKind::Block,
        client: Role::Mobile,
        platform: Some(platform.into()),
        min_app_version: None,
        max_app_version: None,
        pair_min_app_version: None,
        minimum_relay_protocol_version: None,
        message: None,
    }
}

async fn add(fixture: &dyn Fixture, spec: &RuleSpec, at: EpochMs) -> RuleId {
    fixture.store().add_compatibility_rule(spec.clone(), at, ENOUGH).await.unwrap().unwrap()
}

pub(crate) async fn compatibility_rules_are_listed_as_they_were_added(fixture: &dyn Fixture) {
    assert_eq!(fixture.store().compatibility_rules().await, Ok(vec![]));
    let full = RuleSpec {
        kind: RuleKind::Pair,
        client: Role::Desktop,
        platform: Some("macos".into()),
        min_app_version: Some("1.0".into()),
        max_app_version: Some("1.10".into()),
        pair_min_app_version: Some("2".into()),
        minimum_relay_protocol_version: Some("1.8".into()),
        message: Some("Update the phone.".into()),
    };
    let minimum = RuleSpec { kind: RuleKind::Minimum, platform: None, min_app_version: Some("3".into()), ..block("") };
    let mut expected = Vec::new();
    for (spec, created_at) in [(full, T2), (minimum, T1), (block("ios"), T1), (block("ios"), T1)] {
        expected.push(CompatibilityRule { id: add(fixture, &spec, created_at).await, spec, created_at });
    }
    assert!(expected.is_sorted_by(|one, next| one.id < next.id), "{expected:?}");
    assert_eq!(fixture.store().compatibility_rules().await, Ok(expected));
    let minimums = fixture.store().minimum_protocol_rules().await.unwrap();
    assert_eq!(minimums.iter().map(|rule| rule.minimum_relay_protocol_version.as_str()).collect::<Vec<_>>(), ["1.8"]);
}

pub(crate) async fn a_compatibility_rule_is_removed_once_and_its_id_not_used_again(fixture: &dyn Fixture) {
    let (stays, goes) = (add(fixture, &block("ios"), T1).await, add(fixture, &block("android"), T1).await);
    assert_eq!(fixture.store().remove_compatibility_rule(goes).await, Ok(true));
    assert_eq!(fixture.store().remove_compatibility_rule(goes).await, Ok(false), "removed already");
    let ids = fixture.store().compatibility_rules().await.unwrap().iter().map(|rule| rule.id).collect::<Vec<_>>();
    assert_eq!(ids, [stays]);
    assert!(add(fixture, &block("android"), T1).await > goes);
}

pub(crate) async fn there_are_at_most_so_many_compatibility_rules(fixture: &dyn Fixture) {
    let first = add(fixture, &block("ios"), T1).await;
    let add_one_of_two = async || fixture.store().add_compatibility_rule(block("android"), T1, 2).await.unwrap();
    assert!(add_one_of_two().await.is_some());
    assert_eq!(add_one_of_two().await, None);
    assert_eq!(fixture.store().compatibility_rules().await.unwrap().len(), 2);
    assert_eq!(fixture.store().remove_compatibility_rule(first).await, Ok(true));
    assert!(add_one_of_two().await.is_some());
}
