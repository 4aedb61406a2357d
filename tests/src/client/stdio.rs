//! The client side of stdio: one message in each line.

use std::sync::Arc;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::Mutex;

use super::{Delivery, SharedState};
use crate::inbox::{ReceivedMessage, Stream};

#[derive(Debug)]
pub(super) struct Stdio {
    input: Mutex<Option<ChildStdin>>,
}

impl Stdio {
    pub(super) fn new(input: ChildStdin) -> Self {
        Self {
            input: Mutex::new(Some(input)),
        }
    }

    pub(super) async fn send(&self, shared: &Arc<SharedState>, text: &str) -> Delivery {
        // A line break would end the message. JSON allows a space in its place.
        let line = format!("{}\n", text.replace(['\n', '\r'], " "));
        if !self.write(line.as_bytes()).await {
            shared.inbox.note("!! the child's input is closed".into());
        }
        Delivery::default()
    }

    pub(super) async fn write(&self, bytes: &[u8]) -> bool {
        let mut input = self.input.lock().await;
        let Some(input) = input.as_mut() else {
            return false;
        };
        input.write_all(bytes).await.is_ok() && input.flush().await.is_ok()
    }

    pub(super) async fn close(&self) {
        self.input.lock().await.take();
    }
}

/// Records every line of `output` until it ends.
pub(super) fn read(shared: &Arc<SharedState>, output: ChildStdout) {
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let mut reader = BufReader::new(output);
        let mut line = Vec::new();
        while matches!(reader.read_until(b'\n', &mut line).await, Ok(1..)) {
            let text = String::from_utf8_lossy(&line)
                .trim_end_matches(['\n', '\r'])
                .to_owned();
            line.clear();
            shared.receive(ReceivedMessage {
                stream: Stream::Stdio,
                text,
                event_id: None,
            });
        }
        shared.inbox.note("!! the child closed its output".into());
    });
}
