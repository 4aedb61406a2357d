//! The rating tool: its arguments and its answer.

use std::sync::Arc;

use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::usage::feedback::{Comment, Feedback, Rating, Verdict};
use riglm_ports::observer::Event;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{ToolCaller, failure, result};
use super::arguments::ArgumentsProblem;
use crate::proxy::list_template::ListFetchError;
use riglm_discovery::search::Catalog;

/// The maximum length of a tool name that is repeated, in characters.
const MAX_NAME_CHARS: usize = 128;

#[derive(Debug, Deserialize)]
struct RatingArguments {
    tool: String,
    #[serde(default)]
    rating: Option<f64>,
    #[serde(default)]
    thumbs: Option<Thumbs>,
    #[serde(default)]
    comment: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Thumbs {
    Up,
    Down,
}

/// The stored part of a rating.
#[derive(Debug, PartialEq)]
struct Opinion {
    verdict: Verdict,
    rating: Option<Rating>,
    comment: Option<Comment>,
}

impl RatingArguments {
    fn read(arguments: Option<&str>) -> Result<(String, Opinion), ArgumentsProblem> {
        let said: Self = serde_json::from_str(arguments.unwrap_or("{}")).map_err(|error| {
            ArgumentsProblem::new(format!(
                r#"arguments must be an object such as {{"tool": "read_file", "rating": 5}}: {error}"#
            ))
        })?;
        let rating = said.rating.map(|stars| {
            // Some models write whole numbers with a fraction, such as 5.0.
            let rating = (1..=5_u8).find(|whole| (f64::from(*whole) - stars).abs() < f64::EPSILON);
            let rating = rating.and_then(|stars| Rating::try_from(stars).ok());
            rating.ok_or_else(|| ArgumentsProblem::new("rating must be a whole number from 1 to 5"))
        });
        let rating = rating.transpose()?;
        if rating.is_some() && said.thumbs.is_some() {
            return Err(ArgumentsProblem::new("give rating or thumbs, not both"));
        }
        let verdict = match (said.thumbs, rating) {
            (Some(Thumbs::Up), _) => Verdict::Helpful,
            (None, Some(rating)) if u8::from(rating) >= 3 => Verdict::Helpful,
            (Some(Thumbs::Down), _) | (None, Some(_)) => Verdict::Unhelpful,
            (None, None) => {
                let text = "give rating, from 1 to 5, or thumbs, up or down";
                return Err(ArgumentsProblem::new(text));
            }
        };
        let comment = said.comment.as_deref().map(Comment::new).transpose();
        let comment = comment.map_err(|error| ArgumentsProblem::new(error.to_string()))?;
        let opinion = Opinion {
            verdict,
            rating,
            comment: comment.flatten(),
        };
        Ok((said.tool, opinion))
    }
}

/// Returns the JSON text of the result of a call of the rating tool. Only a rating of a tool
/// that was offered to the work session is recorded.
pub(super) async fn rate(
    requester: &ToolCaller<'_>,
    arguments: Option<&str>,
    catalog: Result<Arc<Catalog>, ListFetchError>,
) -> String {
    let (name, opinion) = match RatingArguments::read(arguments) {
        Ok(said) => said,
        Err(problem) => return failure(requester.era, problem.as_str()),
    };
    let catalog = match catalog {
        Ok(catalog) => catalog,
        Err(reason) => {
            let problem = format!("failed to rate the tool: {reason}");
            return failure(requester.era, &problem);
        }
    };
    let tool = catalog.tool(&name);
    let tool = tool.filter(|tool| requester.was_offered(&tool.tool, tool.is_hidden));
    let Some(tool) = tool else {
        requester.observe(&Event::FeedbackRefused);
        let name: String = name.chars().take(MAX_NAME_CHARS).collect();
        let problem = format!("tool {name:?} was not offered in this session");
        return failure(requester.era, &problem);
    };
    let recorder = &requester.shared.recorder;
    let session = requester.client_context.session_id(requester.shared).await;
    let stars = opinion.verdict.stars(opinion.rating).unwrap_or_default();
    let recommender = requester.shared.recommender.as_ref();
    let feedback = recorder.feedback_given(|id, given_at| Feedback {
        id,
        principal: requester.client_context.principal.clone(),
        session: Some(session),
        work_session: requester.session.work_session(),
        tool: tool.tool.clone(),
        verdict: opinion.verdict,
        rating: opinion.rating,
        recommendation: recommender
            .and_then(|it| it.recommendation_with(requester.session, &tool.tool)),
        invocation: None,
        given_at,
        comment: opinion.comment,
    });
    feedback.await;
    requester.observe(&Event::ToolRated { stars });
    result(requester, &format!("Noted: {stars} of 5 for {name}."), None)
}

impl ToolCaller<'_> {
    /// Returns whether a tool was offered to the work session: it is listed, or it was found,
    /// recommended or called.
    fn was_offered(&self, tool: &ToolRef, is_hidden: bool) -> bool {
        let is_listed = match &self.shown {
            Some(shown) => shown.shows(tool),
            None => !is_hidden,
        };
        let recommender = self.shared.recommender.as_ref();
        is_listed
            || self.client_context.search.has_found(self.session, tool)
            || recommender.is_some_and(|it| it.knows(self.session, tool))
    }
}

