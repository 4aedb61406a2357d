//! `GET /predictions/{session_id}`: the predicted next calls of an open session, and the reasons
//! for its list.

use axum::Json;
use axum::extract::State;
use riglm_app::proxy::{NoForecast, SessionForecast};
use riglm_app::selection::ForecastTool;
use riglm_domain::prediction::{ConfidenceBand, ScoreTerm};
use riglm_domain::selection::shown::{SelectionMode, SelectionReason, explain_selection};
use riglm_domain::usage::invocation::SessionKey;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use validator::Validate;

use crate::path::Segment;
use crate::problem::{NotFoundError, ParameterErrors, Problem, ProblemBody, TokenErrors};
use crate::query::Params;
use crate::state::ControlParts;

/// Limits of the response.
#[derive(Debug, Deserialize, Validate, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PredictionQuery {
    /// Maximum number of tools.
    #[serde(default = "usual_tools")]
    #[validate(range(
        min = 1,
        max = 1_000,
        message = "limit must be a number from 1 to 1000"
    ))]
    #[param(minimum = 1, maximum = 1_000, default = 50)]
    limit: u32,
}

fn usual_tools() -> u32 {
    50
}

/// Predicted next calls of an open session.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Prediction)]
pub(crate) struct PredictionView {
    /// The work session, or the connection if work sessions are off.
    session: String,
    /// List policy of the session.
    policy: &'static str,
    /// Number of the current list; `null` before the first list.
    epoch: Option<u64>,
    /// Mode in which the tools of that list were selected: `prediction`, `context`, `general`,
    /// `frequency`, `pool`, `names` or `all`; `null` before the first list.
    mode: Option<&'static str>,
    /// Reason for showing all tools or for a fallback; `null` if there was none.
    reason: Option<&'static str>,
    /// Mode and reason in a sentence; `null` before the first list.
    list_because: Option<&'static str>,
    /// Probability that the next tool is in the list.
    mass: f64,
    /// Confidence band of the prediction: `show_all`, `search_prominent` or `filter`.
    band: &'static str,
    /// Number of tools in the catalog.
    available_tools: u64,
    /// The most likely tools, the most likely first.
    tools: Vec<PredictedTool>,
}

/// A tool with its prediction.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PredictedTool {
    /// Name that clients call it by.
    name: String,
    /// Name of the upstream.
    upstream: String,
    /// Name of the tool at the upstream.
    tool: String,
    /// Natural logarithm of the probability, with six decimals.
    score: f64,
    /// Probability that this tool is called next, with six decimals.
    probability: f64,
    /// Whether the list contains it.
    shown: bool,
    /// Reason why the newest list has it or not: `pinned`, `included`, `excluded` (by the operator),
    /// `whole_list`, `chosen`, `not_chosen`, `not_listed` (no list was shown yet). Or what the next
    /// list changes: `pinned_next`, `included_next`, `excluded_next` (by the operator),
    /// `became_likely`.
    shown_because: &'static str,
    /// Terms of the score. Terms that round to zero, with six decimals, are left out.
    why: Vec<Term>,
    /// Explanation in a sentence: the probability and the strongest reasons.
    sentence: String,
}

/// A term of a score.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Term {
    /// Name of the term; dots separate it from the term that contains it.
    term: String,
    /// Value that the term adds.
    value: f64,
}

