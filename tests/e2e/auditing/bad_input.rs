//! Transcripts that are too large for the memory, and files that belong to somebody else.

use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use riglm_tests::binary;
use riglm_tests::process::command;
use riglm_tests::riglm::CommandOutput;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{home, write};

/// The user that owns nothing.
const NOBODY: u32 = 65_534;
/// The place of the transcript that cannot be read.
const CLOSED: &str = ".claude/projects/-home-dev-other/closed.jsonl";

/// The sessions of the large transcript, and the calls of each.
const N_SESSIONS: usize = 30;
const N_CALLS: usize = 20;
/// The lines of text after each call, and their size.
const N_TEXTS: usize = 140;
const TEXT_BYTES: usize = 20_000;
/// The size of the line that is too long.
const LONG_BYTES: usize = 300_000_000;
/// The limit of the memory of the program.
const MAX_KIB: u64 = 300 * 1024;

/// Writes a transcript of about 2 GB. It has one line that is too long.
fn write_large_transcript(path: &Path) -> std::io::Result<u64> {
    std::fs::create_dir_all(path.parent().unwrap())?;
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    let text = "a word of an answer ".repeat(TEXT_BYTES / 20);
    let mut n_lines = 0_u64;
    let mut line = |kind: &str, session: usize, content: Value| {
        n_lines += 1;
        json!({"type": kind, "uuid": format!("u{n_lines}"), "sessionId": format!("s{session}"),
               "timestamp": format!("2026-10-{:02}T10:00:00.000Z", session % 28 + 1),
               "cwd": "/home/dev/shop", "message": {"role": kind, "content": [content]}})
    };
    for session in 0..N_SESSIONS {
        for call in 0..N_CALLS {
            let id = format!("t{session}-{call}");
            let start = json!({"type": "tool_use", "id": id, "input": {},
                               "name": format!("mcp__docs__tool-{:03}", call % 5)});
            writeln!(file, "{}", line("assistant", session, start))?;
            let end = json!({"type": "tool_result", "tool_use_id": id, "content": "ok"});
            writeln!(file, "{}", line("user", session, end))?;
            for _ in 0..N_TEXTS {
                let answer = json!({"type": "text", "text": text});
                writeln!(file, "{}", line("assistant", session, answer))?;
            }
        }
        if session == N_SESSIONS / 2 {
            write!(file, "{{\"type\":\"user\",\"text\":\"")?;
            let part = vec![b'x'; 100_000];
            for _ in 0..LONG_BYTES / part.len() {
                file.write_all(&part)?;
            }
            writeln!(file, "\"}}")?;
        }
    }
    file.flush()?;
    Ok(path.metadata()?.len())
}

/// Returns the largest memory that a process had so far, in KiB.
fn peak_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|peak| peak.split_whitespace().next());
    kib.and_then(|kib| kib.parse().ok()).unwrap_or_default()
}

