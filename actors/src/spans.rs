//! Spans: what the relay tells a tracing system of each request that it routed, as a child of the phone's span.
//!
//! Routers make a [`Span`] when a sampled request has ended and [`Spans::offer`] it, which never waits: what finds no room is counted
//! and gone. One task takes them out of the [`SpanQueue`] in batches and brings them away. A span holds no text of a client: its ids are
//! numbers, its words those of the contract and of this code.

use crate::counters::{Counters, Reply, Unanswered};
use relay_protocol::{
    contract::Method,
    error::RpcRefusal,
    id::{Route, UserId},
    trace_context::TraceParent,
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::{Notify, mpsc};

/// Spans that may wait: what a busy process makes within a second, and 2 MiB.
pub const QUEUED_MAX: usize = 8_192;
/// Spans of one batch, and the number that does not wait for more: the default of OpenTelemetry's batch processor
/// (`OTEL_BSP_MAX_EXPORT_BATCH_SIZE`).
pub const BATCH_MAX: usize = 512;

/// One request from when routing took it to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Whose child it is.
    pub trace: TraceParent,
    /// What was called.
    pub method: &'static Method,
    /// Whose devices these are.
    pub user: UserId,
    /// Who called whom; not known of a connection that has been replaced.
    pub client: Option<Route>,
    /// When routing took it.
    pub began: Instant,
    /// When its final answer was handed on.
    pub ended: Instant,
    /// How it ended.
    pub outcome: Outcome,
    /// Whether the phone had a connection that could take the final answer.
    pub delivered: bool,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// By the desktop's final response.
    Answered(Reply),
    /// By a refusal of the relay.
    Unanswered {
        /// What it is counted under.
        how: Unanswered,
        /// [`RpcRefusal::name`].
        refusal: &'static str,
        /// [`RpcRefusal::code`].
        code: i32,
    },
}

impl Outcome {
    /// The end that a refusal is.
    pub fn of(how: Unanswered, refusal: &RpcRefusal) -> Self {
        Outcome::Unanswered { how, refusal: refusal.name(), code: refusal.code() }
    }

    /// The word that metrics have for it.
    pub fn name(&self) -> &'static str {
        match self {
            Outcome::Answered(Reply::Result) => "result",
            Outcome::Answered(Reply::Error) => "error",
            Outcome::Unanswered { how, .. } => how.name(),
        }
    }
}

/// What becomes of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The collector has it.
    Exported,
    /// There was no room in the queue.
    QueueFull,
    /// The collector does not want it.
    Rejected,
    /// The collector did not take it in time.
    GivenUp,
}

impl Fate {
    /// Every variant.
    pub const ALL: [Fate; 4] = [Fate::Exported, Fate::QueueFull, Fate::Rejected, Fate::GivenUp];

    /// The word for metrics.
    pub fn name(self) -> &'static str {
        match self {
            Fate::Exported => "exported",
            Fate::QueueFull => "queueFull",
            Fate::Rejected => "rejected",
            Fate::GivenUp => "givenUp",
        }
    }
}

/// Where routers put spans. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Spans {
    queue: mpsc::Sender<Span>,
    /// There is a whole batch. Without it the queue's reader would be woken for each span, by the router that made it.
    is_batch: Arc<Notify>,
    counters: Arc<Counters>,
}

/// Where spans are taken out.
#[derive(Debug)]
pub struct SpanQueue {
    queue: mpsc::Receiver<Span>,
    is_batch: Arc<Notify>,
}

/// A queue, and the way into it.
pub fn queue(counters: Arc<Counters>) -> (Spans, SpanQueue) {
    let (sender, receiver) = mpsc::channel(QUEUED_MAX);
    let is_batch = Arc::new(Notify::new());
    (Spans { queue: sender, is_batch: is_batch.clone(), counters }, SpanQueue { queue: receiver, is_batch })
}

impl Spans {
    /// Puts a span into the queue, if there is room.
    pub fn offer(&self, span: Span) {
        if self.queue.try_send(span).is_err() {
            self.counters.spans.count(Fate::QueueFull.name());
        } else if self.queue.capacity() <= QUEUED_MAX - BATCH_MAX {
            self.is_batch.notify_one();
        }
    }
}

impl SpanQueue {
    /// Waits until there is a whole batch, or for `wait`. A batch that has been taken since may end it early.
    pub async fn ripen(&self, wait: Duration) {
        if self.queue.len() < BATCH_MAX {
            let _ = tokio::time::timeout(wait, self.is_batch.notified()).await;
        }
    }

    /// Takes what there is, up to a batch.
    pub fn take(&mut self) -> Vec<Span> {
        let mut batch = Vec::new();
        while batch.len() < BATCH_MAX
            && let Ok(span) = self.queue.try_recv()
        {
            batch.push(span);
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use relay_protocol::{contract, trace_context::TraceParent};
    use uuid::Uuid;

    const LONG: Duration = Duration::from_secs(60);

    fn span() -> Span {
        let now = clock::now();
        Span {
            trace: TraceParent::read("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").unwrap(),
            method: contract::find("system.ping").unwrap(),
            user: UserId(Uuid::nil()),
            client: None,
            began: now,
            ended: now,
            outcome: Outcome::Answered(Reply::Result),
            delivered: true,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_queue_drops_what_comes_and_counts_it() {
        let counters = Arc::new(Counters::default());
        let (spans, mut queue) = queue(counters.clone());
        for _ in 0..QUEUED_MAX + 3 {
            spans.offer(span());
        }
        assert_eq!(counters.spans.get(Fate::QueueFull.name()), 3);
        for _ in 0..QUEUED_MAX / BATCH_MAX {
            assert_eq!(queue.take().len(), BATCH_MAX);
        }
        assert_eq!(queue.take().len(), 0);
        spans.offer(span());
        assert_eq!((queue.take().len(), counters.spans.get(Fate::QueueFull.name())), (1, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_does_not_wait_and_less_waits_its_time() {
        let (spans, mut queue) = queue(Arc::default());
        let start = clock::now();
        spans.offer(span());
        queue.ripen(LONG).await;
        assert_eq!((clock::now() - start, queue.take().len()), (LONG, 1));

        let later = clock::now();
        let filling = async {
            for _ in 0..2 * BATCH_MAX {
                spans.offer(span());
            }
        };
        tokio::join!(queue.ripen(LONG), filling);
        assert_eq!((clock::now() - later, queue.take().len()), (Duration::ZERO, BATCH_MAX));
        queue.ripen(LONG).await;
        assert_eq!((clock::now() - later, queue.take().len()), (Duration::ZERO, BATCH_MAX), "nor does what is left of it");
    }

    #[test]
    fn a_full_queue_is_small() {
        assert!(size_of::<Span>() * QUEUED_MAX <= 2 * 1024 * 1024);
    }
}
