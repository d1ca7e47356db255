//! Reads that failed are repeated for nobody, so that the end of an outage is noticed though no device registers.

use super::*;

#[test]
fn a_read_that_failed_is_repeated_until_it_works() {
    let mut rig = Rig::new();
    rig.look_up(&[1, 2]);
    for (failure, millis) in [250, 500, 1_000, 1_000, 1_000].into_iter().enumerate() {
        let wait = Duration::from_millis(millis);
        rig.devices_failed();
        rig.rules_failed();
        rig.advance(wait - MS);
        assert_eq!((rig.reads.len(), rig.loads.len()), (failure + 1, failure + 1), "1 ms before {wait:?}");
        rig.advance(MS);
        assert_eq!((rig.reads.len(), rig.loads.len()), (failure + 2, failure + 2), "at {wait:?}");
        assert_eq!(rig.reads.last().unwrap().1, [id(1)], "one device is enough to find out");
    }
    rig.reports.clear();
    rig.devices_read(&[1]);
    rig.rules_read(&[]);
    let failing_for = Duration::from_millis(3_750);
    let recovered = [Statement::Devices, Statement::Rules].map(|statement| Effect::ReportRecovered { statement, failing_for });
    assert_eq!(rig.reports, recovered);
    assert_eq!((rig.core.state(), rig.core.next_timeout()), (PersistenceState::default(), None));
    assert_eq!(rig.answers.len(), 1, "only who asked was answered");
}

#[test]
fn a_look_up_does_not_wait_for_the_retry_and_takes_its_place() {
    let mut rig = Rig::ready();
    rig.look_up(&[1]);
    rig.devices_failed();
    let request = rig.look_up(&[2]);
    assert_eq!(rig.reads.last().unwrap().1, [id(2)], "at once");
    rig.advance(config().retry_max);
    assert_eq!(rig.reads.len(), 2, "one read in flight");
    rig.devices_read(&[2]);
    assert_eq!(rig.found(request), Ok(vec![facts(2)]));
    assert_eq!(rig.core.next_timeout(), None, "it showed that storage is back");
}

#[test]
fn a_look_up_that_comes_during_a_retry_is_read_next() {
    let mut rig = Rig::ready();
    rig.look_up(&[1]);
    rig.devices_failed();
    rig.advance(config().retry_initial);
    assert_eq!(rig.reads.len(), 2);
    let request = rig.look_up(&[2]);
    assert_eq!(rig.reads.len(), 2);
    rig.devices_failed();
    assert_eq!(rig.reads.last().unwrap().1, [id(2)]);
    rig.devices_read(&[2]);
    assert_eq!(rig.found(request), Ok(vec![facts(2)]));
}
