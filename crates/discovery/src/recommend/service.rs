//! The recommender service.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{FeedbackId, RecommendationId, SessionId};
use riglm_domain::recommendation::record;
use riglm_domain::recommendation::{AdjacentTool, Candidate, Lexicon, RankedTool, Workflow};
use riglm_domain::retrieval::Query;
use riglm_domain::retrieval::search::SearchQuality;
use riglm_domain::usage::feedback::{Feedback, Verdict};
use riglm_domain::usage::invocation::SessionKey;
use riglm_ports::clock::Clock;
use riglm_ports::observer::{Event, EventOrigin, Observer};

use super::attribution::{AttributedCall, Attribution, CallEnded};
use super::call::{RecommendError, RecommendRequest};
use super::candidates::{CandidateFinder, RankedCandidates, RankingInputs};
use super::config::RecommendConfig;
use super::explanation::sentence;
use super::left_out::{LeftOut, exclusion_reason};
use super::log::{RecommendationDetails, RecommendationLog};
use super::ranking_cache::{RankingCache, RankingKey};
use super::reply::{NamedNeighbour, NamedWorkflow, RecommendReply, RecommendedTool};
use super::tool_performance::{PrincipalStatistics, RecommendStores, StatisticsCache};
use crate::entropy::EntropySource;
use crate::experiments::{AssignedArm, Experiments, Participant};
use crate::learning::LearningIsolation;
use crate::search::{Catalog, CatalogTool, ToolSearch};
use crate::weight_tuning::{RankingWeights, WeightSource};

/// Maximum number of neighbours of a tool in an answer, on each side.
const MAX_NEIGHBOURS: usize = 3;

/// Dependencies of the recommender.
#[derive(Debug)]
pub struct RecommenderParts {
    /// Search that ranks tools for a text.
    pub search: Arc<ToolSearch>,
    /// Repositories of recorded data, or `None` if nothing is recorded.
    pub store: Option<Arc<dyn RecommendStores>>,
    /// The log of recommendations and feedback.
    pub log: Arc<dyn RecommendationLog>,
    /// Observer of events.
    pub observer: Arc<dyn Observer>,
    /// Clock for the age of data.
    pub clock: Arc<dyn Clock>,
    /// The section `recommend` of the configuration.
    pub config: RecommendConfig,
    /// The lexicon that analyses intents.
    pub lexicon: Lexicon,
    /// Source of the factor weights.
    pub weights: Arc<WeightSource>,
    /// A/B experiments.
    pub experiments: Option<Arc<Experiments>>,
    /// Whether calls and ratings of one principal may affect the recommendations to another.
    pub isolation: LearningIsolation,
}

/// Recommends tools for an intent in words.
#[derive(Debug)]
pub struct Recommender {
    search: Arc<ToolSearch>,
    known: Arc<StatisticsCache>,
    finder: Arc<CandidateFinder>,
    kept: RankingCache,
    tracks: Attribution,
    log: Arc<dyn RecommendationLog>,
    entropy: EntropySource,
    observer: Arc<dyn Observer>,
    clock: Arc<dyn Clock>,
    config: RecommendConfig,
    weights: Arc<WeightSource>,
    experiments: Option<Arc<Experiments>>,
    revision: AtomicU64,
}

struct RankedCall {
    ranked: Arc<RankedCandidates>,
    /// The present statistics of the tools. A cached ranking does not have them.
    known: Arc<PrincipalStatistics>,
    /// Calls of the session, the newest last.
    used: Vec<ToolRef>,
    /// Whether the ranking came from the cache.
    was_cached: bool,
}

/// The weights for a request, and the arm that decided them.
struct AppliedWeights {
    used: RankingWeights,
    arm: Option<AssignedArm>,
}

impl Recommender {
    /// Returns a recommender with these dependencies.
    #[must_use]
    pub fn new(parts: RecommenderParts) -> Self {
        let config = parts.config;
        let clock = parts.clock;
        Self {
            known: {
                let days = config.half_life_days.into();
                let known = StatisticsCache::new(parts.store, Arc::clone(&clock), days);
                Arc::new(known.with_isolation(parts.isolation))
            },
            finder: Arc::new(CandidateFinder::new(parts.lexicon)),
            kept: RankingCache::new(config.cache_ttl),
            tracks: Attribution::default(),
            search: parts.search,
            log: parts.log,
            entropy: EntropySource::new(),
            observer: parts.observer,
            clock,
            weights: parts.weights,
            experiments: parts.experiments,
            revision: AtomicU64::new(0),
            config,
        }
    }

