//! A proxy with its own tools, in front of one server or two, and one client.

use riglm_tests::client::RawClient;
use riglm_tests::envelope::{json_string, raw_at};
use riglm_tests::fixture::{Transport, Upstream};
use riglm_tests::inbox::ReceivedMessage;
use riglm_tests::messages::{initialize, request_with};
use riglm_tests::modern::{Meta, REVISION};
use riglm_tests::riglm::{Options, ProxiedClient};
use serde_json::{Map, Value};
use tempfile::TempDir;

use crate::{answers, dual_odd, odd_with};

/// The name of the search tool.
pub(super) const NAME: &str = "search_available_tools";

/// The names of the own tools in the order of the list.
pub(super) const OWN: [&str; 3] = [NAME, "call_tool", "set_context"];

/// A combination of transport, revision and number of upstreams.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientVariant {
    pub(super) downstream: Transport,
    pub(super) revision: &'static str,
    pub(super) is_aggregated: bool,
}

impl ClientVariant {
    /// Returns all combinations.
    pub(super) fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for downstream in [Transport::Stdio, Transport::Streamable] {
            for revision in ["2024-11-05", "2025-06-18", REVISION] {
                for is_aggregated in [false, true] {
                    all.push(Self {
                        downstream,
                        revision,
                        is_aggregated,
                    });
                }
            }
        }
        all
    }

    pub(super) fn is_modern(self) -> bool {
        self.revision == REVISION
    }

    /// Returns whether results have structured content in this revision.
    pub(super) fn is_structured(self) -> bool {
        self.revision != "2024-11-05"
    }

    /// Returns the name of a tool of the unusual server in the list, with the namespace if needed.
    pub(super) fn listed_name(self, tool: &str) -> String {
        if self.is_aggregated {
            format!("odd__{tool}")
        } else {
            tool.to_owned()
        }
    }

    /// Starts the proxy with a list that hides `echo`, and initialises a session.
    pub(super) async fn start(self) -> ClientSession {
        self.start_with("[filtering]\ndeny = [\"echo\"]\n", "denylist")
            .await
    }

    /// Starts the proxy with this configuration and strategy, and initialises a session.
    pub(super) async fn start_with(self, configuration: &str, strategy: &str) -> ClientSession {
        let odd = dual_odd().start(Transport::Stdio).await;
        let plain = odd_with(&["--tools", "3", "--name", "plain"]);
        let plain = plain.start(Transport::Stdio).await;
        let mut configuration = configuration.to_owned();
        let mut upstream = Upstream::of_command(odd.command.clone());
        if self.is_aggregated {
            for (name, upstream) in [("odd", &odd), ("plain", &plain)] {
                let command = Value::from(upstream.command.clone());
                let section = format!("[upstreams.{name}]\ncommand = {command}\n");
                configuration.push_str(&section);
            }
            upstream = Upstream::from_configuration();
        }
        self.start_before(&upstream, &configuration, strategy).await
    }

    /// Starts the proxy in front of this upstream, and initialises a session.
    pub(super) async fn start_before(
        self,
        upstream: &Upstream,
        configuration: &str,
        strategy: &str,
    ) -> ClientSession {
        let options = Options {
            arguments: vec!["--strategy".into(), strategy.into()],
            ..Options::with_configuration(configuration)
        };
        let line = if self.is_modern() {
            ProxiedClient::modern(self.downstream, upstream, &options).await
        } else {
            let line = ProxiedClient::through(self.downstream, upstream, &options, answers()).await;
            line.client
                .initialize(&initialize("\"hello\"", self.revision))
                .await;
            line
        };
        ClientSession { face: self, line }
    }
}

pub(super) struct ClientSession {
    pub(super) face: ClientVariant,
    pub(super) line: ProxiedClient,
}

impl ClientSession {
    /// Returns the session of a client with another server.
    pub(super) fn of(face: ClientVariant, client: RawClient) -> Self {
        let line = ProxiedClient {
            client,
            riglm: None,
            data_dir: TempDir::new().expect("a temporary folder can be made"),
        };
        Self { face, line }
    }

    pub(super) fn text(&self, id: &str, method: &str, params: &str) -> String {
        if self.face.is_modern() {
            Meta::default().request(id, method, params)
        } else {
            request_with(id, method, &format!("{{{params}}}"))
        }
    }

    pub(super) async fn ask(&self, id: &str, method: &str, params: &str) -> ReceivedMessage {
        let text = self.text(id, method, params);
        self.line.client.request(&text).await
    }

    /// Calls a tool through `call_tool` (`is_through`) or directly, and returns the response.
    pub(super) async fn answer(
        &self,
        id: &str,
        (tool, is_through): (&str, bool),
        arguments: &str,
    ) -> String {
        let call = format!(r#""name":{},"arguments":{arguments}"#, json_string(tool));
        let params = if is_through {
            format!(r#""name":"call_tool","arguments":{{{call}}}"#)
        } else {
            call
        };
        self.ask(id, "tools/call", &params).await.text
    }

    pub(super) async fn call(&self, id: &str, tool: &str, arguments: &str) -> Value {
        let params = format!(r#""name":{},"arguments":{arguments}"#, json_string(tool));
        let answer = self.ask(id, "tools/call", &params).await;
        let result = raw_at(&answer.text, &["result"])
            .unwrap_or_else(|| panic!("{:?}: no result: {}", self.face, answer.text));
        serde_json::from_str(&result).expect("a result is JSON")
    }

    pub(super) async fn search(&self, id: &str, query: &str) -> Value {
        let arguments = format!(r#"{{"query":{}}}"#, json_string(query));
        self.call(id, NAME, &arguments).await
    }

    /// Returns the raw results of all pages of the tool list.
    pub(super) async fn pages(&self, id: &str) -> Vec<String> {
        let mut pages = Vec::new();
        let mut params = String::new();
        for page in 0..10 {
            let id = json_string(&format!("{id}.{page}"));
            let answer = self.ask(&id, "tools/list", &params).await;
            let result = raw_at(&answer.text, &["result"])
                .unwrap_or_else(|| panic!("{:?}: no list: {}", self.face, answer.text));
            let next = raw_at(&result, &["nextCursor"]);
            pages.push(result);
            match next {
                Some(cursor) => params = format!(r#""cursor":{cursor}"#),
                None => return pages,
            }
        }
        panic!("{:?}: the list of tools has no end", self.face)
    }

    /// Returns the definitions of all tools, over all pages.
    pub(super) async fn tools(&self, id: &str) -> Vec<Map<String, Value>> {
        let mut tools = Vec::new();
        for page in self.pages(id).await {
            let page: Map<String, Value> = serde_json::from_str(&page).expect("a page is JSON");
            let definitions = page["tools"].as_array().expect("a page has tools");
            let objects = definitions.iter().filter_map(Value::as_object);
            tools.extend(objects.cloned());
        }
        tools
    }
}

pub(super) fn names(tools: &[Map<String, Value>]) -> Vec<&str> {
    let names = tools.iter().map(|tool| tool["name"].as_str());
    names.map(Option::unwrap_or_default).collect()
}

/// Returns the text of a result.
pub(super) fn text_of(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_default()
}
