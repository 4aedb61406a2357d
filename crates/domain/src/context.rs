//! What a client is doing, in words, where that becomes known.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::canonical::KeyedHash;
use crate::embedding::Embedding;
use crate::id::{ContextId, SessionId};
use crate::principal::Principal;

/// Where a text came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContextSource {
    /// The client said it with the tool for that.
    SetContext,
    /// The client searched for it.
    Search,
    /// It stood in the metadata or a header of a request.
    Request,
    /// It came through the control API.
    Control,
    /// It is the name and the arguments of a prompt.
    Prompt,
    /// It is the URI of a resource.
    Resource,
    /// It stood in a sampling message that passed through.
    Sampling,
    /// It is made of the arguments of calls.
    Arguments,
}

impl ContextSource {
    /// All sources.
    pub const ALL: [Self; 8] = [
        Self::SetContext,
        Self::Search,
        Self::Request,
        Self::Control,
        Self::Prompt,
        Self::Resource,
        Self::Sampling,
        Self::Arguments,
    ];

    /// Returns the name under which the source is stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SetContext => "set_context",
            Self::Search => "search",
            Self::Request => "request",
            Self::Control => "control",
            Self::Prompt => "prompt",
            Self::Resource => "resource",
            Self::Sampling => "sampling",
            Self::Arguments => "arguments",
        }
    }

    /// Returns the source with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.as_str() == name)
    }
}

/// A text that says what a client is doing. The text itself is kept only where the operator asks
/// for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Context {
    /// Identifies the text at this moment.
    pub id: ContextId,
    /// The session that it belongs to.
    pub session: SessionId,
    /// Whose session that is.
    pub principal: Principal,
    /// Where it came from.
    pub source: ContextSource,
    /// When it became known.
    pub given_at: Timestamp,
    /// Keyed hash of the text.
    pub text_hash: KeyedHash,
    /// The text with secrets removed, when the operator asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Its embedding, where an encoder was there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embedding: Option<Embedding>,
}