    /// Returns the search that finds the candidates.
    pub fn search(&self) -> &Arc<ToolSearch> {
        &self.search
    }

    /// Invalidates all cached rankings after a change of configuration or overrides.
    pub fn invalidate_rankings(&self) {
        self.revision.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether a tool was recommended to a session, or called by it.
    #[must_use]
    pub fn knows(&self, session: SessionKey, tool: &ToolRef) -> bool {
        self.tracks.knows(session, tool)
    }

    /// Returns the newest remembered recommendation to a session that has the tool.
    #[must_use]
    pub fn recommendation_with(
        &self,
        session: SessionKey,
        tool: &ToolRef,
    ) -> Option<RecommendationId> {
        self.tracks.newest_with(session, tool)
    }

    /// Returns the remembered recommendations to a session, which can be a work session or a
    /// connection. The newest comes first, each with its tools.
    #[must_use]
    pub fn recommendations_to(&self, session: SessionKey) -> Vec<(RecommendationId, Vec<ToolRef>)> {
        self.tracks.recommendations_to(session)
    }

    /// Recommends tools for an intent, and records the recommendation.
    ///
    /// # Errors
    ///
    /// Returns [`RecommendError`] for a query without words.
    pub async fn recommend(
        &self,
        call: RecommendRequest,
    ) -> Result<RecommendReply, RecommendError> {
        let started = Instant::now();
        let text = Query::readable_part(call.query.trim());
        if text.is_empty() {
            return Err(RecommendError::Empty);
        }
        let weighing = self.weights_for(&call);
        let ranked = self.rank(&call, text, &weighing).await;
        let now = self.clock.now();
        let mut reply = self.reply(&call, &ranked, &weighing);
        reply.id = self.record(&call, text, &reply, now).await;
        if let Some(session_key) = call.session_key.filter(|_| call.is_of_session) {
            let tools = reply.tools.iter().map(|tool| tool.tool.clone()).collect();
            let connection = call.session;
            self.tracks
                .record_recommendation(session_key, connection, reply.id, now, tools);
        }
        self.observer.observe_from(
            &Event::Recommended {
                quality: reply.quality,
                n_tools: reply.tools.len(),
                is_cached: reply.was_cached,
                took: started.elapsed(),
            },
            &origin_of(&call),
        );
        Ok(reply)
    }

    /// Records feedback if a finished call follows a recommendation.
    pub async fn record_call(&self, call: CallEnded) {
        let Some(met) = self.tracks.record_call(&call) else {
            return;
        };
        self.observer.observe_from(
            &Event::RecommendedCalled {
                outcome: call.outcome,
            },
            &EventOrigin::of_session(&call.principal, call.session_key)
                .with_connection(call.session),
        );
        let AttributedCall::Followed(followed) = met else {
            return;
        };
        let now = self.clock.now();
        if followed.is_first {
            self.observer.observe_from(
                &Event::RecommendationFollowed {
                    place: followed.place,
                    took: Duration::try_from(now.duration_since(followed.shown_at))
                        .unwrap_or_default(),
                },
                &EventOrigin::of_session(&call.principal, call.session_key)
                    .with_connection(call.session),
            );
        }
        let feedback = Feedback {
            id: FeedbackId::new(now, self.entropy.next()),
            principal: call.principal,
            session: Some(call.session),
            work_session: call.session_key.work_session(),
            tool: call.tool,
            verdict: Verdict::Selected,
            rating: None,
            recommendation: Some(followed.recommendation),
            invocation: Some(call.invocation),
            given_at: now,
            comment: None,
        };
        self.log.record_feedback(feedback).await;
    }

    /// Returns the weights for a request. A request outside a session takes part in no experiment.
    fn weights_for(&self, call: &RecommendRequest) -> AppliedWeights {
        let session_key = call.session_key.filter(|_| call.is_of_session);
        let experiments = self.experiments.as_ref().zip(session_key);
        let arm = experiments.and_then(|(experiments, session_key)| {
            experiments.for_recommendation(Participant::of(&call.principal, session_key))
        });
        let of_arm = arm.as_ref().and_then(AssignedArm::weights);
        let used = of_arm.map(|weights| RankingWeights {
            weights,
            version: None,
        });
        AppliedWeights {
            used: used.unwrap_or_else(|| self.weights.current()),
            arm,
        }
    }

    /// Returns the ranking for a request, from the cache if possible.
    async fn rank(
        &self,
        call: &RecommendRequest,
        text: &str,
        AppliedWeights { used: weights, arm }: &AppliedWeights,
    ) -> RankedCall {
        let used = call
            .session_key
            .map(|session| self.tracks.used_tools(session));
        let used = used.unwrap_or_default();
        let n_candidates = self.n_candidates(call);
        let intent = self.finder.analyse(text);
        let key = RankingKey {
            catalog: call.catalog.id(),
            intent: intent.clone(),
            query: RankingKey::normalize_query(text),
            principal: call.principal.clone(),
            used: RankingKey::hash_of(&used),
            arm: arm.as_ref().map(AssignedArm::name),
            weights: weights.weights.values().map(f64::to_bits),
            n_candidates,
            revision: self.revision.load(Ordering::Relaxed),
        };
        let now = self.clock.now();
        if let Some(ranked) = self.kept.get(&key, now) {
            return RankedCall {
                ranked,
                known: self.known.cached_or_read(&call.principal).await,
                used,
                was_cached: true,
            };
        }
        // No session has this identifier, so a request without a session has no used tools.
        let nobody = SessionId::new(Timestamp::UNIX_EPOCH, [0; 10]);
        let (principal, session) = (&call.principal, call.session.unwrap_or(nobody));
        let (ranking, (known, is_known)) = tokio::join!(
            (self.search).ranking(&call.catalog, text, principal, session, arm.as_ref()),
            self.known.get(&call.principal)
        );
        let is_whole = ranking.is_whole && is_known;
        let asked = RankingInputs {
            intent: intent.clone(),
            ranking,
            known: Arc::clone(&known),
            used: used.clone(),
            weights: weights.weights,
            n_candidates,
        };
        let (finder, catalog) = (Arc::clone(&self.finder), call.catalog.id());
        let turn = self.search.acquire_turn(&call.principal).await;
        let making = tokio::task::spawn_blocking(move || {
            let ranked = finder.rank(catalog, asked);
            drop(turn);
            ranked
        })
        .await;
        let is_made = making.is_ok();
        let ranked = match making {
            Ok(ranked) => Arc::new(ranked),
            // A panic is a defect and must not become an empty answer.
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The task was cancelled because the runtime is shutting down.
            Err(_) => Arc::new(RankedCandidates::none(intent)),
        };
        // A ranking made with incomplete data must not be cached.
        if is_whole && is_made {
            self.kept.put(key, Arc::clone(&ranked), now);
        }
        RankedCall {
            ranked,
            known,
            used,
            was_cached: false,
        }
    }

    /// Returns the number of candidates: the configured number, plus one for each excluded tool, so
    /// that excluded tools do not displace usable ones.
    fn n_candidates(&self, call: &RecommendRequest) -> usize {
        let tags = &self.config.tags;
        let is_hindered = |tool: &&CatalogTool| {
            exclusion_reason(tool, &call.exclusions, &call.project, tags).is_some()
        };
        let is_free = call.exclusions.is_none() && (call.project.is_unknown() || tags.is_empty());
        let n_hindered = if is_free {
            0
        } else {
            call.catalog.tools().iter().filter(is_hindered).count()
        };
        self.config.candidates.max(self.limit(call)) + n_hindered
    }

    fn limit(&self, call: &RecommendRequest) -> usize {
        let limit = call.limit.unwrap_or(self.config.limit);
        limit.clamp(1, crate::search::MAX_LIMIT)
    }

    fn reply(
        &self,
        call: &RecommendRequest,
        ranked_call: &RankedCall,
        weighing: &AppliedWeights,
    ) -> RecommendReply {
        let RankedCall {
            ranked,
            known,
            used,
            was_cached,
        } = ranked_call;
        let limit = self.limit(call);
        let offered = call.catalog.tools();
        let (mut tools, mut left_out) = (Vec::new(), Vec::new());
        let fitting = ranked.candidates.iter().filter(|_| ranked.fits);
        for candidate in fitting {
            let Some(tool) = offered.get(candidate.tool.position) else {
                continue;
            };
            if tools.len() >= limit {
                break;
            }
            let tags = &self.config.tags;
            if let Some(reason) = exclusion_reason(tool, &call.exclusions, &call.project, tags) {
                let name = tool.name.clone();
                if left_out.len() < limit {
                    left_out.push(LeftOut { name, reason });
                }
                continue;
            }
            let share = known.successions.session_share(used, &tool.tool);
            tools.push(recommended_tool(
                tool,
                candidate,
                known,
                share,
                &call.catalog,
            ));
        }
        let mut notes = Vec::new();
        if !ranked.fits {
            let n_tools = offered.len();
            notes.push(format!(
                "No matching tool found among {n_tools}. Try other words, or ask the user."
            ));
        } else if tools.is_empty() && !left_out.is_empty() {
            notes.push("The matching tools cannot be used now.".to_owned());
        } else if ranked.quality == SearchQuality::Low {
            let n_tools = offered.len();
            notes.push(format!(
                "No tool is a certain match; these are the closest of {n_tools}."
            ));
        }
        if call.catalog.is_truncated() {
            let n_tools = offered.len();
            notes.push(format!(
                "Only the first {n_tools} tools are ranked; there are more."
            ));
        }
        RecommendReply {
            // A placeholder, which the caller replaces by the recorded identifier.
            id: RecommendationId::new(Timestamp::UNIX_EPOCH, [0; 10]),
            intent: ranked.intent.clone(),
            quality: ranked.quality,
            tools,
            left_out,
            weights: weighing.used.weights,
            weights_version: weighing.used.version,
            experiment: weighing.arm.as_ref().map(AssignedArm::name),
            notes,
            was_cached: *was_cached,
        }
    }

    async fn record(
        &self,
        call: &RecommendRequest,
        text: &str,
        reply: &RecommendReply,
        now: Timestamp,
    ) -> RecommendationId {
        let details = RecommendationDetails {
            session: call.session.filter(|_| call.is_of_session),
            work_session: (call.session_key)
                .filter(|_| call.is_of_session)
                .and_then(SessionKey::work_session),
            principal: &call.principal,
            intent: text,
            shown_at: now,
            weights: reply.weights_version,
            experiment: reply.experiment.clone(),
            tools: (reply.tools.iter())
                .map(|tool| record::RecommendedTool {
                    tool: tool.tool.clone(),
                    score: tool.score,
                    factors: Some(tool.factors),
                })
                .collect(),
        };
        self.log.record_recommendation(details).await
    }
}

/// Returns the name by which clients call a tool, if the catalog has it.
fn name_of(catalog: &Catalog, tool: &ToolRef) -> Option<String> {
    let position = catalog.position_of(tool)?;
    Some(catalog.tools().get(position)?.name.clone())
}

fn recommended_tool(
    tool: &CatalogTool,
    candidate: &RankedTool<Candidate>,
    known: &PrincipalStatistics,
    session_share: f64,
    catalog: &Catalog,
) -> RecommendedTool {
    let named = |neighbours: &[AdjacentTool]| {
        let named = neighbours.iter().filter_map(|one| {
            Some(NamedNeighbour {
                name: name_of(catalog, &one.tool)?,
                support: one.support,
                share: one.share,
            })
        });
        named.take(MAX_NEIGHBOURS).collect::<Vec<_>>()
    };
    let successions = &known.successions;
    let is_offered = |step: &ToolRef| catalog.position_of(step).is_some();
    let workflow = known.workflows.usual_workflow(&tool.tool, is_offered);
    let workflow = workflow.map(|Workflow { steps, support }| NamedWorkflow {
        steps: steps
            .iter()
            .filter_map(|step| name_of(catalog, step))
            .collect(),
        support: *support,
    });
    let standing = known.standings.of(&tool.tool);
    RecommendedTool {
        explanation: sentence(
            &candidate.tool.signals,
            &candidate.factors,
            standing,
            session_share,
        ),
        name: tool.name.clone(),
        tool: tool.tool.clone(),
        description: tool.first_line(),
        score: candidate.score,
        factors: candidate.factors,
        before: named(successions.before(&tool.tool)),
        after: named(successions.after(&tool.tool)),
        workflow,
    }
}

/// Returns the origin of the events of a request.
fn origin_of(call: &RecommendRequest) -> EventOrigin<'_> {
    let session_key = call.session_key.map(EventOrigin::from).unwrap_or_default();
    EventOrigin {
        principal: Some(&call.principal),
        connection: call.session.or(session_key.connection),
        ..session_key
    }
}

#[cfg(test)]
mod tests;
