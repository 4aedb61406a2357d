//! What usually comes before and after a tool, as it was counted.

use std::collections::BTreeMap;

use crate::tool::ToolRef;
use crate::usage::ToolTransition;

/// Less often than this, two calls followed each other by chance.
const MIN_SUPPORT: u64 = 2;
/// A smaller share of the calls of a tool is not how it is usually done.
const MIN_SHARE: f64 = 0.1;
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

/// Tools that are used one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workflow {
    /// The tools in their order, at least two, each once.
    pub steps: Vec<ToolRef>,
    /// How often the two of the rarest step followed each other.
    pub support: u64,
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

    /// Returns the workflow that a tool usually stands in: the most usual successors, one after the
    /// other, of tools that `is_known` holds for; and what usually comes before, where there is room.
    #[must_use]
    pub fn workflow(
        &self,
        tool: &ToolRef,
        is_known: impl Fn(&ToolRef) -> bool,
    ) -> Option<Workflow> {
        let mut steps = vec![tool.clone()];
        let mut support = u64::MAX;
        while steps.len() < MAX_STEPS - 1 {
            let last = steps.last()?;
            let Some(next) = first_new(self.after(last), &steps, &is_known) else {
                break;
            };
            support = support.min(next.support);
            steps.push(next.tool.clone());
        }
        if let Some(before) = first_new(self.before(tool), &steps, &is_known) {
            support = support.min(before.support);
            steps.insert(0, before.tool.clone());
        }
        (steps.len() > 1).then_some(Workflow { steps, support })
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

fn first_new<'a>(
    neighbours: &'a [Neighbour],
    steps: &[ToolRef],
    is_known: &impl Fn(&ToolRef) -> bool,
) -> Option<&'a Neighbour> {
    let mut new = neighbours.iter().filter(|one| !steps.contains(&one.tool));
    new.find(|one| is_known(&one.tool))
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

    #[test]
    fn a_workflow_follows_the_most_usual_way_of_known_tools() {
        let login = successions(&LOGIN);
        let workflow = login.workflow(&tool("fill"), |_| true).unwrap();
        assert_eq!(
            (names(&workflow.steps).as_slice(), workflow.support),
            (["navigate", "fill", "click", "snapshot"].as_slice(), 9)
        );
        let without = login.workflow(&tool("fill"), |one| *one != tool("snapshot"));
        // What would come next is the first step already.
        let without = without.unwrap();
        assert_eq!(names(&without.steps), ["fill", "click", "navigate"]);
        assert_eq!(without.support, 4);
        assert_eq!(login.workflow(&tool("other"), |_| true), None);
        assert_eq!(login.workflow(&tool("snapshot"), |_| false), None);
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
