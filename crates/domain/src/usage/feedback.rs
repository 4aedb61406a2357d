//! Feedback on tools: verdicts, ratings and comments.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr, VariantArray};

use crate::catalog::tool::ToolRef;
use crate::id::{FeedbackId, InvocationId, RecommendationId, SessionId, WorkSessionId};
use crate::privacy::principal::Principal;
use crate::privacy::redaction::redact_text;

/// The verdict on a tool.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    IntoStaticStr,
    EnumString,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Verdict {
    /// The tool was chosen.
    Selected,
    /// The tool helped.
    Helpful,
    /// The tool did not help.
    Unhelpful,
    /// The tool was not relevant to the request.
    Irrelevant,
}

impl Verdict {
    /// All verdicts.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the name under which the verdict is stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the stars for a verdict with an optional rating: the stars of the rating, or else
    /// five for thumbs up and one for thumbs down. Other verdicts have no stars.
    #[must_use]
    pub fn stars(self, rating: Option<Rating>) -> Option<u8> {
        let thumbs = match self {
            Self::Helpful => Some(5),
            Self::Unhelpful => Some(1),
            Self::Selected | Self::Irrelevant => None,
        };
        rating.map(u8::from).or(thumbs)
    }

    /// Returns whether a rating contradicts the verdict: many stars for a tool that did not help or
    /// was not relevant, few stars for a tool that helped.
    #[must_use]
    pub fn contradicts(self, rating: Rating) -> bool {
        match self {
            Self::Helpful => rating.0 <= 2,
            Self::Unhelpful | Self::Irrelevant => rating.0 >= 4,
            Self::Selected => false,
        }
    }
}

/// A rating of 1 (worst) to 5 (best).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Rating(u8);

/// The error for a number that is no rating.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a rating must be a whole number from 1 to 5, not {0}")]
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

/// A comment on a tool, with secrets removed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Comment(String);

/// The error for a comment that is longer than [`Comment::MAX_CHARS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a comment must have at most {max} characters, not {0}", max = Comment::MAX_CHARS)]
pub struct CommentError(usize);

impl Comment {
    /// The maximum number of characters of a comment, before redaction.
    pub const MAX_CHARS: usize = 1_000;
    /// The maximum number of bytes after redaction, enough for a replacement of each word.
    const MAX_BYTES: usize = 64 << 10;

    /// Returns the comment with secrets removed; `None` for a text of only white space.
    ///
    /// # Errors
    ///
    /// Returns [`CommentError`] for a text that is too long.
    pub fn new(text: &str) -> Result<Option<Self>, CommentError> {
        let text = text.trim();
        let n_chars = text.chars().count();
        if n_chars > Self::MAX_CHARS {
            return Err(CommentError(n_chars));
        }
        let kept = || Self(redact_text(text, Self::MAX_BYTES));
        Ok((n_chars > 0).then(kept))
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// One piece of feedback.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Feedback {
    /// Identifies the feedback.
    pub id: FeedbackId,
    /// The principal that gave the feedback.
    pub principal: Principal,
    /// The session in which it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The work session in which it was given, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_session: Option<WorkSessionId>,
    /// The tool that it is about.
    pub tool: ToolRef,
    /// The verdict on the tool.
    pub verdict: Verdict,
    /// The rating, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rating: Option<Rating>,
    /// The comment, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<Comment>,
    /// The recommendation that contained the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recommendation: Option<RecommendationId>,
    /// The call that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invocation: Option<InvocationId>,
    /// The time of the feedback.
    pub given_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratings_contradicting_their_verdict_are_detected() {
        let says =
            |verdict: Verdict, stars: u8| verdict.contradicts(Rating::try_from(stars).unwrap());
        assert!(says(Verdict::Helpful, 2) && !says(Verdict::Helpful, 3));
        for verdict in [Verdict::Unhelpful, Verdict::Irrelevant] {
            assert!(says(verdict, 4) && !says(verdict, 3));
        }
        assert!(!says(Verdict::Selected, 1));
    }

    #[test]
    fn a_rating_has_one_to_five_stars() {
        assert_eq!(u8::from(Rating::try_from(5).unwrap()), 5);
        assert_eq!(Rating::try_from(0), Err(RatingError(0)));
        assert!(serde_json::from_str::<Rating>("6").is_err());
    }

    #[test]
    fn a_comment_has_no_secrets() {
        let comment = Comment::new("  good, with token=abc \n").unwrap().unwrap();
        assert_eq!(comment.as_str(), "good, with token=[redacted]");
        assert_eq!(Comment::new(" \t\n"), Ok(None));
    }

    #[test]
    fn comments_are_limited_in_length() {
        let longest = "ä".repeat(Comment::MAX_CHARS);
        let kept = Comment::new(&longest).unwrap().unwrap();
        assert_eq!(kept.as_str(), longest);
        let error = Comment::new(&format!("{longest}x")).unwrap_err();
        assert!(error.to_string().contains("1000 characters, not 1001"));
        // Each secret is shorter than its replacement.
        let secrets = "token=a ".repeat(Comment::MAX_CHARS / 8);
        let kept = Comment::new(&secrets).unwrap().unwrap();
        assert!(!kept.as_str().contains("left out"), "{kept:?}");
    }
}
