//! What people say of tools: taken only of tools that were offered in the session they name.

use std::collections::BTreeSet;
use std::sync::Arc;

use riglm_domain::feedback::{Comment, Feedback, Rating, Verdict};
use riglm_domain::id::{FeedbackId, RecommendationId};
use riglm_domain::tool::ToolRef;
use riglm_ports::analytics::StoreError;
use riglm_ports::observer::{Event, EventOrigin, Observer};

use crate::insight::{Insight, SessionView, TimelineEntry};
use crate::names::quoted;
use crate::recommend::Recommender;
use crate::tracking::Recorder;

/// How many calls, lists and searches of a session are looked at, each.
const MAX_ENTRIES: u32 = 1_000;

/// What somebody says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The session in which the tool was offered: a work session, a connection, or the identifier that
    /// its transport gave to an open connection.
    pub session: String,
    /// The tool, as its upstream names it or as clients see it.
    pub tool: String,
    /// The upstream, where several have a tool of this name.
    pub upstream: Option<String>,
    /// What is said.
    pub verdict: Verdict,
    /// A rating, if there is one.
    pub rating: Option<Rating>,
    /// What is said in words, if anything.
    pub comment: Option<Comment>,
    /// The recommendation that offered the tool; `None` for the newest one to the session that has it.
    pub recommendation: Option<RecommendationId>,
}

/// Why feedback is not taken.
#[derive(Debug, thiserror::Error)]
pub enum FeedbackError {
    /// There is no such session.
    #[error("there is no session {0}")]
    NoSession(String),
    /// The tool was not offered in it.
    #[error("no tool {tool} was offered in session {session}")]
    NotOffered {
        /// The tool, with its upstream where one was named.
        tool: String,
        /// The session.
        session: String,
    },
    /// There is no such recommendation, it was not made for the session, or it has not the tool.
    #[error("session {session} has no recommendation {id} with a tool {tool}")]
    NotRecommended {
        /// The recommendation.
        id: RecommendationId,
        /// The tool, with its upstream where one was named.
        tool: String,
        /// The session.
        session: String,
    },
    /// Several tools have the name.
    #[error("several upstreams offered a tool {tool}: say which with upstream, one of {upstreams}")]
    Ambiguous {
        /// The name.
        tool: String,
        /// The upstreams.
        upstreams: String,
    },
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Takes feedback.
#[derive(Debug)]
pub struct FeedbackDesk {
    insight: Arc<Insight>,
    recorder: Arc<Recorder>,
    recommender: Option<Arc<Recommender>>,
    observer: Arc<dyn Observer>,
}

impl FeedbackDesk {
    /// Returns a desk that looks up sessions and records what it takes.
    #[must_use]
    pub fn new(
        insight: Arc<Insight>,
        recorder: Arc<Recorder>,
        observer: Arc<dyn Observer>,
    ) -> Self {
        Self {
            insight,
            recorder,
            recommender: None,
            observer,
        }
    }

    /// Has it know what was recommended to sessions.
    #[must_use]
    pub fn with_recommender(self, recommender: Option<Arc<Recommender>>) -> Self {
        Self {
            recommender,
            ..self
        }
    }

    /// Takes what somebody says, if the tool was listed, found, recommended or called in the session.
    ///
    /// # Errors
    ///
    /// Returns why it is not taken.
    pub async fn note(&self, said: Said) -> Result<FeedbackId, FeedbackError> {
        let session = self.insight.session(&said.session).await?;
        let session = session.ok_or_else(|| FeedbackError::NoSession(quoted(&said.session)))?;
        let known = self.recommender.as_ref();
        let known = known.map(|it| it.recommended_to(session.calls()));
        let recommended = known.unwrap_or_default();
        let offered = if let Some(id) = said.recommendation {
            self.recommended(id, &session).await?
        } else {
            let mut offered = self.offered(&session).await?;
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
                let session = quoted(&said.session);
                let tool = match &said.upstream {
                    Some(upstream) => {
                        format!("{} of upstream {}", quoted(&said.tool), quoted(upstream))
                    }
                    None => quoted(&said.tool),
                };
                return Err(match said.recommendation {
                    Some(id) => FeedbackError::NotRecommended { id, tool, session },
                    None => FeedbackError::NotOffered { tool, session },
                });
            }
            (Some(one), None) => one,
            (Some(one), Some(other)) => {
                return Err(FeedbackError::Ambiguous {
                    tool: quoted(&said.tool),
                    upstreams: format!("{}, {}", other.upstream, one.upstream),
                });
            }
        };
        let together = session.calls();
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
            let origin = EventOrigin::of_session(&principal, together);
            self.observer
                .observe_from(&Event::ToolRated { stars }, &origin);
        }
        Ok(id)
    }

    /// Returns the tools that were listed, found or called in a session.
    async fn offered(&self, session: &SessionView) -> Result<BTreeSet<ToolRef>, StoreError> {
        let timeline = self.insight.timeline(session, MAX_ENTRIES).await?;
        let held = timeline.held.iter();
        let mut offered: BTreeSet<ToolRef> =
            held.flat_map(|list| list.tools.tools()).cloned().collect();
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

    /// Returns the tools of a recommendation; none where it was not made for the session.
    async fn recommended(
        &self,
        id: RecommendationId,
        session: &SessionView,
    ) -> Result<BTreeSet<ToolRef>, StoreError> {
        let recommendation = self.insight.recommendation(id).await?;
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
