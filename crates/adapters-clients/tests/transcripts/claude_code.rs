//! Claude Code.

use riglm_adapters_clients::transcripts::{
    CallingAgent, ClientSummary, SkippedLines, TranscriptClient,
};

use crate::scene::{Reading, Scene};

fn reading() -> Reading {
    let scene = Scene::of("claude-code", ".claude");
    scene.with_servers(&["github", "my.server"]).read()
}

#[test]
fn calls_have_their_server_outcome_and_duration() {
    assert_eq!(
        reading().calls(),
        [
            // The subagent, in a file of its own that is sorted first.
            "s-1 my.server get_user_profile success 1000",
            "s-1 github search_issues success 2500",
            "s-1 - Bash error 4000",
            "s-1 my.server get_user_profile cancelled 10000",
            "s-1 github create_issue success 4000",
            "s-1 linear list_issues error 1000",
            "s-1 github search_code success 1000",
            "s-1 github get_file unknown -",
            "s-2 github search_issues success 250",
        ]
    );
}

#[test]
fn every_line_is_counted() {
    let reading = reading();
    assert_eq!(
        reading.counts(TranscriptClient::ClaudeCode),
        ClientSummary {
            n_files: 4,
            n_sessions: 2,
            n_mcp_calls: 8,
            n_builtin_calls: 1,
            n_messages: 3,
            // Three copied lines, and a copied call with a new identifier of its line.
            n_repeated: 4,
            n_lines: 24 + 7 + 3,
            skipped: SkippedLines {
                too_long: 0,
                malformed: 2,
                unknown: 1,
                incomplete: 1,
            },
            first_at: Some("2026-08-01T10:00:00Z".parse().unwrap()),
            last_at: Some("2026-08-01T10:30:01Z".parse().unwrap()),
            ..ClientSummary::default()
        }
    );
    assert!(reading.summary.unreadable.is_empty());
}

#[test]
fn texts_of_the_user_are_told_from_those_of_the_client() {
    let messages = reading().messages();
    assert_eq!(
        messages["s-1"],
        ["Fix the failing checkout test", "Open an issue then"]
    );
    assert_eq!(messages["s-2"], ["Now the docs"]);
}

#[test]
fn calls_name_their_project_agent_and_time() {
    let reading = reading();
    let call = reading.call("search_code");
    assert_eq!(call.project.as_deref(), Some("/home/dev/shop"));
    assert_eq!(call.agent, CallingAgent::Subagent);
    assert_eq!(call.started_at.to_string(), "2026-08-01T10:01:09Z");
    assert_eq!(call.call_id, "toolu_07");
    assert_eq!(call.arguments, None);
    assert_eq!(reading.call("Bash").agent, CallingAgent::Main);
    assert!(reading.call("Bash").is_builtin());
}

#[test]
fn arguments_are_kept_up_to_the_asked_size() {
    let mut scene = Scene::of("claude-code", ".claude");
    scene.options.max_argument_bytes = r#"{"q":"cart"}"#.len();
    let reading = scene.read();
    let arguments = |tool: &str| reading.call(tool).arguments.clone();
    assert_eq!(arguments("search_code").as_deref(), Some(r#"{"q":"cart"}"#));
    assert_eq!(arguments("create_issue"), None);
}

#[test]
fn older_calls_and_files_are_left_out() {
    let mut scene = Scene::of("claude-code", ".claude");
    scene.options.since = Some("2026-08-01T10:30:00Z".parse().unwrap());
    scene.options.max_message_chars = 3;
    // The files have earlier times than their contents.
    assert_eq!(
        scene
            .read()
            .counts(TranscriptClient::ClaudeCode)
            .n_old_files,
        4
    );
    let file = std::fs::File::options();
    for name in ["s-1.jsonl", "s-2.jsonl"] {
        let path = scene.path(".claude/projects/-home-dev-shop").join(name);
        let file = file.clone().append(true).open(path).unwrap();
        let changed: jiff::Timestamp = "2026-08-02T00:00:00Z".parse().unwrap();
        file.set_modified(changed.into()).unwrap();
    }
    let reading = scene.read();
    assert_eq!(reading.calls(), ["s-2 github search_issues success 250"]);
    assert_eq!(reading.messages()["s-2"], ["Now"]);
    let counts = reading.counts(TranscriptClient::ClaudeCode);
    assert_eq!(
        (counts.n_files, counts.n_old_files, counts.n_sessions),
        (2, 2, 1)
    );
}
