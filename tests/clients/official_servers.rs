//! Five official servers behind one proxy, and sessions of the official clients. Many sessions
//! start before the servers have started, or end before that.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use riglm_tests::answers::Answers;
use riglm_tests::fixture::{Upstream, clients_dir, npm_package};
use riglm_tests::messages::{initialize_with, request};
use riglm_tests::plain_http;
use riglm_tests::process::{command, free_port};
use riglm_tests::riglm::{Options, Riglm};
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;
use url::Url;

use crate::{node_22, output, script};

/// The deadline of concurrent sessions.
const TOGETHER: Duration = Duration::from_mins(4);

/// Long limits for lists: some thirty processes start at the same time, and the speed of the
/// machine is not under test.
const PATIENCE: &str =
    "[limits]\nfirst_wait = \"1m\"\nunite_timeout = \"1m\"\nhandshake_timeout = \"2m\"\n";

/// The client capabilities on which the lists of some servers depend.
const FULL: &str =
    r#"{"sampling":{},"elicitation":{"form":{},"url":{}},"roots":{"listChanged":true}}"#;

/// The second run of the proxy, whose store contains the lists of the first run.
const REMEMBERED: &str = "remembered";

/// The kinds of lists.
const KINDS: [&str; 3] = ["tools", "prompts", "resources"];

/// The servers with a call for each that proves that it works.
struct OfficialServers {
    folder: TempDir,
    servers: BTreeMap<&'static str, Server>,
}

struct Server {
    words: Vec<String>,
    environment: BTreeMap<&'static str, String>,
    /// One process for all sessions (`shared`), or one for each session.
    isolation: &'static str,
    call: (&'static str, Value),
}

impl OfficialServers {
    /// Creates the files that the servers work on.
    async fn new() -> Self {
        let folder = TempDir::new().expect("a temporary folder can be made");
        let files = folder.path().join("files");
        std::fs::create_dir(&files).expect("a folder can be made");
        std::fs::write(files.join("note.txt"), "hello").expect("a file can be written");
        let git = command("git", &["init", "--quiet", "repository"])
            .current_dir(folder.path())
            .status()
            .await;
        assert!(git.expect("git is installed").success());
        let servers = servers(folder.path());
        Self { folder, servers }
    }

    /// Returns the configuration of a proxy in front of the servers.
    fn configuration(&self) -> String {
        let sections = self.servers.iter().map(|(name, server)| {
            let words: Vec<String> = server
                .words
                .iter()
                .map(|word| format!("{word:?}"))
                .collect();
            let variables: Vec<String> = server
                .environment
                .iter()
                .map(|(name, value)| format!("{name} = {value:?}"))
                .collect();
            format!(
                "[upstreams.{name}]\ncommand = [{}]\nisolation = \"{}\"\nenv = {{ {} }}\n",
                words.join(", "),
                server.isolation,
                variables.join(", ")
            )
        });
        sections.chain([PATIENCE.to_owned()]).collect()
    }

    /// Returns the calls of a session as JSON for the client scripts: one for each server.
    fn calls(&self) -> String {
        let calls: Vec<Value> = self
            .servers
            .iter()
            .map(|(name, server)| json!([format!("{name}__{}", server.call.0), server.call.1]))
            .collect();
        Value::from(calls).to_string()
    }

