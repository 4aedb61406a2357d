//! What is asked of the recommender.

use std::collections::BTreeSet;
use std::sync::Arc;

use riglm_domain::id::SessionId;
use riglm_domain::invocation::CallSession;
use riglm_domain::principal::Principal;

use super::left_out::Hindrances;
use crate::search::Offer;

/// One request for recommendations.
#[derive(Clone, Debug)]
pub struct RecommendCall {
    /// The connection that asks; `None` for the control port and the command line.
    pub session: Option<SessionId>,
    /// What its calls have in common.
    pub together: Option<CallSession>,
    /// Whether the session itself asks, and is shown the answer: then what it calls afterwards says
    /// whether the answer was right.
    pub is_of_session: bool,
    /// Who asks.
    pub principal: Principal,
    /// What is to be done, in words.
    pub query: String,
    /// The most tools to answer; `None` for as many as is configured.
    pub limit: Option<usize>,
    /// What could be called.
    pub offer: Arc<Offer>,
    /// What the work is about.
    pub project: Project,
    /// What cannot be used now.
    pub hindrances: Hindrances,
}

/// What a project is about: its languages and other tags, in lower case. Empty where nothing is said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Project {
    tags: BTreeSet<String>,
}

impl Project {
    /// The most tags that are looked at.
    pub const MAX_TAGS: usize = 32;
    /// The longest tag, in characters.
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

    /// Returns whether nothing is said of it.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.tags.is_empty()
    }

    /// Returns whether it has one of these tags.
    #[must_use]
    pub fn has_any(&self, tags: &[String]) -> bool {
        tags.iter()
            .any(|tag| self.tags.contains(&tag.to_lowercase()))
    }
}

/// Why nothing is recommended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecommendError {
    /// There is no word in the query.
    #[error("query must say in words what is to be done; it is empty")]
    Empty,
}
