use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::HeaderMap;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::ResourceSpans;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use prost::Message;
use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::protocol::Revision;
use riglm_domain::usage::invocation::Outcome;
use riglm_ports::tracer::{RequestTarget, TracedRequest};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use url::Url;

use super::export::CLOSE_WITHIN;
use super::*;

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03";

/// A receiver with a scripted answer for each batch. It records the received data: the head of the
/// request, and the batch.
struct TestReceiver {
    endpoint: Url,
    batches: mpsc::UnboundedReceiver<(String, ExportTraceServiceRequest)>,
}

impl TestReceiver {
    async fn with_answers(status: &'static str, n_refused: i64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, batches) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let sender = sender.clone();
                tokio::spawn(serve(stream, sender, status, n_refused));
            }
        });
        let endpoint = format!("http://127.0.0.1:{port}").parse().unwrap();
        Self { endpoint, batches }
    }

    async fn batch(&mut self) -> (String, ExportTraceServiceRequest) {
        let batch = tokio::time::timeout(Duration::from_secs(10), self.batches.recv());
        batch.await.unwrap().unwrap()
    }
}

async fn serve(
    mut stream: TcpStream,
    batches: mpsc::UnboundedSender<(String, ExportTraceServiceRequest)>,
    status: &str,
    n_refused: i64,
) {
    let mut read = Vec::new();
    loop {
        let head = loop {
            if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
                let rest = read.split_off(end + 4);
                let head = std::mem::replace(&mut read, rest);
                break String::from_utf8(head).unwrap().to_lowercase();
            }
            if stream.read_buf(&mut read).await.unwrap() == 0 {
                return;
            }
        };
        let length = head.split_once("content-length: ").unwrap().1;
        let length: usize = length.split_once("\r\n").unwrap().0.parse().unwrap();
        while read.len() < length {
            assert!(stream.read_buf(&mut read).await.unwrap() > 0);
        }
        let rest = read.split_off(length);
        let batch = ExportTraceServiceRequest::decode(read.as_slice()).unwrap();
        read = rest;
        let _ = batches.send((head, batch));
        let answer = ExportTraceServiceResponse {
            partial_success: Some(ExportTracePartialSuccess {
                rejected_spans: n_refused,
                error_message: String::new(),
            }),
        };
        let answer = answer.encode_to_vec();
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/x-protobuf\r\ncontent-length: {}\r\n\r\n",
            answer.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&answer).await.unwrap();
    }
}

/// Adds up the lost spans in the log of this thread.
#[derive(Clone, Default)]
struct LossLog(Arc<AtomicU64>);

impl LossLog {
    fn of_thread() -> (Self, DefaultGuard) {
        let log = Self::default();
        let guard = tracing::subscriber::set_default(log.clone());
        (log, guard)
    }
}

