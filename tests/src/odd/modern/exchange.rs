//! One request with its way out: the stream of its POST, or the one output of stdio.

use std::sync::Arc;

use tokio::sync::Notify;

use super::super::outlet::{Outlet, Route};
use crate::envelope::{Envelope, quoted, raw_at};

/// A request that is being answered.
#[derive(Clone, Debug)]
pub(in crate::odd) struct Exchange {
    pub(super) id: String,
    pub(super) method: String,
    pub(super) params: String,
    /// The `mcp-*` headers that it came with, a JSON object; `null` over stdio.
    pub(super) headers: String,
    out: Outlet,
    cancel: Arc<Notify>,
}

impl Exchange {
    /// Reads a request; `None` for everything that is none.
    pub(in crate::odd) fn read(envelope: &Envelope, headers: &str, out: Outlet) -> Option<Self> {
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

    /// Returns when the client has said that it no longer wants the answer, or has gone.
    pub(super) async fn cancelled(&self) {
        let gone = async {
            match &self.out {
                Outlet::Pipe(pipe, _) => pipe.closed().await,
                Outlet::Streams(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.cancel.notified() => {}
            () = gone => {}
        }
    }

    /// Sends a message.
    pub(super) async fn send(&self, text: &str) {
        self.out.send(&Route::Standalone, text).await;
    }

    /// Sends bytes in the place of a message.
    pub(super) async fn send_bytes(&self, bytes: &[u8]) {
        self.out.send_bytes(&Route::Standalone, bytes).await;
    }

    /// Returns whether the request came over HTTP.
    pub(super) fn is_http(&self) -> bool {
        self.headers != "null"
    }

    /// Sends a notification.
    pub(super) async fn tell(&self, method: &str, params: &str) {
        let text = format!(
            r#"{{"x-top":null,"params":{params},"method":{},"jsonrpc":"2.0"}}"#,
            quoted(method)
        );
        self.send(&text).await;
    }

    /// Returns the raw text at a path below the params.
    pub(super) fn param(&self, path: &[&str]) -> Option<String> {
        raw_at(&self.params, path)
    }

    /// Returns the raw text of a reserved entry of `_meta`.
    pub(super) fn reserved(&self, name: &str) -> Option<String> {
        self.param(&["_meta", &format!("io.modelcontextprotocol/{name}")])
    }
}
