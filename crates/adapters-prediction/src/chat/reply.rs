//! Responses of a language model server.

use riglm_ports::model_call::ModelUsage;
use serde::Deserialize;

/// The parsed answer.
#[derive(Debug)]
pub(super) struct ParsedAnswer {
    pub(super) text: String,
    usage: Option<Usage>,
}

impl ParsedAnswer {
    /// Returns the usage as reported by the server, or else an estimate.
    pub(super) fn usage(&self, n_input_bytes: usize) -> ModelUsage {
        let estimated = ModelUsage::estimate(n_input_bytes, self.text.len());
        let Some(usage) = &self.usage else {
            return estimated;
        };
        ModelUsage {
            n_input_tokens: usage.prompt_tokens.unwrap_or(estimated.n_input_tokens),
            n_output_tokens: usage.completion_tokens.unwrap_or(estimated.n_output_tokens),
        }
    }
}

#[derive(Deserialize)]
struct ChatReply {
    choices: Vec<Choice>,
    #[serde(default)]
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Choice {
    message: ChoiceMessage,
}

#[derive(Deserialize)]
struct ChoiceMessage {
    content: Content,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
struct Part {
    #[serde(default)]
    text: String,
}

#[derive(Debug, Deserialize)]
struct Usage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
}

/// Parses the first choice of a response. Returns `None` if it has no text.
pub(super) fn read(body: &[u8]) -> Option<ParsedAnswer> {
    let reply: ChatReply = serde_json::from_slice(body).ok()?;
    let text = match reply.choices.into_iter().next()?.message.content {
        Content::Text(text) => text,
        Content::Parts(parts) => parts.into_iter().map(|part| part.text).collect(),
    };
    Some(ParsedAnswer {
        text,
        usage: reply.usage,
    })
}
