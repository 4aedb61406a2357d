//! The task that sends spans in batches, and says now and then how many were lost.

use std::time::Duration;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanData;
use prost::Message;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::queue::Queued;
use super::receiver::{Receiver, Unsent};

/// The most spans of one batch.
const MAX_BATCH: usize = 512;
/// How long the first span of a batch waits for others.
const GATHER_FOR: Duration = Duration::from_secs(1);
/// The waits before a batch is sent again to a receiver that could not take it now.
const RETRY_AFTER: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];
/// How often losses are said at most.
const SAY_EVERY: Duration = Duration::from_mins(1);

/// Sends what a queue has.
#[derive(Debug)]
pub(super) struct Export {
    receiver: Receiver,
    resource: ResourceAttributesWithSchema,
    queued: Queued,
    lost: Lost,
    is_closed: bool,
}

/// The spans that were lost and not spoken of yet.
#[derive(Debug, Default)]
struct Lost {
    n: u64,
    last_said: Option<Instant>,
    reason: Option<Unsent>,
}

impl Export {
    pub(super) fn new(receiver: Receiver, resource: &Resource, queued: Queued) -> Self {
        Self {
            receiver,
            resource: resource.into(),
            queued,
            lost: Lost::default(),
            is_closed: false,
        }
    }

    /// Sends batches until `closing` is cancelled and nothing waits any more.
    pub(super) async fn run(mut self, closing: CancellationToken) {
        let mut batch = Vec::with_capacity(MAX_BATCH);
        loop {
            let n = self.gather(&mut batch, &closing).await;
            if n == 0 {
                break;
            }
            self.send(std::mem::take(&mut batch), &closing).await;
            self.lost.n += self.queued.take_lost();
            self.lost.say(false);
        }
        self.lost.n += self.queued.take_lost();
        self.lost.say(true);
    }

    /// Waits for a span, and a while for more. Returns how many there are: none at the end.
    async fn gather(&mut self, batch: &mut Vec<SpanData>, closing: &CancellationToken) -> usize {
        let mut deadline = None;
        while batch.len() < MAX_BATCH {
            let room = MAX_BATCH - batch.len();
            let is_over = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = closing.cancelled(), if !self.is_closed => {
                    self.is_closed = true;
                    self.queued.close();
                }
                n = self.queued.receive(batch, room) => {
                    if n == 0 {
                        break;
                    }
                    deadline = deadline.or_else(|| Some(Instant::now() + GATHER_FOR));
                }
                () = is_over => break,
            }
        }
        batch.len()
    }

    /// Sends one batch; again where the receiver may take it a moment later, unless the program ends.
    async fn send(&mut self, batch: Vec<SpanData>, closing: &CancellationToken) {
        let n = batch.len() as u64;
        let resource_spans = group_spans_by_resource_and_scope(batch, &self.resource);
        let body = Bytes::from(ExportTraceServiceRequest { resource_spans }.encode_to_vec());
        let mut waits = RETRY_AFTER.into_iter();
        loop {
            match self.receiver.send(body.clone()).await {
                Ok(n_refused) => {
                    self.lost.add(n_refused.min(n), Unsent::Refused);
                    return;
                }
                Err(reason) => {
                    let wait = waits.next().filter(|_| reason.is_for_now());
                    let Some(wait) = wait else {
                        return self.lost.add(n, reason);
                    };
                    tokio::select! {
                        () = closing.cancelled() => return self.lost.add(n, reason),
                        () = tokio::time::sleep(wait) => {}
                    }
                }
            }
        }
    }
}

impl Lost {
    fn add(&mut self, n: u64, reason: Unsent) {
        if n > 0 {
            self.n += n;
            self.reason = Some(reason);
        }
    }

    /// Says how many spans were lost, if it is time.
    fn say(&mut self, is_last: bool) {
        let is_time = self.last_said.is_none_or(|at| at.elapsed() >= SAY_EVERY);
        if self.n == 0 || !(is_time || is_last) {
            return;
        }
        let n_lost = self.n;
        let reason = match &self.reason {
            Some(reason) => reason.to_string(),
            None => "too many waited".into(),
        };
        tracing::warn!(n_lost, "{n_lost} spans of traces were lost: {reason}");
        *self = Self {
            last_said: Some(Instant::now()),
            ..Self::default()
        };
    }
}
