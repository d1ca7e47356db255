//! Look-ups and the policy.

use super::*;

#[test]
fn the_required_version_is_the_highest_minimum_and_at_least_the_floor() {
    for (minimums, required) in [
        (&[][..], Ok("1.7")),
        (&["1.6"], Ok("1.7")),
        (&["1.7"], Ok("1.7")),
        (&["1.8", "1.10", "1.9"], Ok("1.10")),
        (&["2"], Ok("2")),
        (&["1.8", "latest"], Err(PolicyUnavailable)),
        (&["", "1.8"], Err(PolicyUnavailable)),
    ] {
        let mut rig = Rig::new();
        let request = rig.look_up(&[]);
        rig.rules_read(minimums);
        assert_eq!(rig.required(request), required.map(version), "{minimums:?}");
        assert_eq!(rig.found(request), Ok(vec![]));
        assert_eq!(rig.reads, [], "no device statement without devices");
    }
}

#[test]
fn rules_are_used_until_they_are_older_than_the_cache_limit() {
    let max_age = config().policy_cache;
    for (age, loads) in [(max_age - MS, 1), (max_age, 1), (max_age + MS, 2)] {
        let mut rig = Rig::ready();
        rig.advance(age);
        let request = rig.look_up(&[]);
        assert_eq!(rig.loads.len(), loads, "{age:?}");
        assert_eq!(rig.answers.contains_key(&request), loads == 1, "{age:?}");
    }
}

#[test]
fn the_age_of_rules_counts_from_the_start_of_their_load() {
    let mut rig = Rig::new();
    rig.look_up(&[]);
    rig.advance(MS);
    rig.rules_read(&[]);
    rig.advance(config().policy_cache);
    rig.look_up(&[]);
    assert_eq!(rig.loads.len(), 2);
}

#[test]
fn rules_that_cannot_be_read_are_replaced_by_the_cache_only_while_it_is_fresh() {
    let mut rig = Rig::ready();
    rig.advance(config().policy_cache + MS);
    let waiting = rig.look_up(&[]);
    rig.rules_failed();
    assert_eq!(rig.required(waiting), Err(PolicyUnavailable));
    // Neither the failure nor a bad rule is kept: the next look-up asks again.
    let next = rig.look_up(&[]);
    rig.rules_read(&["bad"]);
    assert_eq!(rig.required(next), Err(PolicyUnavailable));
    let last = rig.look_up(&[]);
    rig.rules_read(&["1.9"]);
    assert_eq!(rig.required(last), Ok(version("1.9")));
    assert_eq!(rig.loads.len(), 4);
}

#[test]
fn look_ups_that_come_during_a_load_wait_for_it() {
    let mut rig = Rig::new();
    let requests: Vec<_> = (0..5).map(|_| rig.look_up(&[])).collect();
    assert_eq!(rig.loads.len(), 1);
    assert!(rig.answers.is_empty());
    rig.rules_read(&["1.8"]);
    for request in requests {
        assert_eq!(rig.required(request), Ok(version("1.8")));
    }
}

#[test]
fn a_look_up_waits_for_both_its_parts_in_any_order() {
    let mut rig = Rig::new();
    let request = rig.look_up(&[1]);
    rig.devices_read(&[1]);
    assert!(rig.answers.is_empty());
    rig.rules_read(&[]);
    assert_eq!(rig.answers[&request], LookedUp { required: Ok(version("1.7")), devices: Ok(vec![facts(1)]) });

    let mut rig = Rig::new();
    let request = rig.look_up(&[1]);
    rig.rules_failed();
    assert!(rig.answers.is_empty());
    rig.devices_read(&[1]);
    assert_eq!(rig.answers[&request], LookedUp { required: Err(PolicyUnavailable), devices: Ok(vec![facts(1)]) });
}

#[test]
fn what_arrives_during_a_read_shares_the_next_one() {
    let mut rig = Rig::ready();
    let first = rig.look_up(&[1]);
    let others: Vec<_> = [vec![3, 2], vec![1], vec![4, 4], vec![9]].iter().map(|devices| rig.look_up(devices)).collect();
    assert_eq!(rig.reads.len(), 1, "one in flight");
    rig.devices_read(&[1]);
    // Device 1 is read again for the second asker: its row may have changed since the first read began.
    assert_eq!(rig.found(first), Ok(vec![facts(1)]));
    assert_eq!(rig.reads.len(), 2);
    assert_eq!(rig.reads[1].1, [1, 2, 3, 4, 9].map(id));
    rig.devices_read(&[4, 3, 2, 1]);
    let found: Vec<_> = others.iter().map(|request| rig.found(*request).unwrap()).collect();
    assert_eq!(found, [vec![facts(3), facts(2)], vec![facts(1)], vec![facts(4), facts(4)], vec![]]);
    assert_eq!(rig.reads.len(), 2, "nothing is left to read");
}

