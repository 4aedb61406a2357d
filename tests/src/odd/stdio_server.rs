//! The unusual server over standard input and output.

use bytes::Bytes;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;

use super::outlet::{Framing, Outlet};
use super::session::Session;
use super::streams::QUEUE;

/// Serves one session until standard input ends.
pub async fn serve() {
    let (pipe, queue) = mpsc::channel(QUEUE);
    let session = Session::new(Outlet::Pipe(pipe, Framing::Lines));
    let writer = tokio::spawn(write(queue));
    let mut input = BufReader::new(tokio::io::stdin());
    let mut line = Vec::new();
    while matches!(input.read_until(b'\n', &mut line).await, Ok(1..)) {
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        line.clear();
        session.accept(text).await;
    }
    // Answers that are still being made have no reader any more.
    writer.abort();
}

async fn write(mut queue: mpsc::Receiver<Bytes>) {
    let mut output = tokio::io::stdout();
    while let Some(bytes) = queue.recv().await {
        if output.write_all(&bytes).await.is_err() || output.flush().await.is_err() {
            return;
        }
    }
}
