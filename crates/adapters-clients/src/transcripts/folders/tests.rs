use std::fs;

use super::*;

fn paths(variables: &[(&str, &str)]) -> Vec<String> {
    let variable = |name: &str| {
        let known = variables.iter().find(|(known, _)| *known == name);
        known.map(|(_, value)| OsString::from(value))
    };
    let folders = TranscriptFolders::new(Path::new("/home/dev"), &variable);
    let of = |client: &TranscriptClient| {
        let shown = |path: &Path| format!("{client} {}", path.display());
        folders.of(*client).map(shown).collect::<Vec<_>>()
    };
    TranscriptClient::ALL.iter().flat_map(of).collect()
}

#[test]
fn folders_lie_in_the_home_directory() {
    let expected = [
        "claude-code /home/dev/.claude/projects",
        "claude-code /home/dev/.config/claude/projects",
        "codex /home/dev/.codex/sessions",
        "codex /home/dev/.codex/archived_sessions",
        "gemini-cli /home/dev/.gemini/tmp",
        "opencode /home/dev/.local/share/opencode",
    ];
    assert_eq!(paths(&[]), expected);
    // An empty variable counts as none, as the clients have it.
    assert_eq!(
        paths(&[("CODEX_HOME", ""), ("XDG_DATA_HOME", "")]),
        expected
    );
}

#[test]
fn variables_move_the_folders() {
    assert_eq!(
        paths(&[
            ("CLAUDE_CONFIG_DIR", "/c"),
            ("CODEX_HOME", "/x"),
            ("GEMINI_CLI_HOME", "/g"),
            ("XDG_CONFIG_HOME", "/conf"),
            ("XDG_DATA_HOME", "/data"),
        ]),
        [
            "claude-code /c/projects",
            "codex /x/sessions",
            "codex /x/archived_sessions",
            "gemini-cli /g/.gemini/tmp",
            "opencode /data/opencode",
        ]
    );
    let with_xdg = paths(&[("XDG_CONFIG_HOME", "/conf")]);
    assert_eq!(with_xdg[1], "claude-code /conf/claude/projects");
}

#[test]
fn files_are_found_by_their_names_up_to_a_depth() {
    let home = tempfile::TempDir::new().unwrap();
    let deep = format!(".claude/projects/{}deep.jsonl", "d/".repeat(MAX_DEPTH));
    let deeper = format!(
        ".claude/projects/{}deeper.jsonl",
        "d/".repeat(MAX_DEPTH + 1)
    );
    for path in [
        &*deep,
        &*deeper,
        ".claude/projects/p/s.jsonl",
        ".claude/projects/p/s.json",
        ".claude/history.jsonl",
        ".codex/sessions/2026/01/02/rollout-a.jsonl",
        ".codex/sessions/2026/01/02/other.jsonl",
        ".codex/history.jsonl",
        ".gemini/tmp/p/chats/session-a.json",
        ".gemini/tmp/p/chats/parent/child.jsonl",
        ".gemini/tmp/p/logs.json",
        ".local/share/opencode/storage/session/p/ses_1.json",
        ".local/share/opencode/storage/session_diff/ses_1.json",
        ".local/share/opencode/opencode-dev.db",
        ".local/share/opencode/opencode-dev.db-wal",
    ] {
        let path = home.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "12").unwrap();
    }
    let mut listing = TranscriptFolders::new(home.path(), &|_| None).find();
    let mut names: Vec<String> = (listing.files.iter())
        .map(|file| {
            file.path
                .file_name()
                .unwrap()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            "child.jsonl",
            "deep.jsonl",
            "opencode-dev.db",
            "rollout-a.jsonl",
            "s.jsonl",
            "ses_1.json",
            "session-a.json",
        ]
    );
    // Seven files of two bytes, and the log of the database.
    assert_eq!(listing.n_bytes(), 14 + 2);
    assert!(listing.unreadable.is_empty());
    assert_eq!(listing.of(TranscriptClient::ClaudeCode).count(), 2);
    listing.retain_clients(&[TranscriptClient::Codex]);
    assert_eq!((listing.files.len(), listing.unreadable.len()), (1, 0));
}
