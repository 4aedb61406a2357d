//! The program as its users see it: its output and exit codes.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_riglm");

/// Far longer than any of these commands takes.
const DEADLINE: Duration = Duration::from_mins(1);

/// Runs the program in `directory`, with `input` and without the environment of the user.
fn riglm(directory: &Path, arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(PROGRAM)
        .args(arguments)
        .current_dir(directory)
        .env_clear()
        .env("HOME", directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("standard input is a pipe");
    // A program that refuses its arguments may have ended already.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let (ended, outputs) = std::sync::mpsc::channel();
    std::thread::spawn(move || ended.send(child.wait_with_output()));
    outputs
        .recv_timeout(DEADLINE)
        .expect("the program ends in time")
        .expect("its output can be read")
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).expect("results are text")
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).expect("remarks are text")
}

fn temporary() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory can be made")
}

#[test]
fn the_demonstration_fits_on_a_screen_and_leaves_nothing_behind() {
    let directory = temporary();
    let output = riglm(directory.path(), &["demo"], "");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(!text.contains("UNEXPECTED"), "{text}");
    for seen in [
        "6 servers with 61 tools",
        "revisions 2025-11-25 and 2026-07-28",
        "without riglm",
        "after learning",
        "tokens of their definitions",
        "first uses in the list",
        "searches per session",
        "Added latency: ",
        "  next ",
        "Search: ",
        "Recommendation for ",
        "control port was 127.0.0.1:",
        "riglm audit",
    ] {
        assert!(text.contains(seen), "{seen}: {text}");
    }
    assert!(text.lines().count() <= 40, "{text}");
    assert!(text.lines().all(|line| line.chars().count() < 80), "{text}");
    assert!(text.lines().all(|line| line.trim_end() == line), "{text}");
    assert!(!text.contains('\u{1b}') && !stderr(&output).contains('\u{1b}'));
    assert!(stderr(&output).contains("played 36 of 36 sessions\n"));
    let left = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(left, 0);
}

#[test]
fn the_demonstration_learns_lists_that_are_shorter_and_fit() {
    let directory = temporary();
    let output = riglm(directory.path(), &["demo", "--json"], "");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let told: serde_json::Value = serde_json::from_str(stdout(&output)).unwrap();
    assert_eq!((&told["ok"], &told["servers"]), (&true.into(), &6.into()));
    assert_eq!(told["calls"], told["calls_recorded"]);
    let number = |path: &str| {
        told.pointer(path)
            .and_then(serde_json::Value::as_f64)
            .unwrap()
    };
    assert!(
        number("/without_riglm/definition_tokens") > 6_000.0,
        "{told}"
    );
    assert!(number("/tokens_saved_share") > 0.3, "{told}");
    let after = |name: &str| number(&format!("/after_learning/{name}"));
    let learning = |name: &str| number(&format!("/while_learning/{name}"));
    assert!(after("first_use_coverage") > 0.8, "{told}");
    assert!(
        after("first_use_coverage") > learning("first_use_coverage"),
        "{told}"
    );
    assert!(after("searches_per_session") < 0.8, "{told}");
    assert!(
        after("searches_per_session") < learning("searches_per_session"),
        "{told}"
    );
    assert!(number("/latency/added_median_ms") < 100.0, "{told}");
    let predictions = told["session"]["predictions"].as_array().unwrap();
    assert_eq!(predictions.len(), 3);
    assert!(
        predictions
            .iter()
            .all(|one| one["because"].as_str().unwrap().len() > 10)
    );
    assert_eq!(told["search"]["found"][0], "text__unique_lines");
    assert_eq!(told["recommendation"]["tool"], "calc__sum_column");
    assert!(!Path::new(told["data_dir"].as_str().unwrap()).exists());
}

#[test]
fn the_demonstration_has_the_same_lists_on_a_busy_machine() {
    let directory = temporary();
    let at_once = std::thread::scope(|scope| {
        let run = || riglm(directory.path(), &["demo", "--json"], "");
        let runs = [scope.spawn(run), scope.spawn(run), scope.spawn(run)];
        runs.map(|run| run.join().expect("the demonstration ends in time"))
    });
    let told = at_once.map(|output| {
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let told: serde_json::Value = serde_json::from_str(stdout(&output)).unwrap();
        let saved = told["tokens_saved_share"].as_f64().unwrap();
        assert!(saved > 0.3, "{told}");
        let listed = |half: &str| told[half]["tools_listed"].clone();
        (listed("while_learning"), listed("after_learning"))
    });
    assert_eq!(told[0], told[1]);
    assert_eq!(told[0], told[2]);
}

