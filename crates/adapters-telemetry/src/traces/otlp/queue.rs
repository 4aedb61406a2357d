//! The queue of completed spans that wait to be sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};
use tokio::sync::mpsc;

/// The maximum number of waiting spans. A span takes about a kilobyte.
const MAX_WAITING: usize = 4_096;

/// The sending end of the queue. A span that finds the queue full is lost, and counted.
#[derive(Debug)]
pub(super) struct SpanQueue {
    waiting: mpsc::Sender<SpanData>,
    n_lost: Arc<AtomicU64>,
}

/// The receiving end of a [`SpanQueue`].
#[derive(Debug)]
pub(super) struct QueueReceiver {
    waiting: mpsc::Receiver<SpanData>,
    n_lost: Arc<AtomicU64>,
}

impl SpanQueue {
    /// Returns both ends of an empty queue.
    pub(super) fn new() -> (Self, QueueReceiver) {
        Self::with_room_for(MAX_WAITING)
    }

    fn with_room_for(n: usize) -> (Self, QueueReceiver) {
        let (sender, receiver) = mpsc::channel(n);
        let n_lost = Arc::new(AtomicU64::new(0));
        let queue = Self {
            waiting: sender,
            n_lost: Arc::clone(&n_lost),
        };
        let waiting = receiver;
        (queue, QueueReceiver { waiting, n_lost })
    }

    fn enqueue(&self, span: SpanData) {
        if self.waiting.try_send(span).is_err() {
            self.n_lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl SpanProcessor for SpanQueue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled() {
            self.enqueue(span);
        }
    }

    /// Does nothing, because the reader of the queue decides when spans are sent.
    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

impl QueueReceiver {
    /// Waits for spans and moves up to `max` of them into `batch`; returns their number.
    pub(super) async fn receive(&mut self, batch: &mut Vec<SpanData>, max: usize) -> usize {
        self.waiting.recv_many(batch, max).await
    }

    /// Refuses further spans. Waiting spans can still be received.
    pub(super) fn close(&mut self) {
        self.waiting.close();
    }

    /// Returns the number of waiting spans.
    pub(super) fn n_waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the number of lost spans since the last call.
    pub(super) fn take_lost(&self) -> u64 {
        self.n_lost.swap(0, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{Tracer, TracerProvider};
    use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};

    use super::*;

    #[tokio::test]
    async fn spans_beyond_the_queue_are_dropped_and_counted() {
        let (queue, mut queued) = SpanQueue::with_room_for(2);
        let provider = SdkTracerProvider::builder()
            .with_sampler(Sampler::AlwaysOn)
            .with_span_processor(queue)
            .build();
        let tracer = provider.tracer("t");
        for name in ["a", "b", "c", "d", "e"] {
            drop(tracer.start(name));
        }
        assert_eq!((queued.take_lost(), queued.take_lost()), (3, 0));
        let mut batch = Vec::new();
        assert_eq!(queued.receive(&mut batch, 10).await, 2);
        assert_eq!((batch[0].name.as_ref(), batch[1].name.as_ref()), ("a", "b"));
        queued.close();
        drop(tracer.start("f"));
        assert_eq!(queued.take_lost(), 1);
        assert_eq!(queued.receive(&mut batch, 10).await, 0);
    }
}
