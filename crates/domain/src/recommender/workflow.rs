//! What usually comes before and after a tool, and the sequences of calls that it is a part of, as
//! they were counted.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use crate::tool::ToolRef;
use crate::usage::ToolTransition;

/// Less often than this, calls followed each other by chance.
const MIN_SUPPORT: u64 = 2;
/// A smaller share of the calls, or of the sessions, of a tool is not how it is usually done.
const MIN_SHARE: f64 = 0.1;
/// The fewest tools of a workflow.
const MIN_STEPS: usize = 2;
/// The most tools of a workflow.
const MAX_STEPS: usize = 4;
/// What is added to the calls of a tool, so that few of them make no certainty.
const SMOOTHING: f64 = 2.0;
/// How many of the last tools of a session say what comes next.
const N_LAST: usize = 3;

/// A tool that comes before or after another one.
#[derive(Clone, Debug, PartialEq)]
pub struct Neighbour {
    /// The tool.
    pub tool: ToolRef,
    /// How often the two followed each other.
    pub support: u64,
    /// The share of all calls that followed, or came before, the other tool.
    pub share: f64,
}

/// Tools that are called one right after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workflow {
    /// The tools in their order, two to four, each once.
    pub steps: Vec<ToolRef>,
    /// In how many sessions this whole sequence was called.
    pub support: u64,
}

/// The sequences of calls that sessions have in common.
///
/// A sequence is two to four different tools that were called one right after the other; calls of
/// the same tool in a row are one step. Each was called as a whole in the sessions that it is counted
/// for: nothing is put together of shorter ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workflows {
    /// Those of each tool, the one to be told first.
    of: BTreeMap<ToolRef, Vec<Workflow>>,
}

impl Workflows {
    /// Returns the sequences of sessions, each with the tools that it called, in their order.
    #[must_use]
    pub fn of_sessions<'a>(sessions: impl IntoIterator<Item = Vec<&'a ToolRef>>) -> Self {
        let mut n_using: BTreeMap<&ToolRef, u64> = BTreeMap::new();
        let mut counted: BTreeMap<Vec<&ToolRef>, u64> = BTreeMap::new();
        for mut called in sessions {
            called.dedup();
            for tool in called.iter().collect::<BTreeSet<_>>() {
                *n_using.entry(tool).or_default() += 1;
            }
            let lengths = MIN_STEPS..=MAX_STEPS.min(called.len());
            let windows = lengths.flat_map(|n| called.windows(n));
            let sequences: BTreeSet<&[&ToolRef]> =
                windows.filter(|steps| are_different(steps)).collect();
            for steps in sequences {
                *counted.entry(steps.to_vec()).or_default() += 1;
            }
        }
        let mut of: BTreeMap<ToolRef, Vec<Workflow>> = BTreeMap::new();
        for (steps, support) in counted {
            for tool in &steps {
                let n_using = n_using.get(tool).copied().unwrap_or(support);
                if support >= MIN_SUPPORT && count(support) >= MIN_SHARE * count(n_using) {
                    of.entry((*tool).clone()).or_default().push(Workflow {
                        steps: steps.iter().copied().cloned().collect(),
                        support,
                    });
                }
            }
        }
        for all in of.values_mut() {
            all.sort_by(|a, b| told_first(b, a).then_with(|| a.steps.cmp(&b.steps)));
        }
        Self { of }
    }

    /// Returns the sequence that tells most of how a tool is used, of those of which `is_known` holds
    /// for all tools: the one with the most steps that sessions made together, the longer one
    /// where two have as many.
    pub fn usual(&self, tool: &ToolRef, is_known: impl Fn(&ToolRef) -> bool) -> Option<&Workflow> {
        let mut all = self.of.get(tool)?.iter();
        all.find(|workflow| workflow.steps.iter().all(&is_known))
    }
}

fn are_different(steps: &[&ToolRef]) -> bool {
    (1..steps.len()).all(|at| !steps[..at].contains(&steps[at]))
}

