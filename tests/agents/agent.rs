//! One simulated agent: the tools that it knows, and its actions when a tool is missing.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use riglm_adapters_prediction::O200kTokenCounter;
use riglm_domain::retrieval::words;
use riglm_domain::selection::economics::CostModel;
use riglm_ports::fake::ManualClock;
use riglm_ports::token_counter::TokenCounter as _;
use riglm_tests::answers::Answers;
use riglm_tests::client::RawClient;
use riglm_tests::messages::{call, request_with};
use serde_json::{Value, json};
use url::Url;

use super::definitions::CALL_ARGUMENTS;
use super::measure::{SessionStatistics, float};
use super::stream::{Session, Tool};

/// The simulated time between two calls of a session.
pub(super) const BETWEEN_CALLS: Duration = Duration::from_secs(20);
/// The real time that an agent waits for `list_changed` after each response. The proxy needs a
/// moment to detect a change of the list.
const THINKS: Duration = Duration::from_millis(250);
/// The number of words of a description in a query.
const MAX_WORDS: usize = 8;
/// The number of tools that an agent with its own tool search loads at once, like clients with such
/// a search do.
const N_LOADED: usize = 5;

/// Kinds of agents, by their use of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentKind {
    /// Requests the list again after `list_changed`.
    Relists,
    /// Requests the list once, and calls hidden tools through `call_tool`.
    NeverRelists,
    /// Loads the tools that are marked in the list, and others when it needs them.
    OnDemand,
    /// Opens a new transport session for each call.
    PerCall,
}

impl AgentKind {
    /// Returns the name in the report.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Relists => "re-lists",
            Self::NeverRelists => "never re-lists",
            Self::OnDemand => "loads on demand",
            Self::PerCall => "session per call",
        }
    }

    /// Returns the client name of `initialize`, from which the proxy derives the class of the
    /// client.
    pub(crate) fn client(self) -> &'static str {
        if self == Self::OnDemand {
            "claude-code"
        } else {
            "agent"
        }
    }
}

/// The proxy answered 404: the session has ended.
#[derive(Debug)]
pub(crate) struct SessionExpired;

#[derive(Debug)]
pub(crate) struct AgentSession {
    pub(crate) client: RawClient,
    n_requests: u64,
}

impl AgentSession {
    /// Opens a session with this client name. With a key, all requests carry it as session key.
    pub(crate) async fn open(url: &Url, name: &str, key: Option<&str>, listens: bool) -> Self {
        let client = RawClient::streamable(url, Answers::default());
        if let Some(key) = key {
            client.set_header("x-riglm-session", key);
        }
        let hello = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": name, "version": "1"},
        });
        let hello = request_with("0", "initialize", &hello.to_string());
        if listens {
            client.initialize(&hello).await;
        } else {
            let answer = client.request(&hello).await;
            client.adopt_version(&answer.text);
            let ready = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
            client.send(ready).await;
        }
        Self {
            client,
            n_requests: 0,
        }
    }

    /// Sends a request and returns its response.
    pub(crate) async fn ask(
        &mut self,
        make: impl FnOnce(&str) -> String,
    ) -> Result<Value, SessionExpired> {
        self.n_requests += 1;
        let id = self.n_requests.to_string();
        let before = self.client.n_received();
        let delivery = self.client.send(&make(&id)).await;
        if delivery.status == 404 {
            return Err(SessionExpired);
        }
        let answer = self.client.answer_after(before, &id).await;
        Ok(serde_json::from_str(&answer.text).expect("an answer is JSON"))
    }

    pub(crate) async fn call(
        &mut self,
        tool: &str,
        arguments: &str,
    ) -> Result<Value, SessionExpired> {
        self.ask(|id| call(id, tool, arguments)).await
    }

    /// Requests `tools/list` and returns the definitions.
    pub(crate) async fn list(&mut self, params: &str) -> Result<Vec<Value>, SessionExpired> {
        let mut answer = self
            .ask(|id| request_with(id, "tools/list", params))
            .await?;
        match answer["result"]["tools"].take() {
            Value::Array(tools) => Ok(tools),
            _ => panic!("no list: {answer}"),
        }
    }
}

/// Returns whether a call succeeded.
pub(crate) fn is_ok(answer: &Value) -> bool {
    answer["result"].is_object() && answer["result"]["isError"] != true
}

