//! The connection to a running program: its pipes, and the requests that wait for a response.

use std::collections::BTreeMap;
use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use riglm_ports::external_predictor::{ScoreError, ScoreRequest, ScoreResponse};
use tokio::io::{AsyncRead, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::lines::{Line, Lines};

/// Maximum number of requests that wait for a program that does not read.
const QUEUE_LENGTH: usize = 64;
/// Maximum length of a response in bytes: scores and reasons for the largest request.
const MAX_RESPONSE_BYTES: usize = 4 * 1024 * 1024;
/// Maximum length of a logged line of standard error in bytes; longer lines are dropped.
const MAX_LOG_BYTES: usize = 4 * 1024;

/// The reason why a program gives no more responses.
#[derive(Clone, Copy, Debug, thiserror::Error)]
enum ConnectionLoss {
    #[error("the program ended, or closed its standard output")]
    Ended,
    #[error("the program does not read its requests")]
    Full,
}

/// A connection to a program. The last clone that is dropped ends the program.
#[derive(Clone, Debug)]
pub(super) struct Connection(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    requests: mpsc::Sender<String>,
    waiting: Arc<Waiting>,
    next_id: AtomicU64,
    stop: CancellationToken,
}

/// The requests that wait for a response, by their numbers on the wire.
#[derive(Debug)]
struct Waiting {
    requests: Mutex<BTreeMap<u64, oneshot::Sender<ScoreResponse>>>,
    is_closed: AtomicBool,
    /// The time of the first request since the last response.
    unanswered_since: Mutex<Option<Instant>>,
}

impl Waiting {
    /// Ends all requests, and refuses later ones.
    fn close(&self) {
        let mut requests = self.requests.lock();
        self.is_closed.store(true, Ordering::SeqCst);
        requests.clear();
    }
}

/// Removes a request that nobody waits for any more.
struct Forget<'a> {
    waiting: &'a Waiting,
    id: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.waiting.requests.lock().remove(&self.id);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Connection {
    /// Starts a program.
    pub(super) fn open(command: &[String]) -> io::Result<Self> {
        let program = command.first().map_or("", String::as_str);
        let arguments = command.get(1..).unwrap_or_default();
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let missing = || io::Error::other("a pipe of the program is missing");
        let input = child.stdin.take().ok_or_else(missing)?;
        let output = child.stdout.take().ok_or_else(missing)?;
        let errors = child.stderr.take().ok_or_else(missing)?;
        let (requests, queue) = mpsc::channel(QUEUE_LENGTH);
        let waiting = Arc::new(Waiting {
            requests: Mutex::default(),
            is_closed: AtomicBool::new(false),
            unanswered_since: Mutex::new(None),
        });
        let stop = CancellationToken::new();
        let log = log_lines(errors, program.to_owned());
        tokio::spawn(stop.clone().run_until_cancelled_owned(log));
        let work = serve(input, queue, output, Arc::clone(&waiting));
        tokio::spawn(own(child, work, Arc::clone(&waiting), stop.clone()));
        Ok(Self(Arc::new(Inner {
            requests,
            waiting,
            next_id: AtomicU64::new(1),
            stop,
        })))
    }

    /// Returns whether the program can still answer.
    pub(super) fn is_open(&self) -> bool {
        !self.0.waiting.is_closed.load(Ordering::SeqCst)
    }

    /// Ends the program if it was asked `limit` ago or earlier, and has answered nothing since.
    pub(super) fn close_if_hung(&self, limit: Duration) {
        let since = *self.0.waiting.unanswered_since.lock();
        if since.is_some_and(|since| since.elapsed() >= limit) {
            self.0.waiting.close();
            self.0.stop.cancel();
        }
    }

    /// Sends a request and returns its response, with the number of the request.
    pub(super) async fn request(
        &self,
        request: &ScoreRequest,
    ) -> Result<ScoreResponse, ScoreError> {
        let unavailable = |lost: ConnectionLoss| ScoreError::Unavailable(lost.into());
        // The numbers of callers may repeat.
        let id = self.0.next_id.fetch_add(1, Ordering::Relaxed);
        let numbered = ScoreRequest {
            id,
            ..request.clone()
        };
        let mut line = serde_json::to_string(&numbered)
            .map_err(|error| ScoreError::Unavailable(error.into()))?;
        line.push('\n');
        let (respond, response) = oneshot::channel();
        {
            let mut requests = self.0.waiting.requests.lock();
            if !self.is_open() {
                return Err(unavailable(ConnectionLoss::Ended));
            }
            requests.insert(id, respond);
        }
        let since = &self.0.waiting.unanswered_since;
        since.lock().get_or_insert_with(Instant::now);
        let _forget = Forget {
            waiting: &self.0.waiting,
            id,
        };
        self.0.requests.try_send(line).map_err(|error| {
            unavailable(match error {
                mpsc::error::TrySendError::Full(_) => ConnectionLoss::Full,
                mpsc::error::TrySendError::Closed(_) => ConnectionLoss::Ended,
            })
        })?;
        let response = response
            .await
            .map_err(|_| unavailable(ConnectionLoss::Ended))?;
        Ok(ScoreResponse {
            id: request.id,
            ..response
        })
    }
}

/// Owns the program while it is needed, and ends it.
async fn own(
    mut child: Child,
    work: impl Future<Output = ()>,
    waiting: Arc<Waiting>,
    stop: CancellationToken,
) {
    stop.run_until_cancelled(work).await;
    waiting.close();
    // Its standard input is closed now, which ends most programs; this ends the others.
    let _ = child.kill().await;
    stop.cancel();
}

/// Writes requests and reads responses until one of the pipes closes.
async fn serve(
    mut input: ChildStdin,
    mut queue: mpsc::Receiver<String>,
    output: impl AsyncRead + Unpin,
    waiting: Arc<Waiting>,
) {
    let write = async {
        while let Some(line) = queue.recv().await {
            if input.write_all(line.as_bytes()).await.is_err() {
                break;
            }
        }
    };
    let read = read_responses(output, &waiting);
    tokio::select! {
        () = write => {}
        () = read => {}
    }
}

/// Gives each response to its request. Lines that are no responses are skipped.
async fn read_responses(output: impl AsyncRead + Unpin, waiting: &Waiting) {
    let mut lines = Lines::new(output, MAX_RESPONSE_BYTES);
    let mut was_warned = false;
    while let Ok(Some(line)) = lines.next().await {
        let response = match line {
            Line::Whole(line) => serde_json::from_slice::<ScoreResponse>(&line)
                .map_err(|error| LineError::Response(error.to_string())),
            Line::TooLong => Err(LineError::TooLong),
        };
        match response {
            Ok(response) => {
                *waiting.unanswered_since.lock() = None;
                let request = waiting.requests.lock().remove(&response.id);
                if let Some(request) = request {
                    // Without a receiver the deadline has passed.
                    let _ = request.send(response);
                }
            }
            Err(error) if !was_warned => {
                was_warned = true;
                tracing::warn!(
                    %error,
                    "the external predictor wrote a line to its standard output that is no \
                     response; messages belong on standard error; further ones are skipped silently"
                );
            }
            Err(_) => {}
        }
    }
}

/// The reason why a line is no response.
#[derive(Debug, thiserror::Error)]
enum LineError {
    #[error("{0}")]
    Response(String),
    #[error("the line has more than {MAX_RESPONSE_BYTES} bytes")]
    TooLong,
}

/// Logs the lines of standard error.
async fn log_lines(errors: impl AsyncRead + Unpin, program: String) {
    let mut lines = Lines::new(errors, MAX_LOG_BYTES);
    while let Ok(Some(line)) = lines.next().await {
        if let Line::Whole(line) = line {
            let line = String::from_utf8_lossy(&line);
            tracing::info!(predictor = program, "{}", line.escape_debug());
        }
    }
}
