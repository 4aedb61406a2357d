//! Upstreams that are child processes, over standard input and output.
//!
//! Every connection has its own process. Four tasks serve it: one writes, one reads, one logs
//! standard error, and one (see [`process`]) owns the child and ensures that no process of it is
//! left. The link only holds their ends.

mod lines;
mod oversized_answer;
mod process;
mod reader;
mod start;
mod stderr;
mod writer;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::message::Message;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::upstream::{
    SendOutcome, UpstreamConnector, UpstreamError, UpstreamEvents, UpstreamLink,
};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::guard::Guard;
use super::huge_pages::with_inherited_setting;
use super::limits::UpstreamLimits;
use super::process_group::ProcessGroup;
pub use lines::SkippedOutput;
use process::Process;
use reader::Reader;
use start::Start;
pub use start::{StartGate, StartTime};
pub use stderr::FailureLog;
use stderr::LastLines;

/// The maximum number of queued messages for a process that does not read.
const QUEUE_LENGTH: usize = 256;

/// Starts one child process for each connection.
#[derive(Debug)]
pub struct StdioConnector {
    /// The configured name.
    pub name: UpstreamName,
    /// The program, searched in `PATH` unless it is a path. No shell is involved.
    pub program: String,
    /// The arguments of the program.
    pub arguments: Vec<String>,
    /// Variables that are added to the proxy's own environment.
    pub environment: BTreeMap<String, String>,
    /// The working directory; the proxy's own by default.
    pub directory: Option<PathBuf>,
    /// The limits of each connection.
    pub limits: UpstreamLimits,
    /// The guard that ends the children if the proxy is killed.
    pub guard: Option<Arc<Guard>>,
    /// The failures of processes that were already logged.
    pub failure_log: Arc<FailureLog>,
    /// The time of each process for its first answer.
    pub start_time: Arc<StartTime>,
    /// The bound on processes that start at the same time.
    pub gate: StartGate,
}

impl StdioConnector {
    fn spawn(&self) -> Result<Child, UpstreamError> {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .envs(&self.environment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A group of its own, so that one signal reaches its descendants too.
            .process_group(0)
            .kill_on_drop(true);
        if let Some(directory) = &self.directory {
            // The operating system reports a missing directory like a missing program.
            if !directory.is_dir() {
                return Err(self.not_started("the working directory does not exist"));
            }
            command.current_dir(directory);
        }
        with_inherited_setting(|| command.spawn())
            .map_err(|error| self.not_started(&error.to_string()))
    }

    fn not_started(&self, reason: &str) -> UpstreamError {
        UpstreamError::NotStarted {
            reason: format!("{}: {reason}", self.program.escape_debug()),
        }
    }
}

#[async_trait]
impl UpstreamConnector for StdioConnector {
    fn name(&self) -> &UpstreamName {
        &self.name
    }

    async fn connect(
        &self,
        _principal: &Principal,
        events: Arc<dyn UpstreamEvents>,
    ) -> Result<Arc<dyn UpstreamLink>, UpstreamError> {
        let start = Start::begin(&self.start_time);
        let permit = self.gate.enter().await;
        let mut child = self.spawn()?;
        let group = child
            .id()
            .and_then(|id| ProcessGroup::new(id, self.guard.clone()))
            .ok_or_else(|| self.not_started("it has no process id"))?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(self.not_started("its streams could not be opened"));
        };
        let closing = CancellationToken::new();
        let ended = CancellationToken::new();
        let (queue, messages) = mpsc::channel(QUEUE_LENGTH);
        let last_lines = LastLines::default();
        let reader = Reader {
            upstream: self.name.clone(),
            limits: self.limits.clone(),
            events: events.clone(),
            start: start.clone(),
            closing: closing.clone(),
            exited: CancellationToken::new(),
        };
        let process = Process {
            upstream: self.name.clone(),
            child,
            group,
            grace: self.limits.shutdown_grace,
            exited: reader.exited.clone(),
            reader: tokio::spawn(reader.run(stdout)),
            writer: tokio::spawn(writer::run(stdin, messages, closing.clone())),
            stderr: tokio::spawn(stderr::log(self.name.clone(), stderr, last_lines.clone())),
            last_lines,
            failure_log: Arc::clone(&self.failure_log),
            start: start.clone(),
        };
        tokio::spawn(start.clone().hold(permit, ended.clone()));
        tokio::spawn(process.supervise(events, closing.clone(), ended.clone()));
        Ok(Arc::new(StdioLink {
            upstream: self.name.clone(),
            queue,
            accept_timeout: self.limits.accept_timeout,
            start,
            closing: closing.drop_guard(),
            ended,
        }))
    }
}

/// The sending half of the connection to a child process.
#[derive(Debug)]
struct StdioLink {
    upstream: UpstreamName,
    queue: mpsc::Sender<Message>,
    accept_timeout: Duration,
    start: Start,
    /// Ends the process when the link is dropped without a close.
    closing: DropGuard,
    /// Set when no process is left.
    ended: CancellationToken,
}

#[async_trait]
impl UpstreamLink for StdioLink {
    /// Returns when the message is in the queue of the only writer. The pipe keeps the order, so
    /// later messages are processed later.
    async fn send(&self, message: Message) -> Result<SendOutcome, UpstreamError> {
        let sent = self.queue.send_timeout(message, self.accept_timeout).await;
        sent.map(|()| SendOutcome::Delivered)
            .map_err(|error| match error {
                mpsc::error::SendTimeoutError::Timeout(_) => UpstreamError::Busy {
                    reason: "the process does not read its input",
                },
                mpsc::error::SendTimeoutError::Closed(_) => UpstreamError::Lost {
                    reason: "the process has ended".into(),
                },
            })
    }

    fn time_to_start(&self) -> Option<Duration> {
        self.start.time_left()
    }

    async fn close(&self) {
        tracing::debug!(upstream = %self.upstream, "closing the connection to upstream {}", self.upstream);
        self.closing.token().cancel();
        self.ended.cancelled().await;
    }
}