pub(crate) struct Agent<'a> {
    kind: AgentKind,
    url: Url,
    tools: &'a [Tool],
    position_of: HashMap<&'a str, usize>,
    /// The words in the name of each tool.
    words: Vec<HashSet<String>>,
    costs: CostModel,
    sizes: HashMap<String, u64>,
    /// Whether the agent waits for changes of its list during a session.
    waits: bool,
}

/// The tools that an agent knows in a session.
#[derive(Debug, Default)]
struct KnownTools {
    /// The tools of the list that are in the context of the model.
    listed: HashSet<usize>,
    /// The tools that the agent learned about by searches.
    told: HashSet<usize>,
    /// Whether the list has the tool `call_tool`.
    can_call_any: bool,
    /// The last received list.
    list: Vec<Value>,
}

impl<'a> Agent<'a> {
    /// Returns an agent of this kind that connects to `url`.
    pub(crate) fn new(
        kind: AgentKind,
        url: &Url,
        tools: &'a [Tool],
        costs: CostModel,
        waits: bool,
    ) -> Self {
        Self {
            kind,
            url: url.clone(),
            tools,
            position_of: tools.iter().map(|tool| &*tool.name).zip(0..).collect(),
            words: tools
                .iter()
                .map(|tool| words(&tool.name).into_iter().collect())
                .collect(),
            costs,
            sizes: HashMap::new(),
            waits: waits && kind == AgentKind::Relists,
        }
    }

    /// Makes all calls of a session, one after the other.
    pub(crate) async fn run_session(
        &mut self,
        session: &Session,
        key: &str,
        clock: &ManualClock,
        with_query: bool,
    ) -> SessionStatistics {
        let query = session.query.as_deref().filter(|_| with_query);
        let mut measured = SessionStatistics::default();
        let mut known = KnownTools::default();
        let mut used = HashSet::new();
        let mut line = self.open(key).await;
        self.list(&mut line, &mut known, query, &mut measured).await;
        for tool in &session.calls {
            clock.advance(BETWEEN_CALLS);
            if self.kind == AgentKind::PerCall {
                line.client.delete().await;
                line = self.open(key).await;
            }
            let was_known = known.listed.contains(tool) || known.told.contains(tool);
            measured.add_call(&self.costs, used.insert(*tool), was_known);
            if !was_known {
                self.search_tool(&mut line, *tool, &mut known, &mut measured)
                    .await;
                self.wait_for_list_change(&mut line, &mut known, &mut measured)
                    .await;
            }
            let name = &self.tools[*tool].name;
            let is_hidden = !known.listed.contains(tool);
            let answer = if self.kind == AgentKind::NeverRelists && is_hidden && known.can_call_any
            {
                let arguments = format!(
                    r#"{{"name":{},"arguments":{CALL_ARGUMENTS}}}"#,
                    Value::from(&**name)
                );
                line.call("call_tool", &arguments).await
            } else {
                line.call(name, CALL_ARGUMENTS).await
            };
            let is_ok = answer.is_ok_and(|answer| is_ok(&answer));
            measured.n_failed += u64::from(!is_ok);
            self.wait_for_list_change(&mut line, &mut known, &mut measured)
                .await;
        }
        line.client.delete().await;
        measured
    }

    async fn open(&self, key: &str) -> AgentSession {
        let key = (self.kind == AgentKind::PerCall).then_some(key);
        AgentSession::open(&self.url, self.kind.client(), key, self.waits).await
    }

    async fn list(
        &mut self,
        line: &mut AgentSession,
        known: &mut KnownTools,
        query: Option<&str>,
        measured: &mut SessionStatistics,
    ) {
        let params = match query {
            Some(query) => {
                let query: String = query.chars().take(2_000).collect();
                json!({"_meta": {"io.github.riglm/context": query}}).to_string()
            }
            None => "{}".into(),
        };
        let list = line
            .list(&params)
            .await
            .expect("a session that was just opened");
        let is_first = known.list.is_empty();
        if list == known.list {
            return;
        }
        known.listed.clear();
        known.can_call_any = false;
        let mut n_tokens = 0;
        for definition in &list {
            let name = definition["name"].as_str().unwrap_or_default();
            known.can_call_any |= name == "call_tool";
            let position = self.position_of.get(name).copied();
            let is_loaded = definition["_meta"]["anthropic/alwaysLoad"] == true;
            if self.kind == AgentKind::OnDemand && position.is_some() && !is_loaded {
                continue;
            }
            known.listed.extend(position);
            n_tokens += self.size(definition);
        }
        known.list = list;
        measured.add_list(&self.costs, known.listed.len(), n_tokens, is_first);
    }

