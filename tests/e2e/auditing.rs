//! `riglm audit`: the servers of a client with real programs, and transcripts by hand.

mod bad_input;

use std::fmt::Write as _;
use std::path::Path;

use riglm_tests::binary;
use riglm_tests::process::{Process, command};
use riglm_tests::riglm::run_at_home;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Makes a home directory with the servers and the sessions of Claude Code: 40 sessions of three
/// calls, of which each third `tool-002` fails, and three lines that are no call.
fn home() -> TempDir {
    let home = TempDir::new().unwrap();
    let odd = binary::odd_server().display().to_string();
    let server = |name: &str, n: u32| json!({"command": odd, "args": ["stdio", "--name", name, "--tools", n.to_string()]});
    let servers = json!({"mcpServers": {
        "docs": server("docs", 30), "wiki": server("wiki", 10),
        "gone": {"command": "/nowhere/server"},
        "needy": {"command": odd, "args": ["${NOT_SET_ANYWHERE}"]},
        "rubbish": {"command": "sh", "args": ["-c", "echo rubbish; sleep 60"]},
    }});
    write(home.path(), ".claude.json", &servers.to_string());
    let mut lines = String::from("not json\n{\"type\":\"unheard-of\",\"x\":1}\n");
    let mut n = 0;
    for session in 0..40 {
        for (server, tool) in [
            ("docs", "tool-001"),
            ("docs", "tool-002"),
            ("wiki", "tool-003"),
        ] {
            n += 1;
            let at = format!("2026-10-{:02}T10:{:02}:00.000Z", session / 2 + 1, n % 60);
            let later = at.replace(":00.000Z", ":02.000Z");
            let is_error = tool == "tool-002" && session % 3 == 0;
            for line in [
                json!({"type": "assistant", "uuid": format!("a{n}"), "sessionId": format!("s{session}"),
                       "timestamp": at, "cwd": "/home/dev/shop", "message": {"role": "assistant", "content": [
                       {"type": "tool_use", "id": format!("t{n}"),
                        "name": format!("mcp__{server}__{tool}"), "input": {"secret": "s3cret"}}]}}),
                json!({"type": "user", "uuid": format!("r{n}"), "sessionId": format!("s{session}"),
                       "timestamp": later, "cwd": "/home/dev/shop", "message": {"role": "user", "content": [
                       {"type": "tool_result", "tool_use_id": format!("t{n}"), "is_error": is_error,
                        "content": "s3cret"}]}}),
            ] {
                writeln!(lines, "{line}").unwrap();
            }
        }
    }
    write(
        home.path(),
        ".claude/projects/-home-dev-shop/all.jsonl",
        &lines,
    );
    home
}

