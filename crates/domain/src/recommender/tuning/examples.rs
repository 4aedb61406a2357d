//! What recommendations and the feedback on them say about weights.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;

use crate::feedback::{Feedback, Verdict};
use crate::id::{RecommendationId, SessionId, WorkSessionId};
use crate::recommendation::Recommendation;
use crate::recommender::factors::Factors;
use crate::tool::ToolRef;

/// What was recommended together, and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Example {
    /// When it was shown.
    pub shown_at: Timestamp,
    /// What it belongs together with: what one does in one go is alike.
    pub group: ExampleGroup,
    /// The tools in the order in which they were shown.
    pub tools: Vec<JudgedTool>,
}

/// What examples belong together by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExampleGroup {
    /// A work session.
    Work(WorkSessionId),
    /// A connection without a work session.
    Connection(SessionId),
    /// Nothing else.
    Alone(RecommendationId),
}

impl ExampleGroup {
    fn of(shown: &Recommendation) -> Self {
        let connection = shown.session.map(Self::Connection);
        let work = shown.work_session.map(Self::Work);
        work.or(connection).unwrap_or(Self::Alone(shown.id))
    }
}

/// A tool that was shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JudgedTool {
    /// What it was ranked by.
    pub factors: Factors,
    /// What it turned out to be worth: above 0 for a tool that should stand higher, below 0 for one
    /// that should stand lower, 0 where nothing was said.
    pub value: f64,
}

/// Returns the examples that feedback on recommendations comes to, in the order of time.
///
/// Feedback counts that names the recommendation and a tool that it showed, and recommendations of at
/// least two tools that were all ranked by factors. Of several things that were said of a tool in one
/// recommendation the last one counts, but that a choice does not replace what was said of its
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
            (known.get(&given.tool)).is_none_or(|known| known.gives_way_to(judgement));
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

/// What one piece of feedback says of a tool.
#[derive(Clone, Copy, Debug)]
struct Judgement {
    value: f64,
    /// It says how the tool turned out, not only that it was chosen.
    is_of_outcome: bool,
}

impl Judgement {
    /// A rating says more than a verdict, and 3 stars say nothing.
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

    fn gives_way_to(self, later: Self) -> bool {
        later.is_of_outcome || !self.is_of_outcome
    }
}
