//! One client over standard input and output: one message a line, until the input ends.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use riglm_app::proxy::Proxy;
use riglm_domain::message::{Message, RequestId};
use riglm_domain::principal::Principal;
use riglm_domain::protocol::Transport;
use riglm_domain::rpc_error::RpcError;
use riglm_ports::downstream::{ClientLink, Route};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;

use super::refusal::{too_large, unreadable};

/// How many messages may wait for a client that reads too slowly.
const QUEUE: usize = 64;
/// How long requests may still be answered after the input ended. A client that closes the input
/// wants the process to end; one that pipes requests in wants their answers.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// Serves one client until its input ends, the output breaks, or the session is ended.
///
/// # Errors
///
/// Returns the error of the proxy when the client is not admitted, and of the input when it cannot
/// be read.
pub async fn serve(
    proxy: &Proxy,
    principal: &Principal,
    input: impl tokio::io::AsyncRead + Unpin,
    output: impl AsyncWrite + Send + Unpin + 'static,
) -> Result<(), StdioError> {
    let limit = proxy.limits().request_body_bytes;
    let (queue, messages) = mpsc::channel(QUEUE);
    let mut writer = tokio::spawn(write(messages, output));
    let client = Arc::new(StdioLink {
        queue: Mutex::new(Some(queue)),
    });
    let session = proxy
        .accept(
            Transport::Stdio,
            principal,
            Arc::<StdioLink>::clone(&client),
        )
        .map_err(StdioError::NotAdmitted)?;
    let mut input = BufReader::with_capacity(64 << 10, input);
    let read = loop {
        let line = tokio::select! {
            line = read_line(&mut input, limit) => line,
            _ = &mut writer => break Ok(()),
        };
        let message = match line {
            Ok(Line::Text(line)) => Message::parse(&line).map_err(unreadable),
            Ok(Line::TooLong) => Err((too_large(limit), None)),
            Ok(Line::End) => break Ok(()),
            Err(error) => break Err(StdioError::Input(error)),
        };
        match message {
            Ok(message) => match session.receive(message).await {
                Ok(Some(exchange)) => {
                    tokio::spawn(exchange.run);
                    exchange.on_its_way.await;
                }
                Ok(None) => {}
                Err(error) => {
                    let reason = error.message;
                    tracing::warn!("a message of the client was not passed on: {reason}");
                }
            },
            Err((error, id)) => client.refuse(&error, id.as_ref()).await,
        }
        if session.is_closed() {
            break Ok(());
        }
    };
    session
        .drain(LAST_ANSWERS.min(proxy.limits().drain_timeout))
        .await;
    session.close().await;
    if !writer.is_finished() && tokio::time::timeout(LAST_ANSWERS, writer).await.is_err() {
        tracing::warn!("the client did not read its last answers");
    }
    read
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
        line.clear();
    }
}

/// Writes messages one a line, and flushes whenever none is waiting.
async fn write(mut messages: mpsc::Receiver<Bytes>, mut output: impl AsyncWrite + Unpin) {
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
}

impl StdioLink {
    async fn send(&self, line: Bytes) {
        let queue = self
            .queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some(queue) = queue {
            // A writer that is gone has seen the client go; the session ends by that.
            let _ = queue.send(line).await;
        }
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