impl Visit for LossLog {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "n_lost" {
            self.0.fetch_add(value, Ordering::Relaxed);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

impl tracing::Subscriber for LossLog {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

fn options(endpoint: Url) -> TracesOptions {
    let mut headers = HeaderMap::new();
    headers.insert("x-key", "k1".parse().unwrap());
    TracesOptions {
        endpoint,
        headers,
        timeout: Duration::from_secs(5),
        sample_ratio: 1.0,
        service_name: "under-test".into(),
        service_version: "1.2.3".into(),
    }
}

fn call_of(tool: &str) -> TracedRequest<'_> {
    TracedRequest {
        method: "tools/call",
        target: Some(RequestTarget::Tool(tool)),
    }
}

fn attribute(span: &opentelemetry_proto::tonic::trace::v1::Span, key: &str) -> Option<String> {
    let found = span.attributes.iter().find(|found| found.key == key)?;
    match found.value.clone()?.value? {
        Value::StringValue(text) => Some(text),
        other => Some(format!("{other:?}")),
    }
}

#[tokio::test]
async fn spans_reach_a_receiver_with_their_places_and_attributes() {
    let mut receiver = TestReceiver::with_answers("200 OK", 0).await;
    let tracer = OtlpTracer::start(options(receiver.endpoint.clone())).unwrap();
    let remote = TraceContext::parse(PARENT, Some("a=1")).unwrap();
    let upstream = UpstreamName::parse("up").unwrap();
    let mut request = tracer.begin(&SpanOperation::Request(call_of("echo")), Some(&remote));
    let asking = SpanOperation::Upstream(&upstream, call_of("echo"));
    let mut asked = tracer.begin(&asking, Some(request.context()));
    asked.set_status(SpanStatus::Code("-32602"));
    // The flags and the state of the trace are kept.
    assert!(asked.context().traceparent().ends_with("-03"));
    assert_eq!(asked.context().tracestate(), Some("a=1"));
    drop(asked);
    drop(tracer.begin(&SpanOperation::Store, Some(request.context())));
    request.set_attribute(SpanAttribute::Revision(&Revision::new("2025-11-25")));
    request.set_status(SpanStatus::Ok);
    let of_request = request.context().clone();
    drop(request);
    tracer.close().await;

    let (head, batch) = receiver.batch().await;
    assert!(head.starts_with("post /v1/traces http/1.1\r\n"), "{head}");
    assert!(head.contains("x-key: k1\r\n") && head.contains("application/x-protobuf"));
    let [of_resource] = batch.resource_spans.as_slice() else {
        panic!("one resource");
    };
    let resource = of_resource.resource.clone().unwrap();
    assert_eq!(resource.attributes.len(), 2, "{resource:?}");
    assert!(format!("{resource:?}").contains("under-test"));
    let spans = &of_resource.scope_spans[0].spans;
    let named: Vec<(&str, i32)> = spans.iter().map(|s| (s.name.as_str(), s.kind)).collect();
    assert_eq!(
        named,
        [
            ("tools/call echo", SpanKind::Client as i32),
            ("store", SpanKind::Internal as i32),
            ("tools/call echo", SpanKind::Server as i32),
        ]
    );
    let [asked, stored, request] = spans.as_slice() else {
        panic!("three spans");
    };
    assert_eq!(request.trace_id, remote.trace.0);
    assert_eq!(request.span_id, of_request.span.0);
    assert_eq!(request.parent_span_id, remote.span.0);
    assert_eq!(
        (request.trace_state.as_str(), request.flags & 0x200),
        ("a=1", 0x200)
    );
    for child in [asked, stored] {
        assert_eq!(child.parent_span_id, request.span_id);
        assert_eq!(
            (child.trace_id == request.trace_id, child.flags & 0x200),
            (true, 0)
        );
    }
    assert_eq!(
        attribute(request, "mcp.method.name").as_deref(),
        Some("tools/call")
    );
    assert_eq!(
        attribute(request, "gen_ai.tool.name").as_deref(),
        Some("echo")
    );
    assert_eq!(
        attribute(request, "mcp.protocol.version").as_deref(),
        Some("2025-11-25")
    );
    assert_eq!(attribute(request, "error.type"), None);
    assert_eq!(
        request.status.clone().unwrap().code,
        StatusCode::Unset as i32
    );
    assert_eq!(attribute(asked, "upstream.name").as_deref(), Some("up"));
    assert_eq!(attribute(asked, "error.type").as_deref(), Some("-32602"));
    assert_eq!(
        attribute(asked, "rpc.response.status_code").as_deref(),
        Some("-32602")
    );
    assert_eq!(asked.status.clone().unwrap().code, StatusCode::Error as i32);
    assert!(asked.end_time_unix_nano >= asked.start_time_unix_nano);
}

#[test]
fn environment_variables_do_not_configure_tracing() {
    // A process of its own, since the environment belongs to the process.
    let test = "traces::otlp::tests::spans_reach_a_receiver_with_their_places_and_attributes";
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test]).envs([
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=k2"),
        ("OTEL_RESOURCE_ATTRIBUTES", "a=b"),
        ("OTEL_SERVICE_NAME", "other"),
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "1"),
        ("OTEL_TRACES_SAMPLER", "always_off"),
    ]);
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("1 passed"), "{printed}");
}

#[tokio::test]
async fn spans_have_their_places() {
    let receiver = TestReceiver::with_answers("200 OK", 0).await;
    for sample_ratio in [0.0, 1.0] {
        let options = TracesOptions {
            sample_ratio,
            ..options(receiver.endpoint.clone())
        };
        riglm_ports::contract::tracer::all(&OtlpTracer::start(options).unwrap());
    }
}

