//! Files that no client writes, and folders that cannot be searched.

use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};

use proptest::prelude::*;
use riglm_adapters_clients::transcripts::{TranscriptClient, UnreadableReason};

use crate::scene::Scene;

const CLAUDE: &str = ".claude/projects/p/s.jsonl";
const CODEX: &str = ".codex/sessions/2026/08/01/rollout-s.jsonl";
const GEMINI: &str = ".gemini/tmp/p/chats/session-s.jsonl";

/// Parts of lines, so that generated files are often nearly right.
fn part() -> impl Strategy<Value = Vec<u8>> {
    let words: Vec<&str> = vec![
        "\n",
        "{",
        "}",
        "[",
        "]",
        "null",
        "\"",
        "\\",
        "\u{feff}",
        r#"{"type":"user","uuid":"u","timestamp":"2026-08-01T10:00:00Z","message":{"content":"hi"}}"#,
        r#"{"type":"assistant","message":{"content":[{"type":"tool_use","id":"t","name":"mcp__a__b","input":{}}]}}"#,
        r#"{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t","content":[7]}]}}"#,
        r#"{"type":"response_item","payload":{"type":"function_call","name":"x","call_id":"t","arguments":"{"}}"#,
        r#"{"type":"event_msg","payload":{"type":"mcp_tool_call_end","call_id":"t","invocation":{"server":"a","tool":"b"},"duration":{"secs":18446744073709551615,"nanos":4294967295},"result":{"Ok":{}}}}"#,
        r#"{"type":"event_msg","timestamp":"-009999-01-02T01:59:59Z","payload":{"type":"turn_aborted"}}"#,
        r#"{"id":"m","type":"gemini","toolCalls":[{"id":"t","name":"mcp_a_b","status":"success"},{}]}"#,
        r#"{"$set":{"messages":[{"id":"m","type":"user","content":[{"text":"hi"}]},7]}}"#,
        r#"{"sessionId":"s","projectHash":"p"}"#,
    ];
    prop_oneof![
        3 => prop::sample::select(words).prop_map(|word| word.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..8),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_bytes_are_read_and_every_line_is_counted(
        parts in prop::collection::vec(part(), 0..40),
    ) {
        let bytes = parts.concat();
        let scene = Scene::empty();
        for path in [CLAUDE, CODEX, GEMINI] {
            scene.write(path, &bytes);
        }
        let reading = scene.read();
        let without_mark = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
        let lines = without_mark.split(|byte| *byte == b'\n');
        let n_lines = lines.filter(|line| !line.trim_ascii().is_empty()).count();
        for client in [
            TranscriptClient::ClaudeCode,
            TranscriptClient::Codex,
            TranscriptClient::GeminiCli,
        ] {
            let counts = reading.counts(client);
            prop_assert_eq!(counts.n_lines, n_lines as u64);
            prop_assert!(counts.skipped.total() <= counts.n_lines);
            prop_assert!(counts.skipped.incomplete <= 1);
        }
        prop_assert!(reading.summary.unreadable.is_empty());
    }

    #[test]
    fn lines_that_are_no_objects_are_skipped(line in "[^{\n]{1,40}") {
        let scene = Scene::empty();
        scene.write(CLAUDE, format!("{line}\n"));
        let counts = scene.read().counts(TranscriptClient::ClaudeCode);
        prop_assert_eq!(counts.skipped.total(), counts.n_lines);
    }

    #[test]
    fn garbled_compressed_files_are_refused_or_read(
        place in 0_usize..400,
        byte: u8,
        length in 0_usize..400,
    ) {
        let folder = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/transcripts/fixtures/codex/sessions/2026/08/01",
        );
        let name = "rollout-2026-08-01T13-00-00-c-3.jsonl.zst";
        let mut bytes = std::fs::read(std::path::Path::new(folder).join(name)).unwrap();
        bytes.truncate(length);
        if let Some(place) = bytes.get_mut(place) {
            *place = byte;
        }
        let scene = Scene::empty();
        scene.write(&format!(".codex/sessions/{name}"), &bytes);
        let reading = scene.read();
        prop_assert!(reading.counts(TranscriptClient::Codex).n_lines <= 20);
    }

    #[test]
    fn any_document_is_read_or_refused(text in "\\PC{0,60}") {
        let scene = Scene::empty();
        scene.write(".gemini/tmp/p/chats/session-s.json", &text);
        scene.write(".local/share/opencode/storage/session/p/s.json", &text);
        scene.write(".local/share/opencode/storage/message/s/m.json", &text);
        scene.write(".local/share/opencode/storage/part/m/p.json", &text);
        prop_assert!(scene.read().events.is_empty());
    }
}

