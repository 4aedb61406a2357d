//! The app of the proxy, which shows a session inside of the chat: its tool and its resource are
//! offered only where it is on, and only to clients that show apps.

use riglm_tests::client::RawClient;
use riglm_tests::envelope::{json_string, raw_at};
use riglm_tests::fixture::{Transport, Upstream};
use riglm_tests::messages::{initialize_with, request_with};
use riglm_tests::modern::{Meta, REVISION};
use riglm_tests::riglm::{Options, ProxiedClient, read_store};
use serde_json::{Value, json};

use crate::{answers, dual_odd, odd_with};

/// The capabilities of a client that shows apps.
const APPS: &str =
    r#"{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}}"#;
/// The capabilities of a client with the extension for another kind of page.
const OTHER_APPS: &str =
    r#"{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/uri-list"]}}}"#;
const ON: &str = "[search]\nshow_session = true\n[filtering]\ndeny = [\"echo\"]\n";
const OFF: &str = "[filtering]\ndeny = [\"echo\"]\n";
const TOOL: &str = "show_session";
const URI: &str = "ui://riglm/session";
const SESSION_HEADER: &str = "x-riglm-session";

/// A combination of transport, revision and number of upstreams.
#[derive(Clone, Copy, Debug)]
struct HostVariant {
    downstream: Transport,
    revision: &'static str,
    n_upstreams: usize,
}

impl HostVariant {
    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for downstream in [Transport::Stdio, Transport::Streamable] {
            for revision in ["2025-11-25", REVISION] {
                for n_upstreams in [1, 2] {
                    all.push(Self {
                        downstream,
                        revision,
                        n_upstreams,
                    });
                }
            }
        }
        all
    }

    fn is_modern(self) -> bool {
        self.revision == REVISION
    }

    /// Returns the name of a tool of the unusual server in the list.
    fn listed_name(self, tool: &str) -> String {
        match self.n_upstreams {
            1 => tool.to_owned(),
            _ => format!("odd__{tool}"),
        }
    }

    /// Starts the proxy with this configuration, and connects a client with these capabilities.
    async fn start(self, configuration: &str, capabilities: &str) -> Host {
        let odd = dual_odd().start(Transport::Stdio).await;
        let plain = odd_with(&["--tools", "3", "--name", "plain"]);
        let plain = plain.start(Transport::Stdio).await;
        let mut configuration = configuration.to_owned();
        let mut upstream = Upstream::of_command(odd.command.clone());
        if self.n_upstreams > 1 {
            for (name, upstream) in [("odd", &odd), ("plain", &plain)] {
                let command = Value::from(upstream.command.clone());
                let section = format!("[upstreams.{name}]\ncommand = {command}\n");
                configuration.push_str(&section);
            }
            upstream = Upstream::from_configuration();
        }
        let options = Options {
            arguments: vec!["--strategy".into(), "denylist".into()],
            ..Options::with_configuration(&configuration)
        };
        let (line, hello) = if self.is_modern() {
            let line = ProxiedClient::modern(self.downstream, &upstream, &options).await;
            let meta = Meta::default().with_capabilities(capabilities);
            let hello = meta.request("\"hello\"", "server/discover", "");
            let answer = line.client.request(&hello).await;
            (line, answer.text)
        } else {
            let line =
                ProxiedClient::through(self.downstream, &upstream, &options, answers()).await;
            let hello = initialize_with("\"hello\"", self.revision, capabilities);
            let answer = line.client.initialize(&hello).await;
            (line, answer.text)
        };
        Host {
            variant: self,
            line,
            capabilities: capabilities.to_owned(),
            hello,
        }
    }
}

/// A client of the proxy.
struct Host {
    variant: HostVariant,
    line: ProxiedClient,
    capabilities: String,
    /// The answer to the handshake or discovery.
    hello: String,
}

impl Host {
    fn client(&self) -> &RawClient {
        &self.line.client
    }

    /// Makes a request with the members of `params`, without the braces, and returns the answer.
    async fn ask(&self, id: &str, method: &str, params: &str) -> Value {
        let answer = self.ask_raw(id, method, params).await;
        serde_json::from_str(&answer).expect("an answer is JSON")
    }

    /// Like [`Self::ask`], but returns the text of the answer.
    async fn ask_raw(&self, id: &str, method: &str, params: &str) -> String {
        let id = json_string(id);
        let text = if self.variant.is_modern() {
            let meta = Meta::default().with_capabilities(&self.capabilities);
            meta.request(&id, method, params)
        } else {
            request_with(&id, method, &format!("{{{params}}}"))
        };
        self.client().request(&text).await.text
    }

