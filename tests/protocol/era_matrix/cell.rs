//! A client and a server of given eras, and requests in the era of the client.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use riglm_tests::answers::Answers;
use riglm_tests::client::RawClient;
use riglm_tests::envelope::{Envelope, raw_at, string_at};
use riglm_tests::fixture::Upstream;
use riglm_tests::inbox::ReceivedMessage;
use riglm_tests::messages::{initialize, initialize_with, request_with};
use riglm_tests::modern::{Meta, MultiRoundClient};
use riglm_tests::riglm::{Options, ProxiedClient, Riglm};
use tempfile::TempDir;

use super::{Era, Side, impossible_because};
use crate::{modern_odd, odd};

/// The deadline of a wait for a message.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Direct,
    Proxied,
}

/// One cell of the table: a client and its expectations.
pub(super) struct Cell {
    pub(super) client: RawClient,
    pub(super) client_era: Era,
    pub(super) server_era: Era,
    pub(super) sentence: Option<&'static str>,
    /// The `_meta` of a modern client.
    meta: Mutex<Meta>,
    n_asked: AtomicUsize,
    _kept: (Upstream, Option<Riglm>, Option<TempDir>),
}

impl Cell {
    /// Starts the server, the proxy if needed, and the client. Nothing is sent yet.
    pub(super) async fn open(route: Route, client: Side, server: Side, feature: &str) -> Self {
        let (client_era, downstream) = client;
        let (server_era, upstream) = server;
        let upstream = match server_era {
            Era::Legacy => odd().start(upstream).await,
            Era::Modern => modern_odd().start(upstream).await,
        };
        let (raw, riglm, data_dir) = match (route, client_era) {
            (Route::Direct, Era::Legacy) => (upstream.client(answers()).await, None, None),
            (Route::Direct, Era::Modern) => (upstream.modern_client(), None, None),
            (Route::Proxied, era) => {
                let options = Options::default();
                let line = match era {
                    Era::Legacy => {
                        ProxiedClient::through(downstream, &upstream, &options, answers()).await
                    }
                    Era::Modern => ProxiedClient::modern(downstream, &upstream, &options).await,
                };
                (line.client, line.riglm, Some(line.data_dir))
            }
        };
        Self {
            client: raw.with_patience(PATIENCE),
            client_era,
            server_era,
            sentence: impossible_because(feature, client_era, server_era),
            meta: Mutex::new(Meta::default()),
            n_asked: AtomicUsize::new(0),
            _kept: (upstream, riglm, data_dir),
        }
    }

    /// Initialises the session of a legacy client and returns the response. A modern client has no
    /// handshake.
    pub(super) async fn start(&self) -> Option<ReceivedMessage> {
        match self.client_era {
            Era::Legacy => {
                let text = initialize("\"init\"", "2025-11-25");
                Some(self.client.initialize(&text).await)
            }
            Era::Modern => None,
        }
    }

    /// The same with these client capabilities.
    pub(super) async fn start_with(&self, capabilities: &str) {
        match self.client_era {
            Era::Legacy => {
                let text = initialize_with("\"init\"", "2025-11-25", capabilities);
                self.client.initialize(&text).await;
            }
            Era::Modern => {
                let meta = Meta::default().with_capabilities(capabilities);
                *self.meta.lock() = meta;
            }
        }
    }

    /// Returns the `_meta` of requests of a modern client.
    pub(super) fn meta(&self) -> Meta {
        self.meta.lock().clone()
    }

    /// Returns an unused id.
    pub(super) fn next_id(&self) -> String {
        let n = self.n_asked.fetch_add(1, Ordering::Relaxed);
        if n.is_multiple_of(2) {
            format!("{n}")
        } else {
            format!("\"cell {n}\"")
        }
    }

