//! The life of one child process: it ends with everything it started, and is always reaped.

use std::io;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use riglm_domain::id::UpstreamName;
use riglm_ports::upstream::{UpstreamError, UpstreamEvents};
use tokio::process::Child;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::super::process_group::ProcessGroup;
use super::stderr::{LastLines, LastWords};

/// How long the last messages of a process that has ended may take to be reported.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a process that closed its output is given to end, so that its status is known.
const STATUS_TIMEOUT: Duration = Duration::from_millis(200);

/// How long the last words of a process that failed are waited for. A descendant may hold
/// standard error open for ever.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_millis(100);

/// A child process and the tasks at its streams.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) upstream: UpstreamName,
    pub(super) child: Child,
    pub(super) group: ProcessGroup,
    pub(super) grace: Duration,
    /// Tells the reader that nothing new will be written.
    pub(super) exited: CancellationToken,
    pub(super) reader: JoinHandle<()>,
    pub(super) writer: JoinHandle<io::Result<()>>,
    pub(super) stderr: JoinHandle<()>,
    pub(super) last_lines: LastLines,
    pub(super) last_words: Arc<LastWords>,
}

impl Process {
    /// Waits until the connection is to be closed or the process fails, ends the process, and
    /// sets `ended` when nothing of it is left. Reports the loss of a connection that was not
    /// closed.
    pub(super) async fn supervise(
        mut self,
        events: Arc<dyn UpstreamEvents>,
        closing: CancellationToken,
        ended: CancellationToken,
    ) {
        let ended = ended.drop_guard();
        let reason = tokio::select! {
            biased;
            () = closing.cancelled() => None,
            reason = self.failure() => Some(reason),
        };
        let Some(reason) = reason.filter(|_| !closing.is_cancelled()) else {
            drop(events);
            self.end(&closing).await;
            return;
        };
        tracing::debug!(
            upstream = %self.upstream,
            "connection to upstream {} was lost: {reason}",
            self.upstream
        );
        // Who is told of the loss may wait for the end of the process, so neither waits here.
        let report = async move { events.lost(UpstreamError::Lost { reason }).await };
        let end = async {
            self.log_last_words().await;
            self.end(&closing).await;
            drop(ended);
        };
        tokio::join!(report, end);
    }

    /// Waits for whatever ends the connection and returns a text for it.
    async fn failure(&mut self) -> String {
        tokio::select! {
            status = self.child.wait() => {
                self.exited.cancel();
                let _ = timeout(DRAIN_TIMEOUT, &mut self.reader).await;
                text(status)
            }
            _ = &mut self.reader => match timeout(STATUS_TIMEOUT, self.child.wait()).await {
                Ok(status) => text(status),
                Err(_) => "the process closed its output".into(),
            },
            _ = &mut self.writer => match timeout(STATUS_TIMEOUT, self.child.wait()).await {
                Ok(status) => {
                    self.exited.cancel();
                    let _ = timeout(DRAIN_TIMEOUT, &mut self.reader).await;
                    text(status)
                }
                Err(_) => "the process closed its input".into(),
            },
        }
    }

    /// Logs what a process wrote to standard error before it failed.
    async fn log_last_words(&mut self) {
        let Ok(Some(status)) = self.child.try_wait() else {
            return;
        };
        if status.success() {
            return;
        }
        let _ = timeout(LAST_WORDS_TIMEOUT, &mut self.stderr).await;
        self.last_words
            .tell(&self.upstream, status, &self.last_lines.take());
    }

    /// Closes the input, then asks, then forces what is left of the group to end.
    async fn end(&mut self, closing: &CancellationToken) {
        closing.cancel();
        let deadline = Instant::now() + self.grace;
        if !self.writer.is_finished() && timeout_at(deadline, &mut self.writer).await.is_err() {
            self.writer.abort();
        }
        let _ = timeout_at(deadline, self.child.wait()).await;
        if !self.is_gone_within(Duration::ZERO).await {
            self.group.terminate();
            if !self.is_gone_within(self.grace).await {
                self.group.kill();
                if !self.is_gone_within(self.grace).await {
                    tracing::warn!(
                        upstream = %self.upstream,
                        "processes of upstream {} are still there after SIGKILL",
                        self.upstream
                    );
                }
            }
        }
        self.group.set_ended();
        self.exited.cancel();
        self.reader.abort();
        self.stderr.abort();
    }

    /// Returns whether the child is reaped and its group empty within `grace`.
    async fn is_gone_within(&mut self, grace: Duration) -> bool {
        let deadline = Instant::now() + grace;
        if !matches!(self.child.try_wait(), Ok(Some(_)))
            && timeout_at(deadline, self.child.wait()).await.is_err()
        {
            return false;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        self.group.is_gone_within(left).await
    }
}

fn text(status: io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => format!("the process ended ({status})"),
        Err(error) => format!("the process cannot be waited for ({})", error.kind()),
    }
}
