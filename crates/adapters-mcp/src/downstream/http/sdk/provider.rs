//! The providers, their ways to search, and the texts that all of them show.

use std::borrow::Cow;

use riglm_domain::mcp::edit::member;
use riglm_domain::mcp::scan::unescape;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use strum::IntoStaticStr;

use super::block::{BlockError, FoundTools, Outcome, ToolBlock};
use super::definitions::{ProviderTool, ToolDefinition};
use super::tool_array::{AgentTool, ToolArray};
use super::{anthropic, openai};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Provider {
    /// Anthropic, with its Messages API.
    Anthropic,
    /// `OpenAI`, with its Responses API.
    OpenAi,
}

/// A way to find tools that are not loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub(super) enum SearchMode {
    /// riglm searches, and the agent passes the search on.
    Riglm,
    /// Anthropic searches by words.
    Bm25,
    /// Anthropic searches by regular expressions.
    Regex,
    /// `OpenAI` searches.
    Hosted,
}

impl SearchMode {
    /// Returns the name of the mode in URLs and answers.
    pub(super) fn name(self) -> &'static str {
        self.into()
    }
}

impl Provider {
    /// Returns the provider with this name in URLs.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let mut all = [Self::Anthropic, Self::OpenAi].into_iter();
        all.find(|provider| provider.name() == name)
    }

    /// Returns the name of the provider in URLs.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
        }
    }

    /// Returns the `clientInfo` of an agent on the SDK of the provider.
    pub(super) fn client_info(self) -> Value {
        json!({"name": format!("sdk-{}", self.name()), "version": env!("CARGO_PKG_VERSION")})
    }

    /// Returns the ways to search that the provider has; without riglm, the second is the default.
    pub(super) fn search_modes(self) -> &'static [SearchMode] {
        match self {
            Self::Anthropic => &[SearchMode::Riglm, SearchMode::Bm25, SearchMode::Regex],
            Self::OpenAi => &[SearchMode::Riglm, SearchMode::Hosted],
        }
    }

    /// Returns the way of the provider itself to search.
    pub(super) fn own_search(self) -> SearchMode {
        match self {
            Self::Anthropic => SearchMode::Bm25,
            Self::OpenAi => SearchMode::Hosted,
        }
    }

    /// Returns the member that has the blocks in a message of the provider.
    pub(super) fn blocks_member(self) -> &'static str {
        match self {
            Self::Anthropic => "content",
            Self::OpenAi => "output",
        }
    }

    /// Returns a tool in the format of the provider.
    pub(super) fn convert(self, tool: &ToolDefinition) -> ProviderTool {
        match self {
            Self::Anthropic => anthropic::convert(tool),
            Self::OpenAi => openai::convert(tool),
        }
    }

    /// Returns the entry of the search; `None` if the mode is not available.
    pub(super) fn search_facility(
        self,
        mode: SearchMode,
        array: &ToolArray,
    ) -> Option<Cow<'_, RawValue>> {
        match self {
            Self::Anthropic => anthropic::search_facility(mode, array),
            Self::OpenAi => openai::search_facility(mode, array),
        }
    }

    /// Returns the block in a JSON text; `None` if it asks for no tool of the agent.
    ///
    /// # Errors
    ///
    /// Returns the reason why it is not valid.
    pub(super) fn read_block(self, block: &RawValue) -> Result<Option<ToolBlock>, BlockError> {
        match self {
            Self::Anthropic => anthropic::read_block(block),
            Self::OpenAi => openai::read_block(block),
        }
    }

    /// Returns the arguments of a call with the names that the server knows.
    pub(super) fn server_arguments<'a>(self, tool: &AgentTool, arguments: &'a str) -> Cow<'a, str> {
        match self {
            Self::Anthropic => anthropic::server_arguments(tool, arguments),
            Self::OpenAi => arguments.into(),
        }
    }

    /// Returns the result of a block in the format of the provider.
    pub(super) fn result(self, block: &ToolBlock, outcome: &Outcome, array: &ToolArray) -> Value {
        match self {
            Self::Anthropic => anthropic::result(block, outcome, array),
            Self::OpenAi => openai::result(block, outcome, array),
        }
    }

    /// Returns the answer to a search without a block: the content of its result.
    pub(super) fn search_content(self, found: &FoundTools, array: &ToolArray) -> Value {
        match self {
            Self::Anthropic => json!({"content": anthropic::references(found, array)}),
            Self::OpenAi => json!({"tools": openai::definitions(found, array)}),
        }
    }
}

/// Returns the names for the provider that differ from the names in lists.
pub(super) fn changed_names(array: &ToolArray) -> Map<String, Value> {
    let tools = array.tools().iter().chain(array.search());
    tools
        .filter(|tool| tool.name() != tool.provider_name())
        .map(|tool| (tool.provider_name().to_owned(), tool.name().into()))
        .collect()
}

/// The text of a tool for the model.
#[derive(Debug)]
pub(super) struct ToolText(Option<String>);

impl ToolText {
    /// Returns the description in a definition, or else its title.
    pub(super) fn of(definition: &str) -> Self {
        let text = |key| {
            let text = member(definition, key).and_then(unescape)?;
            (!text.trim().is_empty()).then(|| text.into_owned())
        };
        Self(text("description").or_else(|| text("title")))
    }

    /// Returns the text with a note at its end; `None` if both are missing.
    pub(super) fn with_note(self, note: Option<String>) -> Option<String> {
        match (self.0, note) {
            (Some(text), Some(note)) => Some(format!("{text}\n\n{note}")),
            (text, note) => text.or(note),
        }
    }
}
