//! What is known of tools: what they look like, and how they were used.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};

use jiff::{SignedDuration, Timestamp};
use riglm_domain::id::UpstreamName;
use riglm_domain::tool::{ToolDefinition, ToolRef};
use riglm_domain::usage::{ToolCooccurrence, ToolStatistics, ToolTransition};
use riglm_ports::analytics::{InvocationFilter, StoreError};

use super::Insight;

/// A tool that was listed.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownTool {
    /// The tool.
    pub tool: ToolRef,
    /// What it looked like last.
    pub definition: ToolDefinition,
    /// How many different definitions it had.
    pub n_versions: u64,
    /// Its calls within the window.
    pub n_calls: u64,
}

/// How a tool was used.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolInsight {
    /// The tool with what it looks like.
    pub known: KnownTool,
    /// Its calls; `None` where there are none within the window.
    pub statistics: Option<ToolStatistics>,
    /// In how many sessions it was called.
    pub n_sessions: u64,
    /// What was called after it, the most frequent first.
    pub next: Vec<ToolTransition>,
    /// What was called in the same sessions, the most frequent first.
    pub together: Vec<ToolCooccurrence>,
}

/// A tool that was listed, with what became of its calls.
#[derive(Clone, Debug, PartialEq)]
pub struct UsedTool {
    /// The tool with what it looks like.
    pub known: KnownTool,
    /// Its calls within the window; `None` where there are none.
    pub statistics: Option<ToolStatistics>,
    /// When its newest call was received, however long ago; `None` for a tool that was never called.
    pub last_call: Option<Timestamp>,
}

/// What is recorded of an upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamUse {
    /// How many different tools it listed.
    pub n_tools: u64,
    /// Its calls within the window, those of names that it never listed too.
    pub n_calls: u64,
    /// Those of them that ended with an error or not in time.
    pub n_failed: u64,
}

/// Which tool is meant.
#[derive(Clone, Debug, PartialEq)]
pub enum Which {
    /// This one.
    One(ToolRef),
    /// Tools of several upstreams.
    Several(Vec<UpstreamName>),
    /// None that is known.
    None,
}

/// How many neighbours of a tool are told.
const MAX_NEIGHBOURS: usize = 20;

impl Insight {
    /// Returns all tools that were listed, by upstream and name, with their calls of the last `days`.
    /// Names that were called and that no server ever listed are no tools.
    ///
    /// # Errors
    ///
    /// Returns what the store says.
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

    /// Returns all tools that were listed, by upstream and name, with what became of their calls of the
    /// last `days`.
    ///
    /// # Errors
    ///
    /// Returns what the store says.
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

    /// Returns what is recorded of each upstream that listed tools or was called in the last `days`.
    ///
    /// # Errors
    ///
    /// Returns what the store says.
    pub async fn upstream_uses(
        &self,
        days: u32,
    ) -> Result<BTreeMap<UpstreamName, UpstreamUse>, StoreError> {
        let mut uses: BTreeMap<UpstreamName, UpstreamUse> = BTreeMap::new();
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

    /// Returns which of the tools has a name, its own or the one under which several upstreams show
    /// it, of this upstream where one is named.
    #[must_use]
    pub fn which(tools: &[KnownTool], name: &str, upstream: Option<&str>) -> Which {
        let mut found: Vec<&ToolRef> = (tools.iter().map(|known| &known.tool))
            .filter(|tool| tool.is_named(name))
            .filter(|tool| upstream.is_none_or(|name| tool.upstream.as_str() == name))
            .collect();
        match found.as_slice() {
            [] => Which::None,
            [one] => Which::One((*one).clone()),
            _ => {
                found.dedup_by_key(|tool| &tool.upstream);
                let upstreams = found.into_iter().map(|tool| tool.upstream.clone());
                Which::Several(upstreams.collect())
            }
        }
    }

    /// Returns how a tool was used in the last `days`, and with which others of those that are
    /// `listed`.
    ///
    /// # Errors
    ///
    /// Returns what the store says.
    pub async fn tool(
        &self,
        known: KnownTool,
        listed: &HashSet<ToolRef>,
        days: u32,
    ) -> Result<ToolInsight, StoreError> {
        let only = std::slice::from_ref(&known.tool);
        let statistics = (self.store)
            .statistics(None, Some(only), self.since(days))
            .await?;
        let sessions = self.store.sessions_using(None, Some(only)).await?;
        let mut next = self.store.transitions(None, Some(only)).await?;
        next.retain(|one| listed.contains(&one.to));
        next.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.to.cmp(&b.to)));
        next.truncate(MAX_NEIGHBOURS);
        let together = self.store.cooccurrences(None, Some(only)).await?;
        let mut together: Vec<ToolCooccurrence> = (together.into_iter())
            .filter(|pair| pair.tool_a == known.tool || pair.tool_b == known.tool)
            .filter(|pair| listed.contains(&pair.tool_a) && listed.contains(&pair.tool_b))
            .collect();
        together.sort_by_key(|pair| std::cmp::Reverse(pair.count));
        together.truncate(MAX_NEIGHBOURS);
        Ok(ToolInsight {
            statistics: statistics.into_iter().find(|one| one.tool == known.tool),
            n_sessions: sessions.iter().map(|one| one.n_sessions).sum(),
            next,
            together,
            known,
        })
    }

    fn since(&self, days: u32) -> Timestamp {
        let back = SignedDuration::from_hours(24 * i64::from(days));
        let since = self.clock.now().checked_sub(back);
        since.unwrap_or(Timestamp::UNIX_EPOCH)
    }
}
