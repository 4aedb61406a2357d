//! The recommender itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use riglm_domain::feedback::{Feedback, Verdict};
use riglm_domain::id::{RecommendationId, SessionId};
use riglm_domain::invocation::CallSession;
use riglm_domain::recommendation;
use riglm_domain::recommender::{Candidate, Lexicon, Neighbour, Ranked, Workflow};
use riglm_domain::retrieval::Query;
use riglm_domain::search::SearchQuality;
use riglm_domain::tool::ToolRef;
use riglm_ports::clock::Clock;
use riglm_ports::observer::{Event, EventOrigin, Observer};

use super::call::{RecommendCall, RecommendError};
use super::candidates::{Asked, CandidateFinder, RankedCandidates};
use super::explanation::sentence;
use super::kept::{Kept, Key};
use super::left_out::{LeftOut, TaggedTools, hindrance};
use super::reply::{NamedNeighbour, NamedWorkflow, RecommendReply, RecommendedTool};
use super::standings::{Known, KnownTools, RecommendStores};
use super::tracks::{CallEnded, Met, Tracks};
use crate::experiments::{AssignedArm, Experiments, Participant};
use crate::search::{Offer, OfferedTool, ToolSearch};
use crate::tracking::{RecommendationDetails, Recorder};
use crate::weight_tuning::{RankingWeights, WeightSource};

/// The most neighbours of a tool that are told, before it and after it.
const MAX_NEIGHBOURS: usize = 3;

/// How tools are recommended.
#[derive(Clone, Debug)]
pub struct RecommendOptions {
    /// How many tools are answered when nobody says, 1 to 50.
    pub limit: usize,
    /// How many candidates are ranked, at least as many as are answered.
    pub n_candidates: usize,
    /// The days after which a use of a tool counts half, above 0.
    pub half_life_days: f64,
    /// How long a ranking is given again to who asks the same.
    pub cache_ttl: Duration,
    /// Which words say what is to be done.
    pub lexicon: Lexicon,
    /// Tools that are for some projects only.
    pub tagged: Vec<TaggedTools>,
}

impl Default for RecommendOptions {
    fn default() -> Self {
        Self {
            limit: 10,
            n_candidates: 20,
            half_life_days: 30.0,
            cache_ttl: Duration::from_hours(1),
            lexicon: Lexicon::shipped(),
            tagged: Vec::new(),
        }
    }
}

/// What a recommender is made of.
#[derive(Debug)]
pub struct RecommenderParts {
    /// Ranks tools for a text.
    pub search: Arc<ToolSearch>,
    /// What was recorded; `None` where nothing is.
    pub store: Option<Arc<dyn RecommendStores>>,
    /// Records what is recommended.
    pub recorder: Arc<Recorder>,
    /// Is told what happens.
    pub observer: Arc<dyn Observer>,
    /// Tells how old things are.
    pub clock: Arc<dyn Clock>,
    /// How tools are recommended.
    pub options: RecommendOptions,
    /// Says by which weights tools are ranked.
    pub weights: Arc<WeightSource>,
    /// What is tried out on a part of those who ask.
    pub experiments: Option<Arc<Experiments>>,
}

/// Recommends tools for an intent in words.
#[derive(Debug)]
pub struct Recommender {
    search: Arc<ToolSearch>,
    known: Arc<KnownTools>,
    finder: Arc<CandidateFinder>,
    kept: Kept,
    tracks: Tracks,
    recorder: Arc<Recorder>,
    observer: Arc<dyn Observer>,
    clock: Arc<dyn Clock>,
    options: RecommendOptions,
    weights: Arc<WeightSource>,
    experiments: Option<Arc<Experiments>>,
    revision: AtomicU64,
}

/// The ranking for a call.
struct RankedCall {
    ranked: Arc<RankedCandidates>,
    /// What is known of the tools, which a ranking that is kept does not hold.
    known: Arc<Known>,
    /// What the session called, the newest last.
    used: Vec<ToolRef>,
    /// Whether it was made before.
    was_cached: bool,
}

