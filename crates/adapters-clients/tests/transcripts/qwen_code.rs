//! Qwen Code.

use riglm_adapters_clients::transcripts::{CallingAgent, SkippedLines, TranscriptClient};

use crate::scene::{Reading, Scene};

const SESSION: &str = r#"{"uuid":"u1","sessionId":"q-1","timestamp":"2026-11-01T10:00:00.000Z","type":"user","provenance":"real_user","cwd":"/home/dev/shop","message":{"role":"user","parts":[{"text":"Find the cart"}]}}
{"uuid":"u2","sessionId":"q-1","timestamp":"2026-11-01T10:00:01.000Z","type":"assistant","message":{"role":"model","parts":[{"text":"Well","thought":true},{"functionCall":{"id":"c1","name":"mcp__my_docs__find_page","args":{"q":"cart"}}}]}}
{"uuid":"u3","sessionId":"q-1","timestamp":"2026-11-01T10:00:02.000Z","type":"system","subtype":"ui_telemetry","systemPayload":{"uiEvent":{"event.name":"qwen-code.tool_call","call_id":"c1","function_name":"mcp__my_docs__find_page","duration_ms":740,"status":"success","execution_status":"success","mcp_server_name":"my.docs"}}}
{"uuid":"u4","sessionId":"q-1","timestamp":"2026-11-01T10:00:02.100Z","type":"tool_result","message":{"role":"user","parts":[{"functionResponse":{"id":"c1","name":"mcp__my_docs__find_page","response":{"output":"x"}}}]},"toolCallResult":{"callId":"c1","status":"success","executionStatus":"success"}}
{"uuid":"u4","sessionId":"q-1","timestamp":"2026-11-01T10:00:02.100Z","type":"tool_result","toolCallResult":{"callId":"c1","status":"success"}}
{"uuid":"u5","sessionId":"q-1","timestamp":"2026-11-01T10:00:03.000Z","type":"assistant","message":{"role":"model","parts":[{"functionCall":{"id":"c2","name":"tool_call","args":{"name":"mcp__shop__pay","arguments":{}}}},{"functionCall":{"id":"c3","name":"mcp__shop__not_there","args":{}}},{"functionCall":{"id":"c4","name":"read_file","args":{}}},{"functionCall":{"id":"c5","name":"mcp__shop__ship","args":{}}}]}}
{"uuid":"u6","sessionId":"q-1","timestamp":"2026-11-01T10:00:04.000Z","type":"tool_result","message":{"role":"user","parts":[]},"toolCallResult":{"callId":"c2","status":"error","errorType":"mcp_tool_error","executionStatus":"error"}}
{"uuid":"u7","sessionId":"q-1","timestamp":"2026-11-01T10:00:04.000Z","type":"tool_result","message":{"role":"user","parts":[]},"toolCallResult":{"callId":"c3","status":"error","errorType":"tool_not_registered","executionStatus":"not_started"}}
{"uuid":"u8","sessionId":"q-1","timestamp":"2026-11-01T10:00:05.000Z","type":"tool_result","message":{"role":"user","parts":[]},"toolCallResult":{"callId":"c5","status":"cancelled"}}
{"uuid":"u9","sessionId":"q-1","timestamp":"2026-11-01T10:00:06.000Z","type":"user","subtype":"notification","message":{"role":"user","parts":[{"text":"An agent is done"}]}}
{"uuid":"u10","type":"hologram"}
{"uuid":"u11","type":7}
{"uuid":"u12","type":"assis"#;

const SUBAGENT: &str = r#"{"uuid":"s1","sessionId":"q-1","timestamp":"2026-11-01T10:01:00.000Z","type":"user","isSidechain":true,"cwd":"/home/dev/shop","message":{"role":"user","parts":[{"text":"Look closer"}]}}
{"uuid":"s2","sessionId":"q-1","timestamp":"2026-11-01T10:01:01.000Z","type":"assistant","isSidechain":true,"message":{"role":"model","parts":[{"functionCall":{"id":"c1","name":"mcp__shop__list","args":{}}}]}}
{"uuid":"s3","sessionId":"q-1","timestamp":"2026-11-01T10:01:02.000Z","type":"tool_result","isSidechain":true,"message":{"role":"user","parts":[{"functionResponse":{"id":"c1","name":"mcp__shop__list","response":{"error":"no"}}}]},"toolCallResult":{"callId":"c1","durationMs":20}}
"#;

fn reading() -> Reading {
    let scene = Scene::empty().with_servers(&["my.docs", "shop"]);
    scene.write(".qwen/projects/-home-dev-shop/chats/q-1.jsonl", SESSION);
    scene.write(
        ".qwen/projects/-home-dev-shop/subagents/q-1/agent-a.jsonl",
        SUBAGENT,
    );
    scene.write(
        ".qwen/projects/-home-dev-shop/subagents/q-1/agent-a.meta.json",
        "{}",
    );
    scene.read()
}

#[test]
fn calls_have_their_server_outcome_and_duration() {
    let mut calls = reading().calls();
    // The files were written at the same time.
    calls.sort();
    assert_eq!(
        calls,
        [
            "q-1 - read_file unknown -",
            "q-1 my.docs find_page success 740",
            "q-1 shop list error 20",
            "q-1 shop pay error 1000",
            "q-1 shop ship cancelled 2000",
        ]
    );
}

#[test]
fn refused_calls_and_lines_of_all_kinds_are_counted() {
    let reading = reading();
    let counts = reading.counts(TranscriptClient::QwenCode);
    assert_eq!(
        (counts.n_files, counts.n_sessions, counts.n_lines),
        (2, 1, 16)
    );
    assert_eq!((counts.n_mcp_calls, counts.n_refused_calls), (4, 1));
    assert_eq!((counts.n_repeated, counts.n_messages), (1, 1));
    assert_eq!(
        counts.skipped,
        SkippedLines {
            too_long: 0,
            malformed: 1,
            unknown: 1,
            incomplete: 1,
        }
    );
    assert_eq!(reading.messages()["q-1"], ["Find the cart"]);
    assert_eq!(reading.call("list").agent, CallingAgent::Subagent);
    let project = reading.call("pay").project.as_deref();
    assert_eq!(project, Some("/home/dev/shop"));
}
