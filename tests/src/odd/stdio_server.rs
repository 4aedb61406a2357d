//! The unusual server over standard input and output.

use std::sync::Arc;

use bytes::Bytes;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;

use super::modern::{Exchange, ServerState, is_modern};
use super::outlet::{Framing, SessionOutput};
use super::session::Session;
use super::settings::{Era, Settings};
use super::streams::QUEUE;
use crate::envelope::Envelope;

/// Serves one legacy session, and modern requests, until standard input ends.
pub async fn serve(settings: Settings) {
    let (pipe, queue) = mpsc::channel(QUEUE);
    let outlet = SessionOutput::Pipe(pipe, Framing::Lines);
    let settings = Arc::new(settings);
    let world = ServerState::new(Arc::clone(&settings));
    let session = Session::new(outlet.clone(), Arc::clone(&settings));
    let writer = tokio::spawn(write(queue));
    let mut input = BufReader::new(tokio::io::stdin());
    let mut line = Vec::new();
    while matches!(input.read_until(b'\n', &mut line).await, Ok(1..)) {
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        line.clear();
        if settings.era == Era::Legacy || !take_modern(&world, settings.era, &outlet, &text) {
            session.accept(text).await;
        }
    }
    // The client has gone, so answers that are still in work have no reader.
    writer.abort();
}

/// Accepts a message of the modern era. Returns whether the message was one.
fn take_modern(world: &Arc<ServerState>, era: Era, outlet: &SessionOutput, text: &str) -> bool {
    let Some(envelope) = Envelope::one(text) else {
        return false;
    };
    if envelope.method().as_deref() == Some("notifications/cancelled") && world.cancel(&envelope) {
        return true;
    }
    if era == Era::Dual && !is_modern(text, &envelope) {
        return false;
    }
    if let Some(exchange) = Exchange::read(&envelope, "null", outlet.clone()) {
        world.accept(exchange);
    }
    true
}

async fn write(mut queue: mpsc::Receiver<Bytes>) {
    let mut output = tokio::io::stdout();
    while let Some(bytes) = queue.recv().await {
        if output.write_all(&bytes).await.is_err() || output.flush().await.is_err() {
            return;
        }
    }
}
