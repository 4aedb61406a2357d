//! One agent: what it sees, and what it does when a tool that it needs is not there.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use riglm_adapters_prediction::O200kTokenCounter;
use riglm_domain::economics::CostModel;
use riglm_domain::retrieval::words;
use riglm_ports::fake::ManualClock;
use riglm_ports::token_counter::TokenCounter as _;
use riglm_tests::answers::Answers;
use riglm_tests::client::RawClient;
use riglm_tests::messages::{call, request_with};
use serde_json::{Value, json};
use url::Url;

use super::definitions::GIVEN;
use super::measure::{Measured, float};
use super::stream::{Session, Tool};

/// The time between two calls of a session.
pub(super) const BETWEEN_CALLS: Duration = Duration::from_secs(20);
/// How long an agent that re-lists thinks after each answer, in real time: the proxy tells of a
/// change when it had a moment to look whether there is one.
const THINKS: Duration = Duration::from_millis(250);
/// How many words of a description an agent puts into its query.
const MAX_WORDS: usize = 8;
/// Number of tools the own search of an agent loads that loads tools on demand, as those of the
/// clients do that have one.
const N_LOADED: usize = 5;

/// What agents do with lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It asks for the list again when it is told that it changed.
    Relists,
    /// It asks once, and calls what is not in its list with the tool for that.
    NeverRelists,
    /// It loads what the list marks, and other tools of the list when it needs them.
    OnDemand,
    /// It makes a session of the transport for each call.
    PerCall,
}

impl Kind {
    /// Returns what the kind is called.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Relists => "re-lists",
            Self::NeverRelists => "never re-lists",
            Self::OnDemand => "loads on demand",
            Self::PerCall => "session per call",
        }
    }

    /// Returns the name that such a client gives itself.
    pub(crate) fn client(self) -> &'static str {
        if self == Self::OnDemand {
            "claude-code"
        } else {
            "agent"
        }
    }
}

/// The proxy does not know the session any more.
#[derive(Debug)]
pub(crate) struct Expired;

/// One session of the transport.
#[derive(Debug)]
pub(crate) struct Line {
    /// The client.
    pub(crate) client: RawClient,
    n_requests: u64,
}

impl Line {
    /// Opens a session as a client of this name. With a key, every request says that it belongs to
    /// the work of that key.
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

    /// Sends a request; returns its answer.
    pub(crate) async fn ask(
        &mut self,
        make: impl FnOnce(&str) -> String,
    ) -> Result<Value, Expired> {
        self.n_requests += 1;
        let id = self.n_requests.to_string();
        let before = self.client.n_received();
        let delivery = self.client.send(&make(&id)).await;
        if delivery.status == 404 {
            return Err(Expired);
        }
        let answer = self.client.answer_after(before, &id).await;
        Ok(serde_json::from_str(&answer.text).expect("an answer is JSON"))
    }

    /// Calls a tool.
    pub(crate) async fn call(&mut self, tool: &str, arguments: &str) -> Result<Value, Expired> {
        self.ask(|id| call(id, tool, arguments)).await
    }

    /// Asks for the tools; returns their definitions.
    pub(crate) async fn list(&mut self, params: &str) -> Result<Vec<Value>, Expired> {
        let mut answer = self
            .ask(|id| request_with(id, "tools/list", params))
            .await?;
        match answer["result"]["tools"].take() {
            Value::Array(tools) => Ok(tools),
            _ => panic!("no list: {answer}"),
        }
    }
}

/// Returns whether a call went well.
pub(crate) fn is_ok(answer: &Value) -> bool {
    answer["result"].is_object() && answer["result"]["isError"] != true
}

/// An agent that has a catalog to call tools of.
pub(crate) struct Agent<'a> {
    kind: Kind,
    url: Url,
    tools: &'a [Tool],
    position_of: HashMap<&'a str, usize>,
    /// The words of the name of each tool.
    words: Vec<HashSet<String>>,
    costs: CostModel,
    sizes: HashMap<String, u64>,
    /// Lists change under it within a session.
    waits: bool,
}

/// What an agent knows in a session.
#[derive(Debug, Default)]
struct Known {
    /// The tools of its list that its model sees.
    listed: HashSet<usize>,
    /// The tools that it was told of otherwise.
    told: HashSet<usize>,
    /// It has a tool that calls others.
    can_call_any: bool,
    /// The list as it came.
    list: Vec<Value>,
}

