//! Tests of the names that enums have in the database, in metrics, in the configuration and in
//! answers. They are published, so none of them may change.

use std::fmt::Debug;
use std::str::FromStr;

use crate::catalog::tool_override::{OverrideAction, OverrideScope};
use crate::experiment::{AssignmentUnit, ComparisonVerdict, ExperimentMetric, Treatment};
use crate::intent::ContextShift;
use crate::intent::context::ContextSource;
use crate::mcp::protocol::Transport;
use crate::prediction::Expert;
use crate::recommendation::{Factor, Language};
use crate::retrieval::search::SearchQuality;
use crate::retrieval::{RankingTerm, VariantSource};
use crate::safeguards::budget::{BudgetState, TokenUseKind};
use crate::safeguards::diminishing_returns::{DiminishingAdvice, DiminishingSign};
use crate::safeguards::limiter::LimitScope;
use crate::selection::ListPolicyName;
use crate::selection::shown::{SelectionMode, SelectionReason};
use crate::usage::feedback::Verdict;
use crate::usage::invocation::{Outcome, ToolSource};

fn names<T: Copy>(all: &[T], name: fn(T) -> &'static str) -> Vec<&'static str> {
    all.iter().copied().map(name).collect()
}

/// Checks that each variant is read back from its name, and no other text is.
fn assert_read<T>(all: &[T], name: fn(T) -> &'static str)
where
    T: Copy + Debug + PartialEq + FromStr<Err: Debug>,
{
    for variant in all {
        assert_eq!(name(*variant).parse::<T>().unwrap(), *variant);
    }
    assert!("".parse::<T>().is_err() && "Other".parse::<T>().is_err());
}

#[test]
fn names_of_records_and_lists_are_stable() {
    assert_eq!(
        names(OverrideAction::ALL, OverrideAction::as_str),
        ["include", "exclude", "pin", "forbid"]
    );
    assert_eq!(
        names(ContextSource::ALL, ContextSource::as_str),
        [
            "set_context",
            "search",
            "request",
            "control",
            "prompt",
            "resource",
            "sampling",
            "arguments"
        ]
    );
    assert_eq!(
        names(Transport::ALL, Transport::as_str),
        ["stdio", "streamable_http", "sse"]
    );
    assert_eq!(
        names(Outcome::ALL, Outcome::as_str),
        [
            "ok",
            "error",
            "timeout",
            "cancelled",
            "unknown",
            "refused",
            "cached"
        ]
    );
    assert_eq!(
        names(
            &[
                ToolSource::Shown,
                ToolSource::Found,
                ToolSource::Hidden,
                ToolSource::Unlisted
            ],
            ToolSource::as_str
        ),
        ["shown", "found", "hidden", "unlisted"]
    );
    assert_eq!(
        names(Verdict::ALL, Verdict::as_str),
        ["selected", "helpful", "unhelpful", "irrelevant"]
    );
    assert_eq!(
        names(SelectionMode::ALL, SelectionMode::as_str),
        [
            "prediction",
            "frequency",
            "pool",
            "all",
            "names",
            "context",
            "general"
        ]
    );
    assert_eq!(
        names(SelectionReason::ALL, SelectionReason::as_str),
        [
            "cold_start",
            "predictor_failed",
            "nothing_learned",
            "small_catalog",
            "not_paying",
            "exploration",
            "operator"
        ]
    );
    assert_eq!(
        names(ListPolicyName::EACH, ListPolicyName::as_str),
        [
            "epoch",
            "append",
            "conformal",
            "hints",
            "all",
            "allowlist",
            "denylist"
        ]
    );
}

#[test]
fn names_of_experiments_and_recommendations_are_stable() {
    assert_eq!(
        names(
            &[
                ComparisonVerdict::Better,
                ComparisonVerdict::Worse,
                ComparisonVerdict::Undecided
            ],
            ComparisonVerdict::as_str
        ),
        ["better", "worse", "undecided"]
    );
    assert_eq!(
        names(
            &[AssignmentUnit::Principal, AssignmentUnit::WorkSession],
            AssignmentUnit::as_str
        ),
        ["principal", "work_session"]
    );
    assert_eq!(
        names(
            &[
                ExperimentMetric::ClickThrough,
                ExperimentMetric::Success,
                ExperimentMetric::CallSuccess,
                ExperimentMetric::Coverage
            ],
            ExperimentMetric::as_str
        ),
        ["click_through", "success", "call_success", "coverage"]
    );
    assert_eq!(
        names(Treatment::ALL, Treatment::as_str),
        ["weights", "fusion", "policy", "predictors"]
    );
    assert_eq!(
        names(Factor::ALL, Factor::as_str),
        [
            "relevance",
            "success_rate",
            "popularity",
            "performance",
            "user_rating"
        ]
    );
    assert_eq!(
        names(
            &[
                Language::Arabic,
                Language::Bulgarian,
                Language::Chinese,
                Language::Dutch,
                Language::English,
                Language::French,
                Language::German,
                Language::Greek,
                Language::Hebrew,
                Language::Hindi,
                Language::Italian,
                Language::Japanese,
                Language::Korean,
                Language::Persian,
                Language::Portuguese,
                Language::Russian,
                Language::Spanish,
                Language::Thai,
                Language::Ukrainian,
                Language::Unknown
            ],
            Language::code
        ),
        [
            "ar", "bg", "zh", "nl", "en", "fr", "de", "el", "he", "hi", "it", "ja", "ko", "fa",
            "pt", "ru", "es", "th", "uk", "und"
        ]
    );
}

#[test]
fn names_of_predictions_and_searches_are_stable() {
    assert_eq!(
        names(Expert::ALL, Expert::as_str),
        [
            "frequency",
            "first_call",
            "recency",
            "last_call",
            "markov",
            "workflow",
            "cooccurrence",
            "server",
            "similar_sessions",
            "next_in_sessions",
            "context_knn",
            "text",
            "time",
            "client",
            "external"
        ]
    );
    assert_eq!(
        names(VariantSource::ALL, VariantSource::as_str),
        ["synonyms", "history", "model"]
    );
    assert_eq!(
        names(RankingTerm::ALL, RankingTerm::as_str),
        [
            "words",
            "meaning",
            "slots",
            "memory",
            "companions",
            "frequency",
            "server",
            "curated"
        ]
    );
    assert_eq!(
        names(SearchQuality::ALL, SearchQuality::as_str),
        ["high", "medium", "low"]
    );
}

#[test]
fn names_of_safeguards_and_contexts_are_stable() {
    assert_eq!(
        names(TokenUseKind::ALL, TokenUseKind::as_str),
        ["tool definitions", "arguments", "results"]
    );
    assert_eq!(
        names(BudgetState::ALL, BudgetState::as_str),
        ["ok", "status", "suggest", "stop"]
    );
    assert_eq!(
        names(DiminishingAdvice::ALL, DiminishingAdvice::as_str),
        ["warning", "ask_user"]
    );
    assert_eq!(
        names(LimitScope::ALL, LimitScope::as_str),
        ["session", "principal", "global"]
    );
    assert_eq!(
        names(ContextShift::ALL, ContextShift::as_str),
        ["declared", "drifted"]
    );
}

#[test]
fn names_of_enums_with_values_are_stable() {
    let id = String::new;
    let scopes = [
        OverrideScope::Global,
        OverrideScope::Profile(id()),
        OverrideScope::Client(id()),
        OverrideScope::Session(id()),
    ];
    let kinds = scopes.each_ref().map(OverrideScope::kind);
    assert_eq!(kinds, ["global", "profile", "client", "session"]);
    let signs = [
        DiminishingSign::SameQuery,
        DiminishingSign::SameResults(0.5),
        DiminishingSign::FallingScores(3),
        DiminishingSign::WithoutCall(3),
    ];
    let expected = [
        "same_query",
        "same_results",
        "falling_scores",
        "without_call",
    ];
    assert_eq!(names(&signs, DiminishingSign::name), expected);
    assert_eq!(DiminishingSign::NAMES, expected);
}

#[test]
fn enum_names_are_parsed_and_displayed() {
    assert_read(OverrideAction::ALL, OverrideAction::as_str);
    assert_read(ContextSource::ALL, ContextSource::as_str);
    assert_read(Transport::ALL, Transport::as_str);
    assert_read(Factor::ALL, Factor::as_str);
    assert_read(SearchQuality::ALL, SearchQuality::as_str);
    assert_read(ListPolicyName::EACH, ListPolicyName::as_str);
    assert_read(SelectionMode::ALL, SelectionMode::as_str);
    assert_read(SelectionReason::ALL, SelectionReason::as_str);
    assert_read(Verdict::ALL, Verdict::as_str);
    assert_read(Outcome::ALL, Outcome::as_str);
    for outcome in Outcome::ALL {
        assert_eq!(outcome.to_string(), outcome.as_str());
    }
    for policy in ListPolicyName::EACH {
        assert_eq!(policy.to_string(), policy.as_str());
    }
    let long = "x".repeat(65).parse::<ListPolicyName>().unwrap_err();
    assert!(
        long.to_string()
            .contains(&format!("\"{}\"", "x".repeat(64)))
    );
}
