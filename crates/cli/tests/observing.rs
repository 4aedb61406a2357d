//! The view of operators on a proxy: filtered and followed calls, tools, upstreams.
#![expect(
    clippy::unwrap_used,
    reason = "what the tests share fails the test that uses it"
)]

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_riglm");

/// Far longer than anything here takes.
const DEADLINE: Duration = Duration::from_mins(1);

/// A process with its standard output line by line; it is killed when dropped.
struct Running {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Running {
    fn start(scene: &Scene, arguments: &[&str]) -> Self {
        let mut child = scene
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            output
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        Self {
            input: child.stdin.take(),
            child,
            lines,
        }
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(DEADLINE).expect("a line comes")
    }

    fn send(&mut self, message: &Value) {
        let input = self.input.as_mut().unwrap();
        writeln!(input, "{message}").unwrap();
    }

    /// Sends a request and returns its response.
    fn ask(&mut self, id: u64, method: &str, params: &Value) -> Value {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        loop {
            let answer: Value = serde_json::from_str(&self.line()).unwrap();
            if answer["id"] == id {
                return answer;
            }
        }
    }

    fn call(&mut self, id: u64, tool: &str, arguments: &Value) {
        let params = json!({"name": tool, "arguments": arguments});
        let answer = self.ask(id, "tools/call", &params);
        assert!(answer.get("result").is_some(), "{answer}");
    }

    /// Interrupts the process, and returns its exit code.
    fn interrupt(mut self) -> Option<i32> {
        let pid = self.child.id().to_string();
        Command::new("kill").args(["-INT", &pid]).status().unwrap();
        self.child.wait().unwrap().code()
    }

