//! One client over standard input and output: one message a line, until the input ends.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use riglm_app::proxy::{CLOSE_WITHIN, ClientSession, Proxy, Visitor};
use riglm_domain::message::{Message, RequestId};
use riglm_domain::protocol::Transport;
use riglm_domain::rpc_error::RpcError;
use riglm_ports::downstream::{ClientLink, Route};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::refusal::{too_large, unreadable};

/// How many messages may wait for a client that reads too slowly.
const QUEUE: usize = 64;
/// How long a client may take to read what is left for it once its session ends.
const LAST_READS: Duration = Duration::from_secs(5);

/// What is done with one line of the client.
type Taking = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Serves one client until its input ends, the output breaks, the session is ended, or `stop` is
/// cancelled. Nothing is read then; requests in flight are answered within the drain limit, the
/// session is closed, and what is left for the client is written out, as long as it reads.
///
/// Not cancellation safe: dropped, it may leave half a line in the output. Cancel `stop` instead.
///
/// # Errors
///
/// Returns the error of the proxy when the client is not admitted, and of the input when it cannot
/// be read.
pub async fn serve(
    proxy: &Proxy,
    visitor: &Visitor,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Send + Unpin + 'static,
    stop: CancellationToken,
) -> Result<(), StdioError> {
    let (queue, messages) = mpsc::channel(QUEUE);
    let written = CancellationToken::new();
    tokio::spawn(write(messages, output, written.clone().drop_guard()));
    let client = Arc::new(StdioLink {
        queue: Mutex::new(Some(queue)),
        is_given_up: CancellationToken::new(),
    });
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
    // What was begun with a message must come to its end, which may outlast the session.
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
        // Nobody is left to be answered.
        () = written.cancelled() => {}
        () = answers => {}
    }
    let left = deadline.saturating_duration_since(Instant::now());
    tokio::select! {
        () = session.close_within(left.max(CLOSE_WITHIN)) => {}
        () = client.give_up_after(LAST_READS) => {}
    }
    if tokio::time::timeout(LAST_READS, written.cancelled())
        .await
        .is_err()
    {
        tracing::warn!("the client did not read its last answers");
    }
    read
}

/// Takes one line after the other until the input or the session ends. What is done with the
/// current line stands in `taking`, so that it outlives this future.
async fn read_all(
    session: &Arc<ClientSession>,
    client: &Arc<StdioLink>,
    input: impl AsyncRead + Unpin,
    limit: impl Fn() -> usize,
    taking: &mut Option<Taking>,
) -> Result<(), StdioError> {
    let mut input = BufReader::with_capacity(64 << 10, input);
    while !session.is_closed() {
        let limit = limit();
        let line = read_line(&mut input, limit).await;
        let message = match line.map_err(StdioError::Input)? {
            Line::Text(line) => Message::parse(&line).map_err(unreadable),
            Line::TooLong => Err((too_large(limit), None)),
            Line::End => break,
        };
        let (session, client) = (Arc::clone(session), Arc::clone(client));
        let current = taking.insert(Box::pin(take(session, client, message)));
        current.await;
        *taking = None;
    }
    Ok(())
}

/// Passes a message on, or answers what is none.
async fn take(
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
            tracing::warn!("a message of the client was not passed on: {reason}");
        }
    }
}

/// Why a client could not be served to its end.
#[derive(Debug, thiserror::Error)]
pub enum StdioError {
    /// The proxy takes no more sessions.
    #[error("client was not admitted: {}", .0.message)]
    NotAdmitted(RpcError),
    /// The input cannot be read.
    #[error("failed to read standard input")]
    Input(#[source] std::io::Error),
}

enum Line {
    Text(Bytes),
    TooLong,
    End,
}

/// Reads the next line that is not empty. A line over `limit` is read to its end and dropped.
/// Cancellation safe only in that the caller reads nothing more after cancelling.
async fn read_line(
    input: &mut (impl AsyncBufRead + Unpin),
    limit: usize,
) -> Result<Line, std::io::Error> {
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
            return Ok(Line::TooLong);
        }
        if !line.trim_ascii().is_empty() {
            return Ok(Line::Text(line.freeze()));
        }
        if is_end {
            return Ok(Line::End);
        }
        // Not cleared: the next line would keep the memory of a long one that was empty.
        line = BytesMut::new();
    }
}

/// Writes messages one a line, and flushes whenever none is waiting. Cancels the token of
/// `_written` when it is done or the client stopped reading.
async fn write(
    mut messages: mpsc::Receiver<Bytes>,
    mut output: impl AsyncWrite + Unpin,
    _written: DropGuard,
) {
    while let Some(message) = messages.recv().await {
        let mut written = write_line(&mut output, &message).await;
        while written.is_ok() {
            let Ok(message) = messages.try_recv() else {
                break;
            };
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

/// The way to the client: a queue that one task writes out.
#[derive(Debug)]
struct StdioLink {
    queue: Mutex<Option<mpsc::Sender<Bytes>>>,
    /// Cancelled when the session must end although the client does not read.
    is_given_up: CancellationToken,
}

impl StdioLink {
    /// Queues a line. A client that does not read holds up what is said to it, as a pipe to the
    /// server itself would; only the end of the session limits that.
    async fn send(&self, line: Bytes) {
        let queue = self
            .queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some(queue) = queue {
            tokio::select! {
                biased;
                // A writer that is gone has seen the client go; the session ends by that.
                _ = queue.send(line) => {}
                () = self.is_given_up.cancelled() => {}
            }
        }
    }

    /// Drops what finds no place in the queue, once `limit` has passed. Never returns.
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
        *self.queue.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(text: &[u8], limit: usize) -> Vec<String> {
        let mut input = BufReader::with_capacity(4, text);
        let mut found = Vec::new();
        loop {
            match read_line(&mut input, limit).await.unwrap() {
                Line::Text(line) => found.push(String::from_utf8_lossy(&line).into_owned()),
                Line::TooLong => found.push("too long".into()),
                Line::End => return found,
            }
        }
    }

    #[tokio::test]
    async fn lines_are_split_and_empty_ones_skipped() {
        assert_eq!(
            lines(b"one\r\n\n \ntwo\nthree", 100).await,
            ["one\r", "two", "three"]
        );
    }

    #[tokio::test]
    async fn a_line_over_the_limit_is_dropped_and_the_next_one_read() {
        assert_eq!(
            lines(b"123456789\nok\n123456789", 5).await,
            ["too long", "ok", "too long"]
        );
    }
}
