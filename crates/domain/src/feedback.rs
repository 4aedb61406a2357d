//! What somebody says a tool is worth.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::{FeedbackId, InvocationId, RecommendationId, SessionId};
use crate::principal::Principal;
use crate::tool::ToolRef;

/// What was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The tool was chosen.
    Selected,
    /// The tool helped.
    Helpful,
    /// The tool did not help.
    Unhelpful,
    /// The tool was not what was asked for.
    Irrelevant,
}

impl Verdict {
    /// All verdicts.
    pub const ALL: [Self; 4] = [
        Self::Selected,
        Self::Helpful,
        Self::Unhelpful,
        Self::Irrelevant,
    ];

    /// Returns the name under which the verdict is stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Selected => "selected",
            Self::Helpful => "helpful",
            Self::Unhelpful => "unhelpful",
            Self::Irrelevant => "irrelevant",
        }
    }

    /// Returns the verdict with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|verdict| verdict.as_str() == name)
    }
}

/// A rating of 1 (worst) to 5 (best).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Rating(u8);

/// A number that is no rating.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a rating is a whole number of 1 to 5, not {0}")]
pub struct RatingError(u8);

impl TryFrom<u8> for Rating {
    type Error = RatingError;

    fn try_from(stars: u8) -> Result<Self, RatingError> {
        if (1..=5).contains(&stars) {
            Ok(Self(stars))
        } else {
            Err(RatingError(stars))
        }
    }
}

impl From<Rating> for u8 {
    fn from(rating: Rating) -> Self {
        rating.0
    }
}

/// One piece of feedback.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Feedback {
    /// Identifies the feedback.
    pub id: FeedbackId,
    /// Who gave it.
    pub principal: Principal,
    /// The session in which it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The tool that it is about.
    pub tool: ToolRef,
    /// What was said.
    pub verdict: Verdict,
    /// A rating, where one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rating: Option<Rating>,
    /// The recommendation that offered the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recommendation: Option<RecommendationId>,
    /// The call that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invocation: Option<InvocationId>,
    /// When it was given.
    pub given_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rating_has_one_to_five_stars() {
        assert_eq!(u8::from(Rating::try_from(5).unwrap()), 5);
        assert_eq!(Rating::try_from(0), Err(RatingError(0)));
        assert!(serde_json::from_str::<Rating>("6").is_err());
    }
}