impl<'a> Agent<'a> {
    /// Returns an agent of this kind that finds the proxy there.
    pub(crate) fn new(
        kind: Kind,
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
            waits: waits && kind == Kind::Relists,
        }
    }

    /// Makes all calls of a session, one after the other.
    pub(crate) async fn live(
        &mut self,
        session: &Session,
        key: &str,
        clock: &ManualClock,
        with_query: bool,
    ) -> Measured {
        let query = session.query.as_deref().filter(|_| with_query);
        let mut measured = Measured::default();
        let mut known = Known::default();
        let mut used = HashSet::new();
        let mut line = self.open(key).await;
        self.list(&mut line, &mut known, query, &mut measured).await;
        for tool in &session.calls {
            clock.advance(BETWEEN_CALLS);
            if self.kind == Kind::PerCall {
                line.client.delete().await;
                line = self.open(key).await;
            }
            let was_known = known.listed.contains(tool) || known.told.contains(tool);
            measured.calls(&self.costs, used.insert(*tool), was_known);
            if !was_known {
                self.find(&mut line, *tool, &mut known, &mut measured).await;
                self.think(&mut line, &mut known, &mut measured).await;
            }
            let name = &self.tools[*tool].name;
            let is_hidden = !known.listed.contains(tool);
            let answer = if self.kind == Kind::NeverRelists && is_hidden && known.can_call_any {
                let arguments =
                    format!(r#"{{"name":{},"arguments":{GIVEN}}}"#, Value::from(&**name));
                line.call("call_tool", &arguments).await
            } else {
                line.call(name, GIVEN).await
            };
            let is_ok = answer.is_ok_and(|answer| is_ok(&answer));
            measured.n_failed += u64::from(!is_ok);
            self.think(&mut line, &mut known, &mut measured).await;
        }
        line.client.delete().await;
        measured
    }

    async fn open(&self, key: &str) -> Line {
        let key = (self.kind == Kind::PerCall).then_some(key);
        Line::open(&self.url, self.kind.client(), key, self.waits).await
    }

    async fn list(
        &mut self,
        line: &mut Line,
        known: &mut Known,
        query: Option<&str>,
        measured: &mut Measured,
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
            if self.kind == Kind::OnDemand && position.is_some() && !is_loaded {
                continue;
            }
            known.listed.extend(position);
            n_tokens += self.size(definition);
        }
        known.list = list;
        measured.listed(&self.costs, known.listed.len(), n_tokens, is_first);
    }

    /// Searches for a tool that is needed.
    async fn find(
        &mut self,
        line: &mut Line,
        tool: usize,
        known: &mut Known,
        measured: &mut Measured,
    ) {
        let before = known.told.len();
        let is_listed = |entry: &&Value| entry["name"] == *self.tools[tool].name;
        if self.kind == Kind::OnDemand
            && let Some(definition) = known.list.iter().find(is_listed)
        {
            // It has the whole list, and searches it itself.
            let mut loaded = vec![definition.clone()];
            known.told.insert(tool);
            for near in self.nearest(tool, known) {
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
            return measured.searched(&self.costs, loaded.len(), n_tokens, false);
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
        measured.searched(&self.costs, known.told.len() - before, n_tokens, is_in_vain);
        known.told.insert(tool);
    }

    /// Returns the tools that the agent does not know yet whose names have most in common with that of
    /// a tool, by the weights of their words: what its own search brings beside the tool.
    fn nearest(&self, tool: usize, known: &Known) -> Vec<usize> {
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

    /// Asks for the list again if it is told meanwhile that there is another one.
    async fn think(&mut self, line: &mut Line, known: &mut Known, measured: &mut Measured) {
        if !self.waits {
            return;
        }
        let told = |client: &RawClient| client.n_received();
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

/// Returns what an agent searches for that needs a tool: the words of its name, and what it is for.
fn query_of(tool: &Tool) -> String {
    let name = tool
        .name
        .split(|character: char| !character.is_alphanumeric());
    let about = tool.description.split_whitespace().take(MAX_WORDS);
    let words: Vec<&str> = name.filter(|word| !word.is_empty()).chain(about).collect();
    words.join(" ")
}
