//! `POST /feedback`: ratings of tools by users.

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use http::StatusCode;
use riglm_app::control::feedback::{FeedbackError, FeedbackInput};
use riglm_domain::id::RecommendationId;
use riglm_domain::usage::feedback::{Comment, Rating, Verdict};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use validator::Validate;

use crate::body::Valid;
use crate::problem::{BodyErrors, NotFoundError, Problem, StoreErrors, TokenErrors, require_store};
use crate::state::ControlParts;

/// Feedback about a tool.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewFeedback {
    /// The session in which the tool was offered: a work session, a connection, or the
    /// `Mcp-Session-Id` of an open connection.
    #[validate(length(min = 1, max = 200, message = "session must have 1 to 200 characters"))]
    #[schema(min_length = 1, max_length = 200)]
    session: String,
    /// The tool, by its name at the upstream or the name that clients see.
    #[validate(length(
        min = 1,
        max = 10_000,
        message = "tool must have 1 to 10000 characters"
    ))]
    #[schema(min_length = 1, max_length = 10_000)]
    tool: String,
    /// The upstream, if several have a tool of this name.
    upstream: Option<String>,
    /// Verdict.
    #[schema(value_type = VerdictName)]
    verdict: Verdict,
    /// Rating from 1 (worst) to 5 (best).
    #[validate(range(min = 1, max = 5, message = "rating must be a number from 1 to 5"))]
    #[schema(minimum = 1, maximum = 5)]
    rating: Option<u8>,
    /// Comment in words. It is stored without texts that look like secrets.
    #[validate(length(max = 1_000, message = "comment must have at most 1000 characters"))]
    #[schema(max_length = 1_000)]
    comment: Option<String>,
    /// The recommendation that offered the tool. By default, the newest one of the session that has
    /// the tool.
    #[schema(value_type = Option<String>)]
    recommendation: Option<RecommendationId>,
}

/// Verdict on a tool.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "it describes values, which the domain has")]
enum VerdictName {
    /// The tool was selected.
    Selected,
    /// The tool helped.
    Helpful,
    /// The tool did not help.
    Unhelpful,
    /// The tool did not match the request.
    Irrelevant,
}

/// The recorded feedback.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Feedback)]
pub(crate) struct FeedbackView {
    /// Identifier of the feedback.
    id: String,
}

impl From<FeedbackError> for Problem {
    fn from(error: FeedbackError) -> Self {
        match error {
            FeedbackError::NoSession(_) => Self::not_found(error.to_string()),
            FeedbackError::NotOffered { .. }
            | FeedbackError::NotRecommended { .. }
            | FeedbackError::Ambiguous { .. } => Self::unprocessable(error.to_string()),
            FeedbackError::Store(error) => error.into(),
        }
    }
}

/// Record feedback about a tool.
///
/// The tool must have been offered in the session: listed, found, recommended or called.
#[utoipa::path(
    post, path = "/feedback", operation_id = "giveFeedback", tag = "deciding", security(("token" = ["override"])),
    request_body = NewFeedback,
    responses(
        (status = CREATED, description = "The feedback is recorded.", body = FeedbackView),
        TokenErrors, StoreErrors, BodyErrors, NotFoundError,
    )
)]
pub(crate) async fn create(
    State(parts): State<ControlParts>,
    Valid(body): Valid<NewFeedback>,
) -> Result<impl IntoResponse, Problem> {
    let service = require_store(parts.feedback)?;
    let rating = body.rating.and_then(|stars| Rating::try_from(stars).ok());
    if rating.is_some_and(|rating| body.verdict.contradicts(rating)) {
        return Err(Problem::unprocessable("rating contradicts verdict"));
    }
    let comment = body.comment.as_deref().map(Comment::new).transpose();
    let comment = comment.map_err(|error| Problem::unprocessable(error.to_string()))?;
    let said = FeedbackInput {
        session: body.session,
        tool: body.tool,
        upstream: body.upstream,
        verdict: body.verdict,
        rating,
        comment: comment.flatten(),
        recommendation: body.recommendation,
    };
    let id = service.submit(said).await?.to_string();
    Ok((StatusCode::CREATED, Json(FeedbackView { id })))
}
