//! `POST /recommendations`: which tools are recommended for an intent in words, and why.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use riglm_app::proxy::{NoRecommendation, RecommendationWanted};
use riglm_app::recommend::{
    LeftOut, NamedNeighbour, Project, RecommendReply, RecommendedTool, access,
};
use riglm_domain::experiment::ExperimentArm;
use riglm_domain::principal::Principal;
use riglm_domain::recommender::{Factor, IntentAnalysis};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use validator::Validate;

use crate::body::Valid;
use crate::problem::{Bodied, Guarded, Named, Problem, ProblemBody, Stored};
use crate::router::ControlParts;

/// What is to be done.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecommendationRequest {
    /// What is to be done, in words.
    #[validate(length(min = 1, max = 2_000, message = "query must have 1 to 2000 characters"))]
    #[schema(min_length = 1, max_length = 2_000)]
    query: String,
    /// The most tools.
    #[validate(range(min = 1, max = 50, message = "limit must be a number from 1 to 50"))]
    #[schema(minimum = 1, maximum = 50)]
    limit: Option<u32>,
    /// The open session that it is for (its work session, its connection or its `Mcp-Session-Id`); without one, all tools that were listed are looked at.
    #[validate(length(min = 1, max = 200, message = "session must be an identifier"))]
    #[schema(min_length = 1, max_length = 200)]
    session: Option<String>,
    /// Who it is for, where no session is named; `local` without one.
    #[validate(length(
        min = 1,
        max = 200,
        message = "principal must have 1 to 200 characters"
    ))]
    #[schema(min_length = 1, max_length = 200)]
    principal: Option<String>,
    /// What the project is about.
    #[validate(nested)]
    context: Option<ProjectContext>,
}

/// What a project is about.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProjectContext {
    /// Its programming languages.
    #[serde(default)]
    #[validate(length(max = 32, message = "there may be 32 languages"))]
    #[schema(max_items = 32)]
    languages: Vec<String>,
    /// Other words for it.
    #[serde(default)]
    #[validate(length(max = 32, message = "there may be 32 tags"))]
    #[schema(max_items = 32)]
    tags: Vec<String>,
}

/// Recommended tools.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Recommendation)]
pub(crate) struct RecommendationView {
    /// Identifies the answer.
    id: String,
    /// What was read of the query.
    intent: IntentView,
    /// How well the tools fit: `high`, `medium` or `low`.
    quality: &'static str,
    /// The tools, best first.
    tools: Vec<RecommendedToolView>,
    /// What would be among them if it could be used now.
    left_out: Vec<LeftOutView>,
    /// How much each factor counts.
    weights: BTreeMap<String, f64>,
    /// The version of the weights; `null` for those of the configuration.
    weights_version: Option<u64>,
    /// The arm of the experiment that decided the weights.
    experiment: Option<ArmView>,
    /// What else is to be said.
    notes: Vec<String>,
    /// Whether the ranking was made before, for the same question.
    cached: bool,
}

/// What was read of a query.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct IntentView {
    /// What is to be done, by the first word of each group of verbs.
    actions: Vec<String>,
    /// What it is about.
    domains: Vec<String>,
    /// Its technical terms.
    terms: Vec<String>,
    /// What is not wanted.
    negated: NegatedView,
    /// The code of the language (ISO 639-1), or `und`.
    language: &'static str,
    /// `read`, `write` or `unknown`.
    access: &'static str,
}

/// What is not wanted.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NegatedView {
    /// Actions.
    actions: Vec<String>,
    /// Domains.
    domains: Vec<String>,
    /// Technical terms.
    terms: Vec<String>,
}

/// A recommended tool.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RecommendedToolView {
    /// The name by which clients call it.
    name: String,
    /// Its upstream.
    upstream: String,
    /// The first line of its description.
    description: String,
    /// The sum of the factors by their weights, of 0 to 1.
    score: f64,
    /// What it is ranked by: `relevance`, `success_rate`, `popularity`, `performance` and
    /// `user_rating`, each of 0 to 1.
    factors: BTreeMap<&'static str, f64>,
    /// Why it is recommended, in one sentence.
    explanation: String,
    /// What usually comes before it.
    before: Vec<NeighbourView>,
    /// What usually comes after it.
    after: Vec<NeighbourView>,
    /// The sequence of calls that work sessions with it had in common.
    workflow: Option<WorkflowView>,
}

/// A tool that usually comes before or after another one.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NeighbourView {
    /// The name by which clients call it.
    name: String,
    /// How often the two followed each other.
    support: u64,
    /// The share of all calls that followed, or came before, the other tool.
    share: f64,
}

