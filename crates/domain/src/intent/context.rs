//! Contexts: texts that say what a client is doing, from several sources.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr, VariantArray};

use crate::id::{ContextId, SessionId};
use crate::privacy::canonical::KeyedHash;
use crate::privacy::principal::Principal;
use crate::retrieval::embedding::Embedding;

/// The source of the text of a context.
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
pub enum ContextSource {
    /// The client declared it with an own tool of riglm.
    SetContext,
    /// It is the query of a search.
    Search,
    /// It was in the metadata or in a header of a request.
    Request,
    /// It came through the control API.
    Control,
    /// It is the name and the arguments of a prompt.
    Prompt,
    /// It is the URI of a resource.
    Resource,
    /// It was in a forwarded sampling message.
    Sampling,
    /// It is built from the arguments of calls.
    Arguments,
}

impl ContextSource {
    /// All sources.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the name under which the source is stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A text that says what a client is doing. The text itself is stored only if the operator enables
/// it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Context {
    /// Identifies this occurrence of the text.
    pub id: ContextId,
    /// The session that the text belongs to.
    pub session: SessionId,
    /// The principal of the session.
    pub principal: Principal,
    /// The source of the text.
    pub source: ContextSource,
    /// The time at which the text became known.
    pub given_at: Timestamp,
    /// Keyed hash of the text.
    pub text_hash: KeyedHash,
    /// The text without secrets, if storing it is enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The embedding of the text, if an encoder was available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embedding: Option<Embedding>,
}
