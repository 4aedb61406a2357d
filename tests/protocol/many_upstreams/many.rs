//! Ten servers behind one proxy, and clients of both eras.

use std::time::Duration;

use riglm_tests::client::RawClient;
use riglm_tests::envelope::raw_at;
use riglm_tests::fixture::{Transport, Upstream};
use riglm_tests::inbox::ReceivedMessage;
use riglm_tests::messages::{initialize, request_with};
use riglm_tests::modern::Meta;
use riglm_tests::process::free_port;
use riglm_tests::riglm::{Options, Riglm};
use serde_json::Value;
use tempfile::TempDir;

use crate::{answers, odd_with};

/// The number of tools of each server.
pub(super) const N_TOOLS: usize = 100;

/// The healthy servers in the order of the configuration: era and transport.
pub(super) const HEALTHY: [(&str, Transport); 8] = [
    ("legacy", Transport::Stdio),
    ("modern", Transport::Stdio),
    ("legacy", Transport::Streamable),
    ("modern", Transport::Streamable),
    ("legacy", Transport::Legacy),
    ("dual", Transport::Stdio),
    ("dual", Transport::Streamable),
    ("legacy", Transport::Stdio),
];

/// The name of the slow server.
pub(super) const SLOW: &str = "u8";

/// The delay of the slow server.
const DELAY: Duration = Duration::from_secs(2);

/// The name of the unreachable server.
pub(super) const UNREACHABLE: &str = "u9";

/// The patience of a client: the slow server has to answer several requests before its list.
pub(super) const PATIENCE: Duration = Duration::from_mins(1);

/// The proxy in front of the ten servers.
pub(super) struct TenServers {
    pub(super) riglm: Riglm,
    _upstreams: Vec<Upstream>,
    _data_dir: TempDir,
}

impl TenServers {
    pub(super) async fn start() -> Self {
        let mut upstreams = Vec::new();
        let mut configuration = String::from("naming = \"prefix\"\n");
        let count = N_TOOLS.to_string();
        for (n, (era, transport)) in HEALTHY.into_iter().enumerate() {
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
        configuration.push_str(&section(UNREACHABLE, &dead));
        let data_dir = TempDir::new().expect("a temporary folder can be made");
        let options = Options::with_configuration(&configuration);
        let riglm = Riglm::serve(&Upstream::from_configuration(), data_dir.path(), &options).await;
        Self {
            riglm,
            _upstreams: upstreams,
            _data_dir: data_dir,
        }
    }

    /// Returns an initialised client of each era.
    pub(super) async fn clients(&self) -> [EraClient; 2] {
        let legacy = self.riglm.client(answers()).with_patience(PATIENCE);
        legacy.initialize(&initialize("0", "2025-11-25")).await;
        let modern = RawClient::modern(&self.riglm.url).with_patience(PATIENCE);
        [
            EraClient {
                client: legacy,
                is_modern: false,
            },
            EraClient {
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

/// A client that uses its own era for all requests.
pub(super) struct EraClient {
    pub(super) client: RawClient,
    pub(super) is_modern: bool,
}

impl EraClient {
    pub(super) fn text(&self, id: &str, method: &str, params: &str) -> String {
        if self.is_modern {
            Meta::default().request(id, method, params)
        } else {
            request_with(id, method, &format!("{{{params}}}"))
        }
    }

    pub(super) async fn ask(&self, id: &str, method: &str, params: &str) -> ReceivedMessage {
        self.client.request(&self.text(id, method, params)).await
    }

    pub(super) async fn call(&self, id: &str, tool: &str) -> ReceivedMessage {
        let params = format!(r#""name":"{tool}","arguments":{{}}"#);
        self.ask(id, "tools/call", &params).await
    }

    /// Returns all entries of a list over all pages, by the member with their key.
    pub(super) async fn list_all_pages(
        &self,
        id: &str,
        method: &str,
        list: &str,
        member: &str,
    ) -> Vec<String> {
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

    pub(super) async fn tools(&self, id: &str) -> Vec<String> {
        self.list_all_pages(id, "tools/list", "tools", "name").await
    }

    /// Requests the list until it contains the tools of the slow server.
    pub(super) async fn all_tools(&self) -> Vec<String> {
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