fn write(home: &Path, path: &str, text: &str) {
    let path = home.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

#[tokio::test]
async fn figures_are_those_of_a_count_by_hand() {
    let home = home();
    let output = run_at_home(
        home.path(),
        &["audit", "--yes", "--json", "--timeout", "15"],
    )
    .await
    .success();
    assert!(!output.stdout.contains("s3cret") && !output.stderr.contains("s3cret"));
    let audit = output.json();
    assert_eq!(audit["sessions"], 40);
    assert_eq!(audit["calls"], 120);
    assert_eq!(audit["skipped_lines"], 2);
    assert_eq!(audit["tools_for_95_percent"], 3);
    let server = |name: &str| -> Value {
        let all = audit["servers"].as_array().unwrap().iter();
        all.clone()
            .find(|server| server["name"] == name)
            .unwrap()
            .clone()
    };
    let (docs, wiki) = (server("docs"), server("wiki"));
    assert_eq!((&docs["tools"], &docs["calls"]), (&json!(30), &json!(80)));
    assert_eq!((&wiki["tools"], &wiki["calls"]), (&json!(10), &json!(40)));
    // The definitions of the test server are of nearly the same length.
    let per_tool = docs["tokens"].as_u64().unwrap() / 30;
    assert!((10..60).contains(&per_tool), "{docs}");
    let total = docs["tokens"].as_u64().unwrap() + wiki["tokens"].as_u64().unwrap();
    assert_eq!(audit["tokens_per_prompt"], total);
    for (name, reason) in [
        ("gone", "could not be started"),
        ("needy", "the variable NOT_SET_ANYWHERE is not set"),
        ("rubbish", ""),
    ] {
        let server = server(name);
        assert!(
            server["error"].as_str().unwrap().contains(reason),
            "{server}"
        );
        assert_eq!(server["tools"], Value::Null);
    }
    let tools = audit["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 40);
    let tool = |server: &str, name: &str| {
        let is_it = |tool: &&Value| tool["server"] == server && tool["name"] == name;
        tools.iter().find(is_it).unwrap()
    };
    let failing = tool("docs", "tool-002");
    assert_eq!(
        (&failing["calls"], &failing["errors"]),
        (&json!(40), &json!(14))
    );
    assert_eq!(failing["last_used"], "2026-10-20T10:59:00Z");
    assert_eq!(tool("docs", "tool-009")["calls"], 0);
    assert_eq!(tool("docs", "tool-009")["unused"], true);
    let live = &audit["live"];
    assert!(live["first_use_coverage"].as_f64().unwrap() > 0.9, "{live}");
    assert!(live["mean_size"].as_f64().unwrap() <= 40.0, "{live}");
    let share = live["reduction"].as_f64().unwrap();
    let saved = audit["tokens_saved_per_prompt"].as_u64().unwrap();
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let expected = share * total as f64;
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let difference = (saved as f64 - expected).abs();
    assert!(difference < 2.0, "{saved}, {expected}");
}

#[tokio::test]
async fn a_report_and_a_page_have_the_figures() {
    let home = home();
    write(
        home.path(),
        ".cursor/mcp.json",
        r#"{"mcpServers":{"<b>bold":{"command":"/nowhere/other"}}}"#,
    );
    let arguments = [
        "audit",
        "--yes",
        "--timeout",
        "15",
        "--days",
        "3000",
        "--html",
        "audit.html",
    ];
    let output = run_at_home(home.path(), &arguments).await.success();
    let text = &output.stdout;
    assert!(
        text.contains("Claude Code: 40 tools of 5 servers: "),
        "{text}"
    );
    assert!(
        text.contains("Cursor: 1 server without a list, so tools and tokens are unknown."),
        "{text}"
    );
    assert!(text.contains("120 calls in 40 sessions"), "{text}");
    assert!(text.contains("3 tools made 95 % of them."), "{text}");
    assert!(
        text.contains("Tools that often fail, or are slow\nTOOL      SERVER"),
        "{text}"
    );
    let page = std::fs::read_to_string(home.path().join("audit.html")).unwrap();
    assert!(
        page.contains("&lt;b&gt;bold") && !page.contains("<b>bold"),
        "{page}"
    );
    assert!(
        page.contains("<td>tool-002<td>docs") && !page.contains("http") && !page.contains("u{a}"),
        "{page}"
    );
    let again = run_at_home(home.path(), &arguments).await;
    assert_eq!(again.code, Some(2), "an existing file stays");
}

#[tokio::test]
async fn each_client_has_its_tokens_and_what_riglm_would_list() {
    let home = home();
    let description = "Reads a part of the documentation of a product. ".repeat(20);
    let tool = |n: u32| json!({"name": format!("tool-{n:03}"), "description": description, "inputSchema": {"type": "object"}});
    let tools: Vec<Value> = (0..60).map(tool).collect();
    write(home.path(), "tools.json", &Value::from(tools).to_string());
    let odd = binary::odd_server().display().to_string();
    let listing = home.path().join("tools.json").display().to_string();
    let server = |name: &str| json!({"command": odd, "args": ["stdio", "--name", name, "--listing", listing]});
    let of_claude = json!({"mcpServers": {"docs": server("docs"), "wiki": server("wiki")}});
    write(home.path(), ".claude.json", &of_claude.to_string());
    let of_cursor = json!({"mcpServers": {"handbook": server("docs")}});
    write(home.path(), ".cursor/mcp.json", &of_cursor.to_string());
    let arguments = ["audit", "--yes", "--json"];
    let audit = run_at_home(home.path(), &arguments).await.success().json();
    let (claude, cursor) = (&audit["clients"][0], &audit["clients"][1]);
    assert_eq!(
        (&claude["name"], &cursor["name"]),
        (&json!("Claude Code"), &json!("Cursor"))
    );
    assert_eq!(
        (&claude["tools"], &cursor["tools"]),
        (&json!(120), &json!(60))
    );
    let tokens = |client: &Value| client["tokens_per_prompt"].as_u64().unwrap();
    assert_eq!(tokens(claude), 2 * tokens(cursor));
    assert_eq!(
        audit["tokens"], claude["tokens_per_prompt"],
        "the server of both is one"
    );
    // Three of 120 tools are used, so most definitions are left out after the first sessions.
    let saved = claude["tokens_saved_per_prompt"].as_u64().unwrap();
    assert!(saved > tokens(claude) / 2, "{claude}");
    assert!(
        claude["live"]["first_use_coverage"].as_f64().unwrap() > 0.5,
        "{claude}"
    );
    assert_eq!(claude["loads_on_demand"], true);
    assert_eq!(
        (&cursor["calls"], &cursor["live"]),
        (&Value::Null, &Value::Null)
    );
    let text = run_at_home(home.path(), &["audit", "--yes"])
        .await
        .success()
        .stdout;
    assert!(
        text.contains(
            "But Claude Code loads tools on demand: by default riglm leaves its list whole"
        ),
        "{text}"
    );
    assert!(
        text.contains("It has no transcripts that can be read, so its calls are unknown."),
        "{text}"
    );
    // Without transcripts of Cursor, nothing is known about tools that it alone has.
    let of_claude = json!({"mcpServers": {"wiki": server("wiki")}});
    write(home.path(), ".claude.json", &of_claude.to_string());
    let audit = run_at_home(home.path(), &arguments).await.success().json();
    let mut servers = audit["servers"].as_array().unwrap().iter();
    let handbook = servers.find(|server| server["name"] == "handbook").unwrap();
    assert_eq!(
        (&handbook["tools"], &handbook["unused"]),
        (&json!(60), &Value::Null)
    );
}

#[tokio::test]
async fn nothing_is_read_or_started_without_consent() {
    let home = home();
    let marker = home.path().join("started");
    let servers = json!({"mcpServers": {"a": {"command": "touch", "args": [marker]}}});
    write(home.path(), ".claude.json", &servers.to_string());
    let refused = run_at_home(home.path(), &["audit"]).await;
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("a (touch)"), "{}", refused.stderr);
    assert!(refused.stderr.contains("use --yes"), "{}", refused.stderr);
    assert!(!marker.exists());
    let without = run_at_home(home.path(), &["audit", "--yes", "--no-start", "--json"]).await;
    let without = without.success().json();
    assert_eq!(without["servers"][0]["error"], "it was not started");
    assert_eq!(without["calls"], 120);
    assert_eq!(without["tokens_saved_per_prompt"], Value::Null);
    assert!(!marker.exists());
}

#[tokio::test]
async fn calls_through_riglm_count_for_the_server_behind_it() {
    let home = home();
    let file = ".claude/projects/-home-dev-shop/all.jsonl";
    let text = std::fs::read_to_string(home.path().join(file)).unwrap();
    write(
        home.path(),
        file,
        &text.replace("mcp__docs__", "mcp__riglm__docs__"),
    );
    let arguments = ["audit", "--yes", "--no-start", "--json"];
    let audit = run_at_home(home.path(), &arguments).await.success().json();
    let servers = audit["servers"].as_array().unwrap().iter();
    let calls: Vec<(&str, u64)> = servers
        .map(|it| (it["name"].as_str().unwrap(), it["calls"].as_u64().unwrap()))
        .filter(|(_, n_calls)| *n_calls > 0)
        .collect();
    assert_eq!(calls, [("docs", 80), ("wiki", 40)]);
}

#[tokio::test]
async fn an_empty_home_has_no_figures() {
    let home = TempDir::new().unwrap();
    let output = run_at_home(home.path(), &["audit", "--json"])
        .await
        .success();
    assert!(
        output.stderr.contains("no transcript and no server"),
        "{}",
        output.stderr
    );
    let audit = output.json();
    assert_eq!(
        (&audit["servers"], &audit["tools"]),
        (&json!([]), &json!([]))
    );
    assert_eq!((&audit["calls"], &audit["live"]), (&json!(0), &Value::Null));
}

#[tokio::test]
async fn programs_of_servers_end_with_the_audit() {
    let home = TempDir::new().unwrap();
    let pid = home.path().join("pid");
    let script = format!("echo $$ > {}; exec sleep 600", pid.display());
    let servers = json!({"mcpServers": {"hangs": {"command": "sh", "args": ["-c", script]}}});
    write(home.path(), ".claude.json", &servers.to_string());
    let mut audit = command(binary::riglm(), &["audit", "--yes"]);
    audit.env("HOME", home.path()).current_dir(home.path());
    let mut audit = Process::spawn(audit);
    let started = riglm_tests::process::eventually(std::time::Duration::from_secs(20), || {
        std::fs::read_to_string(&pid)
            .ok()?
            .trim()
            .parse::<u32>()
            .ok()
    });
    let started = started.await.expect("the server is started");
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    audit.signal(rustix::process::Signal::KILL);
    audit.wait_for_end(std::time::Duration::from_secs(10)).await;
    let patience = std::time::Duration::from_secs(10);
    let survivors = riglm_tests::process::survivors(&[started], patience).await;
    assert!(survivors.is_empty());
}

#[tokio::test]
async fn an_audit_without_a_client_names_the_next_step() {
    let home = TempDir::new().unwrap();
    let output = run_at_home(home.path(), &["audit"]).await.success();
    for text in [
        "no transcript and no server",
        "--home DIR",
        "riglm demo --keep",
    ] {
        assert!(
            output.stderr.contains(text),
            "{text} is not in {}",
            output.stderr
        );
    }
}
