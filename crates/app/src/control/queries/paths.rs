//! Queries on the paths of sessions: which tool is called after which.

use std::collections::{BTreeMap, BTreeSet};

use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::num::ratio;
use riglm_domain::usage::ToolTransition;
use riglm_ports::analytics::StoreError;

use super::Queries;

/// A transition between two tools, compared with the others from the same tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolPath {
    /// The transition.
    pub transition: ToolTransition,
    /// The share of this transition among all transitions from the same tool, above 0 and up to 1.
    pub share: f64,
}

/// The most frequent transitions between tools.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolPaths {
    /// The most frequent transitions, most frequent first; ties by the tools.
    pub paths: Vec<ToolPath>,
    /// The number of different transitions.
    pub n_transitions: u64,
    /// The number of calls that followed another call: the sum over all transitions.
    pub n_calls: u64,
}

impl ToolPaths {
    fn most_frequent(mut transitions: Vec<ToolTransition>, limit: usize) -> Self {
        let mut n_after: BTreeMap<ToolRef, u64> = BTreeMap::new();
        for ToolTransition { from, count, .. } in &transitions {
            *n_after.entry(from.clone()).or_default() += count;
        }
        let n_transitions = transitions.len() as u64;
        transitions.sort_by(|one, other| {
            let by_count = other.count.cmp(&one.count);
            by_count.then_with(|| (&one.from, &one.to).cmp(&(&other.from, &other.to)))
        });
        transitions.truncate(limit);
        let paths = transitions.into_iter().map(|transition| ToolPath {
            share: ratio(transition.count, n_after[&transition.from]),
            transition,
        });
        Self {
            paths: paths.collect(),
            n_transitions,
            n_calls: n_after.values().sum(),
        }
    }
}

/// Returns the `limit` most frequent transitions between tools, at any time. Called names that no
/// upstream ever listed are left out.
///
/// # Errors
///
/// Returns the error of the store.
pub async fn tool_paths(queries: &Queries, limit: usize) -> Result<ToolPaths, StoreError> {
    let listed = queries.store.tools_seen().await?;
    let listed: BTreeSet<ToolRef> = listed.into_iter().collect();
    let mut transitions = queries.store.transitions(None, None).await?;
    transitions.retain(|one| listed.contains(&one.from) && listed.contains(&one.to));
    Ok(ToolPaths::most_frequent(transitions, limit))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use riglm_domain::usage::record::Record;
    use riglm_ports::analytics::RecordSink as _;
    use riglm_ports::contract::scene::{call_of, moment, page, run, session, tool};
    use riglm_ports::fake::{ManualClock, MemoryStore};

    use super::*;

    #[tokio::test]
    async fn transitions_are_ranked_with_their_shares() {
        let store = Arc::new(MemoryStore::default());
        let queries = Queries::new(store.clone(), Arc::new(ManualClock::default()));
        assert_eq!(
            tool_paths(&queries, 10).await.unwrap(),
            ToolPaths::default()
        );
        let opened = session(run(1), 1);
        let names = ["a", "b", "a", "b", "a", "c", "made up", "a"];
        let calls = (10_u8..).zip(names).map(|(n, name)| {
            let call = call_of(opened.id, n, name);
            Record::CallOpened(call)
        });
        let seen = Record::ToolsSeen {
            listing: page("1", &["a", "b", "c"]),
            seen_at: moment(0),
        };
        let records: Vec<Record> = [Record::SessionOpened(opened.clone()), seen]
            .into_iter()
            .chain(calls)
            .collect();
        store.apply(&records).await.unwrap();
        let paths = tool_paths(&queries, 2).await.unwrap();
        let shown: Vec<_> = (paths.paths.iter())
            .map(|path| {
                let ToolTransition { from, to, count } = &path.transition;
                (from.clone(), to.clone(), *count, path.share)
            })
            .collect();
        let expected = [
            (tool("a"), tool("b"), 2, 2.0 / 3.0),
            (tool("b"), tool("a"), 2, 1.0),
        ];
        assert_eq!(shown, expected);
        // The third one is from `a` to `c`; nothing follows or precedes a name that is no tool.
        assert_eq!((paths.n_transitions, paths.n_calls), (3, 5));
    }
}
