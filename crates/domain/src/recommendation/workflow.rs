//! Usual predecessors and successors of a tool, and the sequences of calls that it is a part of,
//! from counts of earlier calls.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use crate::catalog::tool::ToolRef;
use crate::num::to_f64;
use crate::usage::ToolTransition;

/// The minimum support. Calls that follow each other less often do so by chance.
const MIN_SUPPORT: u64 = 2;
/// The minimum share of the calls, or of the sessions, of a tool. A smaller share is not the usual
/// way.
const MIN_SHARE: f64 = 0.1;
/// The minimum number of tools in a workflow.
const MIN_STEPS: usize = 2;
/// The maximum number of tools in a workflow.
const MAX_STEPS: usize = 4;
/// The number added to the calls of a tool, so that few calls give no certainty.
const SMOOTHING: f64 = 2.0;
/// The number of last tools of a session that predict the next one.
const N_LAST: usize = 3;

/// A tool that precedes or follows another one.
#[derive(Clone, Debug, PartialEq)]
pub struct AdjacentTool {
    /// The tool.
    pub tool: ToolRef,
    /// The number of times that the two followed each other.
    pub support: u64,
    /// The share among all calls that followed, or preceded, the other tool.
    pub share: f64,
}

/// A sequence of tools that are called one right after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workflow {
    /// The tools in their order: two to four, without repetition.
    pub steps: Vec<ToolRef>,
    /// The number of sessions with this whole sequence.
    pub support: u64,
}

/// The sequences of calls that sessions have in common.
///
/// A sequence has two to four different tools that were called one right after the other; calls of
/// the same tool in a row are one step. A session counts for a sequence only if it has the whole of
/// it: sequences are not combined from shorter ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workflows {
    /// The workflows of each tool, the most informative one first.
    of: BTreeMap<ToolRef, Vec<Workflow>>,
}

impl Workflows {
    /// Returns the sequences in these sessions. A session is the list of its called tools, in their
    /// order.
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
            // The set counts a sequence once for a session.
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
                if support >= MIN_SUPPORT && to_f64(support) >= MIN_SHARE * to_f64(n_using) {
                    of.entry((*tool).clone()).or_default().push(Workflow {
                        steps: steps.iter().copied().cloned().collect(),
                        support,
                    });
                }
            }
        }
        for all in of.values_mut() {
            all.sort_by(|a, b| compare_workflows(b, a).then_with(|| a.steps.cmp(&b.steps)));
        }
        Self { of }
    }

    /// Returns the sequence that explains the use of a tool best. It is chosen among the sequences
    /// with `is_known` for all tools: the one with the most steps over all sessions, and the longer
    /// one of two with the same number.
    pub fn usual_workflow(
        &self,
        tool: &ToolRef,
        is_known: impl Fn(&ToolRef) -> bool,
    ) -> Option<&Workflow> {
        let mut all = self.of.get(tool)?.iter();
        all.find(|workflow| workflow.steps.iter().all(&is_known))
    }
}

fn are_different(steps: &[&ToolRef]) -> bool {
    (1..steps.len()).all(|at| !steps[..at].contains(&steps[at]))
}

/// Orders by steps over all sessions, and then by length. The most informative workflow is the
/// greatest.
fn compare_workflows(one: &Workflow, other: &Workflow) -> Ordering {
    let n_steps = |workflow: &Workflow| {
        let successions = u64::try_from(workflow.steps.len() - 1).unwrap_or(u64::MAX);
        (workflow.support.saturating_mul(successions), successions)
    };
    n_steps(one).cmp(&n_steps(other))
}

/// The successions of tools, with their counts. A tool that follows itself is not counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Successions {
    after: BTreeMap<ToolRef, Vec<AdjacentTool>>,
    before: BTreeMap<ToolRef, Vec<AdjacentTool>>,
}

impl Successions {
    /// The evidence for a tool that the session has used.
    pub const USED: f64 = 0.2;

    /// Returns the successions of these transitions.
    #[must_use]
    pub fn new(transitions: &[ToolTransition]) -> Self {
        let others = || transitions.iter().filter(|one| one.from != one.to);
        Self {
            after: neighbours(others().map(|one| (&one.from, &one.to, one.count))),
            before: neighbours(others().map(|one| (&one.to, &one.from, one.count))),
        }
    }

    /// Returns the usual successors of a tool, the most frequent first.
    #[must_use]
    pub fn after(&self, tool: &ToolRef) -> &[AdjacentTool] {
        self.after
            .get(tool)
            .map_or(&[], |all| usual_neighbours(all))
    }

    /// Returns the usual predecessors of a tool, the most frequent first.
    #[must_use]
    pub fn before(&self, tool: &ToolRef) -> &[AdjacentTool] {
        self.before
            .get(tool)
            .map_or(&[], |all| usual_neighbours(all))
    }

    /// Returns the evidence of the tools of a session, in their order, for another tool, of 0 to 1:
    /// [`Self::USED`] if it is one of them, or the probability that it follows one of the last
    /// three, if that is higher. Small counts give small probabilities.
    #[must_use]
    pub fn session_share(&self, used: &[ToolRef], tool: &ToolRef) -> f64 {
        let was_used = if used.contains(tool) { Self::USED } else { 0.0 };
        let last = used.iter().rev().take(N_LAST);
        let following = last.filter_map(|last| {
            let all = self.after.get(last)?;
            let next = all.iter().find(|next| next.tool == *tool)?;
            let n_all: f64 = all.iter().map(|next| to_f64(next.support)).sum();
            Some(to_f64(next.support) / (n_all + SMOOTHING))
        });
        following.fold(was_used, f64::max)
    }
}

