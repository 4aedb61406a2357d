//! Spans of requests, and the trace context that is sent to the upstream.

use std::sync::Arc;

use bytes::Bytes;
use riglm_domain::mcp::message::Message;
use riglm_domain::mcp::rpc_error::RpcErrorCode;
use riglm_domain::mcp::trace_context::TraceContext;
use riglm_ports::fake::{RecordedSpan, RecordingTracer};
use riglm_ports::upstream::UpstreamError;

use crate::scene::{HELLO, Scene, Setup, call, id};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const OTHER: &str = "00-11111111111111111111111111111111-2222222222222222-01";

async fn tracing_scene() -> (Scene, RecordingTracer) {
    let tracer = RecordingTracer::default();
    let scene = Setup {
        tracer: Some(Arc::new(tracer.clone())),
        ..Setup::default()
    }
    .scene();
    scene.send(HELLO).await;
    scene
        .upstream
        .reply_to("tools/call", r#""result":{"content":[]}"#);
    (scene, tracer)
}

fn span_with_name<'a>(spans: &'a [RecordedSpan], name: &str) -> &'a RecordedSpan {
    let mut found = spans.iter().filter(|span| span.name == name);
    let only = found.next();
    assert!(
        only.is_some() && found.next().is_none(),
        "{name}: {spans:#?}"
    );
    only.unwrap()
}

fn last_sent(scene: &Scene) -> String {
    scene.upstream.sent_messages().last().unwrap().1.clone()
}

fn with_header(text: &str, parent: &str) -> Message {
    let message = Message::parse(&Bytes::from(text.to_owned())).unwrap();
    message.with_trace(TraceContext::parse(parent, None).map(Arc::new))
}