    /// Returns the names of the tools that the servers list for a client with these capabilities.
    async fn tools(&self, capabilities: &str) -> BTreeSet<String> {
        let mut tools = BTreeSet::new();
        for (name, server) in &self.servers {
            // A shared process gets no client capabilities.
            let is_shared = server.isolation == "shared";
            let capabilities = if is_shared { "{}" } else { capabilities };
            let listed = server.tools(capabilities).await;
            assert!(!listed.is_empty(), "{name} lists tools");
            tools.extend(listed.into_iter().map(|tool| format!("{name}__{tool}")));
        }
        tools
    }
}

impl Server {
    async fn tools(&self, capabilities: &str) -> Vec<String> {
        let mut words = vec!["env".to_owned()];
        words.extend(
            self.environment
                .iter()
                .map(|(name, value)| format!("{name}={value}")),
        );
        words.extend(self.words.iter().cloned());
        let client = Upstream::of_command(words).client(Answers::full()).await;
        let hello = initialize_with("0", "2025-06-18", capabilities);
        client.initialize(&hello).await;
        let answer = client.request(&request("1", "tools/list")).await;
        let answer: Value = serde_json::from_str(&answer.text).expect("an answer is JSON");
        let tools = answer["result"]["tools"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        tools
            .iter()
            .filter_map(|tool| tool["name"].as_str().map(str::to_owned))
            .collect()
    }
}

fn servers(folder: &Path) -> BTreeMap<&'static str, Server> {
    let text = |path: &Path| path.display().to_string();
    let of_npm = |name: &str, arguments: &[String]| {
        let package = npm_package(&format!("@modelcontextprotocol/server-{name}"));
        let words = [text(&node_22()), text(&package.join("dist/index.js"))];
        [&words, arguments].concat()
    };
    let of_pip = |words: &[&str]| {
        words
            .iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>()
    };
    let python = BTreeMap::from([("PYTHONPATH", text(&clients_dir().join("python-servers")))]);
    let memory = text(&folder.join("memory.jsonl"));
    let repository = text(&folder.join("repository"));
    let server = |words, environment, isolation, call| Server {
        words,
        environment,
        isolation,
        call,
    };
    BTreeMap::from([
        (
            "everything",
            server(
                of_npm("everything", &["stdio".into()]),
                BTreeMap::new(),
                "per_session",
                ("echo", json!({"message": "here"})),
            ),
        ),
        (
            "files",
            server(
                of_npm("filesystem", &[text(&folder.join("files"))]),
                BTreeMap::new(),
                "per_session",
                ("list_allowed_directories", json!({})),
            ),
        ),
        (
            "git",
            server(
                of_pip(&[
                    "python3",
                    "-m",
                    "mcp_server_git",
                    "--repository",
                    &repository,
                ]),
                python.clone(),
                "shared",
                ("git_status", json!({"repo_path": repository})),
            ),
        ),
        (
            "memory",
            server(
                of_npm("memory", &[]),
                BTreeMap::from([("MEMORY_FILE_PATH", memory)]),
                "per_session",
                ("read_graph", json!({})),
            ),
        ),
        (
            "time",
            server(
                of_pip(&[
                    "python3",
                    "-m",
                    "mcp_server_time",
                    "--local-timezone",
                    "UTC",
                ]),
                python,
                "shared",
                ("get_current_time", json!({"timezone": "UTC"})),
            ),
        ),
    ])
}

/// The report of one session, as the client scripts print it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SessionReport {
    client: String,
    capable: String,
    end: String,
    /// The names in the first and the last list of each kind.
    first: BTreeMap<String, BTreeSet<String>>,
    last: BTreeMap<String, BTreeSet<String>>,
    /// The number of `list_changed` notifications of each kind, and the number of them before the
    /// session had requested such a list.
    told: BTreeMap<String, usize>,
    early: BTreeMap<String, usize>,
    /// The calls with an error result.
    failed: Vec<Value>,
    error: Option<String>,
}

impl SessionReport {
    /// Returns the number of superfluous notifications: the ones before the session had requested
    /// the list, and the ones for unchanged lists. A changed list justifies one notification.
    fn superfluous(&self) -> usize {
        let of_kind = |kind: &str| {
            let told = self.told.get(kind).copied().unwrap_or_default();
            let early = self.early.get(kind).copied().unwrap_or_default();
            let has_changed = self.first.get(kind) != self.last.get(kind);
            early.max(told.saturating_sub(usize::from(has_changed)))
        };
        KINDS.into_iter().map(of_kind).sum()
    }
}

/// A proxy with the address of its control port.
struct Proxy {
    riglm: Riglm,
    control: Url,
    calls: String,
}

impl Proxy {
    async fn start(five: &OfficialServers, data_dir: &Path) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        let options = Options {
            arguments: vec!["--control".into(), address.clone()],
            ..Options::with_configuration(&five.configuration())
        };
        let riglm = Riglm::serve(&Upstream::from_configuration(), data_dir, &options).await;
        let control = format!("http://{address}/health");
        Self {
            riglm,
            control: control.parse().expect("the address is a URL"),
            calls: five.calls(),
        }
    }

    /// Runs these sessions concurrently, alternating between both languages, and returns their
    /// reports.
    async fn sessions(&self, words: &[&str]) -> Vec<SessionReport> {
        let every_other = |first: usize| words.iter().skip(first).step_by(2);
        let mut typescript = command(node_22(), &[script("official-sessions.mjs")]);
        typescript.arg(self.riglm.url.as_str()).args(every_other(0));
        let mut python = command("python3", &[script("official_sessions.py")]);
        python.arg(self.riglm.url.as_str()).args(every_other(1));
        python.env("PYTHONPATH", clients_dir().join("python"));
        for client in [&mut typescript, &mut python] {
            client.env("RIGLM_TEST_CALLS", &self.calls);
        }
        let (typescript, python) =
            tokio::join!(output(typescript, TOGETHER), output(python, TOGETHER));
        [typescript, python]
            .iter()
            .flat_map(|text| -> Vec<SessionReport> {
                serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
            })
            .collect()
    }

    async fn health(&self) -> Value {
        let answer = plain_http::exchange(http::Method::GET, &self.control, &[], "").await;
        let answer = answer.unwrap_or_else(|error| panic!("{}", error.0));
        serde_json::from_str(&answer.body).expect("health is JSON")
    }
}

/// Error messages.
#[derive(Default)]
struct Findings(Vec<String>);