    async fn call(&self, id: &str, tool: &str) -> Value {
        let params = format!(r#""name":{},"arguments":{{}}"#, json_string(tool));
        self.ask(id, "tools/call", &params).await
    }

    async fn read(&self, id: &str, uri: &str) -> Value {
        let params = format!(r#""uri":{}"#, json_string(uri));
        self.ask(id, "resources/read", &params).await
    }

    /// Returns the entries of all pages of a list.
    async fn list(&self, method: &str, member: &str) -> Vec<Value> {
        let mut entries = Vec::new();
        let mut params = String::new();
        for page in 0..10 {
            let id = format!("{method} {page}");
            let answer = self.ask_raw(&id, method, &params).await;
            let listed = raw_at(&answer, &["result", member])
                .and_then(|listed| serde_json::from_str::<Vec<Value>>(&listed).ok());
            entries.extend(listed.unwrap_or_else(|| panic!("{:?}: {answer}", self.variant)));
            // In its notation, which the unusual server compares.
            match raw_at(&answer, &["result", "nextCursor"]) {
                Some(cursor) => params = format!(r#""cursor":{cursor}"#),
                None => return entries,
            }
        }
        panic!("{:?}: {method} has no end", self.variant)
    }

    async fn tools(&self) -> Vec<Value> {
        self.list("tools/list", "tools").await
    }

    async fn resources(&self) -> Vec<Value> {
        self.list("resources/list", "resources").await
    }
}

fn members<'a>(entries: &'a [Value], key: &str) -> Vec<&'a str> {
    let members = entries.iter().filter_map(|entry| entry[key].as_str());
    members.collect()
}

#[tokio::test]
async fn clients_that_show_apps_get_the_tool_and_its_page() {
    for variant in HostVariant::all() {
        let host = variant.start(ON, APPS).await;
        let declared = raw_at(&host.hello, &["result", "capabilities", "resources"]);
        assert!(declared.is_some(), "{variant:?}: {}", host.hello);

        let tools = host.tools().await;
        let tool = tools.iter().filter(|tool| tool["name"] == TOOL);
        let tool: Vec<&Value> = tool.collect();
        assert_eq!(tool.len(), 1, "{variant:?}");
        assert_eq!(tool[0]["_meta"]["ui"]["resourceUri"], URI, "{variant:?}");
        assert_eq!(tool[0]["annotations"]["readOnlyHint"], true, "{variant:?}");

        let resources = host.resources().await;
        let uris = members(&resources, "uri");
        assert!(uris.contains(&"odd://r/1"), "{variant:?}: {uris:?}");
        let is_there = uris.contains(&"plain://plain/1");
        assert_eq!(is_there, variant.n_upstreams > 1, "{variant:?}: {uris:?}");
        assert_eq!(uris.last(), Some(&URI), "{variant:?}: {uris:?}");
        let entry = resources.last().expect("the list has entries");
        assert_eq!(entry["mimeType"], "text/html;profile=mcp-app");

        let answer = host.read("read", URI).await;
        let content = &answer["result"]["contents"][0];
        assert_eq!(content["uri"], URI, "{variant:?}: {answer}");
        assert_eq!(content["mimeType"], "text/html;profile=mcp-app");
        let page = content["text"].as_str().unwrap_or_default();
        assert!(page.starts_with("<!doctype html>"), "{variant:?}");
        assert!(page.len() <= 100_000, "{} bytes", page.len());
        let ui = &content["_meta"]["ui"];
        for domains in [
            "connectDomains",
            "resourceDomains",
            "frameDomains",
            "baseUriDomains",
        ] {
            assert_eq!(ui["csp"][domains], json!([]), "{domains}");
        }
        assert_eq!(ui["prefersBorder"], true);
        let is_complete = answer["result"]["resultType"] == "complete";
        assert_eq!(is_complete, variant.is_modern(), "{variant:?}: {answer}");
    }
}

#[tokio::test]
async fn the_tool_returns_the_list_and_the_calls_of_the_session() {
    for variant in HostVariant::all() {
        let host = variant.start(ON, APPS).await;
        if variant.is_modern() && variant.downstream == Transport::Streamable {
            host.client().set_header(SESSION_HEADER, "one");
        }
        host.tools().await;
        let [empty, failing] = ["empty", "is_error"].map(|tool| variant.listed_name(tool));
        host.call("1", &empty).await;
        host.call("2", &failing).await;
        let answer = host.call("3", TOOL).await;
        let result = &answer["result"];
        let view = &result["structuredContent"];
        let hidden = view["hidden"].as_array().expect("there are hidden tools");
        assert_eq!(
            hidden,
            &[json!({"name": variant.listed_name("echo"), "reason": "excluded"})],
            "{variant:?}"
        );
        let shown = view["shown"].as_array().expect("there are shown tools");
        assert!(
            members(shown, "name").contains(&&*empty),
            "{variant:?}: {view}"
        );
        assert_eq!(view["list"]["n_shown"], shown.len());
        assert_eq!(view["list"]["n_hidden"], 1);
        let calls = view["calls"].as_array().expect("there are calls");
        assert_eq!(members(calls, "name"), [&*failing, &*empty], "{variant:?}");
        assert_eq!(members(calls, "outcome"), ["error", "ok"], "{variant:?}");
        assert_eq!(
            (&view["n_calls"], &view["n_failed"]),
            (&json!(2), &json!(1))
        );
        let text = result["content"][0]["text"].as_str().unwrap_or_default();
        assert!(
            text.contains("Recent calls: 2, 1 of them"),
            "{variant:?}: {text}"
        );
        // It is no call of an upstream.
        let count = read_store(host.line.data_dir.path(), &["calls", "--count"]).await;
        assert_eq!(count.trim(), "2", "{variant:?}");
    }
}

#[tokio::test]
async fn calls_are_shown_only_to_the_client_that_made_them() {
    for n_upstreams in [1, 2] {
        let variant = HostVariant {
            downstream: Transport::Streamable,
            revision: REVISION,
            n_upstreams,
        };
        let host = variant.start(ON, APPS).await;
        let tool = variant.listed_name("empty");
        host.tools().await;
        host.call("1", &tool).await;
        // Another client of the same name could have sent this request.
        let answer = host.call("2", TOOL).await;
        let view = &answer["result"]["structuredContent"];
        assert_eq!(view["calls"], json!([]), "{variant:?}: {answer}");
        assert_eq!(view["n_calls"], Value::Null, "{variant:?}: {answer}");
        let text = answer["result"]["content"][0]["text"].as_str();
        let text = text.unwrap_or_default();
        assert!(text.contains("session key"), "{variant:?}: {text}");
        // Requests with a key have a session of their own.
        for (key, id, n_calls) in [("one", "3", 1), ("two", "4", 0)] {
            host.client().set_header(SESSION_HEADER, key);
            if n_calls > 0 {
                host.call("call", &tool).await;
            }
            let answer = host.call(id, TOOL).await;
            let view = &answer["result"]["structuredContent"];
            assert_eq!(view["n_calls"], n_calls, "{variant:?}, {key}: {answer}");
            assert_eq!(view["calls_note"], Value::Null, "{variant:?}, {key}");
        }
    }
}

#[tokio::test]
async fn other_clients_and_configurations_have_no_app() {
    for variant in HostVariant::all() {
        for (configuration, capabilities) in [(OFF, APPS), (ON, "{}"), (ON, OTHER_APPS)] {
            let host = variant.start(configuration, capabilities).await;
            let tools = host.tools().await;
            assert!(!members(&tools, "name").contains(&TOOL), "{variant:?}");
            let resources = host.resources().await;
            let uris = members(&resources, "uri");
            assert!(uris.contains(&"odd://r/1"), "{variant:?}: {uris:?}");
            assert!(!uris.contains(&URI), "{variant:?}: {uris:?}");
            let page = host.read("read", URI).await.to_string();
            assert!(!page.contains("doctype"), "{variant:?}: {page}");
            for (id, tool) in [("direct", TOOL), ("through", "call_tool")] {
                let params =
                    format!(r#""name":"{tool}","arguments":{{"name":"{TOOL}","arguments":{{}}}}"#);
                let answer = host.ask(id, "tools/call", &params).await;
                let view = &answer["result"]["structuredContent"];
                assert!(view["list"].is_null(), "{variant:?}: {answer}");
            }
        }
    }
}

#[tokio::test]
async fn clients_of_one_session_are_told_apart_by_their_requests() {
    for n_upstreams in [1, 2] {
        let variant = HostVariant {
            downstream: Transport::Streamable,
            revision: REVISION,
            n_upstreams,
        };
        let mut host = variant.start(ON, "{}").await;
        assert!(!members(&host.tools().await, "name").contains(&TOOL));
        host.capabilities = APPS.to_owned();
        assert!(members(&host.tools().await, "name").contains(&TOOL));
        assert!(members(&host.resources().await, "uri").contains(&URI));
        host.capabilities = "{}".to_owned();
        assert!(!members(&host.tools().await, "name").contains(&TOOL));
        assert!(!members(&host.resources().await, "uri").contains(&URI));
    }
}
