//! `GET /predictions/{session_id}`: what an open session is likely to call next, what its list shows
//! of that, and why.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use riglm_app::filtering::ForecastTool;
use riglm_app::proxy::{NoForecast, SessionForecast};
use riglm_domain::invocation::CallSession;
use riglm_domain::list_shown::{SelectionMode, SelectionReason, explained};
use riglm_domain::prediction::{Band, ScoreTerm};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use validator::Validate;

use crate::path::Segment;
use crate::problem::{Guarded, Named, Parametrised, Problem, ProblemBody};
use crate::query::Params;
use crate::router::ControlParts;

/// How much is wanted.
#[derive(Debug, Deserialize, Validate, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PredictionQuery {
    /// The most tools.
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

/// What an open session is likely to call next.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Prediction)]
pub(crate) struct PredictionView {
    /// The work session, or the connection where work sessions are not derived.
    session: String,
    /// The policy of its lists.
    policy: &'static str,
    /// The number of the list that it sees; `null` before the first.
    epoch: Option<u64>,
    /// The mode in which the tools of that list were chosen: `prediction`, `context`, `general`,
    /// `frequency`, `pool`, `names` or `all`; `null` before the first.
    mode: Option<&'static str>,
    /// The reason why all are shown, or why something else chose them than was to; `null` where nothing did.
    reason: Option<&'static str>,
    /// Mode and reason in a sentence; `null` before the first list.
    list_because: Option<&'static str>,
    /// The probability that the next tool is among those that the list has.
    mass: f64,
    /// How far the prediction is trusted: `show_all`, `search_prominent` or `filter`.
    band: &'static str,
    /// How many tools there are.
    available_tools: u64,
    /// The most likely tools, the most likely first.
    tools: Vec<PredictedTool>,
}

/// A tool with its prediction.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PredictedTool {
    /// The name by which clients call it.
    name: String,
    /// The upstream.
    upstream: String,
    /// The natural logarithm of the probability, with six decimals.
    score: f64,
    /// The probability that it is called next, with six decimals.
    probability: f64,
    /// Whether the list has it.
    shown: bool,
    /// Why the list has it or leaves it out: `pinned`, `included`, `excluded` (by the operator),
    /// `whole_list`, `chosen`, `not_chosen`, `not_listed` (no list was shown yet).
    shown_because: &'static str,
    /// What the score is the sum of. Parts that add nothing, with six decimals, are left out.
    why: Vec<Term>,
    /// How likely it is, the strongest reasons in words, and the parts of the score that raise it most.
    sentence: String,
}

/// A part of a score.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Term {
    /// What it is of; parts of parts have dots between them.
    term: String,
    /// What it adds.
    value: f64,
}

impl From<SessionForecast> for PredictionView {
    fn from(prediction: SessionForecast) -> Self {
        let forecast = prediction.forecast;
        Self {
            session: match prediction.session {
                CallSession::Work(id) => id.to_string(),
                CallSession::Connection(id) => id.to_string(),
            },
            policy: forecast.policy.as_str(),
            epoch: forecast.epoch,
            mode: forecast.mode.map(SelectionMode::as_str),
            reason: forecast.reason.map(SelectionReason::as_str),
            list_because: forecast.mode.map(|mode| explained(mode, forecast.reason)),
            mass: rounded(forecast.mass),
            band: match forecast.band {
                Band::ShowAll => "show_all",
                Band::SearchProminent => "search_prominent",
                Band::Filter => "filter",
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
                flatten(&explanation.score, "", &mut terms);
                let sentence = sentence(tool.probability, &explanation.sentence, &terms);
                (terms, sentence)
            }
            None => (Vec::new(), String::new()),
        };
        Self {
            upstream: tool.tool.upstream.as_str().into(),
            name: tool.name,
            // What cannot happen has no logarithm that JSON could write.
            score: rounded(tool.probability.max(f64::MIN_POSITIVE).ln()),
            probability: rounded(tool.probability),
            shown: tool.is_shown,
            shown_because: tool.placing.as_str(),
            why,
            sentence,
        }
    }
}

/// The parts of a score that say what the tool has ahead of others.
const COMPARED: [&str; 2] = ["experts.", "features."];
/// How many of them a sentence names.
const N_NAMED: usize = 2;