#[test]
fn a_kept_demonstration_serves_until_it_is_interrupted() {
    let directory = temporary();
    let mut demo = Command::new(PROGRAM)
        .args(["demo", "--keep", "--json"])
        .current_dir(directory.path())
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut lines = BufReader::new(demo.stdout.take().unwrap());
    lines.read_line(&mut line).unwrap();
    let told: serde_json::Value = serde_json::from_str(&line).unwrap();
    let data_dir = told["data_dir"].as_str().unwrap();
    let token = std::fs::read_to_string(Path::new(data_dir).join("control.token")).unwrap();
    assert!(!token.trim().is_empty());
    let arguments = ["sessions", "--json", "--data-dir", data_dir];
    let sessions = riglm(directory.path(), &arguments, "");
    let sessions: serde_json::Value = serde_json::from_str(stdout(&sessions)).unwrap();
    assert!(sessions.as_array().unwrap().len() > 20);
    let count = |more: &[&str]| {
        let mut arguments = vec!["calls", "--count", "--data-dir", data_dir];
        arguments.extend(more);
        let output = riglm(directory.path(), &arguments, "");
        stdout(&output).trim_end().parse::<u64>().unwrap()
    };
    assert_eq!(Some(count(&[])), told["calls"].as_u64());
    // Nothing but the sessions is recorded, so the measurement of the latency is not.
    let n_evaluated = count(&["--tool", "evaluate"]);
    assert!(n_evaluated < 20, "{n_evaluated}");
    let health = ["health", "--control", told["control"].as_str().unwrap()];
    let health = riglm(directory.path(), &health, "");
    assert_eq!(health.status.code(), Some(0), "{}", stderr(&health));
    let pid = demo.id().to_string();
    let is_server = |process: &PathBuf| {
        let command = std::fs::read(process.join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&command).contains("__demo-server")
    };
    let parent = format!("\nPPid:\t{pid}\n");
    let mut servers = Vec::new();
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let status = std::fs::read_to_string(process.path().join("status"));
        if status.is_ok_and(|it| it.contains(&parent)) && is_server(&process.path()) {
            servers.push(process.path());
        }
    }
    if cfg!(target_os = "linux") {
        assert_eq!(servers.len(), 6);
    }
    Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert_eq!(demo.wait().unwrap().code(), Some(0));
    assert!(!Path::new(data_dir).exists());
    assert!(!servers.iter().any(is_server), "{servers:?}");
}

#[test]
fn disabled_recording_writes_nothing() {
    let directory = temporary();
    let session = concat!(
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","#,
        r#""capabilities":{},"clientInfo":{"name":"tester","version":"7"}}}"#,
        "\n",
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"add_note","arguments":{"text":"a"}}}"#,
        "\n",
    );
    let run = |arguments: &[&str], input: &str| {
        let output = riglm(directory.path(), arguments, input);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output).trim_end().to_owned()
    };
    let serve = |mode: &str| {
        let text = format!("data_dir = \"data\"\n[recording]\nmode = \"{mode}\"\n");
        std::fs::write(directory.path().join("riglm.toml"), text).unwrap();
        let server = ["--", PROGRAM, "__demo-server", "notes"];
        let serve = ["serve", "--stdio", "--control", "off"];
        let answers = run(&[serve, server].concat(), session);
        assert_eq!(answers.lines().count(), 2, "{answers}");
    };
    serve("off");
    assert!(!directory.path().join("data").exists());
    serve("required");
    assert_eq!(run(&["calls", "--count"], ""), "1");
    serve("off");
    assert_eq!(run(&["calls", "--count"], ""), "1");
    let sessions: serde_json::Value =
        serde_json::from_str(&run(&["sessions", "--json"], "")).unwrap();
    assert_eq!(sessions.as_array().map(Vec::len), Some(1));
}