/// By what a call is ranked.
struct Weighing {
    used: RankingWeights,
    arm: Option<AssignedArm>,
}

impl Recommender {
    /// Returns a recommender of these parts.
    #[must_use]
    pub fn new(parts: RecommenderParts) -> Self {
        let options = parts.options;
        let clock = parts.clock;
        Self {
            known: Arc::new(KnownTools::new(
                parts.store,
                Arc::clone(&clock),
                options.half_life_days,
            )),
            finder: Arc::new(CandidateFinder::new(options.lexicon.clone())),
            kept: Kept::new(options.cache_ttl),
            tracks: Tracks::default(),
            search: parts.search,
            recorder: parts.recorder,
            observer: parts.observer,
            clock,
            weights: parts.weights,
            experiments: parts.experiments,
            revision: AtomicU64::new(0),
            options,
        }
    }

    /// Returns what ranks tools for a text.
    pub(crate) fn search(&self) -> &Arc<ToolSearch> {
        &self.search
    }

    /// Has everything ranked anew from now on, since something changed that rankings depend on.
    pub fn rank_anew(&self) {
        self.revision.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether a tool was recommended to a session, or called by it.
    #[must_use]
    pub fn knows(&self, session: CallSession, tool: &ToolRef) -> bool {
        self.tracks.knows(session, tool)
    }

    /// Returns the newest recommendation to a session that has a tool, as far as it is remembered.
    #[must_use]
    pub fn recommendation_with(
        &self,
        session: CallSession,
        tool: &ToolRef,
    ) -> Option<RecommendationId> {
        self.tracks.newest_with(session, tool)
    }

    /// Returns what was recommended to a session, a work session or a connection, the newest
    /// recommendation first, each with its tools, as far as it is remembered.
    #[must_use]
    pub fn recommended_to(&self, session: CallSession) -> Vec<(RecommendationId, Vec<ToolRef>)> {
        self.tracks.recommended_to(session)
    }

    /// Returns the tools for an intent, and notes that they were recommended.
    ///
    /// # Errors
    ///
    /// Returns [`RecommendError`] for a query without any word.
    pub async fn recommend(&self, call: RecommendCall) -> Result<RecommendReply, RecommendError> {
        let started = Instant::now();
        let text = Query::cut(call.query.trim());
        if text.is_empty() {
            return Err(RecommendError::Empty);
        }
        let weighing = self.weighing(&call);
        let ranked = self.ranked(&call, text, &weighing).await;
        let now = self.clock.now();
        let mut reply = self.reply(&call, &ranked, &weighing);
        reply.id = self.recorded(&call, text, &reply, now).await;
        if let Some(together) = call.together.filter(|_| call.is_of_session) {
            let tools = reply.tools.iter().map(|tool| tool.tool.clone()).collect();
            let to = (together, call.session);
            self.tracks.recommended(to, (reply.id, now), tools);
        }
        self.observer.observe_from(
            &Event::Recommended {
                quality: reply.quality,
                n_tools: reply.tools.len(),
                is_cached: reply.was_cached,
                took: started.elapsed(),
            },
            &of_call(&call),
        );
        Ok(reply)
    }

    /// Notes a call that ended: what it says of what was recommended is recorded.
    pub async fn called(&self, call: CallEnded) {
        let Some(met) = self.tracks.called(&call) else {
            return;
        };
        self.observer.observe_from(
            &Event::RecommendedCalled {
                outcome: call.outcome,
            },
            &EventOrigin::of_session(&call.principal, call.together).over(call.session),
        );
        let Met::Followed(followed) = met else {
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
                &EventOrigin::of_session(&call.principal, call.together).over(call.session),
            );
        }
        let feedback = self.recorder.feedback_given(|id, given_at| Feedback {
            id,
            principal: call.principal,
            session: Some(call.session),
            work_session: call.together.work_session(),
            tool: call.tool,
            verdict: Verdict::Selected,
            rating: None,
            recommendation: Some(followed.recommendation),
            invocation: Some(call.invocation),
            given_at,
            comment: None,
        });
        feedback.await;
    }