impl From<SessionForecast> for PredictionView {
    fn from(prediction: SessionForecast) -> Self {
        let forecast = prediction.forecast;
        Self {
            session: match prediction.session {
                SessionKey::Work(id) => id.to_string(),
                SessionKey::Connection(id) => id.to_string(),
            },
            policy: forecast.policy.as_str(),
            epoch: forecast.epoch,
            mode: forecast.mode.map(SelectionMode::as_str),
            reason: forecast.reason.map(SelectionReason::as_str),
            list_because: forecast
                .mode
                .map(|mode| explain_selection(mode, forecast.reason)),
            mass: to_six_decimals(forecast.mass),
            band: match forecast.band {
                ConfidenceBand::ShowAll => "show_all",
                ConfidenceBand::SearchProminent => "search_prominent",
                ConfidenceBand::Filter => "filter",
            },
            available_tools: forecast.n_tools as u64,
            tools: forecast.tools.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<ForecastTool> for PredictedTool {
    fn from(tool: ForecastTool) -> Self {
        let (why, sentence) = match tool.explanation {
            Some(explanation) => {
                let mut terms = Vec::new();
                flatten(explanation.score(), "", &mut terms);
                let sentence = sentence(tool.probability, explanation.sentence());
                (terms, sentence)
            }
            None => (Vec::new(), String::new()),
        };
        Self {
            upstream: tool.tool.upstream.as_str().into(),
            tool: tool.tool.tool.as_str().into(),
            name: tool.name,
            // JSON cannot represent the logarithm of probability 0.
            score: to_six_decimals(tool.probability.max(f64::MIN_POSITIVE).ln()),
            probability: to_six_decimals(tool.probability),
            shown: tool.is_shown,
            shown_because: tool.placing.as_str(),
            why,
            sentence,
        }
    }
}

/// Returns the explanation of a tool.
fn sentence(probability: f64, reasons: &str) -> String {
    let percent = to_six_decimals(100.0 * probability);
    if percent < 0.01 {
        format!("below 0.01 % likely: {reasons}")
    } else {
        format!("{percent:.2} % likely: {reasons}")
    }
}

fn to_six_decimals(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// Adds the leaf terms of a score, which have no parts of their own.
fn flatten(term: &ScoreTerm, above: &str, terms: &mut Vec<Term>) {
    for part in term.parts() {
        let name = if above.is_empty() {
            part.name().to_owned()
        } else {
            format!("{above}.{}", part.name())
        };
        if part.parts().is_empty() {
            let value = to_six_decimals(part.value());
            if value.is_finite() && value != 0.0 {
                terms.push(Term { term: name, value });
            }
        } else {
            flatten(part, &name, terms);
        }
    }
}

impl From<NoForecast> for Problem {
    fn from(error: NoForecast) -> Self {
        match error {
            NoForecast::NotOpen(_) => Self::not_found(error.to_string()),
            NoForecast::NotChosen | NoForecast::NotListed | NoForecast::NotPredicted => {
                Self::conflict(error.to_string())
            }
        }
    }
}

/// Predict the next calls of an open session.
///
/// The session is named by its work session, its connection, or the identifier of its transport.
#[utoipa::path(
    get, path = "/predictions/{session_id}", operation_id = "getPrediction", tag = "observing", security(("token" = ["read"])),
    params(
        ("session_id" = String, Path, description = "Identifier of the session."),
        PredictionQuery,
    ),
    responses(
        (status = OK, description = "The predicted next calls.", body = PredictionView),
        (status = CONFLICT, description = "There are no predictions for this session.",
            body = ProblemBody, content_type = "application/problem+json"),
        TokenErrors, ParameterErrors, NotFoundError,
    )
)]
pub(crate) async fn show(
    State(parts): State<ControlParts>,
    Segment(id): Segment,
    Params(query): Params<PredictionQuery>,
) -> Result<Json<PredictionView>, Problem> {
    let forecast = parts.proxy.forecast(&id, query.limit as usize).await?;
    Ok(Json(forecast.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(probability: f64, recency: f64) -> PredictedTool {
        let experts = vec![
            ScoreTerm::leaf("recency", recency),
            ScoreTerm::leaf("text", 0.000_000_2),
        ];
        let score = ScoreTerm::sum(
            "score",
            vec![
                ScoreTerm::leaf("chance", probability.ln() - recency),
                ScoreTerm::sum("experts", experts),
            ],
        );
        explained(probability, score)
    }

    fn explained(probability: f64, score: ScoreTerm) -> PredictedTool {
        ForecastTool {
            name: "read".into(),
            tool: serde_json::from_value(serde_json::json!({ "upstream": "u", "tool": "read" }))
                .unwrap(),
            probability,
            is_shown: true,
            placing: riglm_app::selection::PlacementReason::Whole,
            explanation: riglm_domain::prediction::Explanation::new(
                probability,
                score,
                "used in similar sessions",
            )
            .ok(),
        }
        .into()
    }

    #[test]
    fn numbers_have_six_decimals_and_zero_terms_are_omitted() {
        let one = tool(1.0 / 3.0, 1.0 / 7.0);
        assert_eq!(serde_json::json!(one.probability).to_string(), "0.333333");
        assert_eq!(serde_json::json!(one.score).to_string(), "-1.098612");
        let terms: Vec<String> = (one.why.iter())
            .map(|term| format!("{} {}", term.term, term.value))
            .collect();
        assert_eq!(terms, ["chance -1.241469", "experts.recency 0.142857"]);
    }

    #[test]
    fn a_part_of_a_tool_without_probability_is_left_out() {
        let time = ScoreTerm::leaf("time", f64::NEG_INFINITY);
        let one = explained(0.0, ScoreTerm::sum("score", vec![time]));
        assert!(one.why.is_empty());
        assert_eq!(
            one.sentence,
            "below 0.01 % likely: used in similar sessions"
        );
    }

    #[test]
    fn sentences_have_the_probability_and_no_names_of_experts() {
        for (probability, expected) in [
            (0.25, "25.00 % likely: used in similar sessions"),
            (0.000_01, "below 0.01 % likely: used in similar sessions"),
        ] {
            assert_eq!(tool(probability, 0.5).sentence, expected);
        }
    }
}