#[tokio::test]
async fn calls_are_traced_with_their_child_spans() {
    let (scene, tracer) = tracing_scene().await;
    let before = tracer.ended_spans().len();
    scene
        .session
        .receive(with_header(&call(1), PARENT))
        .await
        .unwrap();
    let spans = tracer.ended_spans().split_off(before);
    let request = span_with_name(&spans, "request tools/call echo");
    let asked = span_with_name(&spans, "upstream u tools/call echo");
    assert_eq!(request.parent.as_ref().unwrap().traceparent(), PARENT);
    assert_eq!(request.failure, None);
    assert_eq!(request.attributes[0], "revision 2025-06-18");
    assert!(request.attributes[1].starts_with("session "));
    let stored: Vec<&RecordedSpan> = spans.iter().filter(|span| span.name == "store").collect();
    // Once before the call is forwarded, and once before its answer.
    assert_eq!((stored.len(), spans.len()), (2, 4), "{spans:#?}");
    for part in stored.into_iter().chain([asked]) {
        assert_eq!(part.parent.as_ref(), Some(&request.context));
    }
    // The upstream gets the trace context; the rest of the message is unchanged.
    let given = call(1).replace(
        "}}}",
        &format!(r#"}},"_meta":{{"traceparent":"{}"}}}}}}"#, asked.context),
    );
    assert_eq!(last_sent(&scene), given);
}

#[tokio::test]
async fn trace_metadata_precedes_headers_and_invalid_values_are_ignored() {
    let (scene, tracer) = tracing_scene().await;
    let with_meta = |parent: &str| {
        let meta = format!(r#"}},"_meta":{{"traceparent":"{parent}","x":1.0}}}}}}"#);
        call(1).replace("}}}", &meta)
    };
    for (meta, expected) in [(OTHER, OTHER), ("00-x", PARENT)] {
        let before = tracer.ended_spans().len();
        let message = with_header(&with_meta(meta), PARENT);
        scene.session.receive(message).await.unwrap();
        let spans = tracer.ended_spans().split_off(before);
        let parent = &span_with_name(&spans, "request tools/call echo").parent;
        assert_eq!(parent.as_ref().unwrap().traceparent(), expected);
        let asked = span_with_name(&spans, "upstream u tools/call echo")
            .context
            .traceparent();
        assert_eq!(last_sent(&scene), with_meta(&asked));
    }
}

#[tokio::test]
async fn unrecorded_requests_have_spans_too() {
    let (scene, tracer) = tracing_scene().await;
    let before = tracer.ended_spans().len();
    let unsampled = PARENT.replace("-01", "-00");
    let message = with_header(&call(1), &unsampled);
    scene.session.receive(message).await.unwrap();
    assert_eq!(tracer.ended_spans().len(), before);
    let sent = last_sent(&scene);
    let trace = &PARENT[..36];
    assert!(
        sent.contains(&format!(r#""traceparent":"{trace}"#)),
        "{sent}"
    );
    assert!(
        sent.contains(r#"-00"}"#) && !sent.contains("b7ad6b7169203331"),
        "{sent}"
    );
}

#[tokio::test]
async fn failures_are_traced_by_kind() {
    let (scene, tracer) = tracing_scene().await;
    let failures = async |text: &str| {
        let before = tracer.ended_spans().len();
        scene.send(text).await;
        let spans = tracer.ended_spans().split_off(before);
        let failure = |begin: &str| {
            let span = spans.iter().find(|span| span.name.starts_with(begin));
            span.and_then(|span| span.failure.clone())
        };
        (failure("upstream"), failure("request"))
    };
    let both = |kind: &str| (Some(kind.to_owned()), Some(kind.to_owned()));
    scene.upstream.reply_once_to(
        "tools/call",
        r#""error":{"code":-32602,"message":"s3cr3t"}"#,
    );
    assert_eq!(failures(&call(1)).await, both("-32602"));
    scene
        .upstream
        .reply_once_to("tools/call", r#""result":{"isError":true}"#);
    assert_eq!(failures(&call(2)).await, both("tool_error"));
    let broken = || UpstreamError::Garbled { reason: "test" };
    scene.upstream.refuse_message(broken());
    let garbled = RpcErrorCode::UpstreamGarbled.code().to_string();
    assert_eq!(
        failures(&call(3)).await,
        (Some("unanswered".into()), Some(garbled))
    );
    let all = format!("{:?}", tracer.ended_spans());
    assert!(!all.contains("s3cr3t") && !all.contains("tester"), "{all}");
}

#[tokio::test]
async fn cancelled_requests_end_their_spans() {
    let (scene, tracer) = tracing_scene().await;
    let before = tracer.ended_spans().len();
    scene
        .send(r#"{"jsonrpc":"2.0","id":5,"method":"x/unanswered"}"#)
        .await;
    scene
        .send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}"#)
        .await;
    let spans = tracer.ended_spans().split_off(before);
    // An unknown method could contain anything, so spans do not name it.
    for name in ["request _OTHER", "upstream u _OTHER"] {
        assert_eq!(
            span_with_name(&spans, name).failure.as_deref(),
            Some("cancelled")
        );
    }
    assert_eq!(scene.client.finished_requests(), [id(5)]);
}

#[tokio::test]
async fn a_duplicate_id_ends_only_the_second_span() {
    let (scene, tracer) = tracing_scene().await;
    let unanswered = r#"{"jsonrpc":"2.0","id":5,"method":"ping"}"#;
    let parent = |n: u8| PARENT.replace("b7ad6b7169203331", &format!("{n:016}"));
    for n in [1, 2] {
        let message = with_header(unanswered, &parent(n));
        scene.session.receive(message).await.unwrap();
    }
    let of_parent = |n: u8| {
        let all = tracer.ended_spans();
        let is_it = |span: &&RecordedSpan| {
            span.name == "request ping"
                && span
                    .parent
                    .as_ref()
                    .is_some_and(|p| p.traceparent() == parent(n))
        };
        all.iter().find(is_it).cloned()
    };
    assert!(of_parent(2).unwrap().failure.is_some());
    assert_eq!(of_parent(1), None);
    scene
        .upstream
        .send_to_client(r#"{"jsonrpc":"2.0","id":5,"result":{}}"#, None)
        .await;
    assert_eq!(of_parent(1).unwrap().failure, None);
}

#[tokio::test]
async fn every_span_ends_with_the_session() {
    let (scene, tracer) = tracing_scene().await;
    for n in 0..3 {
        scene
            .send(&format!(r#"{{"jsonrpc":"2.0","id":{n},"method":"ping"}}"#))
            .await;
    }
    scene.session.close().await;
    drop(scene);
    assert_eq!(tracer.ended_spans().len() as u64, tracer.n_begun());
}

#[tokio::test]
async fn the_parts_of_a_batch_are_spans_and_its_bytes_stay() {
    let tracer = RecordingTracer::default();
    let scene = Setup {
        tracer: Some(Arc::new(tracer.clone())),
        ..Setup::default()
    }
    .scene();
    scene.upstream.reply_to(
        "initialize",
        r#""result":{"protocolVersion":"2025-03-26","capabilities":{}}"#,
    );
    scene.send(&HELLO.replace("2025-06-18", "2025-03-26")).await;
    let before = tracer.ended_spans().len();
    let batch = r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}, {"jsonrpc":"2.0","id":2,"method":"tools/list"}]"#;
    scene.send(batch).await;
    assert_eq!(last_sent(&scene), batch);
    let answers = r#"[{"jsonrpc":"2.0","id":2,"error":{"code":-1,"message":""}},{"jsonrpc":"2.0","id":1,"result":{}}]"#;
    scene.upstream.send_to_client(answers, None).await;
    let spans = tracer.ended_spans().split_off(before);
    assert_eq!(span_with_name(&spans, "request ping").failure, None);
    for name in ["request tools/list", "upstream u tools/list"] {
        assert_eq!(span_with_name(&spans, name).failure.as_deref(), Some("-1"));
    }
}

#[tokio::test]
async fn replayed_handshakes_are_not_traced() {
    let tracer = RecordingTracer::default();
    let scene = Setup {
        tracer: Some(Arc::new(tracer.clone())),
        ..Setup::default()
    }
    .scene();
    let hello = with_header(HELLO, PARENT);
    scene.session.receive(hello).await.unwrap();
    scene
        .send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
        .await;
    let reason = "test".into();
    scene
        .upstream
        .lose_connection(UpstreamError::Lost { reason })
        .await;
    let (n_sent, n_ended) = (
        scene.upstream.sent_messages().len(),
        tracer.ended_spans().len(),
    );
    scene.send(&call(1)).await;
    scene
        .upstream
        .send_to_client(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, None)
        .await;
    let sent = scene.upstream.sent_messages().split_off(n_sent);
    let places = scene.upstream.traces().split_off(n_sent);
    let spans = tracer.ended_spans().split_off(n_ended);
    let asked = span_with_name(&spans, "upstream u tools/call echo")
        .context
        .traceparent();
    assert!(sent[0].1.contains(r#""initialize""#) && !sent[0].1.contains("traceparent"));
    assert!(sent[1].1.contains("notifications/initialized"));
    assert_eq!(places, [None, None, Some(asked)]);
}

#[tokio::test]
async fn messages_stay_unchanged_without_a_tracer() {
    let scene = Setup::default().scene();
    scene.send(HELLO).await;
    for text in [
        call(1),
        call(2).replace(
            "}}}",
            &format!(r#"}},"_meta":{{"traceparent":"{OTHER}"}}}}}}"#),
        ),
    ] {
        scene
            .session
            .receive(with_header(&text, PARENT))
            .await
            .unwrap();
        assert_eq!(last_sent(&scene), text);
    }
}
