//! Queries on tools: definitions and usage statistics.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use riglm_domain::catalog::tool::{ToolDefinition, ToolRef};
use riglm_domain::id::{InvocationId, UpstreamName};
use riglm_domain::usage::{ToolCooccurrence, ToolStatistics, ToolTransition};
use riglm_ports::analytics::StoreError;
use riglm_ports::token_counter::TokenCounter as _;

use super::Queries;

/// A tool that was listed.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownTool {
    /// The tool.
    pub tool: ToolRef,
    /// The newest definition.
    pub definition: ToolDefinition,
    /// The number of different definitions.
    pub n_versions: u64,
    /// The number of calls within the window.
    pub n_calls: u64,
}

/// Usage of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolUsage {
    /// The tool with the results of its calls.
    pub used: UsedTool,
    /// The number of sessions that called the tool.
    pub n_sessions: u64,
    /// Tools called directly after this one, the most frequent first.
    pub next: Vec<ToolTransition>,
    /// Tools called in the same sessions, the most frequent first.
    pub session_key: Vec<ToolCooccurrence>,
}

/// A listed tool with the results of its calls.
#[derive(Clone, Debug, PartialEq)]
pub struct UsedTool {
    /// The tool with its definition.
    pub known: KnownTool,
    /// Statistics of its calls within the window, or `None` if there are none.
    pub statistics: Option<ToolStatistics>,
    /// Time of the newest call at any age, or `None` if the tool was never called.
    pub last_call: Option<Timestamp>,
    /// Tokens of the definition, or `None` if its text is not stored or nothing counts tokens
    /// ([`Queries::with_token_counter`]).
    pub definition_tokens: Option<u64>,
    /// Mean number of tokens of the results of its newest calls, at most 20 of the newest 5,000
    /// calls of all tools. `None` if no result of them was counted.
    pub result_tokens: Option<u64>,
}

/// The calls of a tool among the newest calls of all tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecentUse {
    last_call: Timestamp,
    /// The mean of the results that were counted.
    result_tokens: Option<u64>,
}

/// The recent use of all tools, with the time at which it was read.
#[derive(Clone, Debug)]
pub(super) struct RecentUses {
    read_at: Instant,
    of_tools: Arc<HashMap<ToolRef, RecentUse>>,
}

/// Recorded usage of an upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamUsage {
    /// The number of different listed tools.
    pub n_tools: u64,
    /// The number of calls within the window, including calls of names that were never listed.
    pub n_calls: u64,
    /// The number of these calls that ended with an error or a timeout.
    pub n_failed: u64,
}

/// Result of resolving the name of a tool.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolLookup {
    /// Exactly one tool.
    One(ToolRef),
    /// Tools of several upstreams.
    Several(Vec<UpstreamName>),
    /// No known tool.
    None,
}

/// Number of newest calls of all tools in which the recent use of tools is looked for.
const RECENT_CALLS: u32 = 5_000;
/// Maximum number of calls of a tool whose results make up the mean.
const MEASURED_CALLS: usize = 20;
/// Number of calls that are read at a time. Their texts may be long, if content is recorded.
const CALLS_AT_A_TIME: usize = 500;
/// Time for which the recent use is not read again, so that several open pages cost one reading.
const RECENT_FOR: Duration = Duration::from_secs(2);

/// Maximum number of neighbours of a tool.
const MAX_NEIGHBOURS: usize = 20;

#[derive(Clone, Copy, Debug, Default)]
struct MeanTokens {
    sum: u64,
    n_texts: u64,
}

impl MeanTokens {
    fn add(&mut self, tokens: u64) {
        self.sum = self.sum.saturating_add(tokens);
        self.n_texts += 1;
    }

    /// Returns the mean, rounded to a whole number; 0 without texts.
    fn mean(self) -> u64 {
        let n_texts = self.n_texts.max(1);
        self.sum.saturating_add(n_texts / 2) / n_texts
    }
}

