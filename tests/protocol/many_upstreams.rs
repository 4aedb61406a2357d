//! Ten servers as one: of both eras over every transport, one of them slow and one that is not there.

use std::time::Duration;

use riglm_tests::client::RawClient;
use riglm_tests::envelope::{integer_at, raw_at, string_at};
use riglm_tests::fixture::{Transport, Upstream};
use riglm_tests::inbox::Received;
use riglm_tests::messages::{initialize, request_with};
use riglm_tests::modern::Meta;
use riglm_tests::process::free_port;
use riglm_tests::riglm::{Options, Riglm};
use serde_json::Value;
use tempfile::TempDir;

use crate::{answers, odd_with};

/// How many tools each server has.
const N_TOOLS: usize = 100;

/// The servers that are well, in the order of the configuration: era and transport.
const WELL: [(&str, Transport); 8] = [
    ("legacy", Transport::Stdio),
    ("modern", Transport::Stdio),
    ("legacy", Transport::Streamable),
    ("modern", Transport::Streamable),
    ("legacy", Transport::Legacy),
    ("dual", Transport::Stdio),
    ("dual", Transport::Streamable),
    ("legacy", Transport::Stdio),
];

/// The server that takes long to answer anything.
const SLOW: &str = "u8";

/// How long it takes.
const DELAY: Duration = Duration::from_secs(3);

/// The server that nobody started.
const DEAD: &str = "u9";

/// How long a client waits: the slow server has to be asked several things before it can be listed.
const PATIENCE: Duration = Duration::from_mins(1);

/// The proxy in front of the ten.
struct Many {
    riglm: Riglm,
    _upstreams: Vec<Upstream>,
    _data_dir: TempDir,
}

impl Many {
    async fn start() -> Self {
        let mut upstreams = Vec::new();
        let mut configuration = String::from("naming = \"prefix\"\n");
        let count = N_TOOLS.to_string();
        for (n, (era, transport)) in WELL.into_iter().enumerate() {
            let name = format!("u{n}");
            let arguments = ["--era", era, "--tools", &count, "--name", &name];
            let upstream = odd_with(&arguments).start(transport).await;
            configuration.push_str(&section(&name, &upstream));
            upstreams.push(upstream);
        }
        let delay = DELAY.as_millis().to_string();
        let arguments = ["--tools", &count, "--name", SLOW, "--delay", &delay];
        let slow = odd_with(&arguments).start(Transport::Streamable).await;
        configuration.push_str(&section(SLOW, &slow));
        upstreams.push(slow);
        let nowhere = format!("http://127.0.0.1:{}/mcp", free_port());
        let dead = Upstream::at(
            Transport::Streamable,
            nowhere.parse().expect("the address is a URL"),
        );
        configuration.push_str(&section(DEAD, &dead));
        let data_dir = TempDir::new().expect("a temporary folder can be made");
        let options = Options::configured(&configuration);
        let riglm = Riglm::serve(&Upstream::configured(), data_dir.path(), &options).await;
        Self {
            riglm,
            _upstreams: upstreams,
            _data_dir: data_dir,
        }
    }

    /// Returns a client with its session, of each era.
    async fn clients(&self) -> [Speaker; 2] {
        let legacy = self.riglm.client(answers()).with_patience(PATIENCE);
        legacy.initialize(&initialize("0", "2025-11-25")).await;
        let modern = RawClient::modern(&self.riglm.url).with_patience(PATIENCE);
        [
            Speaker {
                client: legacy,
                is_modern: false,
            },
            Speaker {
                client: modern,
                is_modern: true,
            },
        ]
    }
}

/// Returns the section of a server in the configuration.
fn section(name: &str, upstream: &Upstream) -> String {
    let place = match (&upstream.url, upstream.transport) {
        (None, _) => {
            let words = serde_json::to_string(&upstream.command).expect("words are JSON");
            format!("command = {words}")
        }
        (Some(url), Transport::Legacy) => format!("url = \"sse+{url}\""),
        (Some(url), _) => format!("url = \"{url}\""),
    };
    format!("[upstreams.{name}]\n{place}\n")
}

