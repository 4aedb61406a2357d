//! A proxy with the tool for searching, in front of one server or of two, and one client.

use riglm_tests::client::RawClient;
use riglm_tests::envelope::{quoted, raw_at};
use riglm_tests::fixture::{Transport, Upstream};
use riglm_tests::inbox::Received;
use riglm_tests::messages::{initialize, request_with};
use riglm_tests::modern::{Meta, REVISION};
use riglm_tests::riglm::{Line, Options};
use serde_json::{Map, Value};
use tempfile::TempDir;

use crate::{answers, dual_odd, odd_with};

/// The name of the tool for searching.
pub(super) const NAME: &str = "search_available_tools";

/// The names of the tools of the proxy itself, in the order in which they are listed.
pub(super) const OWN: [&str; 3] = [NAME, "call_tool", "set_context"];

/// How clients see the proxy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Face {
    pub(super) downstream: Transport,
    pub(super) revision: &'static str,
    pub(super) is_united: bool,
}

impl Face {
    /// Returns all ways to see it.
    pub(super) fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for downstream in [Transport::Stdio, Transport::Streamable] {
            for revision in ["2024-11-05", "2025-06-18", REVISION] {
                for is_united in [false, true] {
                    all.push(Self {
                        downstream,
                        revision,
                        is_united,
                    });
                }
            }
        }
        all
    }

    pub(super) fn is_modern(self) -> bool {
        self.revision == REVISION
    }

    /// Returns whether results have a structured form.
    pub(super) fn is_structured(self) -> bool {
        self.revision != "2024-11-05"
    }

    /// Returns the name under which a tool of the unusual server is shown.
    pub(super) fn shown(self, tool: &str) -> String {
        if self.is_united {
            format!("odd__{tool}")
        } else {
            tool.to_owned()
        }
    }

    /// Starts the proxy with a list that leaves out `echo`, and sets a session up.
    pub(super) async fn start(self) -> Talk {
        self.start_with("[filtering]\ndeny = [\"echo\"]\n", "denylist")
            .await
    }

    /// Starts the proxy with this configuration and strategy, and sets a session up.
    pub(super) async fn start_with(self, configuration: &str, strategy: &str) -> Talk {
        let odd = dual_odd().start(Transport::Stdio).await;
        let plain = odd_with(&["--tools", "3", "--name", "plain"]);
        let plain = plain.start(Transport::Stdio).await;
        let mut configuration = configuration.to_owned();
        let mut upstream = Upstream::of_command(odd.command.clone());
        if self.is_united {
            for (name, upstream) in [("odd", &odd), ("plain", &plain)] {
                let command = Value::from(upstream.command.clone());
                let section = format!("[upstreams.{name}]\ncommand = {command}\n");
                configuration.push_str(&section);
            }
            upstream = Upstream::configured();
        }
        self.start_before(&upstream, &configuration, strategy).await
    }

    /// Starts the proxy in front of these servers, and sets a session up.
    pub(super) async fn start_before(
        self,
        upstream: &Upstream,
        configuration: &str,
        strategy: &str,
    ) -> Talk {
        let options = Options {
            arguments: vec!["--strategy".into(), strategy.into()],
            ..Options::configured(configuration)
        };
        let line = if self.is_modern() {
            Line::modern(self.downstream, upstream, &options).await
        } else {
            let line = Line::through(self.downstream, upstream, &options, answers()).await;
            line.client
                .initialize(&initialize("\"hello\"", self.revision))
                .await;
            line
        };
        Talk { face: self, line }
    }
}

/// A session.
pub(super) struct Talk {
    pub(super) face: Face,
    pub(super) line: Line,
}

impl Talk {
    /// Returns the session of a client that speaks with somebody else.
    pub(super) fn of(face: Face, client: RawClient) -> Self {
        let line = Line {
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

    pub(super) async fn ask(&self, id: &str, method: &str, params: &str) -> Received {
        let text = self.text(id, method, params);
        self.line.client.request(&text).await
    }

    /// Calls a tool, through the one for calling others or by itself, and returns the answer.
    pub(super) async fn answer(
        &self,
        id: &str,
        (tool, is_through): (&str, bool),
        arguments: &str,
    ) -> String {
        let call = format!(r#""name":{},"arguments":{arguments}"#, quoted(tool));
        let params = if is_through {
            format!(r#""name":"call_tool","arguments":{{{call}}}"#)
        } else {
            call
        };
        self.ask(id, "tools/call", &params).await.text
    }

    /// Calls a tool and returns the result.
    pub(super) async fn call(&self, id: &str, tool: &str, arguments: &str) -> Value {
        let params = format!(r#""name":{},"arguments":{arguments}"#, quoted(tool));
        let answer = self.ask(id, "tools/call", &params).await;
        let result = raw_at(&answer.text, &["result"])
            .unwrap_or_else(|| panic!("{:?}: no result: {}", self.face, answer.text));
        serde_json::from_str(&result).expect("a result is JSON")
    }

    /// Searches and returns the result.
    pub(super) async fn search(&self, id: &str, query: &str) -> Value {
        let arguments = format!(r#"{{"query":{}}}"#, quoted(query));
        self.call(id, NAME, &arguments).await
    }

    /// Returns the results of all pages of the list of tools, raw.
    pub(super) async fn pages(&self, id: &str) -> Vec<String> {
        let mut pages = Vec::new();
        let mut params = String::new();
        for page in 0..10 {
            let id = quoted(&format!("{id}.{page}"));
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

    /// Returns the definitions of all tools, page by page.
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

/// Returns the names of tools.
pub(super) fn names(tools: &[Map<String, Value>]) -> Vec<&str> {
    let names = tools.iter().map(|tool| tool["name"].as_str());
    names.map(Option::unwrap_or_default).collect()
}

/// Returns the text of a result.
pub(super) fn text_of(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_default()
}