#[test]
fn calls_over_standard_input_and_output_are_recorded_and_listed() {
    let directory = temporary();
    let session = concat!(
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","#,
        r#""capabilities":{},"clientInfo":{"name":"tester","version":"7"}}}"#,
        "\n",
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        "\n",
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"add_note","arguments":{"text":"a"}}}"#,
        "\n",
        r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"list_notes","arguments":{}}}"#,
        "\n",
    );
    let places = ["--data-dir", "data"];
    let serve = [
        &["serve", "--stdio", "--control", "off"],
        places.as_slice(),
        &["--", PROGRAM, "__demo-server", "notes"],
    ]
    .concat();
    let served = riglm(directory.path(), &serve, session);
    assert_eq!(served.status.code(), Some(0), "{}", stderr(&served));
    assert_eq!(stdout(&served).lines().count(), 3, "{}", stdout(&served));

    let run = |arguments: &[&str]| {
        let output = riglm(directory.path(), &[arguments, &places].concat(), "");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output).trim_end().to_owned()
    };
    let json = |arguments: &[&str]| -> serde_json::Value {
        serde_json::from_str(&run(arguments)).unwrap()
    };
    assert_eq!(run(&["calls", "--count"]), "2");
    assert_eq!(run(&["calls", "--count", "--tool", "add_note"]), "1");
    let sessions = json(&["sessions", "--json"]);
    let session = &sessions[0];
    assert_eq!(sessions.as_array().map(Vec::len), Some(1));
    assert_eq!(session["client"], "tester");
    assert_eq!(session["protocol"], "2025-06-18");
    assert_eq!(session["transport"], "stdio");
    assert_eq!(session["calls"], 2);
    let id = session["id"].as_str().unwrap();
    let calls = json(&["calls", "--json", "--session", id]);
    let tools: Vec<&serde_json::Value> = calls
        .as_array()
        .unwrap()
        .iter()
        .map(|call| &call["tool"])
        .collect();
    assert_eq!(tools, ["add_note", "list_notes"]);
    assert_eq!(calls[0]["outcome"], "ok");
    assert_eq!(calls[1]["sequence"], 2);
    let newest = json(&["calls", "--json", "--limit", "1"]);
    assert_eq!(newest[0]["tool"], "list_notes");
    assert!(run(&["calls"]).contains("list_notes"));
    assert!(run(&["sessions"]).contains("tester 7"));
}

#[test]
fn usage_and_configuration_errors_exit_with_2() {
    let directory = temporary();
    let upstreams = "[upstreams.a]\nurl = \"http://a\"\n[upstreams.A]\nurl = \"http://b\"\n";
    std::fs::write(directory.path().join("two.toml"), upstreams).unwrap();
    std::fs::write(
        directory.path().join("ftp.toml"),
        "upstream.url = 'ftp://a'",
    )
    .unwrap();
    for (arguments, reason) in [
        (
            ["serve", "--data-dir", "x"].as_slice(),
            "no upstream is configured",
        ),
        (
            &["serve", "--config", "two.toml"],
            "upstreams.a has the same name as upstreams.A",
        ),
        (
            &["serve", "--data-dir", "x", "--upstream", "ftp://a"],
            "must begin with http://",
        ),
        (&["serve", "--config", "none.toml"], "none.toml"),
        (
            &["config", "check", "--config", "two.toml"],
            "upstreams.a has the same name as upstreams.A",
        ),
        (
            &["config", "check", "--config", "ftp.toml"],
            "must begin with http://",
        ),
        (&["calls", "--limit", "0"], "--limit"),
        (&["calls", "--session", "x"], "not a UUID"),
        (&["fly"], "fly"),
        (&["replay"], "--from-store"),
        (&["data", "delete", "--client", "x"], "use --yes"),
        (&["data", "export"], "--client"),
        (&["db", "purge", "--older-than", "0"], "--older-than"),
    ] {
        let output = riglm(directory.path(), arguments, "");
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments:?}: {}",
            stderr(&output)
        );
        assert!(
            stderr(&output).contains(reason),
            "{arguments:?}: {}",
            stderr(&output)
        );
        assert_eq!(stdout(&output), "");
    }
}

