//! The only task that writes to a child's standard input.
//!
//! Senders pass complete messages, so a dropped sender leaves no half line behind.

use std::io;

use riglm_domain::mcp::message::Message;
use tokio::io::{AsyncWriteExt, BufWriter};
use tokio::process::ChildStdin;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Waiting messages are written together, up to this many bytes.
const BUFFER_BYTES: usize = 16 * 1024;

/// Writes messages as lines until `closing`, then the remaining queued ones, and closes the input.
///
/// # Errors
///
/// Returns the reason why the process takes no more input.
pub(super) async fn run(
    stdin: ChildStdin,
    mut messages: mpsc::Receiver<Message>,
    closing: CancellationToken,
) -> io::Result<()> {
    let mut stdin = BufWriter::with_capacity(BUFFER_BYTES, stdin);
    let mut is_closing = false;
    loop {
        let next = tokio::select! {
            biased;
            () = closing.cancelled(), if !is_closing => {
                is_closing = true;
                messages.close();
                continue;
            }
            next = messages.recv() => next,
        };
        let Some(message) = next else {
            return stdin.flush().await;
        };
        stdin.write_all(&message.on_one_line()).await?;
        stdin.write_all(b"\n").await?;
        if messages.is_empty() {
            stdin.flush().await?;
        }
    }
}