impl Queries {
    /// Returns all tools that were listed, by upstream and name, with their calls of the last
    /// `days`. Called names that no server ever listed are left out.
    ///
    /// # Errors
    ///
    /// Returns the error of the store.
    pub async fn tools(&self, days: u32) -> Result<Vec<KnownTool>, StoreError> {
        let mut known: BTreeMap<ToolRef, KnownTool> = BTreeMap::new();
        for definition in self.store.tool_definitions(None).await? {
            let tool = ToolRef {
                upstream: definition.upstream.clone(),
                tool: definition.sighting.name.clone(),
            };
            match known.entry(tool) {
                Entry::Vacant(place) => {
                    let tool = place.key().clone();
                    place.insert(KnownTool {
                        tool,
                        definition,
                        n_versions: 1,
                        n_calls: 0,
                    });
                }
                Entry::Occupied(mut known) => {
                    let known = known.get_mut();
                    known.n_versions += 1;
                    if known.definition.last_seen <= definition.last_seen {
                        known.definition = definition;
                    }
                }
            }
        }
        let since = self.start_of_period(days);
        let called = self.store.frequencies(None, since).await?;
        for frequency in called {
            if let Some(known) = known.get_mut(&frequency.tool) {
                known.n_calls = frequency.n_calls;
            }
        }
        Ok(known.into_values().collect())
    }

    /// Returns all tools that were listed, by upstream and name, with statistics of their calls of
    /// the last `days`.
    ///
    /// # Errors
    ///
    /// Returns the error of the store.
    pub async fn used_tools(&self, days: u32) -> Result<Vec<UsedTool>, StoreError> {
        let tools = self.tools(days).await?;
        self.with_usage(tools, days).await
    }

    /// Returns these tools, in the same order, with statistics of their calls of the last `days`.
    ///
    /// # Errors
    ///
    /// Returns the error of the store.
    pub async fn with_usage(
        &self,
        tools: Vec<KnownTool>,
        days: u32,
    ) -> Result<Vec<UsedTool>, StoreError> {
        let names: Vec<ToolRef> = tools.iter().map(|known| known.tool.clone()).collect();
        let since = self.start_of_period(days);
        let statistics = (self.store)
            .statistics(None, Some(names.as_slice()), since)
            .await?;
        let mut statistics: BTreeMap<ToolRef, ToolStatistics> = (statistics.into_iter())
            .map(|one| (one.tool.clone(), one))
            .collect();
        let recent = self.recent_uses().await?;
        let ever = self.store.frequencies(None, Timestamp::UNIX_EPOCH).await?;
        let called: HashSet<ToolRef> = ever.into_iter().map(|one| one.tool).collect();
        let is_older = |tool: &&ToolRef| called.contains(*tool) && !recent.contains_key(*tool);
        let older: Vec<ToolRef> = names.iter().filter(is_older).cloned().collect();
        let older: HashMap<ToolRef, Timestamp> =
            self.store.last_calls(&older).await?.into_iter().collect();
        let definition_tokens = self.definition_tokens(&tools).await;
        let mut used = Vec::with_capacity(tools.len());
        for (known, definition_tokens) in tools.into_iter().zip(definition_tokens) {
            let recent = recent.get(&known.tool);
            let last_call = recent.map(|recent| recent.last_call);
            used.push(UsedTool {
                statistics: statistics.remove(&known.tool),
                last_call: last_call.or_else(|| older.get(&known.tool).copied()),
                definition_tokens,
                result_tokens: recent.and_then(|recent| recent.result_tokens),
                known,
            });
        }
        Ok(used)
    }

    /// Returns the tokens of each definition; `None` for one whose text is not stored.
    async fn definition_tokens(&self, tools: &[KnownTool]) -> Vec<Option<u64>> {
        let Some(counter) = self.counter.clone() else {
            return vec![None; tools.len()];
        };
        let texts = tools.iter();
        let texts: Vec<String> = texts
            .map(|known| known.definition.sighting.definition.clone())
            .collect();
        let count = move |text: &String| (!text.is_empty()).then(|| counter.count(text));
        let count_all = move || -> Vec<Option<u64>> { texts.iter().map(count).collect() };
        // Counting many definitions for the first time takes long.
        let counting = tokio::task::spawn_blocking(count_all);
        counting.await.unwrap_or_else(|error| {
            tracing::error!("failed to count the tokens of definitions: {error}");
            vec![None; tools.len()]
        })
    }

    /// Returns the recent use of each tool that is among the newest calls.
    async fn recent_uses(&self) -> Result<Arc<HashMap<ToolRef, RecentUse>>, StoreError> {
        // Held while reading, so that requests at the same time share one reading.
        let mut known = self.recent.lock().await;
        if let Some(known) = &*known
            && known.read_at.elapsed() < RECENT_FOR
        {
            return Ok(Arc::clone(&known.of_tools));
        }
        let of_tools = Arc::new(self.read_recent_uses().await?);
        *known = Some(RecentUses {
            read_at: Instant::now(),
            of_tools: Arc::clone(&of_tools),
        });
        Ok(of_tools)
    }

