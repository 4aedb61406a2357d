//! The page of the control port in a real browser: signing in, all screens with a played session,
//! hostile texts, live changes, decisions, empty states and budgets.
//!
//! `page/run.mjs` makes the checks, with puppeteer and axe-core. The environment variable
//! `RIGLM_TEST_CHROMIUM` names another browser than the Chromium or Chrome in `PATH`. If
//! `RIGLM_TEST_SCREENSHOTS` names a folder, the pictures of `docs/page` are written there.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Method;
use riglm_tests::answers::Answers;
use riglm_tests::client::RawClient;
use riglm_tests::envelope::{Envelope, json_string, raw_at};
use riglm_tests::fixture::{Upstream, clients_dir};
use riglm_tests::kit::{ServerBuilder, server};
use riglm_tests::messages::{call, initialize, request};
use riglm_tests::plain_http;
use riglm_tests::process::{Process, command, free_port};
use riglm_tests::riglm::{Options, Riglm};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout};

use crate::{node_22, script};

/// The deadline of all checks of one test, on a busy machine.
const PATIENCE: Duration = Duration::from_mins(10);

/// A key of the control port that may only read.
const READER: &str = "reader-0123456789abcdef";

/// The configuration of a proxy whose first lists have only the tools of a pool.
const FEW_TOOLS: &str = r#"
[filtering]
policy = "epoch"
min_tools = 3
max_tools = 8
[[filtering.pools]]
name = "tasks"
tools = ["*list_tasks", "*get_task", "*search_tasks", "*create_task"]
"#;

/// A name, description and reason that would run if they were taken for markup.
const MARKUP: &str = "<img src=x onerror=alert(1)><script>alert(2)</script>";

/// A proxy with an open control port, and clients of it.
struct Scene {
    riglm: Riglm,
    options: Options,
    /// The address of the control port, with the scheme.
    origin: String,
    client: RawClient,
    /// The name of the client.
    name: &'static str,
    /// More clients, which only stay connected.
    others: Vec<RawClient>,
    n_requests: u32,
    /// The data directory, with everything else of the scene.
    folder: TempDir,
}

impl Scene {
    /// Returns the token of the operator.
    fn token(&self) -> String {
        let token = std::fs::read_to_string(self.folder.path().join("control.token"));
        token.expect("there is a token").trim().to_owned()
    }

