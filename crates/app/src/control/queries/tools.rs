//! Queries on tools: definitions and usage statistics.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};

use jiff::{SignedDuration, Timestamp};
use riglm_domain::catalog::tool::{ToolDefinition, ToolRef};
use riglm_domain::id::UpstreamName;
use riglm_domain::usage::{ToolCooccurrence, ToolStatistics, ToolTransition};
use riglm_ports::analytics::{InvocationFilter, StoreError};

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
    /// The tool with its definition.
    pub known: KnownTool,
    /// Statistics of its calls, or `None` if there are none within the window.
    pub statistics: Option<ToolStatistics>,
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

/// Maximum number of neighbours of a tool.
const MAX_NEIGHBOURS: usize = 20;

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
        let called = self.store.frequencies(None, self.since(days)).await?;
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
        let statistics = (self.store)
            .statistics(None, None, self.since(days))
            .await?;
        let mut statistics: BTreeMap<ToolRef, ToolStatistics> = (statistics.into_iter())
            .map(|one| (one.tool.clone(), one))
            .collect();
        let ever = self.store.frequencies(None, Timestamp::UNIX_EPOCH).await?;
        let called: HashSet<ToolRef> = ever.into_iter().map(|one| one.tool).collect();
        let mut used = Vec::with_capacity(tools.len());
        for known in tools {
            let last_call = if called.contains(&known.tool) {
                self.last_call(&known.tool).await?
            } else {
                None
            };
            used.push(UsedTool {
                statistics: statistics.remove(&known.tool),
                last_call,
                known,
            });
        }
        Ok(used)
    }

    async fn last_call(&self, tool: &ToolRef) -> Result<Option<Timestamp>, StoreError> {
        let filter = InvocationFilter {
            tool: Some(tool.tool.clone()),
            upstream: Some(tool.upstream.clone()),
            ..InvocationFilter::default()
        };
        let newest = self.store.invocations(&filter, 1).await?;
        Ok(newest.first().map(|call| call.invocation.started_at))
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
        let since = self.since(days);
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

    /// Returns the usage of a tool in the last `days`, with its neighbours among the `listed`
    /// tools.
    ///
    /// # Errors
    ///
    /// Returns the error of the store.
    pub async fn tool(
        &self,
        known: KnownTool,
        listed: &HashSet<ToolRef>,
        days: u32,
    ) -> Result<ToolUsage, StoreError> {
        let only = std::slice::from_ref(&known.tool);
        let statistics = (self.store)
            .statistics(None, Some(only), self.since(days))
            .await?;
        let sessions = self.store.sessions_using(None, Some(only)).await?;
        let mut next = self.store.transitions(None, Some(only)).await?;
        next.retain(|one| listed.contains(&one.to));
        next.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.to.cmp(&b.to)));
        next.truncate(MAX_NEIGHBOURS);
        let session_key = self.store.cooccurrences(None, Some(only)).await?;
        let mut session_key: Vec<ToolCooccurrence> = (session_key.into_iter())
            .filter(|pair| pair.tool_a == known.tool || pair.tool_b == known.tool)
            .filter(|pair| listed.contains(&pair.tool_a) && listed.contains(&pair.tool_b))
            .collect();
        session_key.sort_by_key(|pair| std::cmp::Reverse(pair.count));
        session_key.truncate(MAX_NEIGHBOURS);
        Ok(ToolUsage {
            statistics: statistics.into_iter().find(|one| one.tool == known.tool),
            n_sessions: sessions.iter().map(|one| one.n_sessions).sum(),
            next,
            session_key,
            known,
        })
    }

    fn since(&self, days: u32) -> Timestamp {
        let back = SignedDuration::from_hours(24 * i64::from(days));
        let since = self.clock.now().checked_sub(back);
        since.unwrap_or(Timestamp::UNIX_EPOCH)
    }
}
