//! `POST /recommendations`: recommended tools for a task in words, with explanations.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use riglm_app::proxy::{NoRecommendation, RecommendationQuery};
use riglm_discovery::recommend::{
    LeftOut, NamedNeighbour, Project, RecommendReply, RecommendedTool, access,
};
use riglm_domain::experiment::ExperimentArm;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::recommendation::{Factor, IntentAnalysis};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use validator::Validate;

use crate::body::Valid;
use crate::problem::{BodyErrors, NotFoundError, Problem, ProblemBody, StoreErrors, TokenErrors};
use crate::state::ControlParts;

/// A task that needs tools.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecommendationRequest {
    /// Task in words.
    #[validate(length(min = 1, max = 2_000, message = "query must have 1 to 2000 characters"))]
    #[schema(min_length = 1, max_length = 2_000)]
    query: String,
    /// Maximum number of tools.
    #[validate(range(min = 1, max = 50, message = "limit must be a number from 1 to 50"))]
    #[schema(minimum = 1, maximum = 50)]
    limit: Option<u32>,
    /// An open session: its work session, its connection or its `Mcp-Session-Id`. Without it, all
    /// tools that were ever listed are candidates.
    #[validate(length(min = 1, max = 200, message = "session must have 1 to 200 characters"))]
    #[schema(min_length = 1, max_length = 200)]
    session: Option<String>,
    /// User whose history is used for the ranking, if no session is named; `local` by default.
    #[validate(length(
        min = 1,
        max = 200,
        message = "principal must have 1 to 200 characters"
    ))]
    #[schema(min_length = 1, max_length = 200)]
    principal: Option<String>,
    /// Description of the project.
    #[validate(nested)]
    context: Option<ProjectContext>,
}

/// Description of a project.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProjectContext {
    /// Programming languages.
    #[serde(default)]
    #[validate(length(max = 32, message = "languages must have at most 32 entries"))]
    #[schema(max_items = 32)]
    languages: Vec<String>,
    /// Other tags.
    #[serde(default)]
    #[validate(length(max = 32, message = "tags must have at most 32 entries"))]
    #[schema(max_items = 32)]
    tags: Vec<String>,
}

/// Recommended tools.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Recommendation)]
pub(crate) struct RecommendationView {
    /// Identifier of the recommendation.
    id: String,
    /// Analysis of the query.
    intent: IntentView,
    /// Quality of the match: `high`, `medium` or `low`.
    quality: &'static str,
    /// Tools, the best first.
    tools: Vec<RecommendedToolView>,
    /// Tools that would be recommended if they were usable now.
    left_out: Vec<LeftOutView>,
    /// Weight of each factor.
    weights: BTreeMap<String, f64>,
    /// Version of the weights; `null` for the weights of the configuration.
    weights_version: Option<u64>,
    /// Experiment arm that decided the weights.
    experiment: Option<ArmView>,
    /// Further notes.
    notes: Vec<String>,
    /// Whether the ranking came from the cache.
    cached: bool,
}

/// Analysis of a query.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct IntentView {
    /// Actions, each as the first word of its group of verbs.
    actions: Vec<String>,
    /// Domains.
    domains: Vec<String>,
    /// Technical terms.
    terms: Vec<String>,
    /// Excluded actions, domains and terms.
    negated: NegatedView,
    /// Language code (ISO 639-1), or `und`.
    language: &'static str,
    /// Kind of access: `read`, `write` or `unknown`.
    access: &'static str,
}

/// Terms that the query excludes.
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
    /// Name that clients call it by.
    name: String,
    /// Name of the upstream.
    upstream: String,
    /// First line of the description.
    description: String,
    /// Weighted sum of the factors, from 0 to 1.
    score: f64,
    /// Factors of the ranking: `relevance`, `success_rate`, `popularity`, `performance` and
    /// `user_rating`, each from 0 to 1.
    factors: BTreeMap<&'static str, f64>,
    /// Reason for the recommendation, in one sentence.
    explanation: String,
    /// Tools that are usually called before it.
    before: Vec<NeighbourView>,
    /// Tools that are usually called after it.
    after: Vec<NeighbourView>,
    /// Sequence of calls that work sessions with this tool have in common.
    workflow: Option<WorkflowView>,
}

/// A tool that is usually called before or after another tool.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NeighbourView {
    /// Name that clients call it by.
    name: String,
    /// Number of times that the two calls followed each other.
    support: u64,
    /// Share of all calls that followed, or preceded, the other tool.
    share: f64,
}

/// Tools that are usually called in sequence.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WorkflowView {
    /// Names that clients call them by, in order.
    steps: Vec<String>,
    /// Number of work sessions with the whole sequence.
    support: u64,
}

/// A matching tool that is not recommended.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LeftOutView {
    /// Name that clients call it by.
    name: String,
    /// Reason: `excluded`, `unavailable`, `rate_limited` or `other_projects`.
    reason: &'static str,
    /// Reason in words.
    sentence: String,
}

/// An arm of an experiment.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ArmView {
    /// Name of the experiment.
    experiment: String,
    /// Name of the arm.
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
            weights: reply.weights.by_name(),
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
        let factors = Factor::ALL.iter();
        Self {
            upstream: tool.tool.upstream.as_str().into(),
            name: tool.name,
            description: tool.description,
            score: tool.score,
            factors: factors
                .map(|factor| (factor.as_str(), tool.factors.of(*factor)))
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

impl From<NoRecommendation> for Problem {
    fn from(error: NoRecommendation) -> Self {
        match error {
            NoRecommendation::Store(error) => error.into(),
            NoRecommendation::NotOpen(_) => Self::not_found(error.to_string()),
            NoRecommendation::Query(_) => Self::unprocessable(error.to_string()),
            NoRecommendation::Off | NoRecommendation::NotListed | NoRecommendation::NotStored => {
                Self::conflict(error.to_string())
            }
        }
    }
}

/// Recommend tools for a task.
///
/// Tools are ranked by relevance, success rate, popularity, performance and user ratings.
#[utoipa::path(
    post, path = "/recommendations", operation_id = "recommendTools", tag = "observing", security(("token" = ["read"])),
    request_body = RecommendationRequest,
    responses(
        (status = OK, description = "The recommended tools.", body = RecommendationView),
        (status = CONFLICT, description = "No tools can be recommended.",
            body = ProblemBody, content_type = "application/problem+json"),
        TokenErrors, StoreErrors, BodyErrors, NotFoundError,
    )
)]
pub(crate) async fn create(
    State(parts): State<ControlParts>,
    Valid(body): Valid<RecommendationRequest>,
) -> Result<Json<RecommendationView>, Problem> {
    let project = body.context.map(|context| {
        let tags = context.languages.into_iter().chain(context.tags);
        Project::new(tags)
    });
    let wanted = RecommendationQuery {
        query: body.query,
        limit: body.limit.map(|limit| limit as usize),
        session: body.session,
        principal: (body.principal)
            .map_or_else(Principal::local, |name| Principal::from_name(&name)),
        project: project.unwrap_or_default(),
    };
    let store = parts.queries.as_ref().map(|queries| queries.definitions());
    let reply = parts.proxy.recommend(wanted, store).await?;
    Ok(Json(reply.into()))
}
