//! Both layers against a model that knows one thing of each key: what its last copy came to, and until when.

use super::tests::{KEPT, LEASE, METHOD, Ran, Rig, START, SUBMIT, cut_off, ok, text};
use crate::desktop::router::HandlerError;
use proptest::prelude::*;
use relay_protocol::desktop_error::DesktopError;
use std::collections::BTreeMap;

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A copy of a key with one of two params, which ends so if it runs.
    Copy {
        safe: bool,
        key: usize,
        params: usize,
        end: End,
    },
    Restart,
    /// Milliseconds, either way.
    Clock(i64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Result,
    Terminal,
    Ambiguous,
    Retryable,
    CutOff,
}

/// What is known of a key.
#[derive(Clone, Copy)]
enum Known {
    Answer { end: End, until: i64 },
    Cut { lease: i64, until: i64 },
    Unknown { until: i64 },
}

impl Known {
    /// When it is forgotten.
    fn until(&self) -> i64 {
        match *self {
            Known::Answer { until, .. } | Known::Cut { until, .. } | Known::Unknown { until } => until,
        }
    }
}

const KEYS: [&str; 2] = ["a", "b"];
const PARAMS: [&str; 2] = ["{}", "[]"];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let end = prop_oneof![Just(End::Result), Just(End::Terminal), Just(End::Ambiguous), Just(End::Retryable), Just(End::CutOff)];
    let copy = (any::<bool>(), 0..2usize, prop_oneof![4 => Just(0), 1 => Just(1usize)], end);
    let copy = copy.prop_map(|(safe, key, params, end)| Step::Copy { safe, key, params, end });
    let clock =
        prop_oneof![Just(1), Just(LEASE - 1), Just(LEASE), Just(KEPT - LEASE), Just(KEPT - 1), Just(KEPT), Just(-LEASE), Just(-KEPT)];
    proptest::collection::vec(prop_oneof![6 => copy, 1 => Just(Step::Restart), 3 => clock.prop_map(Step::Clock)], 1..25)
}

fn reply_of(end: End) -> super::Reply {
    let error = |kind| Err(HandlerError::new(kind, "of the handler").to_rpc());
    match end {
        End::Result | End::CutOff => ok("1"),
        End::Terminal => error(DesktopError::NotFound),
        End::Ambiguous => error(DesktopError::Internal),
        End::Retryable => Err(HandlerError::new(DesktopError::Database, "of the handler").retryable().to_rpc()),
    }
}

/// A row that has expired by a clock that is now set back may have been removed or not. Its key is not used again.
fn retire_expired(known: &mut BTreeMap<(bool, usize), (usize, Known)>, names: &mut BTreeMap<(bool, usize), usize>, now: i64) {
    known.retain(|at, (_, state)| {
        let is_good = state.until() > now;
        if !is_good {
            *names.entry(*at).or_insert(0) += 1;
        }
        is_good
    });
}

/// What a copy gets: `None` is that it runs.
fn expected(known: &mut BTreeMap<(bool, usize), (usize, Known)>, at: (bool, usize), params: usize, now: i64) -> Option<i64> {
    let (first, state) = known.get_mut(&at)?;
    if state.until() <= now {
        known.remove(&at);
        return None;
    }
    // A clock that was set back leaves no lease longer than one that begins now, whoever asks.
    if let Known::Cut { lease, .. } = state {
        *lease = (*lease).min(now + LEASE);
    }
    if *first != params {
        return Some(DesktopError::Conflict.code().into());
    }
    match *state {
        Known::Answer { end: End::Result, .. } => Some(0),
        Known::Answer { end: End::Terminal, .. } => Some(DesktopError::NotFound.code().into()),
        Known::Answer { end: End::Retryable | End::Ambiguous | End::CutOff, .. } => None,
        Known::Cut { .. } if at.0 => None,
        Known::Cut { lease, .. } if now < lease => Some(DesktopError::OperationRunning.code().into()),
        Known::Cut { .. } => {
            *state = Known::Unknown { until: now + KEPT };
            Some(DesktopError::OutcomeUnknown.code().into())
        }
        Known::Unknown { .. } => Some(DesktopError::OutcomeUnknown.code().into()),
    }
}

async fn agrees(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let (mut rig, mut now, mut known) = (Rig::new(), START, BTreeMap::new());
    let mut names = BTreeMap::new();
    for step in steps {
        match step {
            Step::Restart => rig.restart(),
            Step::Clock(by) => {
                if by < 0 {
                    retire_expired(&mut known, &mut names, now);
                }
                now += by;
                rig.at(now);
            }
            Step::Copy { safe, key, params, end } => {
                let (at, method) = ((safe, key), if safe { SUBMIT } else { METHOD });
                let name = format!("{}{}", KEYS[key], names.entry(at).or_insert(0));
                let answer = expected(&mut known, at, params, now);
                if answer.is_none() && end == End::CutOff {
                    cut_off(rig.running_with(method, &name, PARAMS[params]).await).await;
                    known.insert(at, (params, Known::Cut { lease: now + LEASE, until: now + LEASE + KEPT }));
                    continue;
                }
                let (reply, ran) = rig.copy(method, &name, PARAMS[params], reply_of(end)).await;
                prop_assert_eq!(ran, if answer.is_none() { Ran::Yes } else { Ran::No }, "{:?}", step);
                match answer {
                    Some(0) => prop_assert_eq!(text(&reply), Ok("1")),
                    Some(error) => prop_assert_eq!(text(&reply), Err(error)),
                    None => {
                        let own = reply_of(end);
                        prop_assert_eq!(text(&reply), text(&own));
                        let until = now + KEPT;
                        let state = if end == End::Ambiguous { Known::Unknown { until } } else { Known::Answer { end, until } };
                        known.insert(at, (params, state));
                    }
                }
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_key_runs_while_what_became_of_it_is_known(steps in steps()) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(agrees(steps))?;
    }
}
