//! Use of tools per session: an estimate of the tools that a whole session needs, not only the next
//! call.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::prediction::{ClientKey, ToolIx};

/// Decay of the weight of a session with each later session: half after 34 sessions.
const DECAY: f64 = 0.98;
/// Lower limit of a stored count: a tool is dropped after 190 sessions without it.
const LEAST: f64 = 0.02;
/// Maximum number of principals. Above it, the principal without a session for the longest time is
/// dropped.
const MAX_PRINCIPALS: usize = 1_000;
/// Maximum number of tools of a principal.
const MAX_TOOLS: usize = 512;

/// For each principal and tool, the number of recent sessions with a use of the tool, weighted by
/// recency.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionUse {
    principals: BTreeMap<u64, PrincipalUse>,
    n_added: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct PrincipalUse {
    tools: BTreeMap<ToolIx, f64>,
    last: u64,
}

impl SessionUse {
    /// Adds an ended session with the tools that it used.
    pub fn add(&mut self, party: ClientKey, tools: &[ToolIx]) {
        self.n_added += 1;
        let (principal, _) = party.of_principal();
        let used = self.principals.entry(principal).or_default();
        used.last = self.n_added;
        for count in used.tools.values_mut() {
            *count *= DECAY;
        }
        for tool in tools {
            *used.tools.entry(*tool).or_default() += 1.0;
        }
        used.tools.retain(|_, count| *count >= LEAST);
        while used.tools.len() > MAX_TOOLS {
            let least = used.tools.iter().min_by(|a, b| a.1.total_cmp(b.1));
            let Some(least) = least.map(|(tool, _)| *tool) else {
                break;
            };
            used.tools.remove(&least);
        }
        if self.principals.len() > MAX_PRINCIPALS {
            let oldest = self.principals.iter().min_by_key(|(_, used)| used.last);
            if let Some(oldest) = oldest.map(|(principal, _)| *principal) {
                self.principals.remove(&oldest);
            }
        }
    }

    /// Returns the share of each tool in all uses in the sessions of a principal. The shares sum to
    /// 1, or are empty.
    #[must_use]
    pub fn shares(&self, party: ClientKey) -> BTreeMap<ToolIx, f64> {
        let (principal, _) = party.of_principal();
        let Some(used) = self.principals.get(&principal) else {
            return BTreeMap::new();
        };
        let all: f64 = used.tools.values().sum();
        let share = |(tool, count): (&ToolIx, &f64)| (*tool, count / all.max(f64::MIN_POSITIVE));
        used.tools.iter().map(share).collect()
    }
}

/// Ranks tools for a whole session at its start: half by the probability to be called next, half by
/// the share of uses in earlier sessions. Without such shares the order does not change. Equally
/// ranked tools keep their order.
pub fn rank_for_session<T: Copy>(ranked: &[(T, f64)], share: impl Fn(T) -> f64) -> Vec<(T, f64)> {
    let mut mixed: Vec<(T, f64)> = (ranked.iter())
        .map(|(tool, probability)| (*tool, f64::midpoint(*probability, share(*tool))))
        .collect();
    mixed.sort_by(|a, b| b.1.partial_cmp(&a.1).unwrap_or(Ordering::Equal));
    mixed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::tool::ToolRef;
    use crate::id::UpstreamName;
    use crate::prediction::Vocabulary;
    use crate::privacy::principal::Principal;

    fn slots(n: usize) -> Vec<ToolIx> {
        let mut vocabulary = Vocabulary::default();
        let tool = |n: usize| ToolRef {
            upstream: UpstreamName::parse("up").unwrap(),
            tool: format!("tool{n}").as_str().into(),
        };
        (0..n).filter_map(|n| vocabulary.intern(&tool(n))).collect()
    }

    #[test]
    fn shares_of_used_tools_decay_and_old_principals_are_dropped() {
        let slots = slots(3);
        let party = |name: &str| ClientKey::new(&Principal::from_name(name), "client");
        let mut used = SessionUse::default();
        for _ in 0..50 {
            used.add(party("p"), &slots[..2]);
        }
        let shares = used.shares(party("p"));
        assert!((shares[&slots[0]] - 0.5).abs() < 1e-9 && !shares.contains_key(&slots[2]));
        assert!(used.shares(party("q")).is_empty());
        for _ in 0..400 {
            used.add(party("p"), &slots[2..]);
        }
        assert_eq!(
            used.shares(party("p")).into_keys().collect::<Vec<_>>(),
            slots[2..]
        );
        for n in 0..MAX_PRINCIPALS {
            used.add(party(&n.to_string()), &slots);
        }
        assert!(used.shares(party("p")).is_empty());
    }

    #[test]
    fn the_session_ranking_mixes_next_probability_and_session_share() {
        let ranked = [('a', 0.6), ('b', 0.3), ('c', 0.1), ('d', 0.0)];
        let order = |share: &dyn Fn(char) -> f64| -> String {
            rank_for_session(&ranked, share)
                .iter()
                .map(|(tool, _)| tool)
                .collect()
        };
        assert_eq!(order(&|_| 0.0), "abcd");
        assert_eq!(order(&|tool| if tool == 'd' { 0.5 } else { 0.1 }), "adbc");
        assert_eq!(order(&|_| f64::NAN), "abcd");
    }
}
