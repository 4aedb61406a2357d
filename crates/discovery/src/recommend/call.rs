//! Requests to the recommender.

use std::collections::BTreeSet;
use std::sync::Arc;

use riglm_domain::id::SessionId;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::invocation::SessionKey;

use super::left_out::Exclusions;
use crate::search::Catalog;

/// One request for recommendations.
#[derive(Clone, Debug)]
pub struct RecommendRequest {
    /// The session that asks, or `None` for the control port and the command line.
    pub session: Option<SessionId>,
    /// The session key.
    pub session_key: Option<SessionKey>,
    /// Whether the session itself asks and sees the answer. Its later calls then count as feedback
    /// on the answer.
    pub is_of_session: bool,
    /// The principal that asks.
    pub principal: Principal,
    /// The task in words.
    pub query: String,
    /// Maximum number of tools in the answer, or `None` for the configured number.
    pub limit: Option<usize>,
    /// The catalog.
    pub catalog: Arc<Catalog>,
    /// Subject of the work.
    pub project: Project,
    /// Reasons that exclude tools at present.
    pub exclusions: Exclusions,
}

/// Subject of a project: its languages and other tags, in lower case. Empty if unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Project {
    tags: BTreeSet<String>,
}

impl Project {
    /// Maximum number of tags that are used.
    pub const MAX_TAGS: usize = 32;
    /// Maximum length of a tag in characters. Longer tags are truncated.
    pub const MAX_TAG_CHARS: usize = 64;

    /// Returns a project with these tags.
    #[must_use]
    pub fn new<T: AsRef<str>>(tags: impl IntoIterator<Item = T>) -> Self {
        let tags = tags.into_iter().map(|tag| {
            let tag = tag.as_ref().trim().to_lowercase();
            tag.chars().take(Self::MAX_TAG_CHARS).collect::<String>()
        });
        Self {
            tags: tags
                .filter(|tag| !tag.is_empty())
                .take(Self::MAX_TAGS)
                .collect(),
        }
    }

    /// Returns whether there are no tags.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.tags.is_empty()
    }

    /// Returns whether the project has one of these tags.
    #[must_use]
    pub fn has_any(&self, tags: &[String]) -> bool {
        tags.iter()
            .any(|tag| self.tags.contains(&tag.to_lowercase()))
    }
}

/// The reason why nothing is recommended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecommendError {
    /// The query has no word.
    #[error("query must not be empty; describe the task in words")]
    Empty,
}
