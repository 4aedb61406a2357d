//! opencode.

use riglm_adapters_clients::transcripts::{
    CallingAgent, ClientSummary, SkippedLines, TranscriptClient, UnreadableReason,
};

use crate::scene::{Reading, Scene};

fn reading() -> Reading {
    let scene = Scene::of("opencode", ".local/share/opencode");
    scene.with_servers(&["my-cloud"]).read()
}

#[test]
fn calls_have_their_server_outcome_and_duration() {
    assert_eq!(
        reading().calls(),
        [
            "ses_1 my-cloud list_apps success 750",
            "ses_1 - bash cancelled 2000",
            "ses_1 my-cloud deploy error 10000",
            "ses_1 sentry find_error unknown -",
            "ses_2 my-cloud list_apps success 1",
        ]
    );
}

#[test]
fn every_document_is_counted() {
    let reading = reading();
    assert_eq!(
        reading.counts(TranscriptClient::Opencode),
        ClientSummary {
            // Three sessions, and a database that is none.
            n_files: 4,
            n_sessions: 2,
            n_mcp_calls: 4,
            n_builtin_calls: 1,
            n_messages: 1,
            // Two sessions, four messages and eleven parts.
            n_lines: 2 + 4 + 11,
            skipped: SkippedLines {
                too_long: 0,
                malformed: 2,
                unknown: 1,
                incomplete: 0,
            },
            first_at: Some("2026-08-01T12:00:01Z".parse().unwrap()),
            last_at: Some("2026-08-01T12:01:02Z".parse().unwrap()),
            ..ClientSummary::default()
        }
    );
}

#[test]
fn databases_and_broken_sessions_are_named() {
    let reading = reading();
    let [database, broken] = &*reading.summary.unreadable else {
        panic!("{:?}", reading.summary.unreadable);
    };
    assert!(database.path.ends_with("opencode.db"));
    assert_eq!(database.reason.to_string(), "file is not a database");
    assert!(broken.path.ends_with("ses_3.json"));
    assert!(matches!(broken.reason, UnreadableReason::NotTranscript));
}

#[test]
fn texts_of_the_user_are_told_from_those_of_the_client() {
    assert_eq!(reading().messages()["ses_1"], ["Deploy the app"]);
}

#[test]
fn calls_name_their_project_agent_and_time() {
    let reading = reading();
    let call = reading.call("deploy");
    assert_eq!(call.project.as_deref(), Some("/home/dev/app"));
    assert_eq!(call.agent, CallingAgent::Main);
    assert_eq!(call.started_at.to_string(), "2026-08-01T12:00:07Z");
}

#[test]
fn sizes_include_messages_and_parts() {
    let scene = Scene::of("opencode", ".local/share/opencode");
    let listing = scene.find();
    let sessions = listing
        .files
        .iter()
        .filter(|file| file.path.extension() == Some("json".as_ref()));
    let sizes: Vec<u64> = sessions.map(|file| file.size).collect();
    let size = |path: &str| {
        let path = scene.path(".local/share/opencode/storage").join(path);
        path.metadata().unwrap().len()
    };
    let of_child = ["session/proj-1/ses_2.json", "message/ses_2/msg_4.json"];
    let of_parts = ["part/msg_4/prt_10.json", "part/msg_4/prt_11.json"];
    let expected: u64 = of_child.iter().chain(&of_parts).map(|it| size(it)).sum();
    assert_eq!(sizes[1], expected);
}
