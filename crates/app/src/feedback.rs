//! What people say of tools: taken only of tools that were offered in the session they name.

use std::collections::BTreeSet;
use std::sync::Arc;

use riglm_domain::feedback::{Feedback, Rating, Verdict};
use riglm_domain::id::FeedbackId;
use riglm_domain::tool::ToolRef;
use riglm_ports::analytics::StoreError;

use crate::insight::{Insight, SessionView, TimelineEntry};
use crate::tracking::Recorder;

/// How many calls, lists and searches of a session are looked at, each.
const MAX_ENTRIES: u32 = 1_000;

/// What somebody says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The session in which the tool was offered: a work session or a connection.
    pub session: String,
    /// The tool, as its upstream names it or as clients see it.
    pub tool: String,
    /// The upstream, where several have a tool of this name.
    pub upstream: Option<String>,
    /// What is said.
    pub verdict: Verdict,
    /// A rating, if there is one.
    pub rating: Option<Rating>,
}

/// Why feedback is not taken.
#[derive(Debug, thiserror::Error)]
pub enum FeedbackError {
    /// There is no such session.
    #[error("there is no session with this identifier")]
    NoSession,
    /// The tool was not offered in it.
    #[error("no tool of this name was offered in that session")]
    NotOffered,
    /// Several tools have the name.
    #[error("several upstreams offered a tool of this name: {0}")]
    Ambiguous(String),
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Takes feedback.
#[derive(Debug)]
pub struct FeedbackDesk {
    insight: Arc<Insight>,
    recorder: Arc<Recorder>,
}

impl FeedbackDesk {
    /// Returns a desk that looks up sessions and records what it takes.
    #[must_use]
    pub fn new(insight: Arc<Insight>, recorder: Arc<Recorder>) -> Self {
        Self { insight, recorder }
    }

    /// Takes what somebody says, if the tool was listed, found or called in the session.
    ///
    /// # Errors
    ///
    /// Returns why it is not taken.
    pub async fn note(&self, said: Said) -> Result<FeedbackId, FeedbackError> {
        let session = self.insight.session(&said.session).await?;
        let session = session.ok_or(FeedbackError::NoSession)?;
        let timeline = self.insight.timeline(&session, MAX_ENTRIES).await?;
        let mut offered: BTreeSet<ToolRef> = BTreeSet::new();
        for entry in &timeline.entries {
            match entry {
                TimelineEntry::Call { call, .. } => {
                    let made = &call.invocation;
                    offered.insert(ToolRef {
                        upstream: made.upstream.clone(),
                        tool: made.tool.clone(),
                    });
                }
                TimelineEntry::List(list) => offered.extend(list.tools.tools().iter().cloned()),
                TimelineEntry::Search(search) => {
                    let found = search.results.iter();
                    offered.extend(found.map(|result| result.tool.clone()));
                }
            }
        }
        let mut named: Vec<ToolRef> = (offered.into_iter())
            .filter(|tool| tool.is_named(&said.tool))
            .filter(|tool| {
                let upstream = said.upstream.as_deref();
                upstream.is_none_or(|name| tool.upstream.as_str() == name)
            })
            .collect();
        let tool = match (named.pop(), named.pop()) {
            (None, _) => return Err(FeedbackError::NotOffered),
            (Some(one), None) => one,
            (Some(one), Some(other)) => {
                let upstreams = format!("{}, {}", other.upstream, one.upstream);
                return Err(FeedbackError::Ambiguous(upstreams));
            }
        };
        let (principal, connection) = match session {
            SessionView::Connection(summary) => {
                (summary.session.principal, Some(summary.session.id))
            }
            SessionView::Work(work) => (work.principal, None),
        };
        let feedback = self.recorder.feedback_given(|id, given_at| Feedback {
            id,
            principal,
            session: connection,
            tool,
            verdict: said.verdict,
            rating: said.rating,
            recommendation: None,
            invocation: None,
            given_at,
        });
        Ok(feedback.await)
    }
}