    /// Waits until the proxy has seen changes that it holds back.
    async fn wait_for_held_changes(&self) {
        let bearer = format!("Bearer {}", self.token());
        let url = format!("{}/upstreams", self.origin)
            .parse()
            .expect("it is a URL");
        for _ in 0..200 {
            let headers = [("authorization", &*bearer)];
            let upstreams = plain_http::exchange(Method::GET, &url, &headers, "").await;
            if upstreams.is_ok_and(|upstreams| upstreams.body.contains("approved_hash")) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("no change is held back: {}", self.riglm.process.output());
    }

    /// Starts a proxy in front of servers, with a connected client of this name.
    async fn start(
        folder: TempDir,
        name: &'static str,
        configuration: &str,
        servers: &[ServerBuilder],
    ) -> Self {
        let home = folder.path().join("home");
        std::fs::create_dir_all(&home).expect("a folder can be made");
        // A client without riglm: the set-up has something to say.
        std::fs::write(home.join(".claude.json"), "{}").expect("a file can be written");
        let sections: Vec<String> = servers.iter().map(ServerBuilder::section).collect();
        let keys = format!("[control.keys.reader]\nkey = \"{READER}\"\nscopes = [\"read\"]\n");
        let rest = "[search.encoder]\nmodel = \"none\"\n";
        let configuration = format!("{configuration}{rest}{keys}{}", sections.concat());
        let address = format!("127.0.0.1:{}", free_port());
        let arguments = ["--strategy", "prediction", "--control", &address];
        let home = home.display().to_string();
        let variables = [
            ("HOME", home.clone()),
            ("XDG_CONFIG_HOME", format!("{home}/.config")),
            ("XDG_DATA_HOME", format!("{home}/.local/share")),
        ];
        let options = Options {
            arguments: arguments.map(str::to_owned).to_vec(),
            environment: variables
                .map(|(name, value)| (name.to_owned(), value))
                .to_vec(),
            configuration: Some(configuration),
            ..Options::default()
        };
        let upstream = Upstream::from_configuration();
        let riglm = Riglm::serve(&upstream, folder.path(), &options).await;
        let client = connect(&riglm, name).await;
        Self {
            riglm,
            options,
            origin: format!("http://{address}"),
            client,
            name,
            others: Vec::new(),
            n_requests: 0,
            folder,
        }
    }

    fn next_id(&mut self) -> String {
        self.n_requests += 1;
        self.n_requests.to_string()
    }

    /// Returns the names of the list that the client gets.
    async fn list(&mut self) -> Vec<String> {
        let id = self.next_id();
        let answer = self.client.request(&request(&id, "tools/list")).await;
        names(&answer.text)
    }

    /// Calls a tool by the name that the client sees.
    async fn call(&mut self, tool: &str, arguments: &str) {
        let id = self.next_id();
        let answer = self.client.request(&call(&id, tool, arguments)).await;
        let envelope = Envelope::one(&answer.text);
        let has_result = envelope.is_some_and(|answer| answer.member("result").is_some());
        assert!(has_result, "{tool}: {}", answer.text);
    }

    /// Does what the script asks for.
    async fn fulfil(&mut self, asked: &Value) {
        if asked == "stop" {
            assert_eq!(self.riglm.stop().await, Some(0));
        } else if asked == "start" {
            let upstream = Upstream::from_configuration();
            self.riglm = Riglm::serve(&upstream, self.folder.path(), &self.options).await;
            self.client = connect(&self.riglm, self.name).await;
            self.list().await;
        } else {
            let [upstream, tool] = ["upstream", "tool"].map(|key| asked["call"][key].as_str());
            let upstream = upstream.expect("the script names an upstream");
            let tool = tool.expect("the script names a tool");
            self.call(&format!("{upstream}__{tool}"), "{}").await;
        }
    }

    /// Runs a part of the script on the scene, and fails with everything that it found.
    async fn check(mut self, part: &str, more: &Value) {
        let mut scene = json!({
            "part": part,
            "origin": self.origin,
            "mcp": self.riglm.url.as_str(),
            "token": self.token(),
            "reader": READER,
            "client": self.name,
            "session": self.client.session_id(),
            "profile": self.folder.path().join("browser"),
            "screenshots": std::env::var_os("RIGLM_TEST_SCREENSHOTS").map(PathBuf::from),
        });
        let members = scene.as_object_mut().expect("the scene is an object");
        members.extend(more.as_object().cloned().unwrap_or_default());
        let mut command = command(node_22(), &[script("page/run.mjs")]);
        command
            .arg(scene.to_string())
            .env("RIGLM_TEST_CLIENTS", clients_dir())
            .env("HOME", self.folder.path());
        let (process, stdin, stdout) = Process::spawn_piped(command);
        let lines = BufReader::new(stdout).lines();
        let report = tokio::time::timeout(PATIENCE, self.converse(lines, stdin)).await;
        let Ok(report) = report else {
            panic!("{part} took over {PATIENCE:?}: {}", process.output());
        };
        let Some(report) = report else {
            panic!("{part} ended without a report: {}", process.output());
        };
        eprintln!(
            "{part}: {} checks, {}",
            report["checks"], report["measured"]
        );
        let failures: Vec<&str> = report["failures"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        assert!(
            failures.is_empty(),
            "{} of {} checks of {part} failed:\n- {}\nriglm printed:\n{}",
            failures.len(),
            report["checks"],
            failures.join("\n- "),
            self.riglm.process.output()
        );
        assert!(report["checks"].as_u64() >= Some(5), "{report}");
    }

    /// Answers the script until its report, which is returned.
    async fn converse(
        &mut self,
        mut lines: Lines<BufReader<ChildStdout>>,
        mut stdin: ChildStdin,
    ) -> Option<Value> {
        while let Ok(Some(line)) = lines.next_line().await {
            let mut said: Value = serde_json::from_str(&line).expect("the script prints JSON");
            if said["report"].is_object() {
                return Some(said["report"].take());
            }
            self.fulfil(&said["ask"]).await;
            let written = stdin.write_all(b"{}\n").await;
            written.expect("the script reads its input");
        }
        None
    }
}

async fn connect(riglm: &Riglm, name: &str) -> RawClient {
    let client = riglm.client(Answers::default());
    let hello = initialize("0", "2025-11-25").replace("raw-client", name);
    client.initialize(&hello).await;
    client
}

/// Returns the names in an answer to `tools/list`.
fn names(answer: &str) -> Vec<String> {
    let tools = raw_at(answer, &["result", "tools"]).expect("the answer has tools");
    let tools: Vec<Value> = serde_json::from_str(&tools).expect("the tools are JSON");
    let names = tools.iter().map(|tool| tool["name"].as_str());
    names.flatten().map(str::to_owned).collect()
}

fn temporary_folder() -> TempDir {
    TempDir::new().expect("a temporary folder can be made")
}

/// Returns a server with 41 tools about tasks, projects and documents.
fn work() -> ServerBuilder {
    let catalog = Path::new(env!("CARGO_MANIFEST_DIR")).join("e2e/scenarios/catalog.json");
    server("work").listing(&catalog)
}

/// Returns a proxy after a session: lists, calls, one of which failed, a search, and the call of a
/// hidden tool. An upstream holds two changes of its tools.
async fn played_session() -> (Scene, Value) {
    let folder = temporary_folder();
    let changed = folder.path().join("changed");
    let plain = server("plain")
        .tools(12)
        .argument("--changes", changed.display().to_string())
        .key("tool_changes = \"hold\"");
    let mut scene = Scene::start(folder, "page-editor", FEW_TOOLS, &[work(), plain]).await;
    let listed = scene.list().await;
    let hidden = "work__archive_project";
    assert!(!listed.contains(&hidden.to_owned()), "{listed:?}");
    for tool in [
        "list_tasks",
        "get_task",
        "list_tasks",
        "get_task",
        "get_task",
    ] {
        scene.call(&format!("work__{tool}"), "{}").await;
    }
    scene.call("work__list_tasks", r#"{"fail":true}"#).await;
    let words = r#"{"query":"read an article of the help center"}"#;
    scene.call("search_available_tools", words).await;
    scene.call(hidden, "{}").await;
    std::fs::write(changed, "").expect("a file can be written");
    // Each connection starts the servers anew, so the next one lists changed tools. The approved ones
    // are shown meanwhile.
    let other = connect(&scene.riglm, "page-viewer").await;
    other.request(&request("1", "tools/list")).await;
    scene.others.push(other);
    scene.wait_for_held_changes().await;
    let hidden = json!({"upstream": "work", "tool": "archive_project"});
    let facts = json!({
        "hidden": hidden,
        "last": hidden,
        "other": {"upstream": "work", "tool": "search_tasks"},
        "holding": "plain",
        "held": 2,
    });
    (scene, facts)
}

/// Returns names with markup, terminal codes and reversed letters, and one of 10 kB.
fn hostile_names() -> [String; 6] {
    [
        MARKUP.to_owned(),
        "\"><svg/onload=alert(3)>".to_owned(),
        "javascript:alert(4)".to_owned(),
        "\u{1b}[31mred\u{1b}]8;;http://evil.example\u{7}link".to_owned(),
        "harmless\u{202e}gpj.exe".to_owned(),
        "long_name_".repeat(1_000),
    ]
}

/// Returns the definitions of hostile tools, with this text in each description.
fn hostile_tools(description: &str) -> String {
    let long = "x".repeat(10_000);
    let description = json_string(&format!("{MARKUP} \u{1b}[2J\u{202e}{long} {description}"));
    let tools = hostile_names().map(|name| {
        let name = json_string(&name);
        format!(r#"{{"name": {name}, "description": {description}, "inputSchema": {{"type": "object"}}}}"#)
    });
    format!("[{}]", tools.join(", "))
}

#[tokio::test]
#[ignore = "needs npm and Chromium"]
async fn page_asks_for_the_token_once() {
    let servers = [work()];
    let scene = Scene::start(temporary_folder(), "page-editor", "", &servers).await;
    scene.check("signIn", &json!({})).await;
}

#[tokio::test]
#[ignore = "needs npm and Chromium"]
async fn page_shows_a_played_session_on_all_screens() {
    let (scene, facts) = played_session().await;
    scene.check("allScreens", &facts).await;
}

#[tokio::test]
#[ignore = "needs npm and Chromium"]
async fn page_shows_hostile_texts_as_text() {
    let folder = temporary_folder();
    let listing = folder.path().join("listing.json");
    let write = |description: &str| {
        std::fs::write(&listing, hostile_tools(description)).expect("a file can be written");
    };
    write("before");
    let hostile = server("hostile")
        .listing(&listing)
        .key("tool_changes = \"hold\"");
    let name = "<b onmouseover=alert(5)>mallory</b>";
    let mut scene = Scene::start(folder, name, "[filtering]\npolicy = \"all\"\n", &[hostile]).await;
    let listed = scene.list().await;
    assert!(listed.contains(&MARKUP.to_owned()), "{listed:?}");
    for tool in hostile_names() {
        scene.call(&tool, "{}").await;
    }
    scene.call(MARKUP, r#"{"fail":true}"#).await;
    // Each connection starts the server anew, so the next one lists changed tools.
    write("after");
    let other = connect(&scene.riglm, "page-editor").await;
    other.request(&request("1", "tools/list")).await;
    scene.others.push(other);
    let tool = json!({"upstream": "hostile", "tool": MARKUP});
    let facts = json!({
        "hidden": tool,
        "last": tool,
        "holding": "hostile",
        "known": hostile_names().len(),
        "markup": MARKUP,
    });
    scene.check("hostile", &facts).await;
}

#[tokio::test]
#[ignore = "needs npm and Chromium"]
async fn page_follows_a_running_proxy() {
    let (scene, facts) = played_session().await;
    scene.check("live", &facts).await;
}

#[tokio::test]
#[ignore = "needs npm and Chromium"]
async fn page_decides_with_the_scope_for_it() {
    let (scene, facts) = played_session().await;
    scene.check("decisions", &facts).await;
}

#[tokio::test]
#[ignore = "needs npm and Chromium"]
async fn page_explains_missing_data() {
    let hidden = json!({"hidden": {"upstream": "work", "tool": "archive_project"}});
    for configuration in ["", "[recording]\nmode = \"off\"\n"] {
        let servers = [work()];
        let scene = Scene::start(temporary_folder(), "page-editor", configuration, &servers).await;
        scene.check("nothingYet", &hidden).await;
    }
}

#[tokio::test]
#[ignore = "needs npm and Chromium"]
async fn page_is_small_and_works_with_a_thousand_tools() {
    let servers = [server("many").tools(1_000)];
    let mut scene = Scene::start(temporary_folder(), "page-editor", "", &servers).await;
    scene.list().await;
    let hidden = json!({"hidden": {"upstream": "many", "tool": "tool-000"}});
    scene.check("budgets", &hidden).await;
}