impl Findings {
    /// Checks the reports of concurrent sessions.
    fn check_reports(
        &mut self,
        (run, when): (&str, &str),
        all: &[SessionReport],
        expected: &BTreeMap<&str, BTreeSet<String>>,
    ) {
        let when = format!("{run}, {when}");
        let stayed: Vec<&SessionReport> = all.iter().filter(|seen| seen.end == "stay").collect();
        let n_first: Vec<usize> = stayed.iter().map(|seen| count(&seen.first)).collect();
        let superfluous: usize = stayed.iter().map(|seen| seen.superfluous()).sum();
        eprintln!("{when}: tools in first lists {n_first:?}, {superfluous} superfluous");
        for seen in all {
            let who = format!("{when}, {} {} {}", seen.client, seen.capable, seen.end);
            if let Some(error) = &seen.error {
                self.0.push(format!("{who}: {error}"));
            }
            if !seen.failed.is_empty() {
                self.0
                    .push(format!("{who}: calls failed: {:?}", seen.failed));
            }
        }
        for seen in stayed.iter().filter(|seen| seen.error.is_none()) {
            let who = format!("{when}, {} {}", seen.client, seen.capable);
            for (list, names) in [("first", &seen.first), ("last", &seen.last)] {
                let none = BTreeSet::new();
                let tools = names.get("tools").unwrap_or(&none);
                let own = &expected[seen.capable.as_str()];
                // The first list may contain the remembered tools of a server that still starts, as
                // it listed them for a client with other capabilities. Then it contains all of
                // them. The last list is the client's own.
                let is_whole = |server: &str| {
                    let listed = of_server(tools, server);
                    let is_own = listed == of_server(own, server);
                    let remembered = || expected.values().map(|all| of_server(all, server));
                    is_own || (list == "first" && remembered().any(|all| all == listed))
                };
                let servers = expected.values().flatten().chain(tools);
                let servers: BTreeSet<&str> = servers.filter_map(|name| server_of(name)).collect();
                let odd: Vec<&str> = (servers.into_iter())
                    .filter(|server| !is_whole(server))
                    .collect();
                if !odd.is_empty() || tools.iter().any(|name| server_of(name).is_none()) {
                    let text = format!("{who}: the {list} list is not whole of {odd:?}: {tools:?}");
                    self.0.push(text);
                }
            }
            if seen.superfluous() > 0 {
                let text = format!("{who}: told {:?}, early {:?}", seen.told, seen.early);
                self.0.push(text);
            }
        }
    }

    fn note_health(&mut self, when: &str, health: &Value) {
        let upstreams = health["upstreams"].as_object();
        let n_upstreams = upstreams.map_or(0, serde_json::Map::len);
        if n_upstreams != 5 || health.to_string().contains("\"unavailable\"") {
            self.0.push(format!("{when}: {health}"));
        }
    }
}

/// Returns the server of a tool.
fn server_of(name: &str) -> Option<&str> {
    name.split_once("__").map(|(server, _)| server)
}

/// Returns the tools of one server.
fn of_server<'a>(tools: &'a BTreeSet<String>, server: &str) -> BTreeSet<&'a str> {
    let all = tools.iter().map(String::as_str);
    all.filter(|name| server_of(name) == Some(server)).collect()
}

fn count(lists: &BTreeMap<String, BTreeSet<String>>) -> usize {
    lists.get("tools").map_or(0, BTreeSet::len)
}

#[tokio::test]
#[ignore = "needs npm and pip"]
async fn first_lists_are_complete_for_every_session() {
    /// Sessions that stay until the end, of clients with all capabilities or none.
    const STAY: [&str; 4] = ["full:stay", "full:stay", "plain:stay", "plain:stay"];
    /// Sessions that end while servers start for them.
    const LEAVE: [&str; 4] = [
        "full:delete",
        "plain:delete",
        "plain:disconnect",
        "full:disconnect",
    ];
    let five = OfficialServers::new().await;
    let expected = BTreeMap::from([
        ("full", five.tools(FULL).await),
        ("plain", five.tools("{}").await),
    ]);
    let data_dir = TempDir::new().expect("a temporary folder can be made");
    let all_words = [LEAVE, STAY, STAY].concat();
    let mut findings = Findings::default();
    let mut n_stayed = 0;
    // The second proxy remembers the lists of the first one.
    for run in ["nothing known", REMEMBERED] {
        let mut proxy = Proxy::start(&five, data_dir.path()).await;
        for (when, words) in [
            ("while servers start", all_words.as_slice()),
            ("after the others have left", &STAY),
            ("among those that leave", &all_words),
        ] {
            let seen = proxy.sessions(words).await;
            n_stayed += seen.iter().filter(|seen| seen.end == "stay").count();
            findings.check_reports((run, when), &seen, &expected);
            findings.note_health(&format!("{run}, {when}"), &proxy.health().await);
        }
        assert_eq!(proxy.riglm.stop().await, Some(0), "{run}");
    }
    drop(five.folder);
    assert_eq!(n_stayed, 40, "sessions");
    assert!(findings.0.is_empty(), "{:#?}", findings.0);
}