/// Orders the sequence to be told first behind the other one.
fn told_first(one: &Workflow, other: &Workflow) -> Ordering {
    let n_steps = |workflow: &Workflow| {
        let successions = u64::try_from(workflow.steps.len() - 1).unwrap_or(u64::MAX);
        (workflow.support.saturating_mul(successions), successions)
    };
    n_steps(one).cmp(&n_steps(other))
}

/// Which tools followed which, and how often. A tool that follows itself says nothing here.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Successions {
    after: BTreeMap<ToolRef, Vec<Neighbour>>,
    before: BTreeMap<ToolRef, Vec<Neighbour>>,
}

impl Successions {
    /// How much it speaks for a tool that the session used it.
    pub const USED: f64 = 0.2;

    /// Returns what these transitions say.
    #[must_use]
    pub fn new(transitions: &[ToolTransition]) -> Self {
        let others = || transitions.iter().filter(|one| one.from != one.to);
        Self {
            after: neighbours(others().map(|one| (&one.from, &one.to, one.count))),
            before: neighbours(others().map(|one| (&one.to, &one.from, one.count))),
        }
    }

    /// Returns the tools that usually come after a tool, the most usual first.
    #[must_use]
    pub fn after(&self, tool: &ToolRef) -> &[Neighbour] {
        self.after.get(tool).map_or(&[], |all| usual(all))
    }

    /// Returns the tools that usually come before a tool, the most usual first.
    #[must_use]
    pub fn before(&self, tool: &ToolRef) -> &[Neighbour] {
        self.before.get(tool).map_or(&[], |all| usual(all))
    }

    /// Returns how much the tools that a session used, in their order, speak for another one, of 0
    /// to 1: [`Self::USED`] where it is one of them, or the probability that it follows one of the last
    /// three, where that is more. Few counts make small probabilities.
    #[must_use]
    pub fn session_share(&self, used: &[ToolRef], tool: &ToolRef) -> f64 {
        let was_used = if used.contains(tool) { Self::USED } else { 0.0 };
        let last = used.iter().rev().take(N_LAST);
        let following = last.filter_map(|last| {
            let all = self.after.get(last)?;
            let next = all.iter().find(|next| next.tool == *tool)?;
            let n_all: f64 = all.iter().map(|next| count(next.support)).sum();
            Some(count(next.support) / (n_all + SMOOTHING))
        });
        following.fold(was_used, f64::max)
    }
}

/// Returns the neighbours of each tool, the most frequent first; ties by name.
fn neighbours<'a>(
    pairs: impl Iterator<Item = (&'a ToolRef, &'a ToolRef, u64)>,
) -> BTreeMap<ToolRef, Vec<Neighbour>> {
    let mut of: BTreeMap<ToolRef, Vec<Neighbour>> = BTreeMap::new();
    for (tool, other, support) in pairs {
        of.entry(tool.clone()).or_default().push(Neighbour {
            tool: other.clone(),
            support,
            share: 0.0,
        });
    }
    for all in of.values_mut() {
        let n_all: u64 = all.iter().map(|one| one.support).sum();
        for one in &mut *all {
            one.share = count(one.support) / count(n_all.max(1));
        }
        all.sort_by(|a, b| {
            let by_support = b.support.cmp(&a.support);
            by_support.then_with(|| a.tool.cmp(&b.tool))
        });
    }
    of
}