#[test]
fn a_home_without_transcripts_has_none() {
    let reading = Scene::empty().read();
    assert!(reading.events.is_empty() && reading.summary.unreadable.is_empty());
    assert!(reading.summary.clients.is_empty());
}

#[test]
fn loops_of_links_and_special_files_are_harmless() {
    let scene = Scene::of("claude-code", ".claude");
    let projects = scene.path(".claude/projects");
    symlink(&projects, projects.join("loop")).unwrap();
    symlink(projects.join("gone"), projects.join("dangling.jsonl")).unwrap();
    let original = projects.join("-home-dev-shop/s-2.jsonl");
    symlink(original, projects.join("same.jsonl")).unwrap();
    let socket = projects.join("socket.jsonl");
    let _listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
    let listing = scene.find();
    assert_eq!(listing.files.len(), 4);
    assert!(listing.unreadable.is_empty(), "{:?}", listing.unreadable);
}

#[test]
fn unreadable_folders_and_files_are_named() {
    let scene = Scene::empty();
    scene.write(CLAUDE, "");
    scene.write(".codex/sessions/closed/rollout-a.jsonl", "");
    let close = |path: &str| {
        let mode = std::fs::Permissions::from_mode(0o000);
        std::fs::set_permissions(scene.path(path), mode).unwrap();
    };
    close(CLAUDE);
    close(".codex/sessions/closed");
    let reading = scene.read();
    let folder = scene.path(".codex/sessions/closed");
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
    let is_root = std::fs::File::open(scene.path(CLAUDE)).is_ok();
    if is_root {
        // The administrator may read everything.
        assert!(reading.summary.unreadable.is_empty());
        return;
    }
    let unreadable = &reading.summary.unreadable;
    assert_eq!(unreadable.len(), 2);
    assert_eq!(unreadable[0].path, folder);
    for file in unreadable {
        assert!(matches!(file.reason, UnreadableReason::Io(_)), "{file:?}");
    }
}

#[test]
fn files_that_vanish_after_the_search_are_named() {
    let scene = Scene::empty();
    scene.write(CLAUDE, "");
    let listing = scene.find();
    std::fs::remove_file(scene.path(CLAUDE)).unwrap();
    let summary = riglm_adapters_clients::transcripts::read_transcripts(
        &listing,
        &scene.options,
        &mut |_| {},
        &mut |_| {},
    );
    assert_eq!(summary.unreadable.len(), 1);
    let error = &summary.unreadable[0];
    let message = format!("failed to read {}", scene.path(CLAUDE).display());
    assert_eq!(error.to_string(), message);
    let cause = std::error::Error::source(error).unwrap().to_string();
    assert!(cause.starts_with("No such file"), "{cause}");
}

#[test]
fn marks_line_ends_and_broken_characters_are_no_obstacle() {
    let scene = Scene::empty();
    let user = |uuid: &str, text: &[u8]| {
        let start = format!(r#"{{"type":"user","uuid":"{uuid}","message":{{"content":""#);
        [start.as_bytes(), text, b"\"}}\r\n"].concat()
    };
    let lines = [user("1", b"one"), b"\r\n".to_vec(), user("2", b"t\xffo")];
    scene.write(CLAUDE, [b"\xef\xbb\xbf".to_vec(), lines.concat()].concat());
    let reading = scene.read();
    assert_eq!(reading.messages()["s"], ["one", "t\u{fffd}o"]);
    let counts = reading.counts(TranscriptClient::ClaudeCode);
    assert_eq!((counts.n_lines, counts.skipped.total()), (2, 0));
}

#[test]
fn files_that_grow_are_read_to_their_size_at_the_start() {
    let scene = Scene::empty();
    let line = |uuid: &str| {
        format!(r#"{{"type":"user","uuid":"{uuid}","message":{{"content":"hi {uuid}"}}}}"#)
    };
    scene.write(CLAUDE, line("1") + "\n");
    let listing = scene.find();
    // Between the search and the reading, and while events are handled.
    let half = &line("3")[..20];
    scene.write(CLAUDE, format!("{}\n{}\n{half}", line("1"), line("2")));
    let mut n_events = 0;
    let mut last = 0;
    let summary = riglm_adapters_clients::transcripts::read_transcripts(
        &listing,
        &scene.options,
        &mut |_| {
            n_events += 1;
            let later = line(&format!("later {n_events}"));
            let file = std::fs::File::options()
                .append(true)
                .open(scene.path(CLAUDE));
            writeln!(file.unwrap(), "{later}").unwrap();
        },
        &mut |progress| last = progress.n_bytes,
    );
    assert_eq!(n_events, 2);
    let counts = summary.total();
    assert_eq!((counts.n_lines, counts.skipped.incomplete), (3, 1));
    assert_eq!(last, listing.n_bytes());
}
