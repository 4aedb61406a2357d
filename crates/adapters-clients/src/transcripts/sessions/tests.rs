use std::time::Duration;

use super::*;
use crate::transcripts::event::{CallingAgent, UserMessage};

fn call(session: &str, server: Option<&str>, tool: &str, at: i64) -> TranscriptEvent {
    TranscriptEvent::Call(RecordedCall {
        client: TranscriptClient::ClaudeCode,
        session: session.into(),
        project: Some("/home/dev/shop".into()),
        call_id: at.to_string(),
        identity: 0,
        server: server.map(str::to_owned),
        tool: tool.to_owned(),
        started_at: Timestamp::from_second(at).unwrap(),
        duration: Some(Duration::from_secs(1)),
        outcome: if tool == "fail" {
            CallOutcome::Error
        } else {
            CallOutcome::Unknown
        },
        agent: CallingAgent::Main,
        arguments: None,
    })
}

fn message(session: &str, text: &str, at: i64) -> TranscriptEvent {
    TranscriptEvent::UserMessage(UserMessage {
        client: TranscriptClient::ClaudeCode,
        session: session.into(),
        project: None,
        sent_at: Timestamp::from_second(at).unwrap(),
        text: text.to_owned(),
    })
}

#[test]
fn sessions_are_lines_of_a_replay() {
    let mut collector = SessionCollector::default();
    for event in [
        message("b", "First", 100),
        call("b", Some("github"), "search", 101),
        // A subagent, whose file is read later.
        call("b", Some("docs"), "fail", 150),
        message("b", "Second", 110),
        call("b", Some("github"), "search", 120),
        call("a", Some("github"), "search", 50),
        call("b", None, "Bash", 99),
        message("c", "No calls", 1),
        // A spelling of another client.
        call("d", Some("git-hub"), "search", 200),
        call("d", Some("git_hub"), "search", 201),
    ] {
        collector.add(&event);
    }
    let tools: Vec<String> = (collector.called_tools().into_iter())
        .map(|tool| format!("{} of {}", tool.name, tool.server))
        .collect();
    assert_eq!(
        tools,
        [
            "docs__fail of docs",
            "git-hub__search of git-hub",
            "github__search of github"
        ]
    );
    let lines: Vec<String> = (collector.sessions().iter())
        .map(|session| serde_json::to_string(session).unwrap())
        .collect();
    assert_eq!(
        lines,
        [
            r#"{"session_id":"claude-code:a","client":"claude-code","task_id":"/home/dev/shop","started_at":"1970-01-01T00:00:50Z","turns":[],"calls":[{"tool":"github__search","ok":true,"t":"1970-01-01T00:00:50Z"}]}"#,
            r#"{"session_id":"claude-code:b","client":"claude-code","task_id":"/home/dev/shop","started_at":"1970-01-01T00:01:40Z","turns":["First","Second"],"calls":[{"tool":"github__search","ok":true,"turn":0,"t":"1970-01-01T00:01:41Z"},{"tool":"github__search","ok":true,"turn":1,"t":"1970-01-01T00:02:00Z"},{"tool":"docs__fail","ok":false,"turn":1,"t":"1970-01-01T00:02:30Z"}]}"#,
            r#"{"session_id":"claude-code:d","client":"claude-code","task_id":"/home/dev/shop","started_at":"1970-01-01T00:03:20Z","turns":[],"calls":[{"tool":"git-hub__search","ok":true,"t":"1970-01-01T00:03:20Z"},{"tool":"git-hub__search","ok":true,"t":"1970-01-01T00:03:21Z"}]}"#,
        ]
    );
}

#[test]
fn calls_before_the_first_message_belong_to_its_turn() {
    let mut collector = SessionCollector::default();
    collector.add(&call("a", Some("x"), "y", 1));
    collector.add(&message("a", "Late", 2));
    let sessions = collector.sessions();
    assert_eq!(sessions[0].calls[0].turn, Some(0));
    assert_eq!(sessions[0].started_at.as_second(), 1);
}