pub(super) fn input_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "tool": {"type": "string", "description": "The name of the tool"},
            "rating": {
                "type": "integer",
                "minimum": 1,
                "maximum": 5,
                "description": "From 1, useless, to 5, just right",
            },
            "thumbs": {
                "type": "string",
                "enum": ["up", "down"],
                "description": "In place of a rating",
            },
            "comment": {
                "type": "string",
                "maxLength": Comment::MAX_CHARS,
                "description": "Why; it is stored",
            },
        },
        "required": ["tool"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_arguments(arguments: &str) -> Result<(String, Opinion), ArgumentsProblem> {
        RatingArguments::read(Some(arguments))
    }

    #[test]
    fn stars_and_thumbs_are_converted_to_verdicts() {
        let verdict = |arguments| read_arguments(arguments).unwrap().1.verdict;
        assert_eq!(verdict(r#"{"tool":"x","rating":4}"#), Verdict::Helpful);
        assert_eq!(verdict(r#"{"tool":"x","rating":2.0}"#), Verdict::Unhelpful);
        assert_eq!(
            verdict(r#"{"tool":"x","thumbs":"down"}"#),
            Verdict::Unhelpful
        );
        let (name, opinion) =
            read_arguments(r#"{"tool":"x","thumbs":"up","comment":" good "}"#).unwrap();
        let comment = opinion.comment.as_ref().map(Comment::as_str);
        assert_eq!((name.as_str(), comment), ("x", Some("good")));
        assert_eq!(opinion.rating, None);
    }

    #[test]
    fn invalid_ratings_are_refused_with_the_reason() {
        let long = format!(
            r#"{{"tool":"x","rating":1,"comment":"{}"}}"#,
            "x".repeat(1_001)
        );
        for (arguments, named) in [
            ("{}", "tool"),
            (r#"{"tool":"x"}"#, "rating"),
            (r#"{"tool":"x","rating":0}"#, "1 to 5"),
            (r#"{"tool":"x","rating":-300}"#, "1 to 5"),
            (r#"{"tool":"x","rating":2.5}"#, "1 to 5"),
            (r#"{"tool":"x","rating":"5"}"#, "arguments"),
            (r#"{"tool":"x","rating":5,"thumbs":"down"}"#, "not both"),
            (r#"{"tool":"x","thumbs":"sideways"}"#, "up"),
            (long.as_str(), "comment"),
        ] {
            let error = read_arguments(arguments).unwrap_err();
            assert!(error.as_str().contains(named), "{arguments}: {error:?}");
        }
    }
}
