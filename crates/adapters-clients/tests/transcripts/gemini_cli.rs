//! Gemini CLI.

use riglm_adapters_clients::transcripts::{
    CallingAgent, ClientSummary, SkippedLines, TranscriptClient, UnreadableReason,
};

use crate::scene::{Reading, Scene};

fn reading() -> Reading {
    let scene = Scene::of("gemini-cli", ".gemini");
    scene.with_servers(&["my_docs", "my.docs", "docs"]).read()
}

#[test]
fn calls_have_their_server_and_outcome() {
    assert_eq!(
        reading().calls(),
        [
            // The subagent, in a file of its own that is sorted first.
            "sub-1 my_docs find_page error -",
            "g-0 docs find_page success -",
            "g-0 docs list error -",
            "g-0 - read_file success -",
            "g-0 my_docs find_page cancelled -",
            "g-1 my_docs find_page success -",
            "g-1 my.docs a_very_long_name_that_was_cut success -",
            "g-1 - run_shell_command unknown -",
            "g-1 - read_file success -",
        ]
    );
}

#[test]
fn every_line_is_counted() {
    let reading = reading();
    assert_eq!(
        reading.counts(TranscriptClient::GeminiCli),
        ClientSummary {
            n_files: 5,
            n_sessions: 3,
            n_mcp_calls: 6,
            n_builtin_calls: 3,
            n_messages: 2,
            // The message and the call of the document that are in the lines too, and a message of
            // an update.
            n_repeated: 3,
            n_lines: 6 + 5 + 12 + 3,
            skipped: SkippedLines {
                too_long: 0,
                // A message and a line, and a line with a call without an identifier.
                malformed: 3,
                unknown: 2,
                incomplete: 0,
            },
            first_at: Some("2026-08-01T09:00:01Z".parse().unwrap()),
            last_at: Some("2026-08-01T12:00:13Z".parse().unwrap()),
            ..ClientSummary::default()
        }
    );
    let [other] = &*reading.summary.unreadable else {
        panic!("{:?}", reading.summary.unreadable);
    };
    assert!(other.path.ends_with("chats/notes.json"));
    assert!(matches!(other.reason, UnreadableReason::NotTranscript));
}

#[test]
fn texts_of_the_user_are_told_from_commands() {
    let messages = reading().messages();
    assert_eq!(messages["g-0"], ["Where is the étude?"]);
    assert_eq!(messages["g-1"], ["Compare\nboth pages"]);
    assert_eq!(messages.len(), 2);
}

#[test]
fn calls_name_their_project_agent_and_time() {
    let reading = reading();
    let call = reading.call("list");
    assert_eq!(call.project.as_deref(), Some("shop-1a2b"));
    assert_eq!(call.started_at.to_string(), "2026-08-01T09:00:05Z");
    let call = reading.call("run_shell_command");
    assert_eq!(call.project.as_deref(), Some("/home/dev/shop"));
    assert_eq!(call.agent, CallingAgent::Main);
    assert_eq!(reading.call("find_page").agent, CallingAgent::Subagent);
}

#[test]
fn documents_that_are_too_large_are_named() {
    let scene = Scene::empty();
    let path = ".gemini/tmp/p/chats/session-a.json";
    scene.write(path, "");
    let file = std::fs::File::options().write(true).open(scene.path(path));
    file.unwrap().set_len((64 << 20) + 1).unwrap();
    let reading = scene.read();
    let [large] = &*reading.summary.unreadable else {
        panic!("{:?}", reading.summary.unreadable);
    };
    assert_eq!(
        large.reason.to_string(),
        "it is one document of 67108865 bytes, more than 67108864"
    );
}
