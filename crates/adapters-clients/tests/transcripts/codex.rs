//! Codex.

use riglm_adapters_clients::transcripts::{
    CallingAgent, ClientSummary, SkippedLines, TranscriptClient, UnreadableReason,
};

use crate::scene::{Reading, Scene};

fn reading() -> Reading {
    let scene = Scene::of("codex", ".codex");
    scene.with_servers(&["pager-duty", "docs"]).read()
}

#[test]
fn calls_have_their_server_outcome_and_duration() {
    assert_eq!(
        reading().calls(),
        [
            "c-0 docs list_pages success -",
            "c-1 pager-duty list-alerts success 1500",
            "c-1 - exec_command error 500",
            "c-1 pager-duty get-alert error 20",
            "c-1 docs find_page cancelled 0",
            "c-1 docs read_page success 2000",
            "c-1 - local_shell success 100",
            "c-1 - web_search success -",
            "c-1 docs find_page cancelled 1000",
            "c-1 docs find_page unknown -",
            "c-2 docs find_page error 1000",
            "c-3 docs list_pages success 7",
        ]
    );
}

#[test]
fn every_line_is_counted() {
    let reading = reading();
    assert_eq!(
        reading.counts(TranscriptClient::Codex),
        ClientSummary {
            n_files: 6,
            n_sessions: 4,
            n_mcp_calls: 9,
            n_builtin_calls: 3,
            n_messages: 2,
            // A call of the forked session, and a message and a call of the archived copy.
            n_repeated: 3,
            n_lines: 24 + 7 + 7 + 7 + 2,
            skipped: SkippedLines {
                too_long: 0,
                malformed: 1,
                unknown: 1,
                incomplete: 0,
            },
            first_at: Some("2025-08-01T08:00:00Z".parse().unwrap()),
            last_at: Some("2026-08-01T13:00:00.993Z".parse().unwrap()),
            ..ClientSummary::default()
        }
    );
    let [garbled] = &*reading.summary.unreadable else {
        panic!("{:?}", reading.summary.unreadable);
    };
    assert!(
        garbled
            .path
            .ends_with("rollout-2025-07-01T08-00-00-c-9.jsonl.zst")
    );
    assert!(matches!(garbled.reason, UnreadableReason::Io(_)));
}

#[test]
fn texts_of_the_user_are_told_from_those_of_the_client() {
    let messages = reading().messages();
    assert_eq!(messages["c-0"], ["List the pages"]);
    assert_eq!(messages["c-1"], ["Which alerts are open?"]);
    assert!(!messages.contains_key("c-2"));
}

#[test]
fn calls_name_their_project_agent_and_time() {
    let reading = reading();
    let call = reading.call("read_page");
    assert_eq!(call.project.as_deref(), Some("/home/dev/api"));
    assert_eq!(call.agent, CallingAgent::Main);
    assert_eq!(call.started_at.to_string(), "2026-08-01T12:00:08Z");
    let call = reading.call("list_pages");
    assert_eq!(call.started_at.to_string(), "2025-08-01T08:00:00Z");
}

#[test]
fn a_compressed_file_beside_its_original_is_left_out() {
    let scene = Scene::of("codex", ".codex");
    let n_files = scene.find().files.len();
    let folder = scene.path(".codex/sessions/2026/08/01");
    let name = "rollout-2026-08-01T13-00-00-c-3.jsonl";
    std::fs::write(folder.join(name), "").unwrap();
    let listing = scene.find();
    assert_eq!(listing.files.len(), n_files);
    assert!(
        !listing
            .files
            .iter()
            .any(|it| it.path.ends_with(format!("{name}.zst")))
    );
}
