//! Export of spans to a collector by OTLP/HTTP (`--otlp-endpoint`).
//!
//! Routers put spans into a bounded queue and never wait (`relay_actors::spans`). [`Exporter`] is the one task that takes them out, a
//! batch at a time, and stays with a batch until the collector has it, does not want it, or its time is over (`delivery`). So what is
//! held is the queue and one batch, however the collector behaves. `otlp` writes the batch, `collector` sends it.

pub mod collector;
mod delivery;
mod otlp;

use crate::limits::{OTLP_BATCH_WAIT, OTLP_FLUSH_TIMEOUT};
use bytes::Bytes;
use collector::Collector;
use delivery::{Answer, Delivery};
pub use otlp::Resource;
use relay_actors::{
    clock::{self, Anchor},
    counters::Counters,
    spans::{Fate, Span, SpanQueue},
};
use relay_protocol::trace_context::SpanId;
use std::{sync::Arc, time::Instant};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{sleep, sleep_until},
};

/// The task that exports.
pub struct Exporter {
    queue: SpanQueue,
    collector: Collector,
    resource: Resource,
    counters: Arc<Counters>,
    ending: Ending,
    /// The last attempt failed, and that has been said.
    is_failing: bool,
    given_up: u64,
}

/// A running [`Exporter`].
pub struct Exporting {
    ending: watch::Sender<Option<Instant>>,
    task: JoinHandle<()>,
}

impl Exporting {
    /// Starts exporting on this thread's runtime.
    pub fn start(queue: SpanQueue, collector: Collector, resource: Resource, counters: Arc<Counters>) -> Self {
        let (ending, told) = watch::channel(None);
        let exporter = Exporter { queue, collector, resource, counters, ending: Ending(told), is_failing: false, given_up: 0 };
        Exporting { ending, task: tokio::spawn(exporter.run()) }
    }

    /// Exports what there is, in at most [`OTLP_FLUSH_TIMEOUT`], and ends.
    pub async fn finish(self) {
        self.ending.send_replace(Some(clock::now() + OTLP_FLUSH_TIMEOUT));
        if let Err(error) = self.task.await {
            tracing::warn!(%error, "the export of spans failed");
        }
    }
}

/// Whether the task is to end, and until when it may go on.
#[derive(Clone)]
struct Ending(watch::Receiver<Option<Instant>>);

impl Ending {
    /// Whoever drops [`Exporting`] ends it too, without time to go on.
    fn has_begun(&self) -> bool {
        self.0.borrow().is_some() || self.0.has_changed().is_err()
    }

    async fn begins(&mut self) {
        let _ = self.0.wait_for(Option::is_some).await;
    }

    async fn is_over(&mut self) {
        self.begins().await;
        let deadline = self.0.borrow().unwrap_or_else(clock::now);
        sleep_until(deadline.into()).await;
    }
}

impl Exporter {
    async fn run(mut self) {
        loop {
            let is_last = self.ending.has_begun();
            if !is_last {
                tokio::select! {
                    () = self.queue.ripen(OTLP_BATCH_WAIT) => {}
                    () = self.ending.begins() => {}
                }
            }
            let batch = self.queue.take();
            if !batch.is_empty() {
                self.deliver(&batch).await;
            } else if is_last {
                break;
            }
        }
        if self.given_up > 0 {
            tracing::warn!(spans = self.given_up, "spans that the collector did not take are lost");
        }
    }

    async fn deliver(&mut self, batch: &[Span]) {
        let body = Bytes::from(otlp::encode(&self.resource, batch, &Anchor::now(), || SpanId(rand::random_range(1..=u64::MAX))));
        let size = batch.len() as u64;
        let mut delivery = Delivery::new(clock::now());
        loop {
            let (after, error) = match self.attempt(body.clone()).await {
                Answer::Taken { rejected } => {
                    let rejected = rejected.min(size);
                    self.count(Fate::Rejected, rejected);
                    self.count(Fate::Exported, size - rejected);
                    return self.on_success(rejected);
                }
                Answer::Rejected(error) => {
                    self.count(Fate::Rejected, size);
                    return self.on_failure(&error);
                }
                Answer::NotNow { after, error } => (after, error),
            };
            self.on_failure(&error);
            let wait = delivery.next_wait(clock::now(), after, &mut rand::rng());
            let Some(wait) = wait.filter(|_| !self.ending.has_begun()) else {
                self.given_up += size;
                return self.count(Fate::GivenUp, size);
            };
            tokio::select! {
                () = sleep(wait) => {}
                () = self.ending.begins() => {}
            }
        }
    }

    async fn attempt(&self, body: Bytes) -> Answer {
        let mut ending = self.ending.clone();
        tokio::select! {
            answer = self.collector.send(body) => answer,
            () = ending.is_over() => Answer::NotNow { after: None, error: "the process ends".to_owned() },
        }
    }

    fn count(&self, fate: Fate, spans: u64) {
        self.counters.spans.add(fate.name(), spans);
    }

    fn on_success(&mut self, rejected: u64) {
        if rejected > 0 {
            tracing::debug!(rejected, "the collector did not want some spans");
        }
        if std::mem::take(&mut self.is_failing) {
            tracing::info!("spans are exported again");
        }
    }

    fn on_failure(&mut self, error: &str) {
        if std::mem::replace(&mut self.is_failing, true) {
            tracing::debug!(error, "spans still cannot be exported");
        } else {
            tracing::warn!(error, "spans cannot be exported");
        }
    }
}