    /// Returns a request with raw members of its params and of `_meta`, without braces.
    pub(super) fn text(&self, id: &str, method: &str, params: &str, meta: &str) -> String {
        match self.client_era {
            Era::Modern if meta.is_empty() => self.meta().request(id, method, params),
            Era::Modern => self.meta().and(meta).request(id, method, params),
            Era::Legacy => {
                let meta = if meta.is_empty() {
                    String::new()
                } else {
                    format!(r#""_meta":{{{meta}}}"#)
                };
                let members: Vec<&str> = [params, &meta]
                    .into_iter()
                    .filter(|members| !members.is_empty())
                    .collect();
                request_with(id, method, &format!("{{{}}}", members.join(",")))
            }
        }
    }

    pub(super) async fn ask(&self, method: &str, params: &str) -> ReceivedMessage {
        let text = self.text(&self.next_id(), method, params, "");
        self.client.request(&text).await
    }

    pub(super) async fn call(&self, tool: &str, arguments: &str) -> ReceivedMessage {
        self.ask("tools/call", &call_params(tool, arguments)).await
    }

    /// Calls a tool that requests input, responds to everything, and returns the result with the
    /// number of input requests.
    pub(super) async fn call_and_respond(&self, tool: &str) -> (String, usize) {
        self.call_and_respond_with(tool, "{}").await
    }

    /// The same with these arguments.
    pub(super) async fn call_and_respond_with(
        &self,
        tool: &str,
        arguments: &str,
    ) -> (String, usize) {
        match self.client_era {
            Era::Legacy => {
                let start = self.client.n_received();
                let answer = self.call(tool, arguments).await;
                let received = self.client.received_messages().split_off(start);
                let asked = received
                    .iter()
                    .flat_map(|message| Envelope::all(&message.text))
                    .filter(Envelope::is_request)
                    .count();
                (self.result(&answer), asked)
            }
            Era::Modern => {
                let asked = AtomicUsize::new(0);
                let rounds = MultiRoundClient::new(&self.client, &self.meta());
                let received = rounds
                    .resolve("tools/call", &call_params(tool, arguments), |request| {
                        asked.fetch_add(1, Ordering::Relaxed);
                        canned_response(request)
                    })
                    .await;
                let last = received.last().expect("every request is answered");
                (self.result(last), asked.into_inner())
            }
        }
    }

    /// Returns the result of a response, and asserts that it is complete in the era of the client.
    pub(super) fn result(&self, answer: &ReceivedMessage) -> String {
        let result = raw_at(&answer.text, &["result"])
            .unwrap_or_else(|| panic!("no result: {}", answer.text));
        let kind = string_at(&result, &["resultType"]);
        match self.client_era {
            Era::Modern => assert_eq!(
                kind.as_deref(),
                Some("complete"),
                "\"The result MUST include a resultType field\": {}",
                answer.text
            ),
            Era::Legacy => assert_ne!(
                kind.as_deref(),
                Some("input_required"),
                "a legacy client is asked by requests: {}",
                answer.text
            ),
        }
        result
    }

    /// Asserts that a modern result has cache hints.
    pub(super) fn assert_cacheable(&self, result: &str) {
        if self.client_era == Era::Legacy {
            return;
        }
        let ttl = raw_at(result, &["ttlMs"]).and_then(|ttl| ttl.parse::<f64>().ok());
        assert!(ttl.is_some_and(|ttl| ttl >= 0.0), "no ttlMs: {result}");
        let scope = string_at(result, &["cacheScope"]).unwrap_or_default();
        assert!(
            ["public", "private"].contains(&scope.as_str()),
            "no cacheScope: {result}"
        );
    }
}

/// Returns the params of a call, without braces.
pub(super) fn call_params(tool: &str, arguments: &str) -> String {
    format!(r#""name":"{tool}","arguments":{arguments}"#)
}

/// Returns the canned responses, with marks that are recognised in a result.
fn answers() -> Answers {
    crate::answers()
}

/// Returns the response of a modern client to an input request, equal to the response of a legacy
/// client.
pub(super) fn canned_response(request: &Envelope) -> String {
    let method = request.method().unwrap_or_default();
    let text = request_with("0", &method, request.member("params").unwrap_or("{}"));
    let answer = answers().to(&text).pop();
    let answer = answer.unwrap_or_else(|| panic!("nobody should ask {method}"));
    raw_at(&answer, &["result"]).unwrap_or_else(|| panic!("no result: {answer}"))
}
