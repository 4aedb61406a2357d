//! Recorded data over HTTP: sessions, tools, predictions, feedback, events.

use http_body_util::Full;
use riglm_domain::catalog::tool::{ToolListing, ToolPage, ToolRef};
use riglm_domain::id::{InvocationId, RunId, SearchId, SessionId, UpstreamName, WorkSessionId};
use riglm_domain::mcp::protocol::{Revision, Transport};
use riglm_domain::privacy::canonical::KeyedHasher;
use riglm_domain::retrieval::search::{ScoredTool, Search, SearchQuality};
use riglm_domain::selection::shown::{ListShown, SelectionDetails, SelectionMode, ToolSet};
use riglm_domain::usage::feedback::Comment;
use riglm_domain::usage::invocation::{CallTokens, Invocation, InvocationEnd, Outcome, ToolSource};
use riglm_domain::usage::record::Record;
use riglm_domain::usage::session::{ClientInfo, Session};
use riglm_domain::usage::work_session::{IdleGap, WorkSession, WorkSessionKey};
use riglm_ports::analytics::{
    DiscoveryRepository as _, RecordSink as _, WorkSessionRepository as _,
};
use serde_json::{Value, json};

use super::problems::{OPERATOR, problems};
use super::scene::{NOW, Server, server};
use super::*;

fn tool(name: &str) -> ToolRef {
    ToolRef {
        upstream: UpstreamName::parse("files").unwrap(),
        tool: name.into(),
    }
}

pub(super) fn at(second: i64) -> jiff::Timestamp {
    NOW + jiff::SignedDuration::from_secs(second)
}

pub(super) fn session(n: u8) -> Session {
    Session {
        id: SessionId::new(at(n.into()), [n; 10]),
        run: RunId::new(NOW, [1; 10]),
        principal: Principal::from_name("alice"),
        client: KeyedHasher::new(&[0; 32]).hash_text("editor"),
        client_info: ClientInfo::new("editor", "1.0"),
        protocol: Revision::new(Revision::V2025_11_25),
        transport: Transport::StreamableHttp,
        started_at: at(n.into()),
        profile: None,
        metadata: std::collections::BTreeMap::new(),
    }
}

fn work() -> WorkSessionId {
    WorkSessionId::new(NOW, [9; 10])
}

pub(super) fn call(session: &Session, n: u8, name: &str, source: ToolSource) -> [Record; 2] {
    let id = InvocationId::new(at(i64::from(n)), [n; 10]);
    let opened = Invocation {
        id,
        session: session.id,
        principal: session.principal.clone(),
        upstream: tool(name).upstream,
        tool: name.into(),
        arguments_hash: KeyedHasher::new(&[0; 32]).hash_text("{}"),
        arguments: None,
        started_at: at(i64::from(n)),
        sequence: n.into(),
        source,
        request_bytes: 10,
        continues: None,
        work_session: Some(work()),
        list_epoch: Some(1),
        context: None,
    };
    let end = InvocationEnd {
        id,
        outcome: Outcome::Ok,
        duration_us: 1_500,
        wait_us: 2_000_000,
        response_bytes: 20,
        result: None,
    };
    [Record::CallOpened(opened), Record::CallClosed(end)]
}

/// A server with one session that saw a list with `read`, searched for `write`, and called both.
async fn busy() -> (Server, Session) {
    let server = server().await;
    let session = session(1);
    let list = ListShown {
        session: session.id,
        principal: session.principal.clone(),
        shown_at: at(2),
        epoch: 1,
        policy: "epoch".into(),
        tools: ToolSet::new(vec![tool("read")]),
        n_available: 3,
        selection: None,
    };
    let search = Search {
        id: SearchId::new(at(4), [4; 10]),
        session: session.id,
        principal: session.principal.clone(),
        searched_at: at(4),
        duration_us: 300,
        query_hash: KeyedHasher::new(&[0; 32]).hash_text("write"),
        query: None,
        quality: SearchQuality::High,
        results: Vec::new(),
    };
    let mut records = vec![
        Record::SessionOpened(session.clone()),
        Record::ListShown(list),
        Record::Searched(search),
    ];
    records.extend(call(&session, 3, "read", ToolSource::Shown));
    records.extend(call(&session, 5, "a/b c", ToolSource::Found));
    records.extend(call(&session, 6, "a/b c", ToolSource::Hidden));
    // A name that no upstream lists is not a tool.
    records.extend(call(&session, 7, "made_up", ToolSource::Unlisted));
    let page = r#"{"tools":[{"name":"read"},{"name":"a/b c"}]}"#;
    let split = ToolPage::split(page).unwrap();
    records.push(Record::ToolsSeen {
        listing: ToolListing::new(&tool("read").upstream, &split, page),
        seen_at: at(2),
    });
    server.store.apply(&records).await.unwrap();
    (server, session)
}

