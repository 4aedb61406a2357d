//! Work that is started by a request and continues when the request is gone.

use std::pin::Pin;
use std::task::{Context, Poll};

use riglm_ports::upstream::BoxedWork;

/// Work that is polled by its owner, and moves to a separate task when the owner drops it.
///
/// A server drops the future of a handler when its client disconnects. This wrapper lets the work
/// continue, and needs no extra task as long as the client stays.
pub(super) struct Detachable(Option<BoxedWork>);

impl Detachable {
    pub(super) fn new(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(Some(Box::pin(work)))
    }
}

impl Future for Detachable {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(work) = &mut self.0 else {
            return Poll::Ready(());
        };
        let polled = work.as_mut().poll(context);
        if polled.is_ready() {
            self.0 = None;
        }
        polled
    }
}

impl Drop for Detachable {
    fn drop(&mut self) {
        if let (Some(work), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(work);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn dropped_work_continues() {
        let (done, is_done) = tokio::sync::oneshot::channel();
        let (start, started) = tokio::sync::oneshot::channel::<()>();
        let mut work = Detachable::new(async move {
            let _ = started.await;
            let _ = done.send(7);
        });
        assert!(futures_util::poll!(&mut work).is_pending());
        drop(work);
        start.send(()).unwrap();
        let result = tokio::time::timeout(Duration::from_secs(5), is_done).await;
        assert_eq!(result.unwrap().unwrap(), 7);
    }
}
