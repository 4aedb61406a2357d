//! The task that sends spans in batches, and logs the number of lost spans.

use std::time::Duration;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanData;
use prost::Message;
use riglm_domain::resilience::{Backoff, FailureStreak};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::queue::QueueReceiver;
use super::receiver::{OtlpReceiver, SendError};

/// The maximum number of spans in a batch.
const MAX_BATCH: usize = 512;
// The time that the first span of a batch waits for others.
const GATHER_FOR: Duration = Duration::from_secs(1);
/// The back-off before a batch is sent again to a receiver that is temporarily unavailable.
const BACKOFF: Backoff =
    Backoff::new(Duration::from_millis(500), Duration::from_secs(2)).with_growth(4);
/// The maximum number of retries of a batch.
const MAX_RETRIES: u32 = 2;
// The minimum time between two log messages about losses.
const SAY_EVERY: Duration = Duration::from_mins(1);
/// The time limit for sending the remaining spans when the program ends.
pub(super) const CLOSE_WITHIN: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(super) struct SpanExport {
    receiver: OtlpReceiver,
    resource: ResourceAttributesWithSchema,
    queued: QueueReceiver,
    lost: LostSpans,
    is_closed: bool,
}

/// The lost spans that were not logged yet.
#[derive(Debug, Default)]
struct LostSpans {
    n: u64,
    last_said: Option<Instant>,
    reason: Option<SendError>,
}

impl SpanExport {
    pub(super) fn new(receiver: OtlpReceiver, resource: &Resource, queued: QueueReceiver) -> Self {
        Self {
            receiver,
            resource: resource.into(),
            queued,
            lost: LostSpans::default(),
            is_closed: false,
        }
    }

    /// Sends batches until `closing` is cancelled and the queue is empty, or the time limit has
    /// passed. Spans that are left then count as lost.
    pub(super) async fn run(mut self, closing: CancellationToken) {
        let mut batch = Vec::with_capacity(MAX_BATCH);
        let time_limit = async {
            closing.cancelled().await;
            tokio::time::sleep(CLOSE_WITHIN).await;
        };
        tokio::pin!(time_limit);
        loop {
            let n = self.fill_batch(&mut batch, &closing).await;
            if n == 0 {
                break;
            }
            let is_sent = tokio::select! {
                biased;
                () = self.send(std::mem::take(&mut batch), &closing) => true,
                () = &mut time_limit => false,
            };
            if !is_sent {
                self.queued.close();
                let n_left = n + self.queued.n_waiting();
                self.lost.add(n_left as u64, SendError::Ended);
                break;
            }
            self.lost.n += self.queued.take_lost();
            self.lost.log_losses(false);
        }
        self.lost.n += self.queued.take_lost();
        self.lost.log_losses(true);
    }

    /// Waits for a span, and then a while for more. Returns the number of spans; 0 at the end.
    async fn fill_batch(
        &mut self,
        batch: &mut Vec<SpanData>,
        closing: &CancellationToken,
    ) -> usize {
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

    /// Sends one batch. Retries a temporary failure, unless the program ends.
    async fn send(&mut self, batch: Vec<SpanData>, closing: &CancellationToken) {
        let n = batch.len() as u64;
        let resource_spans = group_spans_by_resource_and_scope(batch, &self.resource);
        // Encoded once: a retry sends the same bytes.
        let body = Bytes::from(ExportTraceServiceRequest { resource_spans }.encode_to_vec());
        let mut failures = FailureStreak::new(BACKOFF);
        loop {
            match self.receiver.send(body.clone()).await {
                Ok(n_refused) => {
                    self.lost.add(n_refused.min(n), SendError::Refused);
                    return;
                }
                Err(reason) => {
                    let wait = failures.record_failure(fastrand::f64());
                    if !reason.is_temporary() || failures.n_failures() > MAX_RETRIES {
                        return self.lost.add(n, reason);
                    }
                    tokio::select! {
                        () = closing.cancelled() => return self.lost.add(n, reason),
                        () = tokio::time::sleep(wait) => {}
                    }
                }
            }
        }
    }
}

impl LostSpans {
    fn add(&mut self, n: u64, reason: SendError) {
        if n > 0 {
            self.n += n;
            self.reason = Some(reason);
        }
    }

    /// Logs the number of lost spans, unless the last message is too recent.
    fn log_losses(&mut self, is_last: bool) {
        let is_time = self.last_said.is_none_or(|at| at.elapsed() >= SAY_EVERY);
        if self.n == 0 || !(is_time || is_last) {
            return;
        }
        let n_lost = self.n;
        let reason = match &self.reason {
            Some(reason) => reason.to_string(),
            None => "the queue was full".into(),
        };
        tracing::warn!(n_lost, "lost {n_lost} trace spans: {reason}");
        *self = Self {
            last_said: Some(Instant::now()),
            ..Self::default()
        };
    }
}
