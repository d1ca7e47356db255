//! Open requests: the records between a forwarded request and its final answer (device-lane section 4).
//!
//! Records lie under the desktop's connection generation and end with it, so a reply from an earlier socket finds nothing.

use super::{CoreConfig, process::Place};
use relay_protocol::{
    contract::Method,
    error::{BoundScope, RpcRefusal},
    id::{ConnectionId, DeviceId, Route},
    rpc::RequestId,
    trace_context::TraceParent,
};
use std::{
    collections::{BTreeMap, btree_map::Entry},
    time::Instant,
};

/// What is remembered of a forwarded request.
#[derive(Debug)]
pub(super) struct Record {
    /// The phone's route: where the answer goes, and what the answer must name.
    pub(super) client: Route,
    /// The id as the phone wrote it.
    pub(super) id_json: Box<str>,
    /// Tells a repeated request from another one under the same id.
    pub(super) fingerprint: u64,
    /// What its end is counted under.
    pub(super) method: &'static Method,
    /// Whose child its span is; none if it has no span.
    pub(super) trace: Option<TraceParent>,
    /// When it was handed to the desktop's lane.
    pub(super) forwarded: Instant,
    pub(super) deadline: Deadline,
    /// Its place among the open requests of the process.
    _place: Place,
}

/// When a record ends. The number tells records of one instant apart, in their order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Deadline {
    pub(super) at: Instant,
    number: u64,
}

/// The open requests of one desktop connection.
#[derive(Debug)]
pub(super) struct Generation {
    pub(super) connection: ConnectionId,
    pub(super) records: BTreeMap<RequestId, Record>,
}

#[derive(Debug, Default)]
pub(super) struct Pending {
    /// One for each connected desktop.
    pub(super) generations: BTreeMap<DeviceId, Generation>,
    /// Open requests of each phone route that has any.
    pub(super) per_client: BTreeMap<Route, usize>,
    pub(super) deadlines: BTreeMap<Deadline, (DeviceId, RequestId)>,
    next_number: u64,
}

impl Pending {
    /// Begins a desktop's connection generation; hands back the records of the one before.
    pub(super) fn begin(&mut self, desktop: DeviceId, connection: ConnectionId) -> Vec<Record> {
        let records = self.end(desktop);
        self.generations.insert(desktop, Generation { connection, records: BTreeMap::new() });
        records
    }

    /// Ends a desktop's connection generation; hands back its records.
    pub(super) fn end(&mut self, desktop: DeviceId) -> Vec<Record> {
        let records = self.generations.remove(&desktop).map(|generation| generation.records).unwrap_or_default();
        let records: Vec<_> = records.into_values().collect();
        for record in &records {
            self.unindex(record);
        }
        records
    }

    /// Files a request, unless its id is taken or a bound is reached; the widest bound is named first.
    pub(super) fn insert(&mut self, desktop: DeviceId, request: NewRecord, config: &CoreConfig) -> Result<(), RpcRefusal> {
        let NewRecord { id, id_json, client, fingerprint, method, trace, forwarded, expires } = request;
        let user_count = self.deadlines.len();
        let client_count = self.per_client.get(&client).copied().unwrap_or(0);
        let Some(generation) = self.generations.get_mut(&desktop) else { return Err(RpcRefusal::DesktopOffline) };
        let desktop_count = generation.records.len();
        let vacant = match generation.records.entry(id) {
            Entry::Vacant(vacant) => vacant,
            Entry::Occupied(taken) if taken.get().fingerprint == fingerprint => return Err(RpcRefusal::DuplicateRequest),
            Entry::Occupied(_) => return Err(RpcRefusal::ConflictingRequest),
        };
        let place = config.process.take().map_err(|current| RpcRefusal::TooManyPending {
            scope: BoundScope::Process,
            limit: config.process.limit(),
            current,
        })?;
        let bounds = [
            (BoundScope::User, config.per_user, user_count),
            (BoundScope::Desktop, config.per_desktop, desktop_count),
            (BoundScope::Client, config.per_client, client_count),
        ];
        if let Some((scope, limit, current)) = bounds.into_iter().find(|(_, limit, current)| current >= limit) {
            return Err(RpcRefusal::TooManyPending { scope, limit, current });
        }
        config.counters.open_peaks.see(BoundScope::Process, config.process.open());
        for (scope, _, current) in bounds {
            config.counters.open_peaks.see(scope, current + 1);
        }
        let deadline = Deadline { at: expires, number: self.next_number };
        self.next_number += 1;
        self.deadlines.insert(deadline, (desktop, vacant.key().clone()));
        self.per_client.insert(client, client_count + 1);
        vacant.insert(Record { client, id_json, fingerprint, method, trace, forwarded, deadline, _place: place });
        Ok(())
    }

    pub(super) fn get(&self, desktop: DeviceId, id: &RequestId) -> Option<&Record> {
        self.generations.get(&desktop)?.records.get(id)
    }

    pub(super) fn remove(&mut self, desktop: DeviceId, id: &RequestId) -> Option<Record> {
        let record = self.generations.get_mut(&desktop)?.records.remove(id)?;
        self.unindex(&record);
        Some(record)
    }

    /// Takes a record whose deadline has come.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<Record> {
        let (_, (desktop, id)) = self.deadlines.first_key_value().filter(|(deadline, _)| deadline.at <= now)?;
        let (desktop, id) = (*desktop, id.clone());
        self.remove(desktop, &id)
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first_key_value().map(|(deadline, _)| deadline.at)
    }

    pub(super) fn len(&self) -> usize {
        self.deadlines.len()
    }

    fn unindex(&mut self, record: &Record) {
        self.deadlines.remove(&record.deadline);
        if let Entry::Occupied(mut count) = self.per_client.entry(record.client) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// A request that is about to be forwarded.
pub(super) struct NewRecord {
    pub(super) id: RequestId,
    pub(super) id_json: Box<str>,
    pub(super) client: Route,
    pub(super) fingerprint: u64,
    pub(super) method: &'static Method,
    pub(super) trace: Option<TraceParent>,
    pub(super) forwarded: Instant,
    pub(super) expires: Instant,
}
