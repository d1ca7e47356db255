//! What of the answers is worth a line in the log.

use crate::store::{LiveProcess, ProcessRecord, StoreError};
use relay_protocol::id::RelayInstanceId;
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// Another process serves while this one does.
    Serves(ProcessRecord),
    /// One that was reported serves no longer.
    ServesNoLonger { instance: RelayInstanceId, is_draining: bool },
    /// The row cannot be renewed.
    Failing { cause: String },
    /// It can again.
    Recovered { failing_for: Duration },
    /// Another one went so long ago that what it left of its devices is no longer true.
    LeftStale,
}

pub(super) struct Core {
    own: RelayInstanceId,
    /// The others that were reported as serving. Storage's table bounds it.
    serving: BTreeSet<RelayInstanceId>,
    failing_since: Option<Instant>,
    /// All others that lived at the last answer.
    others: BTreeSet<RelayInstanceId>,
    /// How long the devices of one that has gone may take to come back, to this one or another.
    wait: Duration,
    /// When those of the last one that went have had their time.
    stale_at: Option<Instant>,
}

impl Core {
    pub(super) fn new(own: RelayInstanceId, wait: Duration) -> Self {
        Core { own, serving: BTreeSet::new(), failing_since: None, others: BTreeSet::new(), wait, stale_at: None }
    }

    /// What a renewal was answered, by a process that was leaving or not when it asked. Changes are reported, each once.
    pub(super) fn on_answer(&mut self, now: Instant, is_draining: bool, answer: Result<&[LiveProcess], &StoreError>) -> Vec<Report> {
        let live = match answer {
            Ok(live) => live,
            Err(_repeated) if self.failing_since.is_some() => return Vec::new(),
            Err(error) => {
                self.failing_since = Some(now);
                return vec![Report::Failing { cause: error.to_string() }];
            }
        };
        let since = self.failing_since.take();
        let recovered = since.map(|since| Report::Recovered { failing_for: now.saturating_duration_since(since) });
        let mut reports: Vec<Report> = recovered.into_iter().collect();

        reports.extend(self.on_others(now, live));
        let others = || live.iter().map(|process| &process.record).filter(|record| record.instance != self.own);
        let serving: BTreeSet<RelayInstanceId> = others().filter(|record| !record.is_draining).map(|record| record.instance).collect();
        reports.extend(self.serving.difference(&serving).map(|instance| Report::ServesNoLonger {
            instance: *instance,
            is_draining: others().any(|record| record.instance == *instance),
        }));
        if is_draining {
            // That another one serves is the purpose of leaving.
            self.serving.retain(|instance| serving.contains(instance));
            return reports;
        }
        let news = others().filter(|record| serving.contains(&record.instance) && !self.serving.contains(&record.instance));
        reports.extend(news.cloned().map(Report::Serves));
        self.serving = serving;
        reports
    }

