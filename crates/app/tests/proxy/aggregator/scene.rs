//! Test scene: a session of several scripted upstreams.

use riglm_app::limits::Limits;
use riglm_app::proxy::{ClientSession, NamespacePolicy, Proxy, ProxyParts, Unavailable, Upstream};
use riglm_app::selection::ListFilter;
use riglm_app::testing;
use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::message::Message;
use riglm_domain::mcp::protocol::Transport;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::downstream::Route;
use riglm_ports::fake::{MemoryStore, RecordingClient, ScriptedUpstream};
use riglm_ports::observer::{NoObserver, Observer};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The timeout of all waits in these tests.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Scene {
    pub(crate) upstreams: Vec<Arc<ScriptedUpstream>>,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) client: Arc<RecordingClient>,
    pub(crate) proxy: Proxy,
    pub(crate) session: Arc<ClientSession>,
}

pub(crate) struct Setup {
    pub(crate) naming: NamespacePolicy,
    pub(crate) unavailable: Unavailable,
    pub(crate) limits: Limits,
    pub(crate) filter: ListFilter,
    /// The name of the search tool.
    pub(crate) search: Option<&'static str>,
    /// Whether the proxy has its other own tools too.
    pub(crate) has_others: bool,
    pub(crate) observer: Arc<dyn Observer>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            naming: NamespacePolicy::Prefix,
            unavailable: Unavailable::Hide,
            limits: Limits {
                unite_timeout: Duration::from_millis(300),
                ..Limits::default()
            },
            filter: ListFilter::default(),
            search: None,
            has_others: false,
            observer: Arc::new(NoObserver),
        }
    }
}

/// Returns an upstream that answers handshakes and lists tools with these names.
pub(crate) fn upstream(name: &str, tools: &[&str]) -> Arc<ScriptedUpstream> {
    let upstream = Arc::new(ScriptedUpstream::new(UpstreamName::parse(name).unwrap()));
    let welcome = format!(
        r#""result":{{"protocolVersion":"2025-11-25","serverInfo":{{"name":"{name}","version":"1"}},
            "capabilities":{{"tools":{{}},"resources":{{"subscribe":true}},"prompts":{{}}}},
            "instructions":"Use {name}."}}"#
    );
    upstream.reply_to("initialize", &welcome.replace('\n', " "));
    lists(&upstream, tools);
    upstream
}

/// Makes an upstream list tools with these names.
pub(crate) fn lists(upstream: &ScriptedUpstream, tools: &[&str]) {
    let tools: Vec<Value> = tools.iter().map(|name| json!({"name": name})).collect();
    upstream.reply_to(
        "tools/list",
        &format!(r#""result":{}"#, json!({"tools": tools})),
    );
}

impl Setup {
    pub(crate) fn scene(self, upstreams: Vec<Arc<ScriptedUpstream>>) -> Scene {
        let store = Arc::new(MemoryStore::default());
        let proxy = Proxy::new(ProxyParts {
            naming: self.naming,
            recorder: testing::recorder(store.clone()),
            filter: self.filter,
            limits: self.limits,
            search: Some(testing::search_by_words()),
            observer: self.observer,
            tools: testing::own_tools(self.search, self.has_others),
            ..testing::proxy_parts(proxy_config(&upstreams, self.unavailable))
        });
        let client = Arc::new(RecordingClient::default());
        let session = proxy
            .accept(
                Transport::StreamableHttp,
                &Principal::local(),
                client.clone(),
            )
            .unwrap();
        Scene {
            upstreams,
            store,
            client,
            proxy,
            session,
        }
    }
}

pub(crate) fn proxy_config(
    upstreams: &[Arc<ScriptedUpstream>],
    unavailable: Unavailable,
) -> Vec<Upstream> {
    upstreams
        .iter()
        .map(|upstream| {
            let mut configured = Upstream::new(upstream.clone());
            configured.options.unavailable = unavailable;
            configured
        })
        .collect()
}

impl Scene {
    /// Replaces the current client by another one.
    pub(crate) fn change_client(&mut self) {
        self.client = Arc::new(RecordingClient::default());
        let principal = Principal::local();
        let admitted =
            self.proxy
                .accept(Transport::StreamableHttp, &principal, self.client.clone());
        self.session = admitted.unwrap();
    }

    /// Sends a message to the session and awaits its future.
    pub(crate) async fn send(&self, message: &Value) {
        let message = Message::from_text(message.to_string()).unwrap();
        if let Some(exchange) = self.session.receive(message).await.unwrap() {
            tokio::time::timeout(PATIENCE, exchange.run).await.unwrap();
        }
    }

    /// Sends a message to the session and spawns its future.
    pub(crate) async fn start(&self, message: &Value) {
        let message = Message::from_text(message.to_string()).unwrap();
        if let Some(exchange) = self.session.receive(message).await.unwrap() {
            tokio::spawn(exchange.run);
        }
    }

    /// Makes a request and returns its answer.
    pub(crate) async fn ask(&self, id: u32, method: &str, params: Value) -> Value {
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send(&request).await;
        let is_answer = |message: &Value| message["id"] == id && message.get("method").is_none();
        self.delivered_such(is_answer).await
    }

    /// Performs the handshake of a legacy client.
    pub(crate) async fn initialize(&self) -> Value {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {"sampling": {}},
            "clientInfo": {"name": "c", "version": "1"}});
        let answer = self.ask(0, "initialize", params).await;
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await;
        answer
    }

    /// Returns the names in a list of tools.
    pub(crate) async fn tools(&self, id: u32) -> Vec<String> {
        names(&self.ask(id, "tools/list", json!({})).await)
    }

    /// Returns the messages that were delivered to the client.
    pub(crate) fn delivered_messages(&self) -> Vec<(Value, Route)> {
        let delivered = self.client.delivered_messages().into_iter();
        delivered
            .map(|(text, route)| (serde_json::from_str(&text).unwrap(), route))
            .collect()
    }

    /// Waits until a message like this was delivered and returns the newest.
    pub(crate) async fn delivered_such(&self, is_such: impl Fn(&Value) -> bool) -> Value {
        let waiting = async {
            loop {
                let delivered = self.delivered_messages();
                let found = delivered.iter().rev().find(|(message, _)| is_such(message));
                if let Some((message, _)) = found {
                    return message.clone();
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.unwrap()
    }

    /// Waits until the client was notified of a changed tool list.
    pub(crate) async fn list_changed(&self) {
        let changed = "notifications/tools/list_changed";
        self.delivered_such(|message| message["method"] == changed)
            .await;
    }

    /// Returns the messages that were sent to an upstream.
    pub(crate) fn sent_messages(&self, upstream: usize) -> Vec<Value> {
        let sent = self.upstreams[upstream].sent_messages().into_iter();
        sent.map(|(_, text)| serde_json::from_str(&text).unwrap())
            .collect()
    }

    /// Waits until a message like this was sent to an upstream and returns the newest.
    pub(crate) async fn sent_such(
        &self,
        upstream: usize,
        is_such: impl Fn(&Value) -> bool,
    ) -> Value {
        let waiting = async {
            loop {
                if let Some(found) = self
                    .sent_messages(upstream)
                    .iter()
                    .rev()
                    .find(|sent| is_such(sent))
                {
                    return found.clone();
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.unwrap()
    }
}

/// Returns the names in the answer to a request for a list of tools.
pub(crate) fn names(answer: &Value) -> Vec<String> {
    let tools = answer["result"]["tools"].as_array();
    let tools = tools.unwrap_or_else(|| unreachable!("no list: {answer}"));
    tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}