#[tokio::test]
async fn sessions_come_in_pages_the_newest_first() {
    let server = server().await;
    for n in [1, 3, 2] {
        let opened = Record::SessionOpened(session(n));
        server.store.apply(&[opened]).await.unwrap();
    }
    let closed = Record::SessionClosed {
        session: session(3).id,
        ended_at: at(9),
    };
    server.store.apply(&[closed]).await.unwrap();
    let ids = |page: &Value| -> Vec<String> {
        let sessions = page["sessions"].as_array().unwrap().iter();
        sessions
            .map(|one| one["id"].as_str().unwrap().to_owned())
            .collect()
    };
    let id = |n| session(n).id.to_string();
    let (status, first) = server.get("/sessions?limit=2").await;
    assert_eq!((status, ids(&first)), (200, vec![id(3), id(2)]));
    assert_eq!(first["sessions"][0]["state"], "past");
    let cursor = first["next_cursor"].as_str().unwrap();
    let (_, second) = server
        .get(&format!("/sessions?limit=2&cursor={cursor}"))
        .await;
    assert_eq!(ids(&second), [id(1)]);
    assert_eq!(second["next_cursor"], Value::Null);
    let (_, active) = server.get("/sessions?state=active").await;
    assert_eq!(ids(&active), [id(2), id(1)]);
}