    fn on_others(&mut self, now: Instant, live: &[LiveProcess]) -> Option<Report> {
        let others = live.iter().map(|process| process.record.instance).filter(|instance| *instance != self.own).collect();
        if !self.others.is_subset(&others) {
            self.stale_at = Some(now + self.wait);
        }
        self.others = others;
        self.stale_at.take_if(|at| *at <= now).map(|_at| Report::LeftStale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{self, EpochMs};
    use uuid::Uuid;

    const OWN: u128 = 1;
    const WAIT: Duration = Duration::from_secs(90);

    fn record(n: u128, is_draining: bool) -> ProcessRecord {
        ProcessRecord {
            instance: RelayInstanceId(Uuid::from_u128(n)),
            version: "1.0".into(),
            host: "host".into(),
            pid: 7,
            started_at: EpochMs(0),
            is_draining,
        }
    }

    fn live(processes: &[(u128, bool)]) -> Vec<LiveProcess> {
        processes.iter().map(|&(n, is_draining)| LiveProcess { record: record(n, is_draining), last_seen: Duration::ZERO }).collect()
    }

    fn serves(n: u128) -> Report {
        Report::Serves(record(n, false))
    }

    fn serves_no_longer(n: u128, is_draining: bool) -> Report {
        Report::ServesNoLonger { instance: record(n, is_draining).instance, is_draining }
    }

    /// Each row: whether this process is leaving, who is alive, what is reported.
    type Step = (bool, Vec<(u128, bool)>, Vec<Report>);

    #[test]
    fn each_change_of_who_serves_beside_this_process_is_reported_once() {
        let tables: [Vec<Step>; 5] = [
            // Alone, then one comes, stays, and ends.
            vec![
                (false, vec![(OWN, false)], vec![]),
                (false, vec![(OWN, false), (2, false)], vec![serves(2)]),
                (false, vec![(OWN, false), (2, false)], vec![]),
                (false, vec![(OWN, false)], vec![serves_no_longer(2, false)]),
                (false, vec![(OWN, false)], vec![]),
                (false, vec![(OWN, false), (2, false)], vec![serves(2)]),
            ],
            // One that drains serves no longer; that it ends then is no news.
            vec![
                (false, vec![(OWN, false), (2, false)], vec![serves(2)]),
                (false, vec![(OWN, false), (2, true)], vec![serves_no_longer(2, true)]),
                (false, vec![(OWN, false)], vec![]),
            ],
            // One that was leaving already is nobody's concern.
            vec![(false, vec![(2, true), (OWN, false)], vec![]), (false, vec![(OWN, false)], vec![])],
            // Nor is one that takes over from this one, until it ends.
            vec![(true, vec![(OWN, true), (2, false)], vec![]), (true, vec![(OWN, true)], vec![])],
            // Two at once; one of them was reported before this one began to leave.
            vec![
                (false, vec![(2, false), (OWN, false)], vec![serves(2)]),
                (true, vec![(2, false), (OWN, true), (3, false)], vec![]),
                (true, vec![(OWN, true)], vec![serves_no_longer(2, false)]),
            ],
        ];
        for table in tables {
            let mut core = Core::new(record(OWN, false).instance, WAIT);
            for (step, (is_draining, processes, expected)) in table.into_iter().enumerate() {
                assert_eq!(core.on_answer(clock::now(), is_draining, Ok(&live(&processes))), expected, "step {step} of {processes:?}");
            }
        }
    }

    #[test]
    fn an_outage_is_reported_at_its_begin_and_its_end_and_changes_nobody() {
        let (mut core, start) = (Core::new(record(OWN, false).instance, WAIT), clock::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let away = StoreError::Unavailable("away".into());
        let both = live(&[(OWN, false), (2, false)]);
        assert_eq!(core.on_answer(at(0), false, Ok(&both)), [serves(2)]);
        assert_eq!(core.on_answer(at(10), false, Err(&away)), [Report::Failing { cause: away.to_string() }]);
        assert_eq!(core.on_answer(at(15), false, Err(&away)), []);
        assert_eq!(core.on_answer(at(20), false, Ok(&both)), [Report::Recovered { failing_for: Duration::from_secs(10) }]);
        assert_eq!(core.on_answer(at(30), false, Err(&away)), [Report::Failing { cause: away.to_string() }]);
        let alone = [Report::Recovered { failing_for: Duration::from_secs(2) }, serves_no_longer(2, false)];
        assert_eq!(core.on_answer(at(32), false, Ok(&live(&[(OWN, false)]))), alone);
    }
    #[test]
    fn what_one_that_went_has_left_is_stale_when_its_devices_have_had_their_time() {
        let (mut core, start) = (Core::new(record(OWN, false).instance, WAIT), clock::now());
        let mut at = |seconds, others: &[u128]| {
            // Leaving ones, so that nothing else is reported.
            let live: Vec<_> = others.iter().map(|&n| (n, true)).chain([(OWN, false)]).collect();
            core.on_answer(start + Duration::from_secs(seconds), false, Ok(&self::live(&live)))
        };
        assert_eq!(at(0, &[]), []);
        assert_eq!(at(1_000, &[2, 3]), []);
        assert_eq!(at(2_000, &[3]), []);
        assert_eq!(at(2_030, &[]), [], "the other one went later");
        assert_eq!(at(2_119, &[]), []);
        assert_eq!(at(2_120, &[]), [Report::LeftStale]);
        assert_eq!(at(3_000, &[4]), [], "once");
        assert_eq!(at(4_000, &[4]), [], "whoever comes leaves nothing");
    }
}