    async fn read_recent_uses(&self) -> Result<HashMap<ToolRef, RecentUse>, StoreError> {
        let mut uses: HashMap<ToolRef, RecentUse> = HashMap::new();
        let mut measured: HashMap<ToolRef, Vec<InvocationId>> = HashMap::new();
        let calls = self.store.recent_calls(None, RECENT_CALLS).await?;
        for call in calls.into_iter().rev() {
            let tool = ToolRef {
                upstream: call.upstream,
                tool: call.tool,
            };
            let ids = measured.entry(tool.clone()).or_default();
            if ids.len() < MEASURED_CALLS {
                ids.push(call.id);
            }
            // The newest call comes first.
            uses.entry(tool).or_insert(RecentUse {
                last_call: call.started_at,
                result_tokens: None,
            });
        }
        let ids: Vec<InvocationId> = measured.into_values().flatten().collect();
        let mut sums: HashMap<ToolRef, MeanTokens> = HashMap::new();
        for ids in ids.chunks(CALLS_AT_A_TIME) {
            for call in self.store.calls_by_id(ids).await? {
                let Some(tokens) = call.response_tokens else {
                    continue;
                };
                let tool = ToolRef {
                    upstream: call.invocation.upstream,
                    tool: call.invocation.tool,
                };
                sums.entry(tool).or_default().add(tokens);
            }
        }
        for (tool, sum) in sums {
            if let Some(recent) = uses.get_mut(&tool) {
                recent.result_tokens = Some(sum.mean());
            }
        }
        Ok(uses)
    }

    /// Returns the usage of each upstream that ever listed tools or was called in the last `days`.
    ///
    /// # Errors
    ///
    /// Returns the error of the store.
    pub async fn upstream_uses(
        &self,
        days: u32,
    ) -> Result<BTreeMap<UpstreamName, UpstreamUsage>, StoreError> {
        let mut uses: BTreeMap<UpstreamName, UpstreamUsage> = BTreeMap::new();
        for tool in self.store.tools_seen().await? {
            uses.entry(tool.upstream).or_default().n_tools += 1;
        }
        let since = self.start_of_period(days);
        for statistics in self.store.statistics(None, None, since).await? {
            let of_upstream = uses.entry(statistics.tool.upstream.clone()).or_default();
            of_upstream.n_calls += statistics.n_calls();
            of_upstream.n_failed += statistics.n_failed();
        }
        Ok(uses)
    }

    /// Resolves a name to one of the tools. The name can be the tool's own or its namespaced one.
    /// `upstream` restricts the tools.
    #[must_use]
    pub fn resolve_name(tools: &[KnownTool], name: &str, upstream: Option<&str>) -> ToolLookup {
        let mut found: Vec<&ToolRef> = (tools.iter().map(|known| &known.tool))
            .filter(|tool| tool.is_named(name))
            .filter(|tool| upstream.is_none_or(|name| tool.upstream.as_str() == name))
            .collect();
        match found.as_slice() {
            [] => ToolLookup::None,
            [one] => ToolLookup::One((*one).clone()),
            _ => {
                found.dedup_by_key(|tool| &tool.upstream);
                let upstreams = found.into_iter().map(|tool| tool.upstream.clone());
                ToolLookup::Several(upstreams.collect())
            }
        }
    }

