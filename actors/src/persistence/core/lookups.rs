//! Open look-ups: which wait for the next statement, which are in the running one, and what each still lacks.

use super::{Effect, Effects, RequestId, StatementId, backoff::Backoff};
use crate::persistence::{LookedUp, LookupUnavailable, PersistenceConfig, PolicyUnavailable};
use relay_protocol::{device::DeviceFacts, id::DeviceId, version::Version};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::{Duration, Instant},
};

struct Request {
    deadline: Instant,
    asked: Vec<DeviceId>,
    /// `None` while the rules are being read.
    required: Option<Result<Version, PolicyUnavailable>>,
    /// `None` while the rows are not read.
    devices: Option<Result<Vec<DeviceFacts>, LookupUnavailable>>,
}

struct InFlight {
    statement: StatementId,
    requests: Vec<RequestId>,
    /// One of those asked for.
    device: Option<DeviceId>,
}

pub(super) struct Lookups {
    lifetime: Duration,
    open_max: usize,
    batch_devices_max: usize,
    /// All that are not answered. Ids and deadlines grow together.
    requests: BTreeMap<RequestId, Request>,
    /// Those that no statement has taken up yet, oldest first; some may have been answered at their deadline.
    waiting: VecDeque<RequestId>,
    in_flight: Option<InFlight>,
    backoff: Backoff,
    /// One that the last failed statement asked for, and that is asked for again to find out whether storage is back.
    failed_device: Option<DeviceId>,
}

impl Lookups {
    pub(super) fn new(config: &PersistenceConfig) -> Self {
        Lookups {
            lifetime: config.lookup_deadline,
            open_max: config.lookups_max,
            batch_devices_max: config.lookup_batch_devices_max,
            requests: BTreeMap::new(),
            waiting: VecDeque::new(),
            in_flight: None,
            backoff: Backoff::new(config),
            failed_device: None,
        }
    }

    pub(super) fn open(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.requests.len() >= self.open_max
    }

    pub(super) fn is_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.requests.is_empty() && self.in_flight.is_none()
    }

    pub(super) fn next_timeout(&self) -> Option<(Instant, &'static str)> {
        let deadline = self.requests.first_key_value().map(|(_oldest, request)| (request.deadline, "look-up deadline"));
        let retry = self.backoff.retry_at().filter(|_| self.in_flight.is_none()).map(|at| (at, "look-up retry"));
        [deadline, retry].into_iter().flatten().min_by_key(|(at, _reason)| *at)
    }

    /// Answers those whose deadline has come with what is known.
    pub(super) fn expire(&mut self, now: Instant, out: &mut Effects) {
        while let Some(oldest) = self.requests.first_entry()
            && oldest.get().deadline <= now
        {
            let (request, open) = oldest.remove_entry();
            let answer = LookedUp {
                required: open.required.unwrap_or(Err(PolicyUnavailable)),
                devices: open.devices.unwrap_or(Err(LookupUnavailable)),
            };
            out.push_back(Effect::AnswerLookUp { request, answer });
        }
        while let Some(oldest) = self.waiting.front()
            && !self.requests.contains_key(oldest)
        {
            self.waiting.pop_front();
        }
    }

    pub(super) fn add(&mut self, now: Instant, request: RequestId, asked: Vec<DeviceId>, required: Option<Version>, out: &mut Effects) {
        let devices = if asked.is_empty() {
            Some(Ok(Vec::new()))
        } else {
            self.waiting.push_back(request);
            None
        };
        let open = Request { deadline: now + self.lifetime, asked, required: required.map(Ok), devices };
        self.requests.insert(request, open);
        self.answer_if_complete(request, out);
    }

    pub(super) fn is_ready(&self) -> bool {
        self.in_flight.is_none() && !self.waiting.is_empty()
    }

    /// Whether the last statement failed, nobody asks, and it is time to find out whether storage is back.
    pub(super) fn is_retry_due(&self, now: Instant) -> bool {
        self.in_flight.is_none() && self.waiting.is_empty() && self.backoff.is_due(now)
    }

    /// Asks again for one device, for nobody.
    pub(super) fn begin_retry(&mut self, statement: StatementId) -> Vec<DeviceId> {
        self.in_flight = Some(InFlight { statement, requests: Vec::new(), device: self.failed_device });
        self.failed_device.into_iter().collect()
    }

    /// Takes up the oldest look-ups, as many as fit, and gives each of their devices once.
    pub(super) fn begin(&mut self, statement: StatementId) -> Vec<DeviceId> {
        let mut devices = BTreeSet::new();
        let mut requests = Vec::new();
        while let Some(&next) = self.waiting.front() {
            let asked = self.requests.get(&next).map_or(&[][..], |request| &request.asked);
            let added = asked.iter().filter(|device| !devices.contains(*device)).count();
            if !requests.is_empty() && devices.len() + added > self.batch_devices_max {
                break;
            }
            devices.extend(asked);
            requests.push(next);
            self.waiting.pop_front();
        }
        self.in_flight = Some(InFlight { statement, requests, device: devices.first().copied() });
        devices.into_iter().collect()
    }

    /// The look-ups of this statement; `None` when it is not the one in flight.
    pub(super) fn finish(&mut self, now: Instant, statement: StatementId, succeeded: bool) -> Option<Vec<RequestId>> {
        let in_flight = self.in_flight.take_if(|in_flight| in_flight.statement == statement)?;
        self.backoff.on_result(now, succeeded);
        self.failed_device = in_flight.device;
        Some(in_flight.requests)
    }

    /// Gives each look-up of a batch its own rows; without rows they are unavailable.
    pub(super) fn answer(&mut self, batch: &[RequestId], rows: Option<Vec<DeviceFacts>>, out: &mut Effects) {
        let rows: Option<BTreeMap<DeviceId, DeviceFacts>> = rows.map(|rows| rows.into_iter().map(|facts| (facts.id, facts)).collect());
        for &request in batch {
            if let Some(open) = self.requests.get_mut(&request) {
                let own = rows.as_ref().map(|rows| open.asked.iter().filter_map(|device| rows.get(device)).cloned().collect());
                open.devices = Some(own.ok_or(LookupUnavailable));
                self.answer_if_complete(request, out);
            }
        }
    }

    /// Gives the outcome of a load of the rules to all that waited for it.
    pub(super) fn set_required(&mut self, required: &Result<Version, PolicyUnavailable>, out: &mut Effects) {
        let mut decided = Vec::new();
        for (request, open) in &mut self.requests {
            if open.required.is_none() {
                open.required = Some(required.clone());
                decided.push(*request);
            }
        }
        for request in decided {
            self.answer_if_complete(request, out);
        }
    }

    fn answer_if_complete(&mut self, request: RequestId, out: &mut Effects) {
        if self.requests.get(&request).is_none_or(|open| open.required.is_none() || open.devices.is_none()) {
            return;
        }
        if let Some(Request { required: Some(required), devices: Some(devices), .. }) = self.requests.remove(&request) {
            out.push_back(Effect::AnswerLookUp { request, answer: LookedUp { required, devices } });
        }
    }
}
