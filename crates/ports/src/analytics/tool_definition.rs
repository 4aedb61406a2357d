//! The history of tool definitions.

use std::fmt;

use async_trait::async_trait;
use riglm_domain::catalog::tool::{ToolDefinition, ToolRef};
use riglm_domain::id::UpstreamName;

use super::StoreError;

/// Reads the definitions of tools.
///
/// A definition that was seen again has one row, with the first and the last moment. A changed
/// definition has another row. The first non-empty text of a definition stays.
#[async_trait]
pub trait ToolDefinitionRepository: Send + Sync + fmt::Debug {
    /// Returns all definitions of an upstream, or of all, ordered by upstream, name, first
    /// sighting and content hash.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn tool_definitions(
        &self,
        upstream: Option<&UpstreamName>,
    ) -> Result<Vec<ToolDefinition>, StoreError>;

    /// Returns the tools that have a definition, each once, ordered by upstream and name.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn tools_seen(&self) -> Result<Vec<ToolRef>, StoreError>;
}
