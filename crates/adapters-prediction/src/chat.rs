//! Language models behind an endpoint `/chat/completions`, as many servers have it, asked about
//! searches: in which order what was found helps, and in which other words to search.
//!
//! What is asked and what of the answers is taken are rules of [`riglm_domain::retrieval`]; here is
//! how it travels.

mod config;
mod reply;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use riglm_domain::retrieval::{
    BriefCatalog, ModelText, accepted_order, accepted_texts, expansion_question, ranking_question,
};
use riglm_ports::model_call::{ModelCallError, ModelUsage};
use riglm_ports::query_expander::{Expanded, QueryExpander};
use riglm_ports::reranker::{Reranked, Reranker};
use serde::Serialize;

pub use config::{ChatConfig, ChatConfigError};

use crate::endpoint::{Address, AddressError, Endpoint, EndpointError};

/// The most bytes of an answer: it has a few names or short texts, and what servers add.
const MAX_REPLY_BYTES: usize = 256 << 10;

/// Asks one language model. It has no circuit and no budget of its own: who asks has.
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
struct Body<'a> {
    model: &'a str,
    messages: [Turn<'a>; 2],
    max_tokens: u32,
    temperature: f32,
    stream: bool,
}

#[derive(Serialize)]
struct Turn<'a> {
    role: &'static str,
    content: &'a str,
}

impl ChatModel {
    /// Returns what asks the configured model, each time for at most `timeout`; it is not reached
    /// before the first question.
    ///
    /// # Errors
    ///
    /// Returns [`ChatConfigError`] for a URL that is not http or https, and a key that cannot be sent,
    /// and when the TLS set-up of the system cannot be used.
    pub fn new(config: ChatConfig, timeout: Duration) -> Result<Self, ChatConfigError> {
        let endpoint = Endpoint::new(Address {
            url: &config.url,
            path: "chat/completions",
            api_key: config.api_key.as_ref(),
            timeout,
            max_reply_bytes: MAX_REPLY_BYTES,
        });
        let endpoint = endpoint.map_err(|error| match error {
            AddressError::Scheme => ChatConfigError::Scheme,
            AddressError::ApiKey(source) => ChatConfigError::ApiKey(source),
            AddressError::Client(source) => ChatConfigError::Client(source),
        })?;
        Ok(Self { endpoint, config })
    }

    /// Returns what the model answers, and what that cost.
    async fn answer(&self, question: &ModelText) -> Result<(String, ModelUsage), ModelCallError> {
        let turn = |role, content| Turn { role, content };
        let body = Body {
            model: &self.config.model,
            messages: [
                turn("system", &question.system),
                turn("user", &question.user),
            ],
            max_tokens: self.config.max_tokens,
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
            None => Err(ModelCallError::Nonsense(ModelUsage::estimated(n_bytes, 0))),
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
    ) -> Result<Reranked, ModelCallError> {
        if catalog.is_empty() {
            return Ok(Reranked::default());
        }
        let (text, usage) = self.answer(&ranking_question(query, catalog)).await?;
        match accepted_order(&text, catalog) {
            Some(order) => Ok(Reranked { order, usage }),
            None => Err(ModelCallError::Nonsense(usage)),
        }
    }
}

#[async_trait]
impl QueryExpander for ChatModel {
    async fn expand(&self, query: &str, n: usize) -> Result<Expanded, ModelCallError> {
        let (text, usage) = self.answer(&expansion_question(query, n)).await?;
        match accepted_texts(&text, query, n) {
            Some(texts) => Ok(Expanded { texts, usage }),
            None => Err(ModelCallError::Nonsense(usage)),
        }
    }
}