#[tokio::test]
async fn session_timelines_are_ordered_and_include_misses() {
    let (server, session) = busy().await;
    let (status, body) = server.get(&format!("/sessions/{}", session.id)).await;
    assert_eq!(status, 200, "{body}");
    let kinds: Vec<&str> = (body["timeline"].as_array().unwrap().iter())
        .map(|entry| entry["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["list", "call", "search", "call", "call", "call"]);
    assert_eq!(body["misses"], 1);
    assert_eq!(body["timeline"][3]["is_miss"], true);
    assert_eq!(body["timeline"][4]["is_miss"], false);
    assert_eq!(body["timeline"][3]["tool"], "a/b c");
    assert_eq!(body["timeline"][3]["duration_us"], 1_500);
    assert_eq!(body["timeline"][3]["wait_us"], 2_000_000);
    assert_eq!(body["session"]["client"], "editor");
    let work = work().to_string();
    assert_eq!(body["session"]["work_sessions"], json!([work]));
}

#[tokio::test]
async fn a_past_session_tells_what_its_newest_list_left_out() {
    let (server, session) = busy().await;
    let path = format!("/sessions/{}", session.id);
    let (_, body) = server.get(&path).await;
    // The list of an older version has no pool.
    assert_eq!(body["hidden_tools"], json!([]));
    let set = |names: &[&str]| ToolSet::new(names.iter().map(|name| tool(name)).collect());
    let list = |second, shown: &[&str]| {
        Record::ListShown(ListShown {
            session: session.id,
            principal: session.principal.clone(),
            shown_at: at(second),
            epoch: 2,
            policy: "epoch".into(),
            tools: set(shown),
            n_available: 3,
            selection: Some(SelectionDetails {
                mode: SelectionMode::Prediction,
                is_fallback: false,
                reason: None,
                size_choice: None,
                expected_coverage: None,
                pool: set(&["a/b c", "other", "read"]),
                shown_tokens: 1,
                available_tokens: 3,
            }),
        })
    };
    let closed = Record::SessionClosed {
        session: session.id,
        ended_at: at(12),
    };
    let records = [list(9, &["other"]), list(10, &["read"]), closed];
    server.store.apply(&records).await.unwrap();
    let (_, body) = server.get(&path).await;
    assert_eq!(body["session"]["state"], "past");
    let hidden = body["hidden_tools"].as_array().unwrap().iter();
    let hidden: Vec<&str> = hidden.map(|it| it["tool"].as_str().unwrap()).collect();
    assert_eq!(hidden, ["a/b c", "other"]);

    // A work session that begins afterwards has the list that its connection had then.
    let later = WorkSession {
        id: WorkSessionId::new(at(11), [8; 10]),
        key: WorkSessionKey(session.client),
        principal: session.principal.clone(),
        client: session.client,
        started_at: at(11),
        last_active_at: at(11),
    };
    let gap = IdleGap::default();
    let begun = server.store.resolve_work_session(&later, gap).await;
    assert_eq!(begun.unwrap().id, later.id);
    let [mut opened, _] = call(&session, 12, "read", ToolSource::Shown);
    if let Record::CallOpened(call) = &mut opened {
        call.work_session = Some(later.id);
    }
    server.store.apply(&[opened]).await.unwrap();
    let (_, body) = server.get(&format!("/sessions/{}", later.id)).await;
    let types = body["timeline"].as_array().unwrap().iter();
    let types: Vec<&str> = types.map(|it| it["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["list", "call"], "{body}");
    assert_eq!(body["timeline"][0]["tools"][0]["tool"], "read");
    let hidden = body["hidden_tools"].as_array().unwrap().iter();
    let hidden: Vec<&str> = hidden.map(|it| it["tool"].as_str().unwrap()).collect();
    assert_eq!(hidden, ["a/b c", "other"]);
    // What the connection of its newest call says.
    let described = &body["work_session"];
    assert_eq!(described["state"], "past", "{body}");
    assert_eq!(described["session"], session.id.to_string());
    assert_eq!(described["client"], "editor");
}

#[tokio::test]
async fn work_sessions_are_active_while_their_connection_works_on_them() {
    let (server, session) = busy().await;
    let work = WorkSession {
        id: work(),
        key: WorkSessionKey(session.client),
        principal: session.principal.clone(),
        client: session.client,
        started_at: at(0),
        last_active_at: at(0),
    };
    let resolved = server
        .store
        .resolve_work_session(&work, IdleGap::default())
        .await;
    resolved.unwrap();
    let idle = WorkSession {
        id: WorkSessionId::new(at(1), [7; 10]),
        key: WorkSessionKey(KeyedHasher::new(&[1; 32]).hash_text("idle")),
        ..work.clone()
    };
    let resolved = server
        .store
        .resolve_work_session(&idle, IdleGap::default())
        .await;
    assert_eq!(resolved.unwrap().id, idle.id);
    let (_, body) = server.get(&format!("/sessions/{}", idle.id)).await;
    assert_eq!(body["work_session"]["state"], Value::Null, "{body}");
    let path = format!("/sessions/{}", work.id);
    let (_, body) = server.get(&path).await;
    assert_eq!(body["work_session"]["state"], "active", "{body}");
    // The next call of the connection belongs to another one.
    let [mut opened, _] = call(&session, 20, "read", ToolSource::Shown);
    if let Record::CallOpened(call) = &mut opened {
        call.work_session = Some(WorkSessionId::new(at(20), [9; 10]));
    }
    server.store.apply(&[opened]).await.unwrap();
    let (_, body) = server.get(&path).await;
    assert_eq!(body["work_session"]["state"], "past", "{body}");
    let [mut opened, _] = call(&session, 21, "read", ToolSource::Shown);
    if let Record::CallOpened(call) = &mut opened {
        call.work_session = Some(work.id);
    }
    server.store.apply(&[opened]).await.unwrap();
    let (_, body) = server.get(&path).await;
    assert_eq!(body["work_session"]["state"], "active", "{body}");
    let closed = Record::SessionClosed {
        session: session.id,
        ended_at: at(22),
    };
    server.store.apply(&[closed]).await.unwrap();
    let (_, body) = server.get(&path).await;
    assert_eq!(body["work_session"]["state"], "past", "{body}");
}

#[tokio::test]
async fn a_found_tool_names_the_answer_that_it_was_in() {
    let (server, session) = busy().await;
    let path = format!("/sessions/{}", session.id);
    let (_, body) = server.get(&path).await;
    let named_by = |body: &Value, at: usize| body["timeline"][at]["named_by"].clone();
    // The search of the session returned no tool: another answer named it.
    assert_eq!(body["timeline"][3]["source"], "found");
    assert_eq!(named_by(&body, 3), "other_answer");
    assert_eq!(
        [named_by(&body, 1), named_by(&body, 4)],
        [Value::Null, Value::Null]
    );
    let search = Search {
        id: SearchId::new(at(8), [8; 10]),
        session: session.id,
        principal: session.principal.clone(),
        searched_at: at(8),
        duration_us: 300,
        query_hash: KeyedHasher::new(&[0; 32]).hash_text("other"),
        query: None,
        quality: SearchQuality::High,
        results: vec![ScoredTool {
            tool: tool("other"),
            score: 1.0,
        }],
    };
    let mut records = vec![Record::Searched(search)];
    records.extend(call(&session, 9, "other", ToolSource::Found));
    server.store.apply(&records).await.unwrap();
    let (_, body) = server.get(&path).await;
    assert_eq!(named_by(&body, 3), "other_answer");
    assert_eq!(named_by(&body, 7), "search");
}

#[tokio::test]
async fn a_failed_call_has_the_stored_text_of_its_error() {
    let (server, session) = busy().await;
    let text = "\u{202e}not found ".repeat(100);
    let stored = json!({"isError": true, "content": [
        {"type": "image", "data": "AA=="},
        {"type": "text", "text": text},
    ]});
    let fails = [
        (8, Outcome::Error, Some(stored.to_string())),
        (9, Outcome::Error, None),
        (10, Outcome::Error, Some("\"[9 bytes left out]\"".into())),
        (11, Outcome::Ok, Some(stored.to_string())),
    ];
    for (n, outcome, result) in fails {
        let [opened, closed] = call(&session, n, "read", ToolSource::Shown);
        let Record::CallClosed(end) = closed else {
            panic!("{closed:?}")
        };
        let closed = Record::CallClosed(InvocationEnd {
            outcome,
            result,
            ..end
        });
        server.store.apply(&[opened, closed]).await.unwrap();
    }
    let (_, body) = server.get(&format!("/sessions/{}", session.id)).await;
    let timeline = body["timeline"].as_array().unwrap();
    let errors: Vec<&Value> = timeline[6..].iter().map(|entry| &entry["error"]).collect();
    let beginning: String = text.chars().take(300).collect();
    assert_eq!(
        errors,
        [&json!(beginning), &Value::Null, &Value::Null, &Value::Null]
    );
}

#[tokio::test]
async fn listed_sessions_have_their_lists_and_the_version_of_the_client() {
    let (server, _) = busy().await;
    let opened = Record::SessionOpened(self::session(2));
    server.store.apply(&[opened]).await.unwrap();
    let (status, body) = server.get("/sessions").await;
    assert_eq!(status, 200, "{body}");
    let [without_list, listed] = &body["sessions"].as_array().unwrap()[..] else {
        panic!("{body}")
    };
    assert_eq!(without_list["lists"], Value::Null);
    assert_eq!(listed["client_version"], "1.0");
    let lists = &listed["lists"];
    for (member, expected) in [
        ("shown_tools", 1),
        ("available_tools", 3),
        ("searches", 1),
        ("misses", 1),
    ] {
        assert_eq!(lists[member], expected, "{member}: {lists}");
    }
    assert!(lists["tokens_saved"].is_i64(), "{lists}");
}

#[tokio::test]
async fn unknown_objects_and_invalid_parameters_are_refused_with_the_reason() {
    let (server, session) = busy().await;
    let of_session = format!("/sessions/{}", session.id);
    let paths = [
        "/sessions/019b7ca9-8c88-7909-8909-090909090909",
        "/sessions/%F0%9F%A6%80",
        "/sessions/%FF",
        "/sessions/a%2Fb",
        &format!("{of_session}?limit=0"),
        &format!("{of_session}?limit=x"),
        "/sessions?limit=501",
        "/sessions?limit=-1",
        "/sessions?state=gone",
        "/sessions?cursor=abc",
        "/sessions?unknown=1",
        "/audit?cursor=abc",
        "/tools?cursor=abc",
        "/tools?days=0",
        "/tools/none/stats",
        "/tools/made_up/stats",
        "/tools/%FF/stats",
        "/predictions/019b7ca9-8c88-7909-8909-090909090909",
        "/predictions/019b7ca9-8c88-7909-8909-090909090909?limit=9999",
        "/nothing",
    ];
    let requests = paths.map(|path| (("GET", path), &[OPERATOR][..], ""));
    insta::assert_json_snapshot!(problems(&server, &requests).await);
}

#[tokio::test]
async fn tools_are_found_by_any_name_with_how_they_were_used() {
    let (server, _) = busy().await;
    let (status, body) = server.get("/tools?days=3650").await;
    assert_eq!(status, 200);
    let calls: Vec<(&str, u64)> = (body["tools"].as_array().unwrap().iter())
        .map(|one| {
            (
                one["tool"].as_str().unwrap(),
                one["calls"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(calls, [("a/b c", 2), ("read", 1)]);
    let (_, first) = server.get("/tools?days=3650&limit=1").await;
    let cursor = first["next_cursor"].as_str().unwrap();
    let cursor = cursor.replace('"', "%22").replace(' ', "%20");
    let (_, second) = server
        .get(&format!("/tools?days=3650&cursor={cursor}"))
        .await;
    assert_eq!(second["tools"][0]["tool"], "read");
    for name in ["a%2Fb%20c", "files__a%2Fb%20c"] {
        let path = format!("/tools/{name}/stats?days=3650");
        let (status, used) = server.get(&path).await;
        assert_eq!(status, 200, "{used}");
        assert_eq!(used["outcomes"]["ok"], 2);
        assert_eq!(used["sessions"], 1);
        assert!(used["latency_us"]["p50"].as_u64().unwrap() >= 1_400);
        assert_eq!(used["used_with"][0]["tool"], "read");
    }
    let (_, read) = server.get("/tools/read/stats?days=3650").await;
    assert_eq!(read["followed_by"], json!([]));
    let (status, _) = server.get("/tools/read/stats?upstream=other").await;
    assert_eq!(status, 404);
}

#[tokio::test]
async fn listed_tools_have_the_figures_of_their_calls() {
    let (server, session) = busy().await;
    let measured = |n: u8, tokens: u64| {
        Record::CallMeasured(CallTokens {
            id: InvocationId::new(at(n.into()), [n; 10]),
            request: Some(1),
            response: Some(tokens),
        })
    };
    let mut records = vec![measured(5, 10), measured(6, 21)];
    let [opened, closed] = call(&session, 8, "a/b c", ToolSource::Shown);
    let Record::CallClosed(end) = closed else {
        panic!("{closed:?}")
    };
    let failed = Record::CallClosed(InvocationEnd {
        outcome: Outcome::Timeout,
        ..end
    });
    let [in_flight, _] = call(&session, 9, "a/b c", ToolSource::Shown);
    records.extend([opened, failed, in_flight]);
    let description = "\u{e9}\u{202e}<b>".repeat(100);
    let page = json!({"tools": [{"name": "say", "description": description}]}).to_string();
    let split = ToolPage::split(&page).unwrap();
    records.push(Record::ToolsSeen {
        listing: ToolListing::new(&tool("say").upstream, &split, &page),
        seen_at: at(2),
    });
    server.store.apply(&records).await.unwrap();

    let (status, body) = server.get("/tools?days=3650").await;
    assert_eq!(status, 200, "{body}");
    let [spaced, read, say] = &body["tools"].as_array().unwrap()[..] else {
        panic!("{body}")
    };
    assert_eq!(spaced["tool"], "a/b c");
    assert_eq!(spaced["calls"], 4);
    assert_eq!(spaced["errors"], 1);
    assert_eq!(spaced["open"], 1);
    assert!(spaced["latency_us"]["p95"].as_u64().unwrap() >= 1_400);
    // The definition is `{"name":"a/b c"}`, and words count as tokens.
    assert_eq!(spaced["definition_tokens"], 2);
    assert_eq!(spaced["result_tokens"], 16);
    assert_eq!(spaced["last_call"], json!(at(9)));
    assert_eq!(spaced["description"], Value::Null);
    assert_eq!(read["errors"], 0);
    assert_eq!(read["result_tokens"], Value::Null);
    assert_eq!(read["last_call"], json!(at(3)));
    assert_eq!(say["calls"], 0);
    assert_eq!(
        say["latency_us"],
        json!({"p50": null, "p95": null, "p99": null})
    );
    assert_eq!(say["last_call"], Value::Null);
    let beginning: String = description.chars().take(300).collect();
    assert_eq!(say["description"], beginning);
}

#[tokio::test]
async fn feedback_is_accepted_only_for_offered_tools() {
    let (server, session) = busy().await;
    let said = |tool: &str| {
        json!({
            "session": session.id.to_string(),
            "tool": tool,
            "verdict": "helpful",
            "rating": 5,
            "comment": "quick, with token=abc",
        })
    };
    let (status, body) = server.post("/feedback", &said("read")).await;
    assert_eq!(status, 201, "{body}");
    let stored = server.store.feedback(None, None, 9).await.unwrap();
    assert_eq!(stored.len(), 1);
    assert_eq!(stored[0].tool, tool("read"));
    assert_eq!(stored[0].principal, Principal::from_name("alice"));
    let comment = stored[0].comment.as_ref().map(Comment::as_str);
    assert_eq!(comment, Some("quick, with token=[redacted]"));
    let (status, _) = server.post("/feedback", &said("never_offered")).await;
    assert_eq!(status, 422);
    let mut other = said("read");
    other["session"] = "019b7ca9-8c88-7909-8909-090909090909".into();
    assert_eq!(server.post("/feedback", &other).await.0, 404);
    for (key, value) in [
        ("rating", json!(6)),
        ("rating", json!("5")),
        ("verdict", json!("best")),
        ("comment", json!("x".repeat(1_001))),
        ("comment", json!(5)),
        ("more", json!(1)),
    ] {
        let mut wrong = said("read");
        wrong[key] = value;
        assert_eq!(server.post("/feedback", &wrong).await.0, 422, "{wrong}");
    }
    let list = json!([session.id.to_string(), "read", null, "helpful", 5]);
    assert_eq!(server.post("/feedback", &list).await.0, 422);
    assert_eq!(server.store.feedback(None, None, 9).await.unwrap().len(), 1);
}

#[tokio::test]
async fn events_are_streamed_until_the_server_ends() {
    let server = server().await;
    let client = Client::builder(TokioExecutor::new()).build_http();
    let request = http::Request::get(format!("http://{}/events", server.address))
        .header("authorization", format!("Bearer {}", KEYS[0].1))
        .body(Full::new(Bytes::new()))
        .unwrap();
    let response = client.request(request).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut body = response.into_body();
    let decision =
        json!({"tool": "x", "action": "pin", "scope": {"kind": "global"}, "allow_unknown": true});
    assert_eq!(server.post("/override", &decision).await.0, 201);
    let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
    let text = String::from_utf8(frame.to_vec()).unwrap();
    assert!(text.contains("event: override_changed"), "{text}");
    server.stop.cancel();
    while let Some(frame) = body.frame().await {
        frame.unwrap();
    }
}

#[tokio::test]
async fn metrics_are_served_as_plain_text() {
    let server = server().await;
    let client = Client::builder(TokioExecutor::new()).build_http();
    let request = http::Request::get(format!("http://{}/metrics", server.address))
        .header("authorization", format!("Bearer {}", KEYS[1].1))
        .body(Full::new(Bytes::new()))
        .unwrap();
    let response = client.request(request).await.unwrap();
    assert_eq!(
        response.headers()["content-type"],
        "text/plain; version=0.0.4"
    );
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(&body[..], b"riglm_sessions 0\n");
}