#[test]
fn a_read_takes_as_many_devices_as_its_bound_and_whole_look_ups() {
    // Bound 10. After a first read of one device: look-ups of these sizes, all of different devices.
    for (sizes, batches) in [
        (&[9, 1][..], &[10][..]),
        (&[9, 2], &[9, 2]),
        (&[10, 1], &[10, 1]),
        (&[11, 1], &[11, 1]),
        (&[1, 11], &[1, 11]),
        (&[4, 4, 4, 4, 4], &[8, 8, 4]),
    ] {
        let mut rig = Rig::ready();
        rig.look_up(&[1]);
        let mut next_device = 100;
        for size in sizes {
            rig.look_up(&(next_device..next_device + size).collect::<Vec<_>>());
            next_device += size;
        }
        for size in batches {
            rig.devices_read(&[]);
            assert_eq!(rig.reads.last().unwrap().1.len(), *size, "{sizes:?}");
        }
        rig.devices_read(&[]);
        assert_eq!(rig.reads.len(), 1 + batches.len(), "{sizes:?}");
    }
}

#[test]
fn a_failed_read_is_answered_at_once_and_the_next_goes_on() {
    let mut rig = Rig::ready();
    let first = rig.look_up(&[1]);
    let second = rig.look_up(&[2]);
    rig.devices_failed();
    assert_eq!(rig.answers[&first], LookedUp { required: Ok(version("1.7")), devices: Err(LookupUnavailable) });
    assert!(!rig.answers.contains_key(&second));
    rig.devices_read(&[2]);
    assert_eq!(rig.found(second), Ok(vec![facts(2)]));
}

#[test]
fn a_look_up_is_unavailable_at_its_deadline() {
    let deadline = config().lookup_deadline;
    for (wait, in_time) in [(deadline - MS, true), (deadline, false), (deadline + MS, false)] {
        let mut rig = Rig::ready();
        let request = rig.look_up(&[1]);
        assert_eq!(rig.core.next_timeout(), Some((rig.now + deadline, "look-up deadline")));
        // No timeout in between: the answer itself comes at that time.
        rig.now += wait;
        rig.devices_read(&[1]);
        assert_eq!(rig.found(request), if in_time { Ok(vec![facts(1)]) } else { Err(LookupUnavailable) }, "{wait:?}");
        assert_eq!(rig.core.next_timeout(), None);
    }
}

#[test]
fn a_deadline_answers_with_what_is_known_and_frees_the_place() {
    let mut rig = Rig::new();
    let hanging = rig.look_up(&[1]);
    rig.advance(MS);
    let behind = rig.look_up(&[2]);
    let rules_only = rig.look_up(&[]);
    rig.advance(config().lookup_deadline - MS);
    assert_eq!(rig.answers[&hanging], LookedUp::unavailable());
    assert!(!rig.answers.contains_key(&behind));
    rig.advance(MS);
    assert_eq!(rig.answers[&behind], LookedUp::unavailable());
    assert_eq!(rig.answers[&rules_only], LookedUp { required: Err(PolicyUnavailable), devices: Ok(vec![]) });
    assert_eq!(rig.core.state().lookups_open, 0);
    // The late answers do no harm, and what expired in the queue is not read.
    rig.rules_read(&[]);
    rig.devices_read(&[1]);
    assert_eq!(rig.reads.len(), 1);
    let request = rig.look_up(&[3]);
    assert_eq!(rig.reads[1].1, [id(3)]);
    rig.devices_read(&[3]);
    assert_eq!(rig.found(request), Ok(vec![facts(3)]));
}

#[test]
fn over_the_bound_a_look_up_is_refused_at_once() {
    let mut rig = Rig::ready();
    let max = u128::try_from(config().lookups_max).unwrap();
    for device in 0..max {
        rig.look_up(&[device]);
    }
    assert_eq!(rig.core.state().lookups_open, config().lookups_max);
    let refused = rig.look_up(&[9]);
    assert_eq!(rig.answers[&refused], LookedUp { required: Ok(version("1.7")), devices: Err(LookupUnavailable) });
    // One answer makes one place.
    rig.devices_read(&[0]);
    let taken = rig.look_up(&[9]);
    assert!(!rig.answers.contains_key(&taken));
}