    async fn search_tool(
        &mut self,
        line: &mut AgentSession,
        tool: usize,
        known: &mut KnownTools,
        measured: &mut SessionStatistics,
    ) {
        let before = known.told.len();
        let is_listed = |entry: &&Value| entry["name"] == *self.tools[tool].name;
        if self.kind == AgentKind::OnDemand
            && let Some(definition) = known.list.iter().find(is_listed)
        {
            // The agent has the complete list and searches it itself.
            let mut loaded = vec![definition.clone()];
            known.told.insert(tool);
            for near in self.similar_tools(tool, known) {
                let named = self.tools[near].name.as_str();
                loaded.extend(
                    known
                        .list
                        .iter()
                        .find(|entry| entry["name"] == *named)
                        .cloned(),
                );
                known.told.insert(near);
            }
            let n_tokens = loaded.iter().map(|definition| self.size(definition)).sum();
            return measured.add_search(&self.costs, loaded.len(), n_tokens, false);
        }
        let arguments = json!({"query": query_of(&self.tools[tool])}).to_string();
        let answer = line.call("search_available_tools", &arguments).await;
        let answer = answer.expect("a session that is open");
        let result = &answer["result"];
        let found =
            ["matches", "predicted_next"].map(|part| result["structuredContent"][part].as_array());
        for entry in found.into_iter().flatten().flatten() {
            let same = entry["same_as"].as_array().into_iter().flatten();
            for name in std::iter::once(&entry["name"]).chain(same) {
                let position = name.as_str().and_then(|name| self.position_of.get(name));
                known
                    .told
                    .extend(position.filter(|at| !known.listed.contains(at)));
            }
        }
        let is_in_vain = !known.told.contains(&tool);
        let n_tokens =
            O200kTokenCounter.count(result["content"][0]["text"].as_str().unwrap_or_default());
        measured.add_search(&self.costs, known.told.len() - before, n_tokens, is_in_vain);
        known.told.insert(tool);
    }

    /// Returns the unknown tools with the most similar names, by the weights of their common words.
    /// The agent's own search returns them together with the wanted tool.
    fn similar_tools(&self, tool: usize, known: &KnownTools) -> Vec<usize> {
        let is_known = |at: &usize| known.listed.contains(at) || known.told.contains(at);
        let weight = |word: &String| {
            let n_with = self
                .words
                .iter()
                .filter(|words| words.contains(word))
                .count();
            float(self.words.len() as u64 + 1).ln() - float(n_with as u64).ln()
        };
        let alike = |at: usize| -> f64 {
            self.words[tool]
                .intersection(&self.words[at])
                .map(weight)
                .sum()
        };
        let others = (0..self.tools.len()).filter(|at| *at != tool && !is_known(at));
        let mut near: Vec<(usize, f64)> = others
            .map(|at| (at, alike(at)))
            .filter(|(_, alike)| *alike > 0.0)
            .collect();
        near.sort_by(|(a, of_a), (b, of_b)| of_b.total_cmp(of_a).then(a.cmp(b)));
        near.into_iter()
            .take(N_LOADED - 1)
            .map(|(at, _)| at)
            .collect()
    }

    /// Waits for a changed list, and requests it.
    async fn wait_for_list_change(
        &mut self,
        line: &mut AgentSession,
        known: &mut KnownTools,
        measured: &mut SessionStatistics,
    ) {
        if !self.waits {
            return;
        }
        let told = |client: &RawClient| client.n_received();
        // Includes the last message: the notification may have come just before.
        let start = told(&line.client);
        let change = line.client.method_after(
            start.saturating_sub(1),
            "notifications/tools/list_changed",
            1,
        );
        if tokio::time::timeout(THINKS, change).await.is_ok() {
            self.list(line, known, None, measured).await;
        }
    }

    fn size(&mut self, definition: &Value) -> u64 {
        let text = definition.to_string();
        if let Some(size) = self.sizes.get(&text) {
            return *size;
        }
        let size = O200kTokenCounter.count(&text);
        self.sizes.insert(text, size);
        size
    }
}

/// Returns the query for a tool: the words of its name, and the first words of its description.
fn query_of(tool: &Tool) -> String {
    let name = tool
        .name
        .split(|character: char| !character.is_alphanumeric());
    let about = tool.description.split_whitespace().take(MAX_WORDS);
    let words: Vec<&str> = name.filter(|word| !word.is_empty()).chain(about).collect();
    words.join(" ")
}
