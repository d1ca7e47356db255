use super::*;

fn spec(kind: RuleKind, client: Role) -> RuleSpec {
    RuleSpec {
        kind,
        client,
        platform: None,
        min_app_version: None,
        max_app_version: None,
        pair_min_app_version: None,
        minimum_relay_protocol_version: None,
        message: None,
    }
}

/// `kind client platform min max pair protocol`, `-` for none.
fn rule(text: &str) -> RuleSpec {
    let words: Vec<&str> = text.split(' ').collect();
    let [kind, client, columns @ ..] = &words[..] else { panic!("{text}") };
    let column = |index: usize| Some((*columns.get(index)?).to_owned()).filter(|word| word != "-");
    RuleSpec {
        platform: column(0),
        min_app_version: column(1),
        max_app_version: column(2),
        pair_min_app_version: column(3),
        minimum_relay_protocol_version: column(4),
        ..spec(kind.parse().unwrap(), client.parse().unwrap())
    }
}

fn policy(rules: &[&str]) -> Policy {
    let rules: Vec<RuleSpec> = rules.iter().map(|text| rule(text)).collect();
    Policy::new((1..).map(RuleId).zip(&rules)).unwrap()
}

/// `app platform protocol`; the empty text for none.
fn client(text: &str) -> Option<Descriptor> {
    let [app, platform, protocol] = text.split(' ').collect::<Vec<_>>().try_into().ok()?;
    Some(Descriptor { app_version: app.to_owned(), platform: platform.to_owned(), relay_protocol_version: protocol.to_owned() })
}

fn check(rules: &[&str], desktop: &str, mobile: &str) -> CheckAnswer {
    policy(rules).check(client(desktop).as_ref(), client(mobile).as_ref())
}

/// Every rule below applies to both clients at once: each row takes away what decided the row above.
#[test]
fn the_first_decision_that_applies_is_given() {
    use Decision::*;
    let rules = [
        "block desktop macos 1 9",
        "pair mobile ios 1 9 3",
        "minimum mobile ios 2",
        "minimum desktop macos 2",
        "minimum desktop - - - - 1.8",
    ];
    for (rules, desktop, mobile, decision) in [
        (&rules[..], "", "", MissingClient),
        (&rules[..], "1.x macos 1.7", "1 ios 1.7", InvalidVersion),
        (&rules[..], "1 macos 1.7", "1 ios 1.8", ProtocolUpdateRequired),
        (&rules[..], "1 macos 1.8", "1 ios 1.8", UnsupportedDesktopVersion),
        (&rules[..], "2 macos 1.8", "1 ios 1.8", UnsupportedMobileVersion),
        (&rules[..], "2 macos 1.8", "2 ios 1.8", UnsupportedPair),
        (&rules[..], "3 macos 1.8", "2 ios 1.8", BlockedByPolicy),
        (&rules[..], "10 macos 1.8", "2 ios 1.8", Compatible),
        (&[], "1 macos 1.7", "", Compatible),
    ] {
        let answer = check(rules, desktop, mobile);
        assert_eq!((answer.decision, answer.compatible), (decision, decision == Compatible), "{desktop:?} {mobile:?}");
        assert!(!answer.message.is_empty());
    }
}

#[test]
fn a_version_that_does_not_parse_is_invalid_in_either_field_of_either_client() {
    for bad in ["", "v1", "1.", "1..2", "-1", "1.7-beta", "latest", "4294967296", "1.1.1.1.1.1.1.1.1"] {
        let good = Descriptor { app_version: "1".into(), platform: "ios".into(), relay_protocol_version: "1.7".into() };
        let app = Descriptor { app_version: bad.into(), ..good.clone() };
        let protocol = Descriptor { relay_protocol_version: bad.into(), ..good.clone() };
        let policy = policy(&[]);
        for (client, result) in [
            (&app, ClientResult { known_version: false, protocol_supported: true }),
            (&protocol, ClientResult { known_version: true, protocol_supported: false }),
        ] {
            let answers = [policy.check(Some(client), Some(&good)), policy.check(Some(&good), Some(client))];
            assert!(answers.iter().all(|answer| answer.decision == Decision::InvalidVersion), "{client:?}");
            assert_eq!((answers[0].desktop, answers[1].mobile), (Some(result), Some(result)), "{client:?}");
        }
    }
}

#[test]
fn ranges_hold_both_their_ends_and_compare_by_number() {
    let open = &["block mobile ios"][..];
    let range = &["block mobile ios 1.9 1.10.0"][..];
    let from = &["block mobile ios 2"][..];
    for (rules, app, is_blocked) in [
        (range, "1.8.9", false),
        (range, "1.9", true),
        (range, "1.9.0", true),
        (range, "1.9.5", true),
        (range, "01.10", true),
        (range, "1.10.0.1", false),
        (from, "1.99", false),
        (from, "2", true),
        (open, "0", true),
    ] {
        let answer = check(rules, "", &format!("{app} ios 1.7"));
        assert_eq!(answer.decision == Decision::BlockedByPolicy, is_blocked, "{rules:?} {app}");
    }
    for (app, decision) in [("1.9.9", Decision::UnsupportedMobileVersion), ("2.0", Decision::Compatible)] {
        assert_eq!(check(&["minimum mobile ios 2"], "", &format!("{app} ios 1.7")).decision, decision);
    }
    for (app, decision) in [("1.9.9", Decision::UnsupportedPair), ("2.0", Decision::Compatible)] {
        assert_eq!(check(&["pair mobile ios 3 4 2"], &format!("{app} macos 1.7"), "4 ios 1.7").decision, decision);
    }
}