    /// Returns the usage in the last `days` of one of these tools, with its neighbours among them.
    /// Returns `None` if it is not one of them.
    ///
    /// # Errors
    ///
    /// Returns the error of the store.
    pub async fn tool(
        &self,
        known: Vec<KnownTool>,
        tool: &ToolRef,
        days: u32,
    ) -> Result<Option<ToolUsage>, StoreError> {
        let listed: HashSet<ToolRef> = known.iter().map(|known| known.tool.clone()).collect();
        let of_tool = known.into_iter().filter(|known| known.tool == *tool);
        let Some(used) = self.with_usage(of_tool.collect(), days).await?.pop() else {
            return Ok(None);
        };
        let only = std::slice::from_ref(tool);
        let sessions = self.store.sessions_using(None, Some(only)).await?;
        let mut next = self.store.transitions(None, Some(only)).await?;
        next.retain(|one| listed.contains(&one.to));
        next.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.to.cmp(&b.to)));
        next.truncate(MAX_NEIGHBOURS);
        let session_key = self.store.cooccurrences(None, Some(only)).await?;
        let mut session_key: Vec<ToolCooccurrence> = (session_key.into_iter())
            .filter(|pair| pair.tool_a == *tool || pair.tool_b == *tool)
            .filter(|pair| listed.contains(&pair.tool_a) && listed.contains(&pair.tool_b))
            .collect();
        session_key.sort_by_key(|pair| std::cmp::Reverse(pair.count));
        session_key.truncate(MAX_NEIGHBOURS);
        Ok(Some(ToolUsage {
            used,
            n_sessions: sessions.iter().map(|one| one.n_sessions).sum(),
            next,
            session_key,
        }))
    }
}

#[cfg(test)]
mod tests {
    use riglm_domain::id::SessionId;
    use riglm_domain::usage::invocation::Invocation;
    use riglm_domain::usage::record::Record;
    use riglm_ports::analytics::RecordSink as _;
    use riglm_ports::contract::scene::{call_of, moment, page, run, session, tokens};
    use riglm_ports::fake::{ManualClock, MemoryStore, WordCounter};

    use super::*;
    use crate::tracking::CachedTokenCounter;

    /// Returns the call of a tool that was received `n` milliseconds into the scene.
    fn call_at(session: SessionId, n: u32, name: &str) -> Invocation {
        let at = moment(n.into());
        let mut entropy = [0; 10];
        entropy[..4].copy_from_slice(&n.to_be_bytes());
        Invocation {
            id: InvocationId::new(at, entropy),
            started_at: at,
            sequence: n.into(),
            ..call_of(session, 1, name)
        }
    }

    /// Returns queries on a store with a session, these tools and these records.
    async fn queries(tools: &[&str], records: impl IntoIterator<Item = Record>) -> Queries {
        let store = Arc::new(MemoryStore::default());
        let seen = Record::ToolsSeen {
            listing: page("1", tools),
            seen_at: moment(0),
        };
        let first = [Record::SessionOpened(session(run(1), 1)), seen];
        let records: Vec<Record> = first.into_iter().chain(records).collect();
        store.apply(&records).await.unwrap();
        Queries::new(store, Arc::new(ManualClock::at(moment(10_000))))
    }

    #[tokio::test]
    async fn the_newest_call_is_known_at_any_age() {
        let session = session(run(1), 1).id;
        let old = call_at(session, 1, "old");
        let frequent = (1..=RECENT_CALLS).map(|n| call_at(session, n + 1, "frequent"));
        let calls = [old].into_iter().chain(frequent);
        let tools = ["frequent", "old", "unused"];
        let queries = queries(&tools, calls.map(Record::CallOpened)).await;
        let used = queries.used_tools(30).await.unwrap();
        let last_calls: Vec<_> = (used.iter())
            .map(|used| (used.known.tool.tool.as_str(), used.last_call))
            .collect();
        let newest = moment(i64::from(RECENT_CALLS) + 1);
        let expected = [
            ("frequent", Some(newest)),
            ("old", Some(moment(1))),
            ("unused", None),
        ];
        assert_eq!(last_calls, expected);
    }

    #[tokio::test]
    async fn result_tokens_are_the_mean_of_the_newest_calls() {
        let session = session(run(1), 1).id;
        let calls = (1..=25).flat_map(|n| {
            let call = call_at(session, n, "long");
            let measured = tokens(&call, None, Some(n.into()));
            [Record::CallOpened(call), measured]
        });
        let uncounted = Record::CallOpened(call_at(session, 26, "short"));
        let queries = queries(&["long", "short"], calls.chain([uncounted])).await;
        let used = queries.used_tools(30).await.unwrap();
        // The last 20 are those from 6 to 25.
        let result_tokens: Vec<_> = used.iter().map(|used| used.result_tokens).collect();
        assert_eq!(result_tokens, [Some(16), None]);
        assert!(used.iter().all(|used| used.definition_tokens.is_none()));

        let counter = CachedTokenCounter::new(Arc::new(WordCounter));
        let queries = queries.with_token_counter(Arc::new(counter));
        let used = queries.used_tools(30).await.unwrap();
        assert!(used.iter().all(|used| used.definition_tokens == Some(1)));
    }
}
