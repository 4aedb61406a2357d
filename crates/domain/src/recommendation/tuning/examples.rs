//! Training examples from recommendations and the feedback on them.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;

use crate::catalog::tool::ToolRef;
use crate::id::{RecommendationId, SessionId, WorkSessionId};
use crate::recommendation::factors::Factors;
use crate::recommendation::record::Recommendation;
use crate::usage::feedback::{Feedback, Verdict};

/// A recommendation with the feedback on its tools.
#[derive(Clone, Debug, PartialEq)]
pub struct Example {
    /// The time at which it was shown.
    pub shown_at: Timestamp,
    /// The group of the example. Examples of one work session are alike, so they are resampled
    /// together.
    pub group: ExampleGroup,
    /// The tools in the order in which they were shown.
    pub tools: Vec<JudgedTool>,
}

/// The group that examples belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExampleGroup {
    /// A work session.
    Work(WorkSessionId),
    /// A connection without a work session.
    Connection(SessionId),
    /// No group but the recommendation itself.
    Alone(RecommendationId),
}

impl ExampleGroup {
    fn of(shown: &Recommendation) -> Self {
        let connection = shown.session.map(Self::Connection);
        let work = shown.work_session.map(Self::Work);
        work.or(connection).unwrap_or(Self::Alone(shown.id))
    }
}

/// A shown tool with its value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JudgedTool {
    /// The factors of its ranking.
    pub factors: Factors,
    /// The value from feedback: above 0 for a tool that should rank higher, below 0 for a tool that
    /// should rank lower, 0 without feedback.
    pub value: f64,
}

/// Returns the examples from recommendations and the feedback on them, in the order of time.
///
/// Feedback counts if it names the recommendation and a tool in it. Recommendations count if they
/// have at least two tools, all ranked by factors. Of several pieces of feedback on a tool of one
/// recommendation the last one counts, except that a choice does not replace a verdict on the
/// outcome.
#[must_use]
pub fn examples(recommendations: &[Recommendation], feedback: &[Feedback]) -> Vec<Example> {
    let mut said: HashMap<RecommendationId, BTreeMap<&ToolRef, Judgement>> = HashMap::new();
    let mut in_order: Vec<&Feedback> = feedback.iter().collect();
    in_order.sort_by_key(|given| (given.given_at, given.id));
    for given in in_order {
        let Some(id) = given.recommendation else {
            continue;
        };
        let judgement = Judgement::of(given);
        let known = said.entry(id).or_default();
        let is_replaced =
            (known.get(&given.tool)).is_none_or(|known| known.is_replaced_by(judgement));
        if is_replaced {
            known.insert(&given.tool, judgement);
        }
    }
    let mut shown: Vec<&Recommendation> = recommendations.iter().collect();
    shown.sort_by_key(|shown| (shown.shown_at, shown.id));
    let examples = shown.into_iter();
    examples
        .filter_map(|shown| example(shown, said.get(&shown.id)?))
        .collect()
}

fn example(shown: &Recommendation, said: &BTreeMap<&ToolRef, Judgement>) -> Option<Example> {
    let tools: Option<Vec<JudgedTool>> = (shown.tools.iter())
        .map(|tool| {
            let judgement = said.get(&tool.tool);
            Some(JudgedTool {
                factors: tool.factors?,
                value: judgement.map_or(0.0, |judgement| judgement.value),
            })
        })
        .collect();
    let tools = tools.filter(|tools| tools.len() > 1)?;
    let has_judgement = tools.iter().any(|tool| tool.value.abs() > 0.0);
    has_judgement.then(|| Example {
        shown_at: shown.shown_at,
        group: ExampleGroup::of(shown),
        tools,
    })
}

/// The judgement of one piece of feedback on a tool.
#[derive(Clone, Copy, Debug)]
struct Judgement {
    value: f64,
    /// Whether it is about the outcome of the use, not only about the choice.
    is_of_outcome: bool,
}

impl Judgement {
    /// A rating counts before a verdict, and 3 stars say nothing.
    fn of(given: &Feedback) -> Self {
        let stars = given.rating.map(u8::from);
        let (value, is_of_outcome) = match (stars, given.verdict) {
            (Some(1 | 2), _) | (_, Verdict::Unhelpful | Verdict::Irrelevant) => (-1.0, true),
            (Some(5), _) => (2.0, true),
            (Some(4), _) | (_, Verdict::Helpful) => (1.5, true),
            (_, Verdict::Selected) => (1.0, false),
        };
        Self {
            value,
            is_of_outcome,
        }
    }

    fn is_replaced_by(self, later: Self) -> bool {
        later.is_of_outcome || !self.is_of_outcome
    }
}