/// Returns what is said of a tool: two of which the same speaks differ in how much it speaks.
fn sentence(probability: f64, reasons: &str, terms: &[Term]) -> String {
    let compared = |term: &&Term| COMPARED.iter().any(|group| term.term.starts_with(group));
    let mut raising: Vec<&Term> = (terms.iter())
        .filter(compared)
        .filter(|term| term.value >= 0.005)
        .collect();
    raising.sort_by(|a, b| b.value.total_cmp(&a.value));
    let named: Vec<String> = (raising.iter().take(N_NAMED))
        .map(|term| {
            let name = term.term.rsplit('.').next().unwrap_or_default();
            format!("{name} +{:.2}", term.value)
        })
        .collect();
    let percent = rounded(100.0 * probability);
    let percent = if percent < 0.01 {
        "below 0.01 %".to_owned()
    } else {
        format!("{percent:.2} %")
    };
    if named.is_empty() {
        format!("{percent} likely: {reasons}")
    } else {
        format!("{percent} likely: {reasons} ({})", named.join(", "))
    }
}

/// Returns a number with six decimals.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// Adds the parts of a score that are no sums themselves.
fn flatten(term: &ScoreTerm, above: &str, terms: &mut Vec<Term>) {
    for part in &term.parts {
        let name = if above.is_empty() {
            part.name.to_owned()
        } else {
            format!("{above}.{}", part.name)
        };
        if part.parts.is_empty() {
            let value = rounded(part.value);
            if value.is_finite() && value != 0.0 {
                terms.push(Term { term: name, value });
            }
        } else {
            flatten(part, &name, terms);
        }
    }
}

/// What an open session is likely to call next. It is named by its work session, by its connection,
/// or by the identifier that its transport gave it.
#[utoipa::path(
    get, path = "/predictions/{session_id}", operation_id = "getPrediction", tag = "observing", security(("token" = ["read"])),
    params(
        ("session_id" = String, Path, description = "The session."),
        PredictionQuery,
    ),
    responses(
        (status = OK, description = "The prediction.", body = PredictionView),
        (status = CONFLICT, description = "Nothing is predicted for this session.",
            body = ProblemBody, content_type = "application/problem+json"),
        Guarded, Parametrised, Named,
    )
)]
pub(crate) async fn show(
    State(parts): State<ControlParts>,
    Segment(id): Segment,
    Params(query): Params<PredictionQuery>,
) -> Response {
    match parts.proxy.forecast(&id, query.limit as usize).await {
        Ok(forecast) => Json(PredictionView::from(forecast)).into_response(),
        Err(error @ NoForecast::NotOpen(_)) => {
            Problem::new(StatusCode::NOT_FOUND, error.to_string()).into_response()
        }
        Err(error) => Problem::new(StatusCode::CONFLICT, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &'static str, value: f64, parts: Vec<ScoreTerm>) -> ScoreTerm {
        ScoreTerm { name, value, parts }
    }

    fn tool(probability: f64, recency: f64) -> PredictedTool {
        let experts = vec![
            part("recency", recency, Vec::new()),
            part("text", 0.000_000_2, Vec::new()),
            part("time", f64::NEG_INFINITY, Vec::new()),
        ];
        let score = part(
            "score",
            probability.ln(),
            vec![
                part("chance", probability.ln() - recency, Vec::new()),
                part("experts", recency, experts),
            ],
        );
        ForecastTool {
            name: "read".into(),
            tool: serde_json::from_value(serde_json::json!({ "upstream": "u", "tool": "read" }))
                .unwrap(),
            probability,
            is_shown: true,
            placing: riglm_app::filtering::Placing::Whole,
            explanation: Some(riglm_domain::prediction::Explanation {
                probability,
                score,
                sentence: "used in sessions like this one".into(),
            }),
        }
        .into()
    }

    #[test]
    fn numbers_have_six_decimals_and_parts_that_add_nothing_are_left_out() {
        let one = tool(1.0 / 3.0, 1.0 / 7.0);
        assert_eq!(serde_json::json!(one.probability).to_string(), "0.333333");
        assert_eq!(serde_json::json!(one.score).to_string(), "-1.098612");
        let terms: Vec<String> = (one.why.iter())
            .map(|term| format!("{} {}", term.term, term.value))
            .collect();
        assert_eq!(terms, ["chance -1.241469", "experts.recency 0.142857"]);
    }

    #[test]
    fn two_tools_of_which_the_same_speaks_have_different_sentences() {
        assert_eq!(
            tool(0.25, 0.5).sentence,
            "25.00 % likely: used in sessions like this one (recency +0.50)"
        );
        assert_eq!(
            tool(0.25, 0.25).sentence,
            "25.00 % likely: used in sessions like this one (recency +0.25)"
        );
        assert_eq!(
            tool(0.000_01, -2.0).sentence,
            "below 0.01 % likely: used in sessions like this one"
        );
    }
}
