//! Test data: records other than sessions, calls and exchanges.

use riglm_domain::experiment::ExperimentArm;
use riglm_domain::id::{
    ContextId, FeedbackId, InvocationId, RecommendationId, SearchId, SessionId, WorkSessionId,
};
use riglm_domain::intent::context::{Context, ContextSource};
use riglm_domain::privacy::canonical::{KeyedHash, KeyedHasher};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::recommendation::Factors;
use riglm_domain::recommendation::record::{Recommendation, RecommendedTool};
use riglm_domain::retrieval::embedding::Embedding;
use riglm_domain::retrieval::search::{ScoredTool, Search, SearchQuality};
use riglm_domain::selection::shown::{
    ListShown, SelectionDetails, SelectionMode, SelectionReason, ToolSet,
};
use riglm_domain::usage::feedback::{Comment, Feedback, Rating, Verdict};

use super::{expected_coverage, moment, odd_texts, size_choice, tool};

/// Returns the keyed hash of a text.
pub fn hash(text: &str) -> KeyedHash {
    KeyedHasher::new(&[1; 32]).hash_text(text)
}

/// Returns a list that the session was shown `n` milliseconds into the scene: a tool of each odd
/// name, in no particular order.
pub fn list_shown(session: SessionId, n: u8) -> ListShown {
    ListShown {
        session,
        principal: Principal::from_name("alice"),
        shown_at: moment(n.into()),
        epoch: n.into(),
        policy: "sticky \u{0}".into(),
        tools: ToolSet::new(odd_texts().iter().rev().map(|name| tool(name)).collect()),
        n_available: 700,
        selection: Some(SelectionDetails {
            mode: SelectionMode::Pool,
            is_fallback: true,
            reason: Some(SelectionReason::NothingLearned),
            size_choice: Some(size_choice()),
            expected_coverage: Some(expected_coverage()),
            pool: ToolSet::new(odd_texts().iter().map(|name| tool(name)).collect()),
            shown_tokens: 1_600,
            available_tokens: 70_000,
        }),
    }
}

/// Returns scores that a faulty store would round, on tools in this order.
pub fn scored_tools() -> Vec<ScoredTool> {
    let scores = [f64::MAX, 0.1 + 0.2, 5e-324, 0.0, -1.0 / 3.0, f64::MIN];
    (scores
        .into_iter()
        .zip(["b", "a", "c\u{0}", "\u{241b}0", "a", "🦀"]))
    .map(|(score, name)| ScoredTool {
        tool: tool(name),
        score,
    })
    .collect()
}

/// Returns the [`scored_tools`] with factors that a faulty store would round. The first tool has
/// none.
pub fn recommended_tools() -> Vec<RecommendedTool> {
    let factors = Factors::new([1.0, 0.1 + 0.2, 5e-324, 0.0, 1.0 / 3.0]);
    let tools = scored_tools().into_iter().enumerate();
    tools
        .map(|(n, scored)| RecommendedTool {
            tool: scored.tool,
            score: scored.score,
            factors: (n > 0).then_some(factors),
        })
        .collect()
}

/// Returns a search of the session, received `n` milliseconds into the scene.
pub fn search(session: SessionId, n: u8) -> Search {
    Search {
        id: SearchId::new(moment(n.into()), [n; 10]),
        session,
        principal: Principal::from_name("alice"),
        searched_at: moment(n.into()),
        duration_us: 88,
        query_hash: hash("find it"),
        query: Some("find 'it' \u{0}\u{241b}0".into()),
        quality: SearchQuality::Medium,
        results: scored_tools(),
    }
}

/// Returns a vector with components that a faulty store would round.
pub fn embedding(model: &str) -> Embedding {
    let vector = vec![f32::MAX, 0.1, -0.0, 1e-45, 1.0 / 3.0, f32::MIN];
    Embedding::new(model, vector).unwrap()
}

/// Returns a context that the session declared `n` milliseconds into the scene.
pub fn context(session: SessionId, n: u8) -> Context {
    Context {
        id: ContextId::new(moment(n.into()), [n; 10]),
        session,
        principal: Principal::from_name("alice"),
        source: ContextSource::SetContext,
        given_at: moment(n.into()),
        text_hash: hash("do it"),
        text: Some("do \"it\" \u{0}".into()),
        embedding: Some(embedding("model \u{0}'")),
    }
}

/// Returns a recommendation to the session `n` milliseconds into the scene.
pub fn recommendation(session: SessionId, n: u8) -> Recommendation {
    Recommendation {
        id: RecommendationId::new(moment(n.into()), [n; 10]),
        session: Some(session),
        work_session: Some(WorkSessionId::new(moment(3), [3; 10])),
        principal: Principal::from_name("alice"),
        shown_at: moment(n.into()),
        intent_hash: hash("want it"),
        intent: Some("want \\it\\ \u{0}".into()),
        weights: Some(4),
        experiment: Some(ExperimentArm {
            experiment: "colour \u{0}".into(),
            arm: "grün".into(),
        }),
        tools: recommended_tools(),
    }
}

/// Returns feedback of the session on a tool `n` milliseconds into the scene.
pub fn feedback(session: SessionId, n: u8, name: &str) -> Feedback {
    Feedback {
        id: FeedbackId::new(moment(n.into()), [n; 10]),
        principal: Principal::from_name("alice"),
        session: Some(session),
        work_session: Some(WorkSessionId::new(moment(3), [3; 10])),
        tool: tool(name),
        verdict: Verdict::Unhelpful,
        rating: Some(Rating::try_from(2).unwrap()),
        comment: Comment::new("it \u{0} 'did' \u{241b}0 nothing").unwrap(),
        recommendation: Some(RecommendationId::new(moment(1), [1; 10])),
        invocation: Some(InvocationId::new(moment(2), [2; 10])),
        given_at: moment(n.into()),
    }
}
