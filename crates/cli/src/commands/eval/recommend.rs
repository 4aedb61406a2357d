//! `riglm eval recommend`: quality of recommendations, on labelled queries or on stored
//! recommendations.

use std::collections::{BTreeMap, BTreeSet};

use riglm_adapters_storage::open_reader;
use riglm_app::clock::SystemClock;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::RecommendationId;
use riglm_domain::num;
use riglm_domain::recommendation::ToolPerformance;
use riglm_domain::recommendation::record::Recommendation;
use riglm_domain::usage::feedback::{Feedback, Verdict};
use riglm_evaluation::labelled_queries::Recommending;
use riglm_evaluation::{RankingMetrics, RelevantItems};
use riglm_ports::analytics::{DiscoveryRepository as _, ToolDefinitionRepository as _};
use serde_json::{Map, Value, json};

use super::{LabelledEvaluation, add_expansion, grade_rows, print_summary, share, summary};
use crate::args::{EvalRecommendArgs, ExpansionChoice};
use crate::config::Config;

/// The default number of evaluated recommendations, the newest ones.
const N_STORED: u32 = 10_000;
/// The number of feedback entries that are read for each recommendation, the newest ones.
const FEEDBACK_FOR_EACH: u32 = 10;
/// The ranks for which precision and hits are shown.
const PLACES: [usize; 4] = [1, 3, 5, 10];

pub(super) async fn run(config: &Config, arguments: &EvalRecommendArgs) -> anyhow::Result<()> {
    let (Some(catalog), Some(queries)) = (&arguments.catalog, &arguments.queries) else {
        return evaluate_stored(config, arguments).await;
    };
    let labelled = LabelledEvaluation {
        catalog,
        queries,
        foreign: arguments.foreign.as_ref(),
        limit: arguments.limit,
        encoder: arguments.encoder.as_ref(),
        alone: arguments.alone,
        fusion: arguments.fusion,
        history: arguments.history,
        expansion: arguments.expansion.unwrap_or(ExpansionChoice::None),
        recommending: Some(Recommending {
            lexicon: config.lexicon()?,
            weights: config.recommend.weights.unwrap_or_default(),
            n_candidates: config.recommend.candidates,
            n_recommended: config.recommend.limit,
        }),
    };
    let (n_tools, report) = labelled.run_evaluation(config).await?;
    let mut summary = summary(catalog, n_tools, &report);
    let metrics = &report.metrics;
    at_places(&mut summary, metrics);
    add_expansion(&mut summary, arguments.expansion, &report);
    let (n_recommended, n_right) = report.recommended;
    summary.insert("ctr".into(), ratio(n_right, metrics.n_queries()));
    let coverage = ratio(n_recommended as u64, n_tools as u64);
    summary.insert("catalog_coverage".into(), coverage);
    print_summary(arguments.format, summary, grade_rows(&report))
}

/// Evaluates stored recommendations. A recommended tool that was called with success (verdict
/// `selected`) counts as a right one.
async fn evaluate_stored(config: &Config, arguments: &EvalRecommendArgs) -> anyhow::Result<()> {
    let store = open_reader(&config.storage, &config.data_dir, &SystemClock).await?;
    let limit = arguments.limit.unwrap_or(N_STORED);
    let recommendations = store.recommendations(limit).await?;
    let n_feedback = limit.saturating_mul(FEEDBACK_FOR_EACH);
    let feedback = store.feedback(None, None, n_feedback).await?;
    let definitions = store.tool_definitions(None).await?;
    let known = definitions.into_iter().map(|definition| ToolRef {
        upstream: definition.upstream,
        tool: definition.sighting.name,
    });
    let summary = stored_results(&recommendations, &feedback, known.collect());
    print_summary(arguments.format, summary, Vec::new())
}

/// Returns the results without any recommendation.
pub(super) fn empty_results() -> Map<String, Value> {
    stored_results(&[], &[], BTreeSet::new())
}