#[tokio::test]
async fn the_parent_overrides_the_sampling_ratio() {
    let mut receiver = TestReceiver::with_answers("200 OK", 0).await;
    let tracer = OtlpTracer::start(TracesOptions {
        sample_ratio: 0.0,
        ..options(receiver.endpoint.clone())
    });
    let tracer = tracer.unwrap();
    let operation = SpanOperation::Request(call_of("t"));
    let sampled = TraceContext::parse(PARENT, None).unwrap();
    let unsampled = TraceContext::parse(&PARENT.replace("-03", "-02"), None).unwrap();
    let places = [Some(&unsampled), None, Some(&sampled)].map(|parent| {
        let span = tracer.begin(&operation, parent);
        span.context().clone()
    });
    // A span that is not recorded has its own context nevertheless.
    assert!(places[0].traceparent().ends_with("-02"));
    assert_ne!(places[0].span, unsampled.span);
    assert!(!places[1].is_sampled() && places[1].trace.0 != [0; 16]);
    tracer.close().await;
    let (_, batch) = receiver.batch().await;
    let spans = &batch.resource_spans[0].scope_spans[0].spans;
    let ids: Vec<&[u8]> = spans.iter().map(|span| span.span_id.as_slice()).collect();
    assert_eq!(ids, [&places[2].span.0]);
}

#[tokio::test]
async fn every_span_of_many_is_sent_once() {
    let mut receiver = TestReceiver::with_answers("200 OK", 0).await;
    let tracer = Arc::new(OtlpTracer::start(options(receiver.endpoint.clone())).unwrap());
    for _ in 0..3_000 {
        drop(tracer.begin(&SpanOperation::Store, None));
    }
    tracer.close().await;
    let mut ids = std::collections::HashSet::new();
    let mut n = 0;
    while n < 3_000 {
        let (_, batch) = receiver.batch().await;
        let spans = &batch.resource_spans[0].scope_spans[0].spans;
        assert!(spans.len() <= 512);
        n += spans.len();
        ids.extend(spans.iter().map(|span| span.span_id.clone()));
    }
    assert_eq!((n, ids.len()), (3_000, 3_000));
}

#[tokio::test]
async fn only_a_busy_receiver_is_retried() {
    for (status, n_expected) in [("503 Service Unavailable", 2), ("400 Bad Request", 1)] {
        let mut receiver = TestReceiver::with_answers(status, 0).await;
        let tracer = OtlpTracer::start(options(receiver.endpoint.clone())).unwrap();
        drop(tracer.begin(&SpanOperation::Store, None));
        let mut n = 0;
        let until = tokio::time::sleep(Duration::from_millis(2_300));
        tokio::pin!(until);
        loop {
            tokio::select! {
                _ = receiver.batches.recv() => n += 1,
                () = &mut until => break,
            }
        }
        assert_eq!(n, n_expected, "{status}");
    }
}

#[tokio::test]
async fn an_unavailable_receiver_delays_no_request_and_all_losses_are_logged() {
    // A bound socket that is never read: the system accepts connections to it.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gone_port = gone.local_addr().unwrap().port();
    drop(gone);
    for port in [silent.local_addr().unwrap().port(), gone_port] {
        let (log, _guard) = LossLog::of_thread();
        let endpoint = format!("http://127.0.0.1:{port}").parse().unwrap();
        let tracer = OtlpTracer::start(options(endpoint)).unwrap();
        let began = Instant::now();
        for _ in 0..10_000 {
            let mut span = tracer.begin(&SpanOperation::Store, None);
            span.set_status(SpanStatus::Unanswered(Outcome::Timeout));
        }
        assert!(
            began.elapsed() < Duration::from_secs(2),
            "{:?}",
            began.elapsed()
        );
        let began = Instant::now();
        tracer.close().await;
        assert!(began.elapsed() < CLOSE_WITHIN + Duration::from_secs(1));
        assert_eq!(log.0.load(Ordering::Relaxed), 10_000);
        // Later spans are lost without harm, and closing twice is fine.
        drop(tracer.begin(&SpanOperation::Store, None));
        tracer.close().await;
    }
}

#[tokio::test]
async fn spans_rejected_by_the_receiver_are_counted() {
    let receiver = TestReceiver::with_answers("200 OK", 7).await;
    let sender = OtlpReceiver::new(options(receiver.endpoint.clone())).unwrap();
    let batch = ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans::default()],
    };
    assert_eq!(sender.send(batch.encode_to_vec().into()).await, Ok(7));
}