/// Returns the neighbours of each tool, the most frequent first; ties by name.
fn neighbours<'a>(
    pairs: impl Iterator<Item = (&'a ToolRef, &'a ToolRef, u64)>,
) -> BTreeMap<ToolRef, Vec<AdjacentTool>> {
    let mut of: BTreeMap<ToolRef, Vec<AdjacentTool>> = BTreeMap::new();
    for (tool, other, support) in pairs {
        of.entry(tool.clone()).or_default().push(AdjacentTool {
            tool: other.clone(),
            support,
            share: 0.0,
        });
    }
    for all in of.values_mut() {
        let n_all: u64 = all.iter().map(|one| one.support).sum();
        for one in &mut *all {
            one.share = to_f64(one.support) / to_f64(n_all.max(1));
        }
        all.sort_by(|a, b| {
            let by_support = b.support.cmp(&a.support);
            by_support.then_with(|| a.tool.cmp(&b.tool))
        });
    }
    of
}

fn usual_neighbours(all: &[AdjacentTool]) -> &[AdjacentTool] {
    let is_usual = |one: &AdjacentTool| one.support >= MIN_SUPPORT && one.share >= MIN_SHARE;
    &all[..all.partition_point(is_usual)]
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
    fn neighbours_of_a_tool_are_its_frequent_successors_and_predecessors() {
        let login = successions(&LOGIN);
        let after: Vec<_> = (login.after(&tool("click")).iter())
            .map(|one| (one.tool.tool.as_str(), one.support))
            .collect();
        assert_eq!(after, [("snapshot", 9), ("navigate", 4)]);
        assert_eq!(names_of(login.before(&tool("click"))), ["fill"]);
        assert!(login.after(&tool("snapshot")).is_empty(), "once is chance");
        assert_eq!(names_of(login.after(&tool("fill"))), ["click"]);
    }

    fn names_of(neighbours: &[AdjacentTool]) -> Vec<&str> {
        neighbours
            .iter()
            .map(|one| one.tool.tool.as_str())
            .collect()
    }

    fn usual_steps(sessions: &[&str], of: &str) -> Option<(String, u64)> {
        let known = |name: &str| name != "unknown";
        let sessions: Vec<Vec<ToolRef>> = (sessions.iter())
            .map(|called| called.split(' ').map(tool).collect())
            .collect();
        let workflows =
            Workflows::of_sessions(sessions.iter().map(|called| called.iter().collect()));
        let found = workflows.usual_workflow(&tool(of), |one| known(one.tool.as_str()))?;
        Some((names(&found.steps).join(" "), found.support))
    }

    fn expected(steps: &str, support: u64) -> (String, u64) {
        (steps.to_owned(), support)
    }

    #[test]
    fn usual_steps_are_whole_sequences_with_their_session_count() {
        let apart = ["a b", "a b", "a b", "b c", "b c", "b c"];
        for of in ["a", "b", "c"] {
            let (steps, support) = usual_steps(&apart, of).unwrap();
            assert!(["a b", "b c"].contains(&steps.as_str()), "{of}: {steps}");
            assert_eq!(support, 3);
        }
        let whole = ["a b c", "a b c", "x a b c", "b c"];
        assert_eq!(usual_steps(&whole, "b"), Some(expected("a b c", 3)));
        assert_eq!(usual_steps(&whole, "x"), None, "once is chance");
        // Two sessions with the first half are not one session with the whole.
        assert_eq!(
            usual_steps(&["a b c", "a b d", "a b"], "a"),
            Some(expected("a b", 3))
        );
    }

    #[test]
    fn a_sequence_has_different_tools_and_counts_once_per_session() {
        assert_eq!(
            usual_steps(&["a a b", "a b b"], "a"),
            Some(expected("a b", 2))
        );
        assert_eq!(usual_steps(&["a b a b a b"], "a"), None);
        assert_eq!(
            usual_steps(&["a b a", "a b a"], "a"),
            Some(expected("a b", 2))
        );
        assert_eq!(usual_steps(&["a x b", "a y b"], "a"), None, "not in a row");
        assert_eq!(
            usual_steps(&["a b unknown", "a b unknown"], "a"),
            Some(expected("a b", 2))
        );
        let long = "a b c d e f";
        assert_eq!(
            usual_steps(&[long, long], "a"),
            Some(expected("a b c d", 2))
        );
        let rarely = [vec!["a b"; 2], vec!["a"; 40]].concat();
        assert_eq!(usual_steps(&rarely, "a"), None);
        assert_eq!(usual_steps(&rarely, "b"), Some(expected("a b", 2)));
    }

    #[test]
    fn successors_and_used_tools_have_a_high_session_share() {
        let login = successions(&LOGIN);
        let used = [tool("navigate"), tool("fill")];
        let share = |name| login.session_share(&used, &tool(name));
        assert!((share("click") - 18.0 / 21.0).abs() < 1e-12);
        assert!(share("fill") > 0.9 && (share("navigate") - Successions::USED).abs() < 1e-12);
        assert!(share("rare") < 0.05 && share("snapshot").abs() < 1e-12);
        assert!(login.session_share(&[], &tool("click")).abs() < 1e-12);
    }
}
