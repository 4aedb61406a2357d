//! A receiver of traces: OTLP over HTTP in protobuf, decoded with the types of the protocol's own
//! definition.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use parking_lot::Mutex;
use prost::Message;
use riglm_tests::process::eventually;
use tokio::net::TcpListener;

/// The deadline for the arrival of spans.
const PATIENCE: Duration = Duration::from_secs(15);

#[derive(Clone, Default)]
struct ReceivedSpans {
    spans: Vec<Span>,
    /// The bytes of all requests, and their headers.
    raw: Vec<u8>,
    heads: Vec<HeaderMap>,
}

/// A receiver on its own port.
pub(super) struct Receiver {
    port: u16,
    received: Arc<Mutex<ReceivedSpans>>,
}

async fn take(
    State(received): State<Arc<Mutex<ReceivedSpans>>>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let Ok(batch) = ExportTraceServiceRequest::decode(body.clone()) else {
        return StatusCode::BAD_REQUEST;
    };
    let mut received = received.lock();
    let scopes = batch
        .resource_spans
        .into_iter()
        .flat_map(|of| of.scope_spans);
    received.spans.extend(scopes.flat_map(|scope| scope.spans));
    received.raw.extend_from_slice(&body);
    received.heads.push(headers);
    StatusCode::OK
}

impl Receiver {
    pub(super) async fn start() -> Self {
        let received = Arc::<Mutex<ReceivedSpans>>::default();
        let router = Router::new()
            .route("/v1/traces", post(take))
            .with_state(Arc::clone(&received));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { port, received }
    }

    /// Returns a configuration section that sends traces to this receiver.
    pub(super) fn section(&self) -> String {
        section(self.port)
    }

    /// Waits for the only span of this kind and name in a trace. The trace id is in hexadecimal.
    pub(super) async fn span(&self, trace: &str, kind: SpanKind, name: &str) -> Span {
        let found = eventually(PATIENCE, || {
            let mut spans = self.of_trace(trace);
            spans.retain(|span| span.kind == kind as i32 && span.name == name);
            assert!(spans.len() <= 1, "{spans:#?}");
            spans.pop()
        });
        found.await.unwrap_or_else(|| {
            panic!(
                "no span {name} of {trace}: {:#?}",
                self.received_spans().spans
            )
        })
    }

    /// Returns the received spans of a trace.
    pub(super) fn of_trace(&self, trace: &str) -> Vec<Span> {
        let mut spans = self.received_spans().spans;
        spans.retain(|span| hex(&span.trace_id) == trace);
        spans
    }

    pub(super) fn n_spans(&self) -> usize {
        self.received_spans().spans.len()
    }

    /// Returns whether any received request contains a text.
    pub(super) fn has(&self, text: &str) -> bool {
        let raw = self.received_spans().raw;
        raw.windows(text.len())
            .any(|window| window == text.as_bytes())
    }

    /// Returns whether all requests had a header.
    pub(super) fn all_requests_had(&self, name: &str, value: &str) -> bool {
        let heads = self.received_spans().heads;
        !heads.is_empty()
            && heads
                .iter()
                .all(|head| head.get(name).is_some_and(|is| is == value))
    }

    fn received_spans(&self) -> ReceivedSpans {
        self.received.lock().clone()
    }
}

/// Returns a configuration section that sends traces to a port.
pub(super) fn section(port: u16) -> String {
    format!(
        "[telemetry.otlp]\nendpoint = \"http://127.0.0.1:{port}\"\ntimeout = \"2s\"\n\
         headers = {{ x-receiver-key = \"hunter2\" }}\n"
    )
}

/// Returns bytes in hexadecimal, as in headers.
pub(super) fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap();
    let digits = bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]);
    digits.collect()
}

/// Returns the text of an attribute.
pub(super) fn attribute(span: &Span, key: &str) -> Option<String> {
    let found = span.attributes.iter().find(|found| found.key == key)?;
    match found.value.clone()?.value? {
        Value::StringValue(text) => Some(text),
        other => Some(format!("{other:?}")),
    }
}