    /// Closes the input of the process, and returns its exit code.
    fn end_input(mut self) -> Option<i32> {
        drop(self.input.take());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A directory with the configuration of a proxy in front of two servers, and one that is down.
struct Scene {
    directory: TempDir,
    /// The control address of the configuration.
    control: SocketAddr,
}

impl Scene {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let free = |listener: TcpListener| listener.local_addr().unwrap();
        let control = free(TcpListener::bind("127.0.0.1:0").unwrap());
        let config = json!({
            "data_dir": directory.path().join("data"),
            "control": {"address": control.to_string()},
            "upstreams": {
                "notes": {"command": [PROGRAM, "__demo-server", "notes"]},
                "calc": {"command": [PROGRAM, "__demo-server", "calc"]},
                // Nothing listens on the port of the discard protocol.
                "down": {"url": "http://127.0.0.1:9/mcp"},
            },
        });
        // YAML contains JSON.
        std::fs::write(directory.path().join("riglm.yaml"), config.to_string()).unwrap();
        Self { directory, control }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn data_dir(&self) -> PathBuf {
        self.path().join("data")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .args(arguments)
            .current_dir(self.path())
            .env_clear()
            .env("HOME", self.path());
        command
    }

    fn output(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn run(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim_end().into()
    }

    fn rows(&self, arguments: &[&str]) -> Vec<Value> {
        serde_json::from_str(&self.run(arguments)).unwrap()
    }

    /// Starts the proxy with a client that listed its tools.
    fn serve(&self) -> Running {
        let mut serve = Running::start(self, &["serve", "--stdio"]);
        serve.ask(1, "initialize", &hello());
        serve.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        let listed = serve.ask(2, "tools/list", &json!({}));
        assert_eq!(listed["result"]["tools"].as_array().unwrap().len(), 20);
        serve
    }

    /// Makes a client call two tools of `notes`, and one of `calc` that fails.
    fn serve_with_calls(&self) -> Running {
        let mut serve = self.serve();
        serve.call(3, "notes__add_note", &json!({"text": "a"}));
        serve.call(4, "calc__evaluate", &json!({"expression": "1 / 0"}));
        serve.call(5, "notes__list_notes", &json!({}));
        serve
    }
}

fn hello() -> Value {
    json!({
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "tester", "version": "7"},
    })
}

/// Returns a member of each row.
fn column<'a>(rows: &'a [Value], key: &str) -> Vec<&'a str> {
    rows.iter().map(|row| row[key].as_str().unwrap()).collect()
}

#[test]
fn calls_are_filtered_by_upstream_outcome_time_and_tool() {
    let scene = Scene::new();
    scene.serve_with_calls().end_input();
    for (filter, expected) in [
        (
            &["--upstream", "notes"][..],
            &["add_note", "list_notes"][..],
        ),
        (&["--outcome", "error"], &["evaluate"]),
        (&["--outcome", "in-flight"], &[]),
        (&["--outcome", "ok", "--upstream", "calc"], &[]),
        (&["--since", "1h"], &["add_note", "evaluate", "list_notes"]),
        (&["--since", "2999-01-01"], &[]),
        (&["--tool", "notes__add_note"], &["add_note"]),
        (&["--tool", "notes__add_note", "--upstream", "calc"], &[]),
        (
            &["--tool", "add_note", "--outcome", "ok", "--since", "1h"],
            &["add_note"],
        ),
        (&["--upstream", "notes", "--limit", "1"], &["list_notes"]),
    ] {
        let rows = scene.rows(&[&["calls", "--json"], filter].concat());
        assert_eq!(column(&rows, "tool"), expected, "{filter:?}");
    }
    // A name that nobody knows is told from a tool without matching calls.
    let remarks = |name: &str| {
        let output = scene.output(&["calls", "--json", "--tool", name]);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(output.stdout, b"[]\n", "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let misspelt = remarks("evalute");
    for expected in [
        "no upstream has listed a tool \"evalute\"",
        "nearest name is evaluate",
    ] {
        assert!(misspelt.contains(expected), "{misspelt}");
    }
    for known in ["search_notes", "notes__search_notes"] {
        let unused = remarks(known);
        assert!(!unused.contains("no upstream"), "{unused}");
    }
    let count = ["calls", "--count", "--upstream", "notes", "--since", "1h"];
    assert_eq!(scene.run(&count), "2");
    for (wrong, reason) in [
        (["--since", "yesterday"], "a duration such as"),
        (["--outcome", "odd"], "in-flight"),
        (["--upstream", "a b"], "upstream name"),
        (["--follow", "--count"], "--count"),
    ] {
        let output = scene.output(&[&["calls"], &wrong[..]].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(said.contains(reason), "{wrong:?}: {said}");
    }
}

#[test]
fn calls_are_followed_from_before_the_first_start_until_interrupted() {
    let scene = Scene::new();
    let all = Running::start(&scene, &["calls", "--follow", "--json"]);
    let mut serve = scene.serve_with_calls();
    let tools: Vec<Value> = (0..3)
        .map(|_| serde_json::from_str::<Value>(&all.line()).unwrap())
        .collect();
    assert_eq!(
        column(&tools, "tool"),
        ["add_note", "evaluate", "list_notes"]
    );
    assert_eq!(column(&tools, "outcome"), ["ok", "error", "ok"]);
    // Recorded calls come first, up to the limit, and then matching new ones.
    let some = [
        "calls",
        "--follow",
        "--tool",
        "notes__add_note",
        "--limit",
        "1",
    ];
    let some = Running::start(&scene, &some);
    assert!(some.line().starts_with("STARTED (UTC)"));
    assert!(some.line().contains("  add_note "));
    serve.call(6, "notes__list_notes", &json!({}));
    serve.call(7, "notes__add_note", &json!({"text": "b"}));
    for tool in ["list_notes", "add_note"] {
        let call: Value = serde_json::from_str(&all.line()).unwrap();
        assert_eq!(call["tool"], tool);
    }
    let line: Vec<String> = some.line().split_whitespace().map(str::to_owned).collect();
    assert_eq!(line[3..7], ["5", "notes", "add_note", "ok"]);
    assert_eq!(some.interrupt(), Some(0));
    assert_eq!(all.interrupt(), Some(0));
    assert_eq!(serve.end_input(), Some(0));
}

#[test]
fn tools_are_listed_with_usage_including_unused_ones() {
    let scene = Scene::new();
    scene.serve_with_calls().end_input();
    let tools = scene.rows(&["tools", "--json", "--sort", "calls"]);
    assert_eq!(tools.len(), 20);
    let find = |name: &str| tools.iter().find(|tool| tool["tool"] == name).unwrap();
    let failed = find("evaluate");
    assert_eq!(
        (&failed["calls"], &failed["errors"]),
        (&json!(1), &json!(1))
    );
    assert!(failed["p50_ms"].is_number() && failed["last_used"].is_string());
    let unused = find("search_notes");
    assert_eq!(unused["calls"], 0);
    assert!(unused["p95_ms"].is_null() && unused["last_used"].is_null());
    assert_eq!(unused.get("result_tokens"), Some(&Value::Null));
    assert!(unused["tokens"].as_u64().unwrap() > 10, "{unused}");
    let n_calls: Vec<u64> = tools
        .iter()
        .map(|tool| tool["calls"].as_u64().unwrap())
        .collect();
    assert!(n_calls.is_sorted_by(|a, b| a >= b), "{n_calls:?}");
    let notes = scene.rows(&["tools", "--json", "--upstream", "notes"]);
    assert_eq!(notes.len(), 10);
    assert!(
        column(&notes, "upstream")
            .iter()
            .all(|name| *name == "notes")
    );
    let text = scene.run(&["tools", "--sort", "last-used"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].ends_with("TOKENS"), "{text}");
    assert!(
        lines[1].contains("list_notes") && lines[6].contains("never"),
        "{text}"
    );
    let unknown = scene.output(&["tools", "--upstream", "nosuch"]);
    let said = String::from_utf8(unknown.stderr).unwrap();
    assert_eq!(unknown.status.code(), Some(2));
    assert!(said.contains("known are calc, down, notes"), "{said}");
}

#[test]
fn upstreams_tell_whether_the_running_proxy_reaches_them() {
    let scene = Scene::new();
    let before = scene.rows(&["upstreams", "--json"]);
    assert_eq!(column(&before, "state"), ["not_running"; 3]);
    let serve = scene.serve_with_calls();
    // Definitions are recorded separately from requests, and may appear later.
    let begun = Instant::now();
    let running = loop {
        let rows = scene.rows(&["upstreams", "--json"]);
        if rows.iter().map(|row| &row["tools"]).eq([10, 0, 10]) {
            break rows;
        }
        assert!(begun.elapsed() < DEADLINE, "{rows:?}");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(column(&running, "upstream"), ["calc", "down", "notes"]);
    assert_eq!(
        column(&running, "state"),
        ["available", "unavailable", "available"]
    );
    assert_eq!(
        column(&running, "transport"),
        ["stdio", "streamable_http", "stdio"]
    );
    let numbers = |key: &str| {
        running
            .iter()
            .map(|row| row[key].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(numbers("calls"), [1, 0, 2]);
    assert_eq!(numbers("errors"), [1, 0, 0]);
    assert!(running[1]["live"]["reason"].is_string(), "{}", running[1]);
    // A proxy with another data directory is not asked, and does not get the token of this one.
    let elsewhere = ["upstreams", "--json", "--data-dir", "elsewhere"];
    std::fs::create_dir(scene.path().join("elsewhere")).unwrap();
    let token = scene.path().join("elsewhere/control.token");
    std::fs::copy(scene.data_dir().join("control.token"), &token).unwrap();
    let states = |arguments: &[&str]| {
        let output = scene.output(arguments);
        let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        let states = column(&rows, "state").join(" ");
        (states, String::from_utf8(output.stderr).unwrap())
    };
    let (told, said) = states(&elsewhere);
    assert_eq!(told, "not_running not_running not_running");
    assert!(said.contains("no control port of data directory"), "{said}");
    let address = scene.control.to_string();
    let named = [&elsewhere[..], &["--control", &address]].concat();
    let (told, _) = states(&named);
    assert_eq!(told, "available unavailable available");
    std::fs::write(&token, "a token of somebody else\n").unwrap();
    let (told, said) = states(&named);
    assert_eq!(told, "unknown unknown unknown");
    assert!(said.contains("rejected the token"), "{said}");
    serve.end_input();
    let after = scene.output(&["upstreams"]);
    let (text, said) = (
        String::from_utf8(after.stdout).unwrap(),
        String::from_utf8(after.stderr).unwrap(),
    );
    assert_eq!(text.matches("not running").count(), 3, "{text}");
    assert!(
        said.contains("no proxy is running: no control port"),
        "{said}"
    );
    let (_, said) = states(&named);
    assert!(said.contains("nothing listens on"), "{said}");
}

#[test]
fn a_proxy_is_found_wherever_its_control_server_listens() {
    let scene = Scene::new();
    let mut serve = Running::start(&scene, &["serve", "--stdio", "--control", "127.0.0.1:0"]);
    serve.ask(1, "initialize", &hello());
    let running = scene.rows(&["upstreams", "--json"]);
    assert!(
        !column(&running, "state").contains(&"not_running"),
        "{running:?}"
    );
    serve.end_input();
    assert_eq!(
        std::fs::read_dir(scene.data_dir().join("control"))
            .unwrap()
            .count(),
        0
    );
}

#[test]
fn the_token_is_sent_only_to_running_proxies() {
    let scene = Scene::new();
    let mut serve = scene.serve();
    let files = || {
        std::fs::read_dir(scene.data_dir().join("control"))
            .unwrap()
            .count()
    };
    assert_eq!(files(), 1);
    // A killed process removes nothing, and another program takes its port.
    serve.child.kill().unwrap();
    serve.child.wait().unwrap();
    assert_eq!(files(), 1);
    let imitator = TcpListener::bind(scene.control).unwrap();
    let rows = scene.rows(&["upstreams", "--json"]);
    assert_eq!(column(&rows, "state"), ["not_running"; 3]);
    imitator.set_nonblocking(true).unwrap();
    let asked = imitator.accept().unwrap_err();
    assert_eq!(asked.kind(), std::io::ErrorKind::WouldBlock);
    assert_eq!(files(), 0);
}
