//! What is known of client programs, by the names that they give themselves.

use serde::{Deserialize, Serialize};

use super::client_class::ToolLoading;
use crate::id::ToolName;
use crate::prediction::NamePattern;

/// Whether a client requests its list again after a notification of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relisting {
    /// It differs, so it has to be seen.
    Unknown,
    /// Never, or only for reasons of its own.
    Never,
    /// Before its next request to the model, or the one after it.
    Always,
}

/// The form of an answer that the model of a client reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResultForm {
    /// Text alone. The model gets it twice or not at all if there is structured content, too.
    Text,
    /// Text and structured content, for programs that read either.
    #[default]
    Both,
}

/// The measured behaviour of a client program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientKind {
    /// Pattern of the name in `clientInfo`. `*` matches any characters.
    pub name: &'static str,
    /// The program, with the version that was measured.
    pub program: &'static str,
    /// How it loads the definitions of tools.
    pub loading: ToolLoading,
    /// Whether it requests lists again.
    pub relisting: Relisting,
    /// The form of results that its model reads.
    pub results: ResultForm,
}

impl ClientKind {
    /// A client that loads all tools, requests its list once, and reads text.
    const fn once(name: &'static str, program: &'static str) -> Self {
        Self {
            name,
            program,
            loading: ToolLoading::AtOnce,
            relisting: Relisting::Never,
            results: ResultForm::Text,
        }
    }

    const fn lists_again(self) -> Self {
        self.relists(Relisting::Always)
    }

    const fn relists(mut self, relisting: Relisting) -> Self {
        self.relisting = relisting;
        self
    }

    const fn loads(mut self, loading: ToolLoading) -> Self {
        self.loading = loading;
        self
    }

    /// The known clients, as measured in November 2026. The first match applies. A name that a
    /// program takes from its user is not here.
    pub const ALL: &'static [Self] = &[
        Self::once("claude-code*", "Claude Code 2.1.328")
            .loads(ToolLoading::OnDemand)
            .lists_again(),
        Self::once("codex-mcp-client", "Codex 0.169.0"),
        Self::once("gemini-cli-mcp-client*", "Gemini CLI 0.61.0").lists_again(),
        Self::once("opencode", "opencode 1.18.33").lists_again(),
        Self::once("kilo", "Kilo 7.7.7").lists_again(),
        Self::once("qwen-cli-mcp-client*", "Qwen Code 0.24.4").loads(ToolLoading::BySearch),
        Self::once("copilot-cli", "Copilot CLI 1.0.102").lists_again(),
        Self::once("@cline/core", "Cline 3.0.65"),
        Self::once("continue-cli-client", "Continue 1.5.47"),
        // The name of the Python SDK, which most frameworks keep: openai-agents 0.24.0, langchain
        // 0.3.2, strands 1.62.0, smolagents 1.26.0, llama-index 0.6.0.
        Self::once("mcp", "Python SDK 1.30.0 and 2.3.0"),
        Self::once("fastmcp*", "fastmcp 4.2.3 (pydantic-ai, agno)").relists(Relisting::Unknown),
        Self::once("@langchain/mcp-adapters", "LangChain for Node 1.1.4"),
        Self::once("google-adk", "Google ADK 2.13.0"),
        Self::once("mcp-use", "mcp-use 1.7.1"),
        Self::once("ai-sdk-mcp-client", "AI SDK 2.0.99"),
    ];

    /// Returns what is known of the client with this name; `None` for an unknown one.
    #[must_use]
    pub fn of(client: &str) -> Option<&'static Self> {
        let name = ToolName::from(client);
        let mut all = Self::ALL.iter();
        all.find(|kind| NamePattern::new(kind.name).matches(&name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_known_by_their_names() {
        let program = |name: &str| ClientKind::of(name).map(|kind| kind.program);
        assert_eq!(program("claude-code/v2"), Some("Claude Code 2.1.328"));
        assert_eq!(
            program("qwen-cli-mcp-client-riglm"),
            Some("Qwen Code 0.24.4")
        );
        assert_eq!(program("mcp"), Some("Python SDK 1.30.0 and 2.3.0"));
        for unknown in ["", "mcp-other", "my-agent"] {
            assert_eq!(program(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn a_kind_does_not_hide_another() {
        for kind in ClientKind::ALL {
            let name = kind.name.trim_end_matches('*');
            assert_eq!(ClientKind::of(name), Some(kind), "{name}");
        }
    }
}
