use riglm_evaluation::replay::ReplayTool;

use super::*;

fn open_file(text: &str, leniency: Leniency) -> (tempfile::NamedTempFile, SessionFile) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let tool = |name: &str| ReplayTool {
        name: name.into(),
        ..ReplayTool::default()
    };
    let catalog = ReplayCatalog {
        tools: vec![tool("a"), tool("b")],
    };
    let sessions = SessionFile::open(file.path(), Path::new("the.catalog"), &catalog, leniency);
    (file, sessions.unwrap())
}

/// Returns the error for a file with an invalid last line.
fn error(text: &str) -> String {
    let (_file, mut sessions) = open_file(text, Leniency::Refuse);
    loop {
        match sessions.read() {
            Ok(session) => assert!(session.is_some(), "there is no error"),
            Err(error) => return format!("{error:#}"),
        }
    }
}

#[test]
fn sessions_are_read_completely_and_unknown_keys_ignored() {
    let text = r#"{"session_id":"s","client":"c","task_id":"t","started_at":"2025-08-21T12:31:56.5","query":"q","turns":["x","y"],"order":3,"calls":[{"tool":"b","ok":false,"turn":1,"t":"2026-07-31T10:41:23+02:00","z":1},{"tool":"a"}]}"#;
    let (_file, mut sessions) = open_file(text, Leniency::Refuse);
    let read = sessions.read().unwrap().unwrap();
    let expected = ReplaySession {
        principal: None,
        id: "s".into(),
        client: Some("c".into()),
        task: Some("t".into()),
        started_at: Some("2025-08-21T12:31:56.5Z".parse().unwrap()),
        query: Some("q".into()),
        turns: vec!["x".into(), "y".into()],
        calls: vec![
            ReplayCall {
                tool: 1,
                ok: false,
                turn: Some(1),
                at: Some("2026-07-31T08:41:23Z".parse().unwrap()),
            },
            ReplayCall {
                tool: 0,
                ok: true,
                turn: None,
                at: None,
            },
        ],
    };
    assert_eq!(read, expected);
    assert_eq!(sessions.read().unwrap(), None);
}

#[test]
fn empty_values_count_as_unknown() {
    let text = r#"
{"query":"","client":"","task_id":"","session_id":null,"turns":null,"calls":[{"tool":"a","turn":7}]}"#;
    let (_file, mut sessions) = open_file(text, Leniency::Refuse);
    let read = sessions.read().unwrap().unwrap();
    assert_eq!((read.query, read.client, read.task), (None, None, None));
    assert_eq!(read.id, "line 2");
}

#[test]
fn invalid_sessions_are_refused_with_their_line() {
    let good = "{\"calls\":[{\"tool\":\"a\"}]}\n\n";
    let unknown = error(&format!(
        "{good}{{\"calls\":[{{\"tool\":\"a\"}},{{\"tool\":\"c\"}}]}}"
    ));
    assert!(
        unknown.contains("line 3: call 2: tool \"c\" is not in the.catalog"),
        "{unknown}"
    );
    let malformed = error(&format!("{good}{{\"calls\":"));
    assert!(malformed.contains("line 3 is not a session"), "{malformed}");
    let turn = error(r#"{"turns":["x"],"calls":[{"tool":"a","turn":1}]}"#);
    assert!(turn.contains("line 1: call 1: unknown turn 1"), "{turn}");
    let moment = error(r#"{"calls":[{"tool":"a","t":"soon"}]}"#);
    assert!(moment.contains("invalid time \"soon\""), "{moment}");
    let begun = error(r#"{"started_at":"soon","calls":[{"tool":"a"}]}"#);
    assert!(
        begun.contains("line 1 is not a session: invalid time \"soon\""),
        "{begun}"
    );
}

#[tokio::test]
async fn invalid_sessions_are_skipped_and_counted_in_each_pass() {
    let text = concat!(
        "no session\n",
        "{\"calls\":[]}\n",
        "{\"calls\":[{\"tool\":\"a\"},{\"tool\":\"c\"}]}\n",
        "{\"calls\":[{\"tool\":\"c\"}]}\n",
    );
    let (_file, mut sessions) = open_file(text, Leniency::Skip);
    for _ in 0..2 {
        let mut n_read = 0;
        while sessions.next().await.unwrap().is_some() {
            n_read += 1;
        }
        assert_eq!(n_read, 1);
        let expected = SkippedCounts {
            lines: 1,
            calls: 2,
            empty_sessions: 2,
        };
        assert_eq!(sessions.skipped_counts(), expected);
        sessions.restart().await.unwrap();
    }
}
