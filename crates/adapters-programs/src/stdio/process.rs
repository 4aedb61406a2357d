//! The life of one child process: it ends with everything that it started, and is always reaped.

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
use super::start::Start;
use super::stderr::{FailureLog, LastLines};

/// The time limit for reporting the last messages of a process that has ended.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// The time that a process that closed its output has to end, so that its status is known.
const STATUS_TIMEOUT: Duration = Duration::from_millis(200);

/// The time to wait for the last standard error output of a failed process. A descendant may hold
/// standard error open forever.
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
    pub(super) failure_log: Arc<FailureLog>,
    pub(super) start: Start,
}

impl Process {
    /// Waits until the connection is closed or the process fails, ends the process, and sets
    /// `ended` when no process of it is left. Reports the loss of a connection that was not closed.
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
            self.start.note_close();
            self.end(&closing).await;
            return;
        };
        tracing::debug!(
            upstream = %self.upstream,
            "connection to upstream {} was lost: {reason}",
            self.upstream
        );
        // The receiver of the report may wait for the end of the process, so both run concurrently.
        let report = async move { events.on_lost(UpstreamError::Lost { reason }).await };
        let end = async {
            self.log_failure().await;
            self.end(&closing).await;
            drop(ended);
        };
        tokio::join!(report, end);
    }

    /// Waits for the end of the connection and returns its reason.
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

    /// Logs the last standard error output of a failed process.
    async fn log_failure(&mut self) {
        let Ok(Some(status)) = self.child.try_wait() else {
            return;
        };
        if status.success() {
            return;
        }
        let _ = timeout(LAST_WORDS_TIMEOUT, &mut self.stderr).await;
        self.failure_log
            .log_failure(&self.upstream, status, &self.last_lines.take());
    }

    /// Closes the input, then sends SIGTERM, then SIGKILL to the remaining processes of the group.
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
                        "upstream {}: processes are still running after SIGKILL",
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
        Err(error) => format!("failed to wait for the process ({})", error.kind()),
    }
}