    /// Returns by what a call is ranked. Who does not ask in a session takes part in nothing.
    fn weighing(&self, call: &RecommendCall) -> Weighing {
        let together = call.together.filter(|_| call.is_of_session);
        let experiments = self.experiments.as_ref().zip(together);
        let arm = experiments.and_then(|(experiments, together)| {
            experiments.for_recommendation(Participant::of(&call.principal, together))
        });
        let of_arm = arm.as_ref().and_then(AssignedArm::weights);
        let used = of_arm.map(|weights| RankingWeights {
            weights,
            version: None,
        });
        Weighing {
            used: used.unwrap_or_else(|| self.weights.current()),
            arm,
        }
    }

    /// Returns the ranking for a call.
    async fn ranked(
        &self,
        call: &RecommendCall,
        text: &str,
        Weighing { used: weights, arm }: &Weighing,
    ) -> RankedCall {
        let used = call.together.map(|session| self.tracks.used(session));
        let used = used.unwrap_or_default();
        let n_candidates = self.n_candidates(call);
        let intent = self.finder.analysed(text);
        let key = Key {
            offer: call.offer.id(),
            intent: intent.clone(),
            query: Key::normalised(text),
            principal: call.principal.clone(),
            used: Key::hash_of(&used),
            arm: arm.as_ref().map(AssignedArm::name),
            weights: weights.weights.values().map(f64::to_bits),
            n_candidates,
            revision: self.revision.load(Ordering::Relaxed),
        };
        let now = self.clock.now();
        if let Some(ranked) = self.kept.get(&key, now) {
            return RankedCall {
                ranked,
                known: self.known.at_hand(&call.principal).await,
                used,
                was_cached: true,
            };
        }
        let nobody = SessionId::new(Timestamp::UNIX_EPOCH, [0; 10]);
        let whose = (&call.principal, call.session.unwrap_or(nobody));
        let (ranking, (known, is_known)) = tokio::join!(
            (self.search).ranking(&call.offer, text, whose, arm.as_ref()),
            self.known.of(&call.principal)
        );
        let is_whole = ranking.is_whole && is_known;
        let asked = Asked {
            intent: intent.clone(),
            ranking,
            known: Arc::clone(&known),
            used: used.clone(),
            weights: weights.weights,
            n_candidates,
        };
        let (finder, offer) = (Arc::clone(&self.finder), call.offer.id());
        let turn = self.search.turn(&call.principal).await;
        let making = tokio::task::spawn_blocking(move || {
            let ranked = finder.ranked(offer, asked);
            drop(turn);
            ranked
        })
        .await;
        let is_made = making.is_ok();
        let ranked = match making {
            Ok(ranked) => Arc::new(ranked),
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The runtime is ending.
            Err(_) => Arc::new(RankedCandidates::none(intent)),
        };
        // A ranking from before all is known that could be is not the one to give again.
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

    /// Returns how many candidates there are: as many as are configured, and as many more as there are
    /// tools that cannot be used now, which would take the places of those that can.
    fn n_candidates(&self, call: &RecommendCall) -> usize {
        let tagged = &self.options.tagged;
        let is_hindered = |tool: &&OfferedTool| {
            hindrance(tool, &call.hindrances, &call.project, tagged).is_some()
        };
        let is_free = call.hindrances.is_none() && (call.project.is_unknown() || tagged.is_empty());
        let n_hindered = if is_free {
            0
        } else {
            call.offer.tools().iter().filter(is_hindered).count()
        };
        self.options.n_candidates.max(self.limit(call)) + n_hindered
    }

    fn limit(&self, call: &RecommendCall) -> usize {
        let limit = call.limit.unwrap_or(self.options.limit);
        limit.clamp(1, crate::search::MAX_LIMIT)
    }

    fn reply(
        &self,
        call: &RecommendCall,
        ranked_call: &RankedCall,
        weighing: &Weighing,
    ) -> RecommendReply {
        let RankedCall {
            ranked,
            known,
            used,
            was_cached,
        } = ranked_call;
        let limit = self.limit(call);
        let offered = call.offer.tools();
        let (mut tools, mut left_out) = (Vec::new(), Vec::new());
        let fitting = ranked.candidates.iter().filter(|_| ranked.fits);
        for candidate in fitting {
            let Some(tool) = offered.get(candidate.tool.position) else {
                continue;
            };
            if tools.len() >= limit {
                break;
            }
            let tagged = &self.options.tagged;
            if let Some(reason) = hindrance(tool, &call.hindrances, &call.project, tagged) {
                let name = tool.name.clone();
                if left_out.len() < limit {
                    left_out.push(LeftOut { name, reason });
                }
                continue;
            }
            let share = known.successions.session_share(used, &tool.tool);
            tools.push(recommended(tool, candidate, known, share, &call.offer));
        }
        let mut notes = Vec::new();
        if !ranked.fits {
            let n_tools = offered.len();
            notes.push(format!(
                "No matching tool found among {n_tools}. Try other words, or ask the user."
            ));
        } else if tools.is_empty() && !left_out.is_empty() {
            notes.push("What fits cannot be used now.".to_owned());
        } else if ranked.quality == SearchQuality::Low {
            let n_tools = offered.len();
            notes.push(format!(
                "No tool is a certain match; these are the closest of {n_tools}."
            ));
        }
        if call.offer.is_partial() {
            let n_tools = offered.len();
            notes.push(format!(
                "Only the first {n_tools} tools are looked at; there are more."
            ));
        }
        RecommendReply {
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

    async fn recorded(
        &self,
        call: &RecommendCall,
        text: &str,
        reply: &RecommendReply,
        now: Timestamp,
    ) -> RecommendationId {
        let details = RecommendationDetails {
            session: call.session.filter(|_| call.is_of_session),
            work_session: (call.together)
                .filter(|_| call.is_of_session)
                .and_then(CallSession::work_session),
            principal: &call.principal,
            intent: text,
            shown_at: now,
            weights: reply.weights_version,
            experiment: reply.experiment.clone(),
            tools: (reply.tools.iter())
                .map(|tool| recommendation::RecommendedTool {
                    tool: tool.tool.clone(),
                    score: tool.score,
                    factors: Some(tool.factors),
                })
                .collect(),
        };
        self.recorder.recommended(details).await
    }
}

/// Returns the name by which clients call a tool, where the offer has it.
fn name_of(offer: &Offer, tool: &ToolRef) -> Option<String> {
    let position = offer.position_of(tool)?;
    Some(offer.tools().get(position)?.name.clone())
}

fn recommended(
    tool: &OfferedTool,
    candidate: &Ranked<Candidate>,
    known: &Known,
    session_share: f64,
    offer: &Offer,
) -> RecommendedTool {
    let named = |neighbours: &[Neighbour]| {
        let named = neighbours.iter().filter_map(|one| {
            Some(NamedNeighbour {
                name: name_of(offer, &one.tool)?,
                support: one.support,
                share: one.share,
            })
        });
        named.take(MAX_NEIGHBOURS).collect::<Vec<_>>()
    };
    let successions = &known.successions;
    let is_offered = |step: &ToolRef| offer.position_of(step).is_some();
    let workflow = known.workflows.usual(&tool.tool, is_offered);
    let workflow = workflow.map(|Workflow { steps, support }| NamedWorkflow {
        steps: steps
            .iter()
            .filter_map(|step| name_of(offer, step))
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

/// Returns the origin of what is recommended.
fn of_call(call: &RecommendCall) -> EventOrigin<'_> {
    let together = call.together.map(EventOrigin::from).unwrap_or_default();
    EventOrigin {
        principal: Some(&call.principal),
        connection: call.session.or(together.connection),
        ..together
    }
}

#[cfg(test)]
mod tests;