#[test]
fn config_check_names_keys_of_upstreams_without_effect() {
    let directory = temporary();
    let text = "[upstreams.web]\nurl = \"http://a\"\nmax_connections = 3\n\
                [upstreams.plain]\nurl = \"http://b\"\n\
                [upstreams.local]\ncommand = [\"c\"]\nmax_connections = 3\n";
    std::fs::write(directory.path().join("three.toml"), text).unwrap();
    let output = riglm(
        directory.path(),
        &["config", "check", "--config", "three.toml"],
        "",
    );
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let notes = stderr(&output);
    assert!(
        notes.contains("upstream web: max_connections has no effect"),
        "{notes}"
    );
    assert_eq!(notes.matches("has no effect").count(), 1, "{notes}");
}

#[test]
fn environment_variables_configure_the_program() {
    let directory = temporary();
    std::fs::write(directory.path().join("mine.yaml"), "limits: {sessions: 5}").unwrap();
    let with = |name: &str, value: &str| {
        Command::new(PROGRAM)
            .args(["config", "show"])
            .current_dir(directory.path())
            .env_clear()
            .env("HOME", directory.path())
            .env(name, value)
            .output()
            .unwrap()
    };
    let file = with("RIGLM_CONFIG", "mine.yaml");
    assert!(stdout(&file).contains("limits.sessions = 5  # mine.yaml\n"));
    let variable = with("RIGLM__LIMITS__SESSIONS", "6");
    assert!(
        stdout(&variable)
            .contains("limits.sessions = \"6\"  # environment variable RIGLM__LIMITS__SESSIONS\n"),
        "{}",
        stdout(&variable)
    );
}

