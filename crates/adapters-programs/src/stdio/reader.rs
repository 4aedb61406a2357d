//! The task that reads a child's standard output and reports the messages in it.

use std::sync::Arc;
use std::time::Duration;

use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::message::Message;
use riglm_ports::upstream::{UpstreamError, UpstreamEvents};
use tokio::process::ChildStdout;
use tokio_util::sync::CancellationToken;

use super::super::limits::UpstreamLimits;
use super::lines::{Line, Lines, SkippedOutput};
use super::oversized_answer;
use super::start::Start;

/// The time without output after which an ended process counts as silent. A descendant may hold the
/// pipe open forever, while the output of the process itself arrives at once.
const AFTER_EXIT: Duration = Duration::from_millis(100);

/// Turns lines into messages until the output ends.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) upstream: UpstreamName,
    pub(super) limits: UpstreamLimits,
    pub(super) events: Arc<dyn UpstreamEvents>,
    pub(super) start: Start,
    pub(super) closing: CancellationToken,
    pub(super) exited: CancellationToken,
}

impl Reader {
    /// Reports the messages in `stdout`, in their order. When the connection is closing, the output
    /// is read and discarded, because a process that cannot write may not end.
    pub(super) async fn run(self, stdout: ChildStdout) {
        let mut lines = Lines::new(stdout, self.limits.max_message_bytes);
        let mut skipped = SkippedOutput::default();
        while let Some(line) = self.next(&mut lines).await {
            if self.closing.is_cancelled() {
                continue;
            }
            tokio::select! {
                biased;
                () = self.closing.cancelled() => {}
                () = self.report(line, &mut skipped) => {}
            }
        }
    }

    async fn next(&self, lines: &mut Lines<ChildStdout>) -> Option<Line> {
        let line = tokio::select! {
            biased;
            line = lines.next() => line,
            () = self.exited.cancelled() => {
                match tokio::time::timeout(AFTER_EXIT, lines.next()).await {
                    Ok(line) => line,
                    Err(_) => return None,
                }
            }
        };
        line.ok().flatten()
    }

    async fn report(&self, line: Line, skipped: &mut SkippedOutput) {
        match line {
            Line::Whole(text) if text.trim_ascii().is_empty() => {}
            Line::Whole(text) => match Message::parse(&text) {
                Ok(message) => {
                    self.start.note_answer();
                    self.events.on_message(message, None).await;
                }
                // Servers may print anything to their output; the session continues without it.
                Err(error) => skipped.note(&self.upstream, &error),
            },
            Line::Cut { head, tail } => {
                self.start.note_answer();
                self.report_oversized(&head, &tail).await;
            }
        }
    }

    async fn report_oversized(&self, head: &[u8], tail: &[u8]) {
        let limit = self.limits.max_message_bytes;
        tracing::warn!(
            upstream = %self.upstream,
            limit_bytes = limit,
            "upstream {}: dropped a message of more than {limit} bytes",
            self.upstream
        );
        if let Some(request) = oversized_answer::answered_request(head, tail) {
            let error = UpstreamError::TooLarge { limit };
            self.events.on_unanswered(request, error).await;
        }
    }
}
