//! Feedback on tools.

use std::fmt;

use async_trait::async_trait;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::usage::feedback::Feedback;

use super::StoreError;

/// Reads recorded feedback.
#[async_trait]
pub trait FeedbackRepository: Send + Sync + fmt::Debug {
    /// Returns the newest `limit` pieces of feedback by identifier, oldest first, on a tool or on
    /// all tools.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn feedback(
        &self,
        tool: Option<&ToolRef>,
        limit: u32,
    ) -> Result<Vec<Feedback>, StoreError>;
}