/// Tools that are usually used one after the other.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WorkflowView {
    /// The names by which clients call them, in their order.
    steps: Vec<String>,
    /// In how many work sessions this whole sequence was called.
    support: u64,
}

/// A tool that is not recommended although it fits.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LeftOutView {
    /// The name by which clients call it.
    name: String,
    /// `excluded`, `unavailable`, `rate_limited` or `other_projects`.
    reason: &'static str,
    /// The reason in words.
    sentence: String,
}

/// An arm of an experiment.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ArmView {
    /// The experiment.
    experiment: String,
    /// The arm.
    arm: String,
}

impl From<RecommendReply> for RecommendationView {
    fn from(reply: RecommendReply) -> Self {
        Self {
            id: reply.id.to_string(),
            intent: reply.intent.into(),
            quality: reply.quality.as_str(),
            tools: reply.tools.into_iter().map(Into::into).collect(),
            left_out: reply.left_out.iter().map(Into::into).collect(),
            weights: reply.weights.named(),
            weights_version: reply.weights_version,
            experiment: reply.experiment.map(Into::into),
            notes: reply.notes,
            cached: reply.was_cached,
        }
    }
}

impl From<IntentAnalysis> for IntentView {
    fn from(intent: IntentAnalysis) -> Self {
        Self {
            actions: intent.actions,
            domains: intent.domains,
            terms: intent.terms,
            negated: NegatedView {
                actions: intent.negated.actions,
                domains: intent.negated.domains,
                terms: intent.negated.terms,
            },
            language: intent.language.code(),
            access: access(intent.access),
        }
    }
}

impl From<RecommendedTool> for RecommendedToolView {
    fn from(tool: RecommendedTool) -> Self {
        let factors = Factor::ALL.into_iter();
        Self {
            upstream: tool.tool.upstream.as_str().into(),
            name: tool.name,
            description: tool.description,
            score: tool.score,
            factors: factors
                .map(|factor| (factor.as_str(), tool.factors.of(factor)))
                .collect(),
            explanation: tool.explanation,
            before: tool.before.into_iter().map(Into::into).collect(),
            after: tool.after.into_iter().map(Into::into).collect(),
            workflow: tool.workflow.map(|workflow| WorkflowView {
                steps: workflow.steps,
                support: workflow.support,
            }),
        }
    }
}

impl From<NamedNeighbour> for NeighbourView {
    fn from(neighbour: NamedNeighbour) -> Self {
        Self {
            name: neighbour.name,
            support: neighbour.support,
            share: neighbour.share,
        }
    }
}

impl From<&LeftOut> for LeftOutView {
    fn from(left_out: &LeftOut) -> Self {
        Self {
            name: left_out.name.clone(),
            reason: left_out.reason.as_str(),
            sentence: left_out.reason.sentence(),
        }
    }
}

impl From<ExperimentArm> for ArmView {
    fn from(arm: ExperimentArm) -> Self {
        Self {
            experiment: arm.experiment,
            arm: arm.arm,
        }
    }
}

/// Recommends tools for what is to be done: ranked by how well they fit, how often their calls succeed,
/// how often they are used, how quickly they answer and how they are rated.
#[utoipa::path(
    post, path = "/recommendations", operation_id = "recommendTools", tag = "observing", security(("token" = ["read"])),
    request_body = RecommendationRequest,
    responses(
        (status = OK, description = "The recommended tools.", body = RecommendationView),
        (status = CONFLICT, description = "Nothing can be recommended.",
            body = ProblemBody, content_type = "application/problem+json"),
        Guarded, Stored, Bodied, Named,
    )
)]
pub(crate) async fn create(
    State(parts): State<ControlParts>,
    Valid(body): Valid<RecommendationRequest>,
) -> Response {
    let project = body.context.map(|context| {
        let tags = context.languages.into_iter().chain(context.tags);
        Project::new(tags)
    });
    let wanted = RecommendationWanted {
        query: body.query,
        limit: body.limit.map(|limit| limit as usize),
        session: body.session,
        principal: (body.principal).map_or_else(Principal::local, |name| Principal::named(&name)),
        project: project.unwrap_or_default(),
    };
    let store = parts.insight.as_ref().map(|insight| insight.definitions());
    match parts.proxy.recommend(wanted, store).await {
        Ok(reply) => Json(RecommendationView::from(reply)).into_response(),
        Err(NoRecommendation::Store(error)) => Problem::store_failed(&error).into_response(),
        Err(error) => {
            let status = match &error {
                NoRecommendation::NotOpen(_) => StatusCode::NOT_FOUND,
                NoRecommendation::Query(_) => StatusCode::UNPROCESSABLE_ENTITY,
                _ => StatusCode::CONFLICT,
            };
            Problem::new(status, error.to_string()).into_response()
        }
    }
}
