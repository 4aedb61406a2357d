//! Answers of a proxy for tests of the screens.

use serde_json::{Value, json};

use super::model::{EventStream, Model, Request};
use crate::commands::control_port::ControlAnswer;

/// The newest session.
pub(super) const SESSION: &str = "019b7ca9-8c88-7909-8909-090909090909";

/// Returns a model with all data of the lists.
pub(super) fn model() -> Model {
    let mut model = Model::new();
    for (request, body) in [
        (Request::Overview, overview()),
        (Request::Sessions, sessions()),
        (Request::Tools, tools()),
    ] {
        model.apply(&request, ControlAnswer::Said(vec![body]));
    }
    model.set_events(EventStream::Open);
    model
}

/// Gives the open session of a model its data.
pub(super) fn read_session(model: &mut Model) {
    let id = SESSION.parse().unwrap();
    for (request, body) in [
        (Request::Session(id), session()),
        (Request::Prediction(id), prediction()),
    ] {
        model.apply(&request, ControlAnswer::Said(vec![body]));
    }
}

pub(super) fn overview() -> Value {
    let mut open = sessions()["sessions"][0].clone();
    open["lists"] = json!({
        "shown_tools": 12, "available_tools": 85, "shown_tokens": 2_100,
        "available_tokens": 14_000, "tools_used": 4, "misses": 1, "searches": 2,
        "list_changes": 0, "tokens_saved": 11_900, "cost_avoided": 10.5, "policy": "epoch",
    });
    json!({
        "at": "2026-01-02T12:00:00Z", "started_at": "2026-01-02T03:00:00Z", "version": "0.1.0",
        "paused": false, "paused_until": null, "strategy": "prediction", "recording": true,
        "upstreams": [
            {"name": "files", "state": "available", "connections": 2, "waiting": 0, "left_out": 0,
             "tool_set": {"hash": "a", "tools": 12, "since": "2026-01-02T03:00:00Z", "changes": 0},
             "held": []},
            {"name": "日本", "state": "unavailable", "connections": 0, "waiting": 0, "left_out": 3,
             "reason": "failed to start: No such file or directory (os error 2): check the command",
             "tool_set": null, "held": [{"tool": "x", "kind": "new", "hash": "b"}]},
        ],
        "tools": 85, "since": "2026-01-01T12:00:00Z",
        "totals": {
            "sessions": 14, "calls": 1_340, "failed_calls": 3, "searches": 12, "tools_used": 40,
            "misses": 2, "first_uses_covered": 38, "shown_tools": 168, "available_tools": 1_190,
            "shown_tokens": 29_000, "available_tokens": 196_000, "tokens_saved": 1_234_567,
            "cost_avoided": 900.5,
        },
        "open_sessions": [open], "more_open_sessions": true,
    })
}

pub(super) fn sessions() -> Value {
    json!({"sessions": [
        {"id": SESSION, "state": "active", "client": "editor", "profile": "reading",
         "started_at": "2026-01-02T11:48:00Z", "ended_at": null, "calls": 42,
         "has_more_calls": false},
        {"id": "019b7ca9-8c88-7909-8909-0909090909aa", "state": "past", "client": "端末\u{1b}[31m",
         "profile": null, "started_at": "2026-01-01T11:00:00Z",
         "ended_at": "2026-01-01T12:30:00Z", "calls": 1_000, "has_more_calls": true},
    ], "next_cursor": null})
}

fn session() -> Value {
    json!({"misses": 1, "is_cut": true, "timeline": [
        {"type": "list", "at": "2026-01-02T11:48:01Z", "policy": "epoch", "epoch": 1,
         "mode": "prediction", "reason": null, "available_tools": 85, "shown_tokens": 2_100,
         "tools": [{"upstream": "files", "tool": "read_file"}]},
        {"type": "search", "at": "2026-01-02T11:50:00Z", "query": "open an issue",
         "quality": "high", "results": [{"upstream": "日本", "tool": "create_issue"}]},
        {"type": "call", "at": "2026-01-02T11:51:00Z", "upstream": "日本", "tool": "create_issue",
         "is_miss": true, "outcome": "error", "duration_us": 1_500_000},
        {"type": "call", "at": "2026-01-02T11:59:59Z", "upstream": "files", "tool": "read_file",
         "is_miss": false, "outcome": null, "duration_us": null},
        {"type": "of a later version", "at": "2026-01-02T11:59:59Z"},
    ]})
}

fn prediction() -> Value {
    let sentence = "42.00 % likely: it often follows the last calls of this session, and this \
                    client uses it in most of its sessions (markov +1.20)";
    json!({"policy": "epoch", "epoch": 1, "list_because": "chosen by the prediction.", "tools": [
        {"name": "files__read_file", "upstream": "files", "shown": true, "sentence": sentence},
        {"name": "x".repeat(200), "upstream": "日本", "shown": false, "sentence": "1.00 % likely"},
    ]})
}

pub(super) fn tools() -> Value {
    json!({"tools": [
        {"upstream": "files", "tool": "read_file", "calls": 1_200, "errors": 1,
         "latency_us": {"p50": 900, "p95": 1_500, "p99": 9_000}, "definition_tokens": 180,
         "result_tokens": 512, "last_call": "2026-01-02T11:59:59Z"},
        {"upstream": "日本", "tool": "create_issue", "calls": 140, "errors": 2,
         "latency_us": {"p50": 90_000, "p95": 1_500_000, "p99": null}, "definition_tokens": 1_024,
         "result_tokens": null, "last_call": "2026-01-02T11:51:00Z"},
        {"upstream": "files", "tool": "delete_file", "calls": 0, "errors": 0,
         "latency_us": {"p50": null, "p95": null, "p99": null}, "definition_tokens": null,
         "result_tokens": null, "last_call": null},
    ], "next_cursor": null})
}
