//! The program on a log that was written by hand; its counts and prices are checked by hand.
//!
//! Prices: a list of n tools costs 250 n once, each call 2,000 + 20 n, and each search 2,850 + 20 n.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

fn advisor(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_list-advisor"));
    command
        .args(arguments)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data"));
    command
}

fn run(arguments: &[&str]) -> Output {
    advisor(arguments).output().unwrap()
}

fn run_on(log: &str, arguments: &[&str]) -> Output {
    let mut child = advisor(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(log.as_bytes())
        .unwrap();
    child.wait_with_output().unwrap()
}

fn json_of(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn sorted(names: &Value) -> Vec<String> {
    let mut names: Vec<String> = serde_json::from_value(names.clone()).unwrap();
    names.sort();
    names
}

#[test]
fn each_session_gets_the_list_that_would_have_cost_least() {
    let output = run(&["--json", "--tools", "tools.json", "calls.jsonl"]);
    let advice = json_of(&output);
    assert_eq!(advice["tools"], 12);
    assert_eq!(advice["calls"], 10);
    let numbers = |session: &Value| {
        [
            "session",
            "calls",
            "size",
            "first_uses",
            "covered",
            "price",
            "price_of_all",
        ]
        .map(|key| session[key].clone())
    };
    let sessions = advice["sessions"].as_array().unwrap();
    // Nothing is known on Monday, and the order of an unknown catalog has `mail/send` as
    // the eighth tool: 8 tools cost less than searches.
    assert_eq!(
        numbers(&sessions[0]),
        [
            json!("monday"),
            json!(4),
            json!(8),
            json!(3),
            json!(3),
            json!(10_640.0),
            json!(11_960.0)
        ]
    );
    // Then the three tools of Monday are the most likely ones. 750 + 3 * 2,060.
    for (session, name) in sessions[1..].iter().zip(["tuesday", "wednesday"]) {
        assert_eq!(
            numbers(session),
            [
                json!(name),
                json!(3),
                json!(3),
                json!(3),
                json!(3),
                json!(6_930.0),
                json!(9_720.0)
            ]
        );
        assert_eq!(
            sorted(&session["list"]),
            ["mail/send", "web/fetch", "web/search"]
        );
        assert_eq!(session["unused"], json!([]));
        assert_eq!(session["missing"], json!([]));
    }
    assert_eq!(sessions.len(), 3);
    assert_eq!(sessions[0]["unused"].as_array().unwrap().len(), 5);
    assert_eq!(advice["price"], 24_500.0);
    assert_eq!(advice["price_of_all"], 31_400.0);
    // Lists of 8 have all three tools on Monday, too.
    assert_eq!(advice["fixed_size"], json!({"tools": 8, "price": 27_600.0}));
    assert_eq!(
        advice["never_used"],
        json!([
            "files/list",
            "files/read",
            "files/write",
            "git/commit",
            "git/diff",
            "git/log",
            "mail/delete",
            "mail/read",
            "web/archive"
        ])
    );
}

#[test]
fn bad_lines_are_counted_and_reported_with_their_numbers() {
    let output = run(&["--json", "calls.jsonl"]);
    let bad = &json_of(&output)["bad_entries"];
    assert_eq!(bad["count"], 2);
    assert_eq!(bad["first"][0]["place"], 5);
    assert_eq!(bad["first"][1]["place"], 9);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains("line 5: tool \"mail\" must be written as UPSTREAM/TOOL\n"),
        "{errors}"
    );
    assert!(errors.contains("line 9: not JSON"), "{errors}");
    assert!(
        errors.ends_with("bad entries, which were left out: 2\n"),
        "{errors}"
    );
}

#[test]
fn the_output_of_the_proxy_is_read() {
    // The newest call first, as the proxy prints them; the last round continues a call.
    let call = |time: &str, tool: &str, continues: &str| {
        format!(
            r#"{{"id":"i","session":"s","upstream":"web","tool":"{tool}","started_at":"{time}","duration_ms":1.5,"continues":{continues}}}"#
        )
    };
    let log = format!(
        "[{},{},{}]",
        call("2026-03-02T09:00:02Z", "fetch", "\"i\""),
        call("2026-03-02T09:00:01Z", "fetch", "null"),
        call("2026-03-02T09:00:00Z", "search", "null")
    );
    let advice = json_of(&run_on(&log, &["--json", "-"]));
    assert_eq!(
        (&advice["calls"], &advice["continued"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(advice["sessions"][0]["started_at"], "2026-03-02T09:00:00Z");
    assert_eq!(advice["sessions"][0]["client"], Value::Null);
    assert_eq!(
        advice["sessions"][0]["list"],
        json!(["web/search", "web/fetch"])
    );
}

#[test]
fn an_unusable_log_or_file_is_an_error_that_says_where() {
    for (log, arguments, expected) in [
        (
            "{}\n",
            ["-", "--json"].as_slice(),
            "list-advisor: - has no calls\n",
        ),
        (
            "",
            &["no-such-file.jsonl"],
            "failed to read no-such-file.jsonl: No such file",
        ),
        (
            "",
            &["--tools", "calls.jsonl"],
            "calls.jsonl: expected a JSON array of tools",
        ),
        (
            "",
            &["--tokens-per-tool", "-1"],
            "tokens_per_tool must be a finite number",
        ),
        (
            "",
            &["--tokens-per-tool=nan"],
            "tokens_per_tool must be a finite number",
        ),
    ] {
        let output = run_on(log, arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && output.stdout.is_empty(),
            "{arguments:?}"
        );
        assert!(errors.contains(expected), "{arguments:?}: {errors}");
    }
}

#[test]
fn the_text_says_the_same_in_words() {
    let output = run(&["--tools", "tools.json", "calls.jsonl"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for line in [
        "10 calls of 3 sessions, 12 tools",
        "session tuesday of editor, from 2026-03-03T09:00:00Z",
        "  list of 3 of 12 tools; first uses covered: 3 of 3",
        "  price: 6930 tokens; of all tools: 9720",
        "  listed and called: web/search, web/fetch, mail/send",
        "price of these lists: 24500 tokens; of 8 tools in every session: 27600; of all tools: 31400",
    ] {
        assert!(
            text.lines().any(|written| written == line),
            "{line}\n{text}"
        );
    }
}

#[test]
fn a_log_cannot_control_the_terminal() {
    let log =
        "{\"session\":\"a\\u001b[2J\",\"time\":\"2026-03-02T09:00:00Z\",\"tool\":\"a/\\u001bx\"}\n";
    let output = run_on(log, &[]);
    assert!(output.status.success());
    assert!(!output.stdout.contains(&0x1b));
}