fn usual(all: &[Neighbour]) -> &[Neighbour] {
    let is_usual = |one: &Neighbour| one.support >= MIN_SUPPORT && one.share >= MIN_SHARE;
    &all[..all.partition_point(is_usual)]
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn count(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::UpstreamName;

    fn tool(name: &str) -> ToolRef {
        ToolRef {
            upstream: UpstreamName::parse("u").unwrap(),
            tool: name.into(),
        }
    }

    fn successions(counts: &[(&str, &str, u64)]) -> Successions {
        let transitions: Vec<ToolTransition> = (counts.iter())
            .map(|(from, to, count)| ToolTransition {
                from: tool(from),
                to: tool(to),
                count: *count,
            })
            .collect();
        Successions::new(&transitions)
    }

    fn names(steps: &[ToolRef]) -> Vec<&str> {
        steps.iter().map(|step| step.tool.as_str()).collect()
    }

    const LOGIN: [(&str, &str, u64); 7] = [
        ("navigate", "fill", 20),
        ("fill", "fill", 90),
        ("fill", "click", 18),
        ("click", "snapshot", 9),
        ("click", "navigate", 4),
        ("snapshot", "close", 1),
        ("fill", "rare", 1),
    ];

    #[test]
    fn the_neighbours_of_a_tool_are_those_that_usually_are() {
        let login = successions(&LOGIN);
        let after: Vec<_> = (login.after(&tool("click")).iter())
            .map(|one| (one.tool.tool.as_str(), one.support))
            .collect();
        assert_eq!(after, [("snapshot", 9), ("navigate", 4)]);
        assert_eq!(names_of(login.before(&tool("click"))), ["fill"]);
        assert!(login.after(&tool("snapshot")).is_empty(), "once is chance");
        assert_eq!(names_of(login.after(&tool("fill"))), ["click"]);
    }

    fn names_of(neighbours: &[Neighbour]) -> Vec<&str> {
        neighbours
            .iter()
            .map(|one| one.tool.tool.as_str())
            .collect()
    }

    fn told(sessions: &[&str], of: &str) -> Option<(String, u64)> {
        let known = |name: &str| name != "unknown";
        let sessions: Vec<Vec<ToolRef>> = (sessions.iter())
            .map(|called| called.split(' ').map(tool).collect())
            .collect();
        let workflows =
            Workflows::of_sessions(sessions.iter().map(|called| called.iter().collect()));
        let found = workflows.usual(&tool(of), |one| known(one.tool.as_str()))?;
        Some((names(&found.steps).join(" "), found.support))
    }

    fn is(steps: &str, support: u64) -> (String, u64) {
        (steps.to_owned(), support)
    }

    #[test]
    fn only_whole_sequences_are_told_each_with_the_sessions_that_had_it() {
        let apart = ["a b", "a b", "a b", "b c", "b c", "b c"];
        for of in ["a", "b", "c"] {
            let (steps, support) = told(&apart, of).unwrap();
            assert!(["a b", "b c"].contains(&steps.as_str()), "{of}: {steps}");
            assert_eq!(support, 3);
        }
        let whole = ["a b c", "a b c", "x a b c", "b c"];
        assert_eq!(told(&whole, "b"), Some(is("a b c", 3)));
        assert_eq!(told(&whole, "x"), None, "once is chance");
        // Two that did the first half are not one that did it all.
        assert_eq!(told(&["a b c", "a b d", "a b"], "a"), Some(is("a b", 3)));
    }

    #[test]
    fn a_sequence_is_of_different_tools_in_a_row_and_a_session_counts_once() {
        assert_eq!(told(&["a a b", "a b b"], "a"), Some(is("a b", 2)));
        assert_eq!(told(&["a b a b a b"], "a"), None);
        assert_eq!(told(&["a b a", "a b a"], "a"), Some(is("a b", 2)));
        assert_eq!(told(&["a x b", "a y b"], "a"), None, "not in a row");
        assert_eq!(
            told(&["a b unknown", "a b unknown"], "a"),
            Some(is("a b", 2))
        );
        let long = "a b c d e f";
        assert_eq!(told(&[long, long], "a"), Some(is("a b c d", 2)));
        let rarely = [vec!["a b"; 2], vec!["a"; 40]].concat();
        assert_eq!(told(&rarely, "a"), None);
        assert_eq!(told(&rarely, "b"), Some(is("a b", 2)));
    }

    #[test]
    fn what_follows_the_last_tools_of_a_session_is_likely_and_what_it_used_is_too() {
        let login = successions(&LOGIN);
        let used = [tool("navigate"), tool("fill")];
        let share = |name| login.session_share(&used, &tool(name));
        assert!((share("click") - 18.0 / 21.0).abs() < 1e-12);
        assert!(share("fill") > 0.9 && (share("navigate") - Successions::USED).abs() < 1e-12);
        assert!(share("rare") < 0.05 && share("snapshot").abs() < 1e-12);
        assert!(login.session_share(&[], &tool("click")).abs() < 1e-12);
    }
}
