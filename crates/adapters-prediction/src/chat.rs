//! Language models behind a `/chat/completions` endpoint, for reranking and query expansion.
//!
//! Prompts and the parsing of answers are in [`riglm_domain::retrieval`]. This module has the
//! transport.

mod config;
mod reply;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use riglm_domain::retrieval::{
    BriefCatalog, ModelPrompt, expansion_prompt, parse_order, parse_wordings, ranking_prompt,
};
use riglm_ports::model_call::{ModelCallError, ModelUsage};
use riglm_ports::query_expander::{QueryExpander, QueryVariants};
use riglm_ports::reranker::{Reranker, Reranking};
use serde::Serialize;

pub use config::{ChatConfig, ChatConfigError};

use crate::endpoint::{Endpoint, EndpointError, EndpointSettings, EndpointSetupError};

/// Maximum size of an answer. It has only a few names or short texts, plus the overhead of the
/// server.
const MAX_REPLY_BYTES: usize = 256 << 10;

/// Client of one language model. It has no circuit breaker and no rate limit, because its callers
/// have them.
pub struct ChatModel {
    endpoint: Endpoint,
    config: ChatConfig,
}

impl fmt::Debug for ChatModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatModel")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

#[derive(Serialize)]
struct ChatRequestBody<'a> {
    model: &'a str,
    messages: [ChatMessage<'a>; 2],
    max_tokens: u32,
    temperature: f32,
    stream: bool,
}

#[derive(Serialize)]
struct ChatMessage<'a> {
    role: &'static str,
    content: &'a str,
}

impl ChatModel {
    /// Returns a client of the configured model with a timeout per request. It connects at the
    /// first request.
    ///
    /// # Errors
    ///
    /// Returns [`ChatConfigError`] for a URL that is not http or https, for a key that cannot be
    /// sent, and when the TLS set-up of the system cannot be used.
    pub fn new(config: ChatConfig, timeout: Duration) -> Result<Self, ChatConfigError> {
        let endpoint = Endpoint::new(EndpointSettings {
            url: &config.url,
            path: "chat/completions",
            api_key: config.api_key.as_ref(),
            timeout,
            max_reply_bytes: MAX_REPLY_BYTES,
        });
        let endpoint = endpoint.map_err(|error| match error {
            EndpointSetupError::Scheme => ChatConfigError::Scheme,
            EndpointSetupError::ApiKey(source) => ChatConfigError::ApiKey(source),
            EndpointSetupError::Client(source) => ChatConfigError::Client(source),
        })?;
        Ok(Self { endpoint, config })
    }

    /// Returns the answer of the model and its usage.
    async fn answer(&self, question: &ModelPrompt) -> Result<(String, ModelUsage), ModelCallError> {
        let turn = |role, content| ChatMessage { role, content };
        let body = ChatRequestBody {
            model: &self.config.model,
            messages: [
                turn("system", &question.system),
                turn("user", &question.user),
            ],
            max_tokens: self.config.max_tokens,
            // The same question should get the same answer.
            temperature: 0.0,
            stream: false,
        };
        let reply = self.endpoint.post(&body).await.map_err(failure)?;
        let n_bytes = question.n_bytes();
        match reply::read(&reply) {
            Some(read) => {
                let usage = read.usage(n_bytes);
                Ok((read.text, usage))
            }
            None => Err(ModelCallError::Nonsense(ModelUsage::estimate(n_bytes, 0))),
        }
    }
}

fn failure(error: EndpointError) -> ModelCallError {
    match error {
        EndpointError::TooLong { .. } => ModelCallError::Nonsense(ModelUsage::default()),
        EndpointError::TooSlow { .. } => ModelCallError::Late,
        other => ModelCallError::Unavailable(other.into()),
    }
}

#[async_trait]
impl Reranker for ChatModel {
    async fn rerank(
        &self,
        query: &str,
        catalog: &BriefCatalog,
    ) -> Result<Reranking, ModelCallError> {
        if catalog.is_empty() {
            return Ok(Reranking::default());
        }
        let (text, usage) = self.answer(&ranking_prompt(query, catalog)).await?;
        match parse_order(&text, catalog) {
            Some(order) => Ok(Reranking { order, usage }),
            None => Err(ModelCallError::Nonsense(usage)),
        }
    }
}

#[async_trait]
impl QueryExpander for ChatModel {
    async fn expand(&self, query: &str, n: usize) -> Result<QueryVariants, ModelCallError> {
        let (text, usage) = self.answer(&expansion_prompt(query, n)).await?;
        match parse_wordings(&text, query, n) {
            Some(texts) => Ok(QueryVariants { texts, usage }),
            None => Err(ModelCallError::Nonsense(usage)),
        }
    }
}
