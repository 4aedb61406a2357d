//! A client over standard input and output: one message per line, until the input ends.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use riglm_app::proxy::{CLOSE_WITHIN, ClientIdentity, ClientSession, Proxy};
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::mcp::protocol::Transport;
use riglm_domain::mcp::rpc_error::RpcError;
use riglm_ports::downstream::{ClientLink, Route};
use riglm_ports::upstream::BoxedWork;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::refusal::{too_large, unreadable};

// The maximum number of messages in the queue for a client that reads too slowly.
const QUEUE: usize = 64;
// The time that a client has to read the remaining messages when its session ends.
const LAST_READS: Duration = Duration::from_secs(5);

/// Serves one client until its input ends, the output breaks, the session ends, or `stop` is
/// cancelled. Then it reads no more, requests in flight are answered within the drain limit, the
/// session is closed, and the remaining messages are written as long as the client reads.
///
/// Not cancellation safe: if it is dropped, it may leave half a line in the output. Cancel `stop`
/// instead.
///
/// # Errors
///
/// Returns the error of the proxy when the client is not admitted, and the error of the input when
/// it cannot be read.
pub async fn serve(
    proxy: &Proxy,
    visitor: &ClientIdentity,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Send + Unpin + 'static,
    stop: CancellationToken,
) -> Result<(), StdioError> {
    let written = CancellationToken::new();
    let client = Arc::new(StdioLink::start(output, written.clone()));
    let session = proxy
        .accept(Transport::Stdio, visitor, Arc::<StdioLink>::clone(&client))
        .map_err(StdioError::NotAdmitted)?;
    let limit = || proxy.limits().request_body_bytes;
    let mut taking = None;
    let read = tokio::select! {
        biased;
        () = stop.cancelled() => Ok(()),
        () = written.cancelled() => Ok(()),
        read = read_all(&session, &client, input, limit, &mut taking) => read,
    };
    // The processing of the current line must complete, and it may outlast the session.
    let taking = taking.map(tokio::spawn);
    let deadline = Instant::now() + proxy.limits().drain_timeout;
    let answers = async {
        if let Some(taking) = taking {
            let _ = tokio::time::timeout_at(deadline, taking).await;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        session.drain(left).await;
    };
    tokio::select! {
        biased;
        // The client is gone, so no answer can reach it.
        () = written.cancelled() => {}
        () = answers => {}
    }
    let left = deadline.saturating_duration_since(Instant::now());
    tokio::select! {
        () = session.close_within(left.max(CLOSE_WITHIN)) => {}
        () = client.give_up_after(LAST_READS) => {}
    }
    let all_read = tokio::time::timeout(LAST_READS, written.cancelled()).await;
    if all_read.is_err() {
        tracing::warn!("the client on stdio did not read the last answers");
    }
    read
}

/// Processes line after line until the input or the session ends. `taking` holds the processing of
/// the current line, so that it outlives this future.
async fn read_all(
    session: &Arc<ClientSession>,
    client: &Arc<StdioLink>,
    input: impl AsyncRead + Unpin,
    limit: impl Fn() -> usize,
    taking: &mut Option<BoxedWork>,
) -> Result<(), StdioError> {
    let mut input = BufReader::with_capacity(64 << 10, input);
    while !session.is_closed() {
        let limit = limit();
        let line = read_line(&mut input, limit).await;
        let message = match line.map_err(StdioError::Input)? {
            InputLine::Text(line) => Message::parse(&line).map_err(unreadable),
            InputLine::TooLong => Err((too_large(limit), None)),
            InputLine::End => break,
        };
        let (session, client) = (Arc::clone(session), Arc::clone(client));
        let current = taking.insert(Box::pin(process_line(session, client, message)));
        current.await;
        *taking = None;
    }
    Ok(())
}

/// Forwards a message, or answers a line that is not a message with an error.
async fn process_line(
    session: Arc<ClientSession>,
    client: Arc<StdioLink>,
    message: Result<Message, (RpcError, Option<RequestId>)>,
) {
    let message = match message {
        Ok(message) => message,
        Err((error, id)) => return client.refuse(&error, id.as_ref()).await,
    };
    match session.receive(message).await {
        Ok(Some(exchange)) => {
            tokio::spawn(exchange.run);
            exchange.on_its_way.await;
        }
        Ok(None) => {}
        Err(error) => {
            let reason = error.message;
            tracing::warn!("failed to forward a message of the client: {reason}");
        }
    }
}

/// The reason why a client could not be served to its end.
#[derive(Debug, thiserror::Error)]
pub enum StdioError {
    /// The proxy accepts no more sessions.
    #[error("client was not admitted: {}", .0.message)]
    NotAdmitted(RpcError),
    /// The input cannot be read.
    #[error("failed to read standard input")]
    Input(#[source] std::io::Error),
}

enum InputLine {
    Text(Bytes),
    TooLong,
    End,
}

/// Reads the next non-empty line. A line over `limit` is read to its end and dropped. Cancellation
/// loses the partial line, so the caller must read nothing more after it.
async fn read_line(
    input: &mut (impl AsyncBufRead + Unpin),
    limit: usize,
) -> Result<InputLine, std::io::Error> {
    let mut line = BytesMut::new();
    let mut is_too_long = false;
    loop {
        let chunk = input.fill_buf().await?;
        let newline = memchr::memchr(b'\n', chunk);
        let taken = newline.unwrap_or(chunk.len());
        if line.len() + taken > limit {
            is_too_long = true;
            line = BytesMut::new();
        } else if !is_too_long {
            line.extend_from_slice(&chunk[..taken]);
        }
        let is_end = chunk.is_empty();
        input.consume(taken + usize::from(newline.is_some()));
        if newline.is_none() && !is_end {
            continue;
        }
        if is_too_long {
            return Ok(InputLine::TooLong);
        }
        if !line.trim_ascii().is_empty() {
            return Ok(InputLine::Text(line.freeze()));
        }
        if is_end {
            return Ok(InputLine::End);
        }
        // Not cleared: otherwise the next line would keep the memory of a long line of white space.
        line = BytesMut::new();
    }
}

/// Writes one message per line, and flushes whenever the queue is empty. Drops `_written`, which
/// cancels its token, when it is done or the client stopped reading.
async fn write(
    mut messages: mpsc::Receiver<Bytes>,
    mut output: impl AsyncWrite + Unpin,
    _written: DropGuard,
) {
    while let Some(message) = messages.recv().await {
        let mut written = write_line(&mut output, &message).await;
        while written.is_ok()
            && let Ok(message) = messages.try_recv()
        {
            written = write_line(&mut output, &message).await;
        }
        let flushed = match written {
            Ok(()) => output.flush().await,
            Err(error) => Err(error),
        };
        if let Err(error) = flushed {
            tracing::debug!("the client stopped reading: {error}");
            return;
        }
    }
}

async fn write_line(
    output: &mut (impl AsyncWrite + Unpin),
    message: &[u8],
) -> Result<(), std::io::Error> {
    output.write_all(message).await?;
    output.write_all(b"\n").await
}

/// The client link: a queue that a separate task writes to the output.
#[derive(Debug)]
struct StdioLink {
    queue: Mutex<Option<mpsc::Sender<Bytes>>>,
    /// Cancelled when the session must end although the client does not read.
    is_given_up: CancellationToken,
}

impl StdioLink {
    /// Returns a link that writes to `output`. `written` is cancelled when it writes no more.
    fn start(output: impl AsyncWrite + Send + Unpin + 'static, written: CancellationToken) -> Self {
        let (queue, messages) = mpsc::channel(QUEUE);
        tokio::spawn(write(messages, output, written.drop_guard()));
        Self {
            queue: Mutex::new(Some(queue)),
            is_given_up: CancellationToken::new(),
        }
    }

    /// Queues a line. A client that does not read blocks the sender, as a pipe to the server itself
    /// would; only the end of the session limits that.
    async fn send(&self, line: Bytes) {
        let queue = self.queue.lock().clone();
        if let Some(queue) = queue {
            tokio::select! {
                biased;
                // A closed queue means that the client is gone. The session ends for the same
                // reason.
                _ = queue.send(line) => {}
                () = self.is_given_up.cancelled() => {}
            }
        }
    }

    /// Drops messages that do not fit into the queue once `limit` has passed. Never returns.
    async fn give_up_after(&self, limit: Duration) {
        tokio::time::sleep(limit).await;
        self.is_given_up.cancel();
        std::future::pending::<()>().await;
    }

    async fn refuse(&self, error: &RpcError, id: Option<&RequestId>) {
        self.send(Bytes::from(error.to_json(id))).await;
    }
}

#[async_trait]
impl ClientLink for StdioLink {
    async fn deliver(&self, message: Message, _route: Route) {
        self.send(message.on_one_line()).await;
    }

    async fn finish(&self, _request: &RequestId) {}

    async fn close(&self) {
        *self.queue.lock() = None;
    }
}

#[cfg(test)]
mod tests;