#[test]
fn a_rule_is_about_its_client_and_its_platform_only() {
    for (rule, desktop, mobile, applies) in [
        ("minimum mobile - 2", "", "1 ios 1.7", true),
        ("minimum mobile ios 2", "", "1 iOS 1.7", true),
        ("minimum mobile ios 2", "", "1 android 1.7", false),
        ("minimum mobile ios 2", "", "1 unheard-of 1.7", false),
        ("minimum mobile ios 2", "1 ios 1.7", "", false),
        ("block desktop macos", "1 macos 1.7", "", true),
        ("block desktop macos", "1 linux 1.7", "1 macos 1.7", false),
        ("pair desktop macos 1 5 2", "1 macos 1.7", "1 ios 1.7", true),
        ("pair desktop macos 1 5 2", "1 linux 1.7", "1 ios 1.7", false),
        ("pair desktop macos 1 5 2", "6 macos 1.7", "1 ios 1.7", false),
        ("pair desktop macos 1 5 2", "1 macos 1.7", "", false),
    ] {
        assert_eq!(!check(&[rule], desktop, mobile).compatible, applies, "{rule}: {desktop:?} {mobile:?}");
    }
}

#[test]
fn a_version_is_known_if_a_rule_names_it_or_none_names_its_platform() {
    let known = |rules: &[&str], mobile: &str| check(rules, "", mobile).mobile.unwrap().known_version;
    assert!(known(&[], "1 ios 1.7"));
    assert!(known(&["minimum mobile - 2"], "1 ios 1.7"), "a rule for every platform names none");
    assert!(known(&["minimum mobile android 2"], "1 ios 1.7"));
    assert!(known(&["minimum desktop ios 2"], "1 ios 1.7"), "a rule of the other client");
    assert!(!known(&["minimum mobile ios 2"], "1 ios 1.7"));
    assert!(known(&["minimum mobile ios 2", "block mobile ios - 1"], "1 IOS 1.7"), "one of several is enough");
}

#[test]
fn the_required_protocol_is_the_highest_of_the_floor_and_every_rule() {
    for (rules, required) in [
        (&[][..], "1.7"),
        (&["minimum mobile - - - - 1.6"], "1.7"),
        (&["block mobile ios - - - 1.10", "minimum desktop - - - - 1.9"], "1.10"),
    ] {
        let answer = check(rules, "1 macos 1.9", "");
        assert_eq!(answer.required_relay_protocol_version, required);
        assert_eq!(answer.desktop.unwrap().protocol_supported, required == "1.7");
        assert_eq!(answer.mobile, None);
    }
}

#[test]
fn the_policy_version_is_the_number_of_rules_and_the_highest_id() {
    let any = rule("block mobile ios");
    assert_eq!(check(&[], "", "").policy_version, "0.0");
    let policy = Policy::new([(RuleId(3), &any), (RuleId(12), &any)]).unwrap();
    assert_eq!(policy.check(None, None).policy_version, "2.12");
}

#[test]
fn the_message_is_that_of_the_oldest_rule_that_decides_or_the_relays() {
    let told = |text: &str| Some(text.to_owned());
    let mut rules = [rule("minimum mobile ios 3"), rule("minimum mobile ios 2"), rule("minimum desktop - - - - 1.8")];
    (rules[0].message, rules[1].message, rules[2].message) = (told("three"), told("two"), told("protocol"));
    let message =
        |rules: &[RuleSpec], mobile: &str| Policy::new((1..).map(RuleId).zip(rules)).unwrap().check(None, client(mobile).as_ref()).message;
    assert_eq!(message(&rules, "1 ios 1.8"), "three");
    rules[0].message = None;
    assert!(message(&rules, "1 ios 1.8").contains("mobile"), "the rule that decides has none");
    assert!(message(&rules, "1 ios 1.7").contains("1.8"), "a protocol version is demanded of everybody");
}

#[test]
fn a_stored_version_that_does_not_parse_fails_the_policy_by_its_name() {
    for (text, field) in [
        ("block mobile ios x", "minAppVersion"),
        ("block mobile ios - 1.", "maxAppVersion"),
        ("pair mobile ios - - v2", "pairMinAppVersion"),
        ("minimum mobile ios - - - one", "minimumRelayProtocolVersion"),
    ] {
        let (good, bad) = (rule("block mobile ios"), rule(text));
        assert_eq!(Policy::new([(RuleId(1), &good), (RuleId(7), &bad)]).unwrap_err(), BadRule { id: RuleId(7), field });
        assert!(bad.validate().unwrap_err().contains(field));
    }
}

#[test]
fn a_rule_that_says_nothing_or_something_odd_is_not_added() {
    for good in ["minimum mobile ios 2", "minimum mobile - - - - 1.8", "block mobile", "block mobile ios 1 1", "pair mobile - - - 2"] {
        assert_eq!(rule(good).validate(), Ok(()), "{good}");
    }
    for (bad, named) in [
        ("minimum mobile ios", "minAppVersion"),
        ("minimum mobile ios 1 2", "maxAppVersion"),
        ("minimum mobile ios 1 - 2", "pairMinAppVersion"),
        ("block mobile ios 1.10 1.9", "above"),
        ("block mobile ios - - 2", "pairMinAppVersion"),
        ("pair mobile ios 1", "pairMinAppVersion"),
    ] {
        let refused = rule(bad).validate().unwrap_err();
        assert!(refused.contains(named), "{bad}: {refused}");
    }
    for text in ["", " ", "a\0b", &"x".repeat(RULE_MESSAGE_CHARS_MAX + 1)] {
        let block = rule("block mobile ios");
        assert!(RuleSpec { message: Some(text.into()), ..block.clone() }.validate().unwrap_err().contains("message"));
        assert!(RuleSpec { platform: Some(text.into()), ..block }.validate().unwrap_err().contains("platform"));
    }
}