#[test]
fn commands_without_a_database_report_its_expected_path() {
    let directory = temporary();
    let id = "019b7ca9-8f2e-7909-8909-090909090909";
    let place = "nothing is recorded yet: no database at none/riglm.db";
    for (arguments, code, json) in [
        (&["calls"][..], 0, Some("[]")),
        (&["sessions"], 0, Some("[]")),
        (&["tools"], 0, Some("[]")),
        (&["upstreams"], 0, Some("[]")),
        (&["lists"], 0, None),
        (&["lists", "--session", id], 0, Some("[]")),
        (&["recommend", "x"], 0, None),
        (&["replay", "--from-store"], 0, None),
        (&["eval", "recommend"], 0, None),
        (&["experiment", "status"], 0, Some("[]")),
        (&["tune"], 0, None),
        (&["tune", "--history"], 0, None),
        (&["db", "check"], 0, Some(r#"{"findings":[]}"#)),
        (&["db", "rebuild"], 0, Some(r#"{"calls":0,"counts":0}"#)),
        (&["db", "purge"], 0, None),
        (&["data", "export", "--client", "x"], 0, Some("")),
        (&["data", "delete", "--client", "x", "--yes"], 0, None),
        (&["experiment", "stop", "x"], 1, None),
        (&["tune", "--rollback"], 1, None),
    ] {
        let at = [arguments, &["--data-dir", "none"]].concat();
        let text = riglm(directory.path(), &at, "");
        let said = format!("{}{}", stdout(&text), stderr(&text));
        assert_eq!(text.status.code(), Some(code), "{arguments:?}: {said}");
        assert_eq!(said.matches(place).count(), 1, "{arguments:?}: {said}");
        let output = riglm(directory.path(), &[&at[..], &["--json"]].concat(), "");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        assert!(stderr(&output).contains(place), "{arguments:?}");
        let printed = stdout(&output).trim();
        if let Some(json) = json {
            assert_eq!(printed, json, "{arguments:?}");
        }
        let is_json = serde_json::from_str::<serde_json::Value>(printed).is_ok();
        assert!(is_json || printed.is_empty(), "{arguments:?}: {printed}");
        assert!(!directory.path().join("none").exists(), "{arguments:?}");
    }
    let count = riglm(
        directory.path(),
        &["calls", "--count", "--data-dir", "none"],
        "",
    );
    assert_eq!(stdout(&count), "0\n");
    let status = riglm(
        directory.path(),
        &["db", "status", "--data-dir", "none"],
        "",
    );
    assert!(
        stdout(&status).contains("none/riglm.db"),
        "{}",
        stdout(&status)
    );
    assert!(stderr(&status).contains("nothing is recorded yet"));
}

#[test]
fn all_configuration_errors_are_reported_at_once() {
    let directory = temporary();
    let check = |text: &str, arguments: &[&str]| {
        std::fs::write(directory.path().join("wrong.toml"), text).unwrap();
        let check = ["config", "check", "--config", "wrong.toml"];
        let output = riglm(directory.path(), &[&check, arguments].concat(), "");
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        output
    };
    let keys = "[limits]\nsesions = 3\nin_flight = 'many'\nsessions = 0\n\
                [filtering]\nmin_tools = 9\nmax_tools = 3\n[nosuch]\nx = 1\n\
                [auth.keys]\na = 'short'\nb = 'brief'\n\
                [control.keys.c]\nkey = 'short'\nscopes = []\n";
    let output = check(keys, &[]);
    for wrong in [
        "wrong.toml: limits.sesions: unknown field",
        "wrong.toml: limits.in_flight: ",
        "wrong.toml: limits.sessions: ",
        "wrong.toml: filtering: min_tools",
        "wrong.toml: nosuch: unknown field",
        "wrong.toml: auth.keys.a: ",
        "wrong.toml: auth.keys.b: ",
        "wrong.toml: control.keys.c.key: ",
        "wrong.toml: control.keys.c.scopes: ",
        "configuration file: wrong.toml",
    ] {
        assert_eq!(
            stderr(&output).matches(wrong).count(),
            1,
            "{wrong}: {}",
            stderr(&output)
        );
    }
    let variables = "[upstreams.a]\nurl = 'http://${ONE}'\n[upstreams.b]\nurl = 'http://${TWO}'\n";
    let output = check(variables, &[]);
    for name in ["ONE", "TWO"] {
        let wrong = format!("environment variable {name} is not set");
        assert!(stderr(&output).contains(&wrong), "{}", stderr(&output));
    }
    let upstreams = "[upstreams.a]\nurl = 'ftp://a'\n[upstreams.b]\nurl = 'nonsense'\n";
    let output = check(upstreams, &["--json"]);
    let told: serde_json::Value = serde_json::from_str(stdout(&output)).unwrap();
    assert_eq!(
        (&told["ok"], &told["file"]),
        (&false.into(), &"wrong.toml".into())
    );
    let errors = told["errors"].as_array().unwrap();
    assert_eq!(errors.len(), 2, "{errors:?}");
    for (error, name) in errors.iter().zip(["upstream a: ", "upstream b: "]) {
        assert!(error.as_str().unwrap().contains(name), "{error}");
    }
}

#[test]
fn config_check_reports_the_file_and_missing_upstreams() {
    let directory = temporary();
    let check = |arguments: &[&str]| {
        let output = riglm(
            directory.path(),
            &[&["config", "check"], arguments].concat(),
            "",
        );
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        output
    };
    let none = check(&[]);
    assert_eq!(stdout(&none), "ok\n");
    assert!(
        stderr(&none).contains("no configuration file"),
        "{}",
        stderr(&none)
    );
    assert!(
        stderr(&none).contains("no upstream is configured"),
        "{}",
        stderr(&none)
    );
    std::fs::write(
        directory.path().join("riglm.yaml"),
        "upstream: {command: run}",
    )
    .unwrap();
    let output = check(&["--json"]);
    let told: serde_json::Value = serde_json::from_str(stdout(&output)).unwrap();
    let expected = serde_json::json!({
        "ok": true, "file": "riglm.yaml", "upstreams": ["default"], "errors": [], "warnings": [],
    });
    assert_eq!(told, expected);
}

#[test]
fn scopes_of_control_keys_are_shown_and_the_keys_are_not() {
    let directory = temporary();
    let file = "[control.keys.monitor]\nkey = 'abcdefghijklmnop'\nscopes = ['read']\n";
    std::fs::write(directory.path().join("riglm.toml"), file).unwrap();
    let show = riglm(directory.path(), &["config", "show"], "");
    let text = stdout(&show);
    assert!(
        text.contains("control.keys.monitor.scopes = [\"read\"]  # riglm.toml\n"),
        "{text}"
    );
    assert!(!text.contains("abcdefghijklmnop"), "{text}");
}

#[test]
fn usage_errors_are_json_with_a_json_log() {
    let directory = temporary();
    std::fs::write(
        directory.path().join("json.toml"),
        "logging.format = 'json'\nx = 1\n",
    )
    .unwrap();
    for arguments in [
        &["serve", "--config", "json.toml"][..],
        &["serve", "--config", "json.toml", "--odd"],
        &[
            "serve",
            "--config=json.toml",
            "--stdio",
            "--listen",
            "127.0.0.1:1",
        ],
    ] {
        let output = riglm(directory.path(), arguments, "");
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(!stderr(&output).is_empty());
        for line in stderr(&output).lines() {
            let line: serde_json::Value = serde_json::from_str(line).expect(line);
            assert_eq!(line["level"], "ERROR", "{line}");
        }
    }
}

#[test]
fn unreachable_database_servers_are_reported_once() {
    let directory = temporary();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let file = format!(
        "storage.backend = 'postgres'\nstorage.postgres.url = 'postgres://me:hunter2@127.0.0.1:{port}/usage'\n"
    );
    std::fs::write(directory.path().join("riglm.toml"), file).unwrap();
    let expected = format!(
        "riglm: failed to open the database usage at 127.0.0.1:{port} as me: Connection refused"
    );
    for arguments in [
        &["calls"][..],
        &["calls", "--follow"],
        &["sessions"],
        &["tools"],
        &["lists"],
        &["recommend", "x"],
        &["replay", "--from-store"],
        &["experiment", "status"],
        &["tune", "--history"],
        &["db", "status"],
        &["data", "export", "--client", "x"],
    ] {
        let output = riglm(directory.path(), arguments, "");
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let said = stderr(&output);
        assert!(said.starts_with(&expected), "{arguments:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
    }
    // The configured upstreams can be listed all the same.
    let output = riglm(directory.path(), &["upstreams"], "");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("Connection refused"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn statements_of_the_database_are_no_events_of_level_debug() {
    let directory = temporary();
    std::fs::write(
        directory.path().join("riglm.toml"),
        "logging.level = 'debug'\n",
    )
    .unwrap();
    let hello = concat!(
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","#,
        r#""capabilities":{},"clientInfo":{"name":"tester","version":"7"}}}"#,
        "\n",
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"list_notes","arguments":{}}}"#,
        "\n",
    );
    let serve = ["serve", "--stdio", "--control", "off", "--data-dir", "data"];
    let server = ["--", PROGRAM, "__demo-server", "notes"];
    let output = riglm(directory.path(), &[&serve[..], &server].concat(), hello);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let log = stderr(&output);
    assert!(log.contains("DEBUG"), "{log}");
    // A statement that takes longer than a second causes a warning, also here on a slow disk.
    let mut statements = log.lines().filter(|line| {
        let is_slow = line.contains(" WARN ") && line.contains("slow statement");
        !is_slow && (line.contains("sqlx") || line.contains("SELECT"))
    });
    assert_eq!(statements.next(), None, "{log}");
}

#[test]
fn recommendations_are_measured_with_other_words() {
    let directory = temporary();
    let catalog = r#"{"id":"m__send","server":"m","name":"send_mail","description":"Sends mail","input_schema":{}}"#;
    let queries = r#"{"qid":"1","query":"post a letter","gold":["m__send"]}"#;
    std::fs::write(directory.path().join("tools.jsonl"), catalog).unwrap();
    std::fs::write(directory.path().join("queries.jsonl"), queries).unwrap();
    let eval = |more: &[&str]| {
        let files = ["--catalog", "tools.jsonl", "--queries", "queries.jsonl"];
        let eval = ["eval", "recommend", "--json", "--encoder", "none"];
        let output = riglm(directory.path(), &[&eval[..], &files, more].concat(), "");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let told: serde_json::Value = serde_json::from_str(stdout(&output)).unwrap();
        told
    };
    assert!(eval(&[]).get("expansion_tried").is_none());
    let expanded = eval(&["--expansion", "synonyms"]);
    assert!(
        expanded["expansion_tried"].is_u64() && expanded["mrr"].is_number(),
        "{expanded}"
    );
}

#[test]
fn the_configuration_is_checked_and_shown() {
    let directory = temporary();
    let file = "[upstream]\nurl = \"http://a/mcp\"\nheaders = { X-Key = \"hunter2\" }\n";
    std::fs::write(directory.path().join("riglm.toml"), file).unwrap();
    let check = riglm(directory.path(), &["config", "check"], "");
    assert_eq!((check.status.code(), stdout(&check)), (Some(0), "ok\n"));
    assert_eq!(stderr(&check), "riglm: configuration file: riglm.toml\n");
    let show = riglm(directory.path(), &["config", "show"], "");
    let text = stdout(&show);
    assert!(
        text.contains("upstream.url = \"http://a/mcp\"  # riglm.toml\n"),
        "{text}"
    );
    assert!(
        text.contains("limits.sessions = 10000  # default\n"),
        "{text}"
    );
    assert!(!text.contains("hunter2"), "{text}");
    let json = riglm(directory.path(), &["config", "show", "--json"], "");
    let shown: serde_json::Value = serde_json::from_str(stdout(&json)).unwrap();
    assert_eq!(shown[0]["key"], "control.address");
    assert_eq!(shown[0]["origin"], "default");
}

#[test]
fn a_key_is_hashed_from_standard_input() {
    let directory = temporary();
    let hash = riglm(
        directory.path(),
        &["config", "hash-key"],
        "abcdefghijklmnopqrstuvwxyz\n",
    );
    assert_eq!(
        stdout(&hash),
        "sha256:71c480df93d6ae2f1efad1447c66c9525e316218cf51fc8d9ed832f2daf18b73\n"
    );
    let short = riglm(directory.path(), &["config", "hash-key"], "short\n");
    assert_eq!(short.status.code(), Some(1));
    assert!(stderr(&short).contains("at least 16 characters"));
}

#[test]
fn a_closed_output_pipe_is_not_an_error() {
    let directory = temporary();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = Command::new(PROGRAM)
        .args(["config", "show"])
        .current_dir(directory.path())
        .env_clear()
        .env("HOME", directory.path())
        .stdout(writer)
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(0));
}

#[test]
fn help_names_the_commands_of_users_alone() {
    let directory = temporary();
    let help = riglm(directory.path(), &["--help"], "");
    let text = stdout(&help);
    for command in [
        "serve",
        "sessions",
        "calls",
        "tools",
        "upstreams",
        "login",
        "demo",
        "config",
        "db",
        "data",
    ] {
        assert!(text.contains(&format!("\n  {command} ")), "{text}");
    }
    assert!(!text.contains("__"), "{text}");
}

#[test]
fn with_a_json_log_every_line_of_a_server_is_json() {
    let directory = temporary();
    let file = format!(
        "logging.format = '${{LOG_FORMAT}}'\nlogging.level = 'debug'\ndata_dir = 'data'\n\
         [upstreams.notes]\ncommand = ['{PROGRAM}', '__demo-server', 'notes']\n\
         [upstreams.gone]\ncommand = 'no-such-program'\n"
    );
    std::fs::write(directory.path().join("riglm.toml"), file).unwrap();
    let mut server = Command::new(PROGRAM)
        .args([
            "serve",
            "--listen",
            "localhost:0",
            "--control",
            "127.0.0.1:0",
        ])
        .current_dir(directory.path())
        .env_clear()
        .env("HOME", directory.path())
        .env("LOG_FORMAT", "json")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(server.stderr.take().unwrap()).lines();
    let (mut n_lines, mut messages) = (0, String::new());
    for line in lines {
        let line = line.unwrap();
        let event: serde_json::Value = serde_json::from_str(&line).expect(&line);
        let message = event["fields"]["message"].as_str().unwrap_or_default();
        messages.push_str(message);
        messages.push('\n');
        n_lines += 1;
        // It is the last note of the start.
        if message.starts_with("upstreams: ") {
            let pid = server.id().to_string();
            Command::new("kill").args(["-TERM", &pid]).status().unwrap();
        }
        assert!(n_lines < 10_000, "{messages}");
    }
    assert_eq!(server.wait().unwrap().code(), Some(0), "{messages}");
    for note in [
        "listening on http://",
        "control API on http://",
        "upstreams: gone",
    ] {
        assert!(messages.contains(note), "{note}: {messages}");
    }
}

#[test]
fn configuration_file_names_need_not_be_unicode() {
    use std::os::unix::ffi::OsStrExt as _;
    let directory = temporary();
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9.toml");
    // Some file systems do not allow such names.
    if std::fs::write(directory.path().join(name), "upstream.url = 'http://a'").is_err() {
        return;
    }
    let output = Command::new(PROGRAM)
        .args(["config", "check", "--json", "--config"])
        .arg(name)
        .current_dir(directory.path())
        .env_clear()
        .env("HOME", directory.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let told: serde_json::Value = serde_json::from_str(stdout(&output)).unwrap();
    assert_eq!(told["file"], "caf\u{fffd}.toml");
}

#[test]
fn login_without_upstreams_names_the_missing_section() {
    let directory = temporary();
    let output = riglm(directory.path(), &["login", "x"], "");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let said = stderr(&output);
    assert!(
        said.contains("section upstream or upstreams.NAME"),
        "{said}"
    );
    assert!(!said.contains("--upstream"), "{said}");
}

#[test]
fn serve_names_all_unusable_upstreams() {
    let directory = temporary();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--control", "off"];
    let upstreams = ["--upstream", "ftp://a", "--upstream", "ftp://b"];
    let output = riglm(directory.path(), &[&serve[..], &upstreams].concat(), "");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    for name in ["failed to use upstream a: ", "failed to use upstream b: "] {
        assert_eq!(
            stderr(&output).matches(name).count(),
            1,
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn lists_command_explains_missing_lists() {
    let directory = temporary();
    let session = concat!(
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","#,
        r#""capabilities":{},"clientInfo":{"name":"tester","version":"7"}}}"#,
        "\n",
    );
    let places = ["--data-dir", "data"];
    let serve = ["serve", "--stdio", "--control", "off"];
    let server = ["--", PROGRAM, "__demo-server", "notes"];
    let first = riglm(
        directory.path(),
        &[&serve[..], &places, &server].concat(),
        session,
    );
    assert_eq!(first.status.code(), Some(0), "{}", stderr(&first));
    let lists = riglm(directory.path(), &[&["lists"][..], &places].concat(), "");
    assert_eq!(stdout(&lists), "no lists are recorded\n");
    let said = stderr(&lists);
    assert!(said.contains("filtering.strategy is none"), "{said}");
}

#[test]
fn an_export_of_metamcp_becomes_a_valid_configuration() {
    let directory = temporary();
    let export = r#"{"mcpServers": {
        "files": {"type": "STDIO", "command": "npx", "args": ["-y", "files"], "env": {"TOKEN": "s3cr3t"}},
        "web": {"type": "STREAMABLE_HTTP", "url": "https://web.example/mcp", "bearerToken": "s3cr3t"},
        "bad": {"type": "STDIO"}}}"#;
    std::fs::write(directory.path().join("export.json"), export).unwrap();
    let output = riglm(directory.path(), &["import", "metamcp", "export.json"], "");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let remarks = stderr(&output);
    assert!(remarks.contains("FILES_TOKEN, WEB_TOKEN"), "{remarks}");
    assert!(
        remarks.contains("\"bad\" was left out: it has no command"),
        "{remarks}"
    );
    let printed = stdout(&output);
    assert!(!printed.contains("s3cr3t") && !remarks.contains("s3cr3t"));
    assert!(printed.contains("token = \"${WEB_TOKEN}\""), "{printed}");

    let output = riglm(
        directory.path(),
        &["import", "metamcp", "-", "--with-secrets"],
        export,
    );
    let text = stdout(&output);
    assert!(text.contains("s3cr3t"), "{text}");
    std::fs::write(directory.path().join("riglm.toml"), text).unwrap();
    let output = riglm(directory.path(), &["config", "check"], "");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));

    for (file, reason) in [
        ("[]", "is no export of MetaMCP"),
        (r#"{"mcpServers":{}}"#, "no server"),
    ] {
        let output = riglm(directory.path(), &["import", "metamcp", "-"], file);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(reason), "{}", stderr(&output));
    }
    let output = riglm(directory.path(), &["import", "metamcp", "missing.json"], "");
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("missing.json"),
        "{}",
        stderr(&output)
    );
}