/// A client that says everything in its own era.
struct Speaker {
    client: RawClient,
    is_modern: bool,
}

impl Speaker {
    fn text(&self, id: &str, method: &str, params: &str) -> String {
        if self.is_modern {
            Meta::default().request(id, method, params)
        } else {
            request_with(id, method, &format!("{{{params}}}"))
        }
    }

    async fn ask(&self, id: &str, method: &str, params: &str) -> Received {
        self.client.request(&self.text(id, method, params)).await
    }

    async fn call(&self, id: &str, tool: &str) -> Received {
        let params = format!(r#""name":"{tool}","arguments":{{}}"#);
        self.ask(id, "tools/call", &params).await
    }

    /// Returns all entries of a list, page by page, by the member that names them.
    async fn listed(&self, id: &str, method: &str, list: &str, member: &str) -> Vec<String> {
        let mut names = Vec::new();
        let mut params = String::new();
        for page in 0..100 {
            let answer = self.ask(&format!("\"{id}.{page}\""), method, &params).await;
            let entries = raw_at(&answer.text, &["result", list])
                .unwrap_or_else(|| panic!("no {list}: {}", answer.text));
            let entries: Vec<Value> = serde_json::from_str(&entries).expect("a list is JSON");
            let of_page = entries
                .iter()
                .filter_map(|entry| entry[member].as_str().map(str::to_owned));
            names.extend(of_page);
            match raw_at(&answer.text, &["result", "nextCursor"]) {
                Some(cursor) => params = format!(r#""cursor":{cursor}"#),
                None => return names,
            }
        }
        panic!("{method} has no end: {} entries", names.len())
    }

    async fn tools(&self, id: &str) -> Vec<String> {
        self.listed(id, "tools/list", "tools", "name").await
    }

    /// Lists tools until those of the slow server are among them.
    async fn all_tools(&self) -> Vec<String> {
        for attempt in 0..20 {
            let tools = self.tools(&format!("all {attempt}")).await;
            if tools.iter().any(|tool| tool.starts_with(SLOW)) {
                return tools;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        panic!(
            "the slow server is never listed:\n{}",
            self.client.history()
        )
    }
}

/// Returns the names of the tools of a server.
fn tools_of(server: &str) -> Vec<String> {
    (0..N_TOOLS)
        .map(|n| format!("{server}__tool-{n:03}"))
        .collect()
}

fn well() -> impl Iterator<Item = String> {
    (0..WELL.len()).map(|n| format!("u{n}"))
}

fn text_of(answer: &Received) -> String {
    let content = raw_at(&answer.text, &["result", "content"])
        .unwrap_or_else(|| panic!("no content: {}", answer.text));
    let content: Vec<Value> = serde_json::from_str(&content).expect("content is JSON");
    content[0]["text"].as_str().unwrap_or_default().to_owned()
}

fn assert_own_error(answer: &Received) {
    let code = integer_at(&answer.text, &["error", "code"])
        .unwrap_or_else(|| panic!("no error: {}", answer.text));
    assert!(!(-32_768..=-32_000).contains(&code), "{code} is reserved");
}

#[tokio::test]
async fn the_list_has_the_tools_of_all_that_answer_in_the_same_order_every_time() {
    let many = Many::start().await;
    for speaker in many.clients().await {
        let tools = speaker.all_tools().await;
        let mut expected: Vec<String> = well().flat_map(|server| tools_of(&server)).collect();
        expected.extend(tools_of(SLOW));
        let mut sorted = tools.clone();
        sorted.sort();
        expected.sort();
        assert_eq!(sorted, expected, "modern: {}", speaker.is_modern);
        assert_eq!(speaker.tools("again").await, tools, "the order is the same");
        for server in well() {
            let own: Vec<&String> = tools
                .iter()
                .filter(|tool| tool.starts_with(&format!("{server}__")))
                .collect();
            assert!(own.is_sorted(), "the order of {server} is its own: {own:?}");
        }
    }
}

#[tokio::test]
async fn two_clients_see_the_same_order() {
    let many = Many::start().await;
    let [legacy, modern] = many.clients().await;
    assert_eq!(legacy.all_tools().await, modern.all_tools().await);
}

#[tokio::test]
async fn calls_reach_the_server_that_has_the_tool() {
    let many = Many::start().await;
    for speaker in many.clients().await {
        for server in well() {
            let tool = format!("{server}__tool-042");
            let answer = speaker.call(&format!("\"{server}\""), &tool).await;
            assert_eq!(text_of(&answer), format!("{server} ran tool-042"));
        }
        let slow = speaker.call("\"slow\"", &format!("{SLOW}__tool-000")).await;
        assert_eq!(text_of(&slow), format!("{SLOW} ran tool-000"));
        let dead = speaker.call("\"dead\"", &format!("{DEAD}__tool-000")).await;
        assert_own_error(&dead);
        for unknown in ["u0__nothing", "u77__tool-000", "tool-000"] {
            let answer = speaker.call("\"unknown\"", unknown).await;
            let code = integer_at(&answer.text, &["error", "code"]);
            assert_eq!(code, Some(-32602), "{unknown}: {}", answer.text);
        }
    }
}

#[tokio::test]
async fn a_slow_and_a_dead_server_hold_nobody_up() {
    const ROUNDS: usize = 3;
    let many = Many::start().await;
    for speaker in many.clients().await {
        // Everybody is connected and known before anything is measured.
        speaker.all_tools().await;
        for server in well() {
            let tool = format!("{server}__tool-000");
            speaker.call(&format!("\"warm {server}\""), &tool).await;
        }
        let params = format!(r#""name":"{SLOW}__tool-001","arguments":{{}}"#);
        let slow = speaker.text("\"slow\"", "tools/call", &params);
        let params = format!(r#""name":"{DEAD}__tool-001","arguments":{{}}"#);
        let dead = speaker.text("\"dead\"", "tools/call", &params);
        let calls = async {
            for round in 0..ROUNDS {
                for server in well() {
                    let tool = format!("{server}__tool-{round:03}");
                    let answer = speaker.call(&format!("\"{server} {round}\""), &tool).await;
                    assert_eq!(text_of(&answer), format!("{server} ran tool-{round:03}"));
                }
            }
            let received = speaker.client.received();
            received.iter().any(|message| message.answers("\"slow\""))
        };
        let (slow, dead, was_overtaken) = tokio::join!(
            speaker.client.request(&slow),
            speaker.client.request(&dead),
            calls
        );
        assert!(
            !was_overtaken,
            "{} calls took longer than one of the slow server (modern: {})",
            ROUNDS * WELL.len(),
            speaker.is_modern
        );
        assert_eq!(text_of(&slow), format!("{SLOW} ran tool-001"));
        assert_own_error(&dead);
    }
}

#[tokio::test]
async fn resources_are_read_from_the_server_that_has_them() {
    let many = Many::start().await;
    for speaker in many.clients().await {
        speaker.all_tools().await;
        let uris = speaker
            .listed("uris", "resources/list", "resources", "uri")
            .await;
        let templates = speaker
            .listed(
                "templates",
                "resources/templates/list",
                "resourceTemplates",
                "uriTemplate",
            )
            .await;
        for server in well() {
            let uri = format!("plain://{server}/1");
            assert!(uris.contains(&uri), "{uris:?}");
            let template = format!("plain://{server}/t/{{id}}");
            assert!(templates.contains(&template), "{templates:?}");
            for uri in [uri, format!("plain://{server}/t/7")] {
                let params = format!(r#""uri":"{uri}""#);
                let answer = speaker.ask("\"read\"", "resources/read", &params).await;
                assert!(
                    answer.text.contains(&format!("{server} has {uri}")),
                    "{}",
                    answer.text
                );
            }
        }
        let unknown = speaker
            .ask("\"none\"", "resources/read", r#""uri":"nowhere://x""#)
            .await;
        let code = integer_at(&unknown.text, &["error", "code"]);
        assert!(
            code == Some(-32602) || !speaker.is_modern && code == Some(-32002),
            "{}",
            unknown.text
        );
    }
}

#[tokio::test]
async fn prompts_are_those_of_all_under_names_of_their_own() {
    let many = Many::start().await;
    for speaker in many.clients().await {
        speaker.all_tools().await;
        let names = speaker
            .listed("prompts", "prompts/list", "prompts", "name")
            .await;
        for server in well() {
            let name = format!("{server}__greet");
            assert!(names.contains(&name), "{names:?}");
            let params = format!(r#""name":"{name}""#);
            let answer = speaker.ask("\"get\"", "prompts/get", &params).await;
            assert!(
                answer.text.contains(&format!("{server} greets")),
                "{}",
                answer.text
            );
        }
        assert!(
            !names.iter().any(|name| name.starts_with(DEAD)),
            "{names:?}"
        );
    }
}

#[tokio::test]
async fn pages_follow_each_other_and_a_stale_cursor_is_refused() {
    let many = Many::start().await;
    for speaker in many.clients().await {
        let tools = speaker.all_tools().await;
        let mut distinct = tools.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), tools.len(), "no tool comes twice");
        for cursor in [r#""made up""#, r#""from 40""#, r#""""#] {
            let params = format!(r#""cursor":{cursor}"#);
            let answer = speaker.ask("\"stale\"", "tools/list", &params).await;
            let code = integer_at(&answer.text, &["error", "code"]);
            assert_eq!(code, Some(-32602), "{cursor}: {}", answer.text);
        }
    }
}

#[tokio::test]
async fn the_client_is_told_one_server_with_the_capabilities_of_all() {
    let many = Many::start().await;
    let [_, modern] = many.clients().await;
    let discovered = modern.ask("\"d\"", "server/discover", "").await;
    let legacy = many.riglm.client(answers()).with_patience(PATIENCE);
    let initialized = legacy.initialize(&initialize("0", "2025-11-25")).await;
    for answer in [discovered, initialized] {
        for capability in ["tools", "resources", "prompts"] {
            let path = ["result", "capabilities", capability];
            assert!(raw_at(&answer.text, &path).is_some(), "{}", answer.text);
        }
        let changes = ["result", "capabilities", "tools", "listChanged"];
        assert_eq!(
            raw_at(&answer.text, &changes).as_deref(),
            Some("true"),
            "{}",
            answer.text
        );
    }
    let version = string_at(&legacy.received()[0].text, &["result", "protocolVersion"]);
    assert_eq!(version.as_deref(), Some("2025-11-25"));
}

#[tokio::test]
async fn the_servers_are_what_the_other_tests_take_them_for() {
    let arguments = ["--era", "dual", "--tools", "100", "--name", "u0"];
    let upstream = odd_with(&arguments).start(Transport::Streamable).await;
    let legacy = upstream.client(answers()).await;
    legacy.initialize(&initialize("0", "2025-11-25")).await;
    for (client, is_modern) in [(legacy, false), (upstream.modern_client(), true)] {
        let speaker = Speaker { client, is_modern };
        let tools = speaker.tools("direct").await;
        let expected: Vec<String> = (0..N_TOOLS).map(|n| format!("tool-{n:03}")).collect();
        assert_eq!(tools, expected);
        let pages = speaker.client.received().len();
        assert!(pages >= 3, "{pages} pages");
        let called = speaker.call("\"c\"", "tool-042").await;
        assert_eq!(text_of(&called), "u0 ran tool-042");
        let wrong = speaker
            .ask("\"w\"", "tools/list", r#""cursor":"made up""#)
            .await;
        let code = integer_at(&wrong.text, &["error", "code"]);
        assert_eq!(code, Some(-32602), "{}", wrong.text);
        for uri in ["plain://u0/1", "plain://u0/t/7"] {
            let params = format!(r#""uri":"{uri}""#);
            let read = speaker.ask("\"r\"", "resources/read", &params).await;
            assert!(
                read.text.contains(&format!("u0 has {uri}")),
                "{}",
                read.text
            );
        }
    }
}
