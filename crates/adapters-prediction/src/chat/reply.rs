//! The answer of a server of language models.

use riglm_ports::model_call::ModelUsage;
use serde::Deserialize;

/// What a model said.
#[derive(Debug)]
pub(super) struct Read {
    /// Its text.
    pub(super) text: String,
    usage: Option<Usage>,
}

impl Read {
    /// Returns what it cost, as the server says or else as it is estimated.
    pub(super) fn usage(&self, n_input_bytes: usize) -> ModelUsage {
        let estimated = ModelUsage::estimated(n_input_bytes, self.text.len());
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
struct Reply {
    choices: Vec<Choice>,
    #[serde(default)]
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Choice {
    message: Said,
}

#[derive(Deserialize)]
struct Said {
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

/// Reads the first choice of an answer; `None` for one without a text.
pub(super) fn read(body: &[u8]) -> Option<Read> {
    let reply: Reply = serde_json::from_slice(body).ok()?;
    let text = match reply.choices.into_iter().next()?.message.content {
        Content::Text(text) => text,
        Content::Parts(parts) => parts.into_iter().map(|part| part.text).collect(),
    };
    Some(Read {
        text,
        usage: reply.usage,
    })
}