#[tokio::test]
#[ignore = "needs 2 GB of disk"]
async fn a_transcript_of_two_gigabytes_is_read_in_little_memory() {
    let home = TempDir::new().unwrap();
    let servers = json!({"mcpServers": {"docs": {"command": "/nowhere/docs"}}});
    write(home.path(), ".claude.json", &servers.to_string());
    let transcript = home.path().join(".claude/projects/-home-dev-shop/a.jsonl");
    let n_bytes = write_large_transcript(&transcript).unwrap();
    assert!(n_bytes > 1_900_000_000, "{n_bytes}");
    let printed = home.path().join("audit.json");
    let mut audit = command(binary::riglm(), &["audit", "--yes", "--no-start", "--json"]);
    audit
        .env("HOME", home.path())
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("XDG_DATA_HOME")
        .current_dir(home.path())
        .stdin(Stdio::null())
        .stdout(std::fs::File::create(&printed).unwrap())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let mut audit = audit.spawn().unwrap();
    let pid = audit.id().unwrap();
    let begun = Instant::now();
    let mut peak = 0;
    let status = loop {
        peak = peak.max(peak_kib(pid));
        if let Some(status) = audit.try_wait().unwrap() {
            break status;
        }
        assert!(begun.elapsed() < Duration::from_mins(30));
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert!(status.success(), "{status}");
    let audit: Value = serde_json::from_slice(&std::fs::read(&printed).unwrap()).unwrap();
    assert_eq!(audit["sessions"], N_SESSIONS);
    assert_eq!(audit["calls"], N_SESSIONS * N_CALLS);
    assert_eq!(audit["skipped_lines"], 1);
    let tools = audit["tools"].as_array().unwrap().iter();
    let calls: Vec<u64> = tools.map(|tool| tool["calls"].as_u64().unwrap()).collect();
    let of_each = u64::try_from(N_SESSIONS * N_CALLS / 5).unwrap();
    assert_eq!(calls, [of_each; 5]);
    assert!((1..MAX_KIB).contains(&peak), "{peak} KiB");
}

/// Gives all files in a folder to a user.
fn give_to(folder: &Path, user: u32) {
    chown(folder, Some(user), Some(user)).unwrap();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            give_to(&path, user);
        } else {
            chown(&path, Some(user), Some(user)).unwrap();
        }
    }
}

/// Runs a command of riglm as a user who is not the administrator. Returns the reason if that is
/// not possible here.
async fn run_as_user(home: &Path, arguments: &[&str]) -> std::io::Result<CommandOutput> {
    let mut command = command(binary::riglm(), arguments);
    command
        .env("HOME", home)
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("XDG_DATA_HOME")
        .env_remove("XDG_STATE_HOME")
        .env_remove("RIGLM_CONFIG")
        .current_dir(home);
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    Ok(CommandOutput::of(&command.output().await?))
}

#[tokio::test]
async fn files_of_another_user_are_named_and_the_others_are_read() {
    let home = home();
    let client = r#"{"mcpServers":{"hidden":{"command":"/nowhere/other"}}}"#;
    write(home.path(), ".cursor/mcp.json", client);
    write(home.path(), CLOSED, "{}\n");
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        give_to(home.path(), NOBODY);
    }
    let closed = [".cursor/mcp.json", CLOSED].map(|file| home.path().join(file));
    for file in &closed {
        // Without an administrator, nobody may read the file, as if it had another owner.
        let mode = if is_root { 0o600 } else { 0o000 };
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(mode)).unwrap();
        if is_root {
            chown(file, Some(0), Some(0)).unwrap();
        }
    }
    let audited = match run_as_user(home.path(), &["audit", "--yes", "--no-start", "--json"]).await
    {
        Ok(output) => output.success(),
        Err(error) => {
            eprintln!("skipped: the program cannot be run as another user: {error}");
            return;
        }
    };
    for file in &closed {
        let named = audited.stderr.lines().find(|line| {
            line.contains(&file.display().to_string()) && line.contains("Permission denied")
        });
        let named = named.unwrap_or_else(|| panic!("{}: {}", file.display(), audited.stderr));
        assert!(named.contains(" was left out: "), "{named}");
    }
    let audit = audited.json();
    assert_eq!(
        (&audit["calls"], &audit["sessions"]),
        (&json!(120), &json!(40))
    );
    let unreadable = audit["unreadable"].as_array().unwrap();
    assert_eq!(unreadable.len(), 1, "{unreadable:?}");
    assert!(unreadable[0].as_str().unwrap().contains("closed.jsonl"));

    let imported = run_as_user(home.path(), &["import", "--yes", "--json"]).await;
    let imported = imported.unwrap().success();
    let reason = format!("{} was left out: ", closed[0].display());
    assert!(imported.stderr.contains(&reason), "{}", imported.stderr);
    let json = imported.json();
    let names: Vec<&Value> = (json["upstreams"].as_array().unwrap().iter())
        .map(|upstream| &upstream["name"])
        .collect();
    assert!(names.contains(&&json!("docs")) && names.contains(&&json!("wiki")));
    assert!(!names.contains(&&json!("hidden")), "{names:?}");
}