fn stored_results(
    recommendations: &[Recommendation],
    feedback: &[Feedback],
    mut known: BTreeSet<ToolRef>,
) -> Map<String, Value> {
    let mut selected: BTreeMap<RecommendationId, Vec<ToolRef>> = BTreeMap::new();
    let mut rated = ToolPerformance::default();
    for one in feedback {
        rated.rate(one);
        if let (Verdict::Selected, Some(id)) = (one.verdict, one.recommendation) {
            selected.entry(id).or_default().push(one.tool.clone());
        }
    }
    let mut metrics = RankingMetrics::default();
    let mut recommended: BTreeSet<ToolRef> = BTreeSet::new();
    let mut n_followed = 0;
    // Requests of operators belong to no session, so no client could follow them.
    let asked = |one: &&Recommendation| one.session.is_some() || one.work_session.is_some();
    let recommendations: Vec<&Recommendation> = recommendations.iter().filter(asked).collect();
    for recommendation in &recommendations {
        let tools = recommendation.tools.iter().map(|one| one.tool.clone());
        let ranking: Vec<ToolRef> = tools.collect();
        recommended.extend(ranking.iter().cloned());
        if let Some(tools) = selected.remove(&recommendation.id) {
            n_followed += 1;
            metrics.add(&ranking, &RelevantItems::all_of(tools));
        }
    }
    known.extend(recommended.iter().cloned());
    let n_recommendations = recommendations.len() as u64;
    let mut summary = Map::new();
    summary.insert("recommendations".into(), json!(n_recommendations));
    summary.insert("followed".into(), json!(n_followed));
    summary.insert("tools".into(), json!(known.len()));
    summary.insert("mrr".into(), share(metrics.mrr()));
    summary.insert("ndcg@10".into(), share(metrics.ndcg_10()));
    at_places(&mut summary, &metrics);
    summary.insert("ctr".into(), ratio(n_followed, n_recommendations));
    let coverage = ratio(recommended.len() as u64, known.len() as u64);
    summary.insert("catalog_coverage".into(), coverage);
    summary.insert("ratings".into(), json!(rated.ratings.0));
    summary.insert("mean_rating".into(), json!(rated.mean_stars()));
    summary
}

/// Adds precision and hits at the shown ranks.
fn at_places(summary: &mut Map<String, Value>, metrics: &RankingMetrics) {
    for k in PLACES {
        summary.insert(format!("hit@{k}"), share(metrics.hit_rate(k)));
        summary.insert(format!("precision@{k}"), share(metrics.precision(k)));
    }
}

fn ratio(part: u64, whole: u64) -> Value {
    share(num::ratio(part, whole))
}

#[cfg(test)]
mod tests {
    use riglm_domain::recommendation::record::RecommendedTool;

    use super::*;

    fn tool(name: &str) -> ToolRef {
        serde_json::from_value(json!({ "upstream": "u", "tool": name })).unwrap()
    }

    fn recommendation(n: u8, tools: &[&str]) -> Recommendation {
        let id = format!("01890000-0000-7000-8000-0000000000{n:02x}");
        let tools = tools.iter().map(|name| RecommendedTool {
            tool: tool(name),
            score: 0.5,
            factors: None,
        });
        Recommendation {
            id: id.parse().unwrap(),
            session: Some("01890000-0000-7000-8000-000000000001".parse().unwrap()),
            work_session: None,
            principal: riglm_domain::privacy::principal::Principal::local(),
            shown_at: jiff::Timestamp::UNIX_EPOCH,
            intent_hash: riglm_domain::privacy::canonical::KeyedHasher::new(&[0; 32])
                .hash_text("x"),
            intent: None,
            weights: None,
            experiment: None,
            tools: tools.collect(),
        }
    }

    fn selection_feedback(of: &Recommendation, name: &str) -> Feedback {
        let text = json!({
            "id": "01890000-0000-7000-8000-000000000001", "principal": "local", "tool": tool(name),
            "verdict": "selected", "recommendation": of.id, "given_at": "2026-01-01T00:00:00Z",
        });
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn called_recommendations_count_as_hits() {
        let all = [
            recommendation(1, &["a", "b"]),
            recommendation(2, &["b", "c"]),
            recommendation(3, &["a"]),
        ];
        let feedback = [
            selection_feedback(&all[0], "b"),
            selection_feedback(&all[1], "b"),
        ];
        let known = BTreeSet::from([tool("a"), tool("d")]);
        let summary = stored_results(&all, &feedback, known);
        assert_eq!(summary["mrr"], json!(0.75));
        assert_eq!(summary["hit@1"], json!(0.5));
        assert_eq!(summary["hit@3"], json!(1.0));
        assert_eq!(summary["ctr"], json!(0.6667));
        assert_eq!(summary["catalog_coverage"], json!(0.75));
        assert_eq!(summary["mean_rating"], Value::Null);
        let nothing = stored_results(&[], &[], BTreeSet::new());
        assert_eq!(nothing["ctr"], json!(0.0));
    }
}
