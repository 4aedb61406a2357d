//! Feedback of users on tools. It is accepted only for tools that were offered in the given
//! session.

use std::collections::BTreeSet;
use std::sync::Arc;

use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{FeedbackId, RecommendationId};
use riglm_domain::usage::feedback::{Comment, Feedback, Rating, Verdict};
use riglm_ports::analytics::StoreError;
use riglm_ports::observer::{Event, EventOrigin, Observer};

use crate::control::name_lookup::quote;
use crate::control::queries::{Queries, SessionView, TimelineEntry};
use crate::tracking::Recorder;
use riglm_discovery::recommend::Recommender;

/// Maximum number of calls, lists and searches of a session that are checked, each.
const MAX_ENTRIES: u32 = 1_000;

/// Feedback of a user, before it is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedbackInput {
    /// Identifier of the session in which the tool was offered: a work session, a session, or the
    /// transport's identifier of an open session.
    pub session: String,
    /// Name of the tool at its upstream or for clients.
    pub tool: String,
    /// The upstream, in case several have a tool with this name.
    pub upstream: Option<String>,
    /// The verdict.
    pub verdict: Verdict,
    /// The rating, if any.
    pub rating: Option<Rating>,
    /// The comment, if any.
    pub comment: Option<Comment>,
    /// The recommendation that offered the tool, or `None` for the newest one to the session that
    /// has it.
    pub recommendation: Option<RecommendationId>,
}

/// The reason why feedback is rejected.
#[derive(Debug, thiserror::Error)]
pub enum FeedbackError {
    /// The session does not exist.
    #[error("unknown session {0}")]
    NoSession(String),
    /// The tool was not offered in the session.
    #[error("tool {tool} was not offered in session {session}")]
    NotOffered {
        /// The tool, with its upstream if one was given.
        tool: String,
        /// The session.
        session: String,
    },
    /// The recommendation does not exist, was made for another session, or does not have the tool.
    #[error("session {session} has no recommendation {id} with tool {tool}")]
    NotRecommended {
        /// The recommendation.
        id: RecommendationId,
        /// The tool, with its upstream if one was given.
        tool: String,
        /// The session.
        session: String,
    },
    /// Several tools have the name.
    #[error("several upstreams offered tool {tool}; set upstream to one of {upstreams}")]
    Ambiguous {
        /// The name.
        tool: String,
        /// The upstreams.
        upstreams: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Checks and records feedback.
#[derive(Debug)]
pub struct FeedbackService {
    queries: Arc<Queries>,
    recorder: Arc<Recorder>,
    recommender: Option<Arc<Recommender>>,
    observer: Arc<dyn Observer>,
}

impl FeedbackService {
    /// Returns a service that looks up sessions and records accepted feedback.
    #[must_use]
    pub fn new(
        queries: Arc<Queries>,
        recorder: Arc<Recorder>,
        observer: Arc<dyn Observer>,
    ) -> Self {
        Self {
            queries,
            recorder,
            recommender: None,
            observer,
        }
    }

    /// Adds the recommender, whose recommendations also count as offers.
    #[must_use]
    pub fn with_recommender(self, recommender: Option<Arc<Recommender>>) -> Self {
        Self {
            recommender,
            ..self
        }
    }

    /// Records feedback if the tool was listed, found, recommended or called in the session.
    ///
    /// # Errors
    ///
    /// Returns the reason if the feedback is rejected.
    pub async fn submit(&self, said: FeedbackInput) -> Result<FeedbackId, FeedbackError> {
        let session = self.queries.session(&said.session).await?;
        let session = session.ok_or_else(|| FeedbackError::NoSession(quote(&said.session)))?;
        let known = self.recommender.as_ref();
        let known = known.map(|it| it.recommendations_to(session.calls()));
        let recommended = known.unwrap_or_default();
        let offered = if let Some(id) = said.recommendation {
            self.tools_of_recommendation(id, &session).await?
        } else {
            let mut offered = self.offered_tools(&session).await?;
            let tools = recommended.iter().flat_map(|(_, tools)| tools);
            offered.extend(tools.cloned());
            offered
        };
        let mut named: Vec<ToolRef> = (offered.into_iter())
            .filter(|tool| tool.is_named(&said.tool))
            .filter(|tool| {
                let upstream = said.upstream.as_deref();
                upstream.is_none_or(|name| tool.upstream.as_str() == name)
            })
            .collect();
        let tool = match (named.pop(), named.pop()) {
            (None, _) => {
                let event = Event::FeedbackRefused;
                self.observer.observe_from(&event, &session.calls().into());
                let session = quote(&said.session);
                let tool = match &said.upstream {
                    Some(upstream) => {
                        format!("{} of upstream {}", quote(&said.tool), quote(upstream))
                    }
                    None => quote(&said.tool),
                };
                return Err(match said.recommendation {
                    Some(id) => FeedbackError::NotRecommended { id, tool, session },
                    None => FeedbackError::NotOffered { tool, session },
                });
            }
            (Some(one), None) => one,
            (Some(one), Some(other)) => {
                return Err(FeedbackError::Ambiguous {
                    tool: quote(&said.tool),
                    upstreams: format!("{}, {}", other.upstream, one.upstream),
                });
            }
        };
        let session_key = session.calls();
        let (principal, connection, work_session) = match session {
            SessionView::Connection(summary) => {
                (summary.session.principal, Some(summary.session.id), None)
            }
            SessionView::Work(work) => (work.principal, None, Some(work.id)),
        };
        let stars = said.verdict.stars(said.rating);
        let newest = recommended.iter().find(|(_, tools)| tools.contains(&tool));
        let newest = newest.map(|(id, _)| *id);
        let feedback = self.recorder.feedback_given(|id, given_at| Feedback {
            id,
            principal: principal.clone(),
            session: connection,
            work_session,
            tool,
            verdict: said.verdict,
            rating: said.rating,
            comment: said.comment,
            recommendation: said.recommendation.or(newest),
            invocation: None,
            given_at,
        });
        let id = feedback.await;
        if let Some(stars) = stars {
            let origin = EventOrigin::of_session(&principal, session_key);
            (self.observer).observe_from(&Event::ToolRated { stars }, &origin);
        }
        Ok(id)
    }

    /// Returns the tools that were listed, found or called in a session.
    async fn offered_tools(&self, session: &SessionView) -> Result<BTreeSet<ToolRef>, StoreError> {
        let timeline = self.queries.timeline(session, MAX_ENTRIES).await?;
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
        Ok(offered)
    }

    /// Returns the tools of a recommendation, or none if it was made for another session.
    async fn tools_of_recommendation(
        &self,
        id: RecommendationId,
        session: &SessionView,
    ) -> Result<BTreeSet<ToolRef>, StoreError> {
        let recommendation = self.queries.recommendation(id).await?;
        let recommendation = recommendation.filter(|one| match session {
            SessionView::Connection(summary) => one.session == Some(summary.session.id),
            SessionView::Work(work) => one.work_session == Some(work.id),
        });
        let tools = recommendation.map(|one| one.tools).unwrap_or_default();
        Ok(tools.into_iter().map(|one| one.tool).collect())
    }
}

#[cfg(test)]
mod tests;
