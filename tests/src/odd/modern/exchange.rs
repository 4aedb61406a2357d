//! One request with its output: the stream of its POST, or the standard output.

use std::sync::Arc;

use tokio::sync::Notify;

use super::super::outlet::{Route, SessionOutput};
use crate::envelope::{Envelope, json_string, raw_at};

/// A request in work.
#[derive(Clone, Debug)]
pub(in crate::odd) struct Exchange {
    pub(super) id: String,
    pub(super) method: String,
    pub(super) params: String,
    /// The `mcp-*` headers of the request as a JSON object. `null` over stdio.
    pub(super) headers: String,
    out: SessionOutput,
    cancel: Arc<Notify>,
}

impl Exchange {
    /// Reads a request. Returns `None` for other messages.
    pub(in crate::odd) fn read(
        envelope: &Envelope,
        headers: &str,
        out: SessionOutput,
    ) -> Option<Self> {
        Some(Self {
            id: envelope.id()?.to_owned(),
            method: envelope.method()?,
            params: envelope.member("params").unwrap_or("null").to_owned(),
            headers: headers.to_owned(),
            out,
            cancel: Arc::default(),
        })
    }

    pub(super) fn cancel(&self) -> Arc<Notify> {
        Arc::clone(&self.cancel)
    }

    /// Waits until the client has cancelled the request or has disconnected.
    pub(super) async fn wait_for_cancellation(&self) {
        let gone = async {
            match &self.out {
                SessionOutput::Pipe(pipe, _) => pipe.closed().await,
                SessionOutput::Streams(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.cancel.notified() => {}
            () = gone => {}
        }
    }

    pub(super) async fn send(&self, text: &str) {
        self.out.send(&Route::Standalone, text).await;
    }

    /// Sends bytes in place of a message.
    pub(super) async fn send_bytes(&self, bytes: &[u8]) {
        self.out.send_bytes(&Route::Standalone, bytes).await;
    }

    pub(super) fn is_http(&self) -> bool {
        self.headers != "null"
    }

    pub(super) async fn notify(&self, method: &str, params: &str) {
        let text = format!(
            r#"{{"x-top":null,"params":{params},"method":{},"jsonrpc":"2.0"}}"#,
            json_string(method)
        );
        self.send(&text).await;
    }

    /// Returns the raw text at a path in the params.
    pub(super) fn param(&self, path: &[&str]) -> Option<String> {
        raw_at(&self.params, path)
    }

    /// Returns the raw text of a reserved entry of `_meta`.
    pub(super) fn reserved_meta(&self, name: &str) -> Option<String> {
        self.param(&["_meta", &format!("io.modelcontextprotocol/{name}")])
    }
}
