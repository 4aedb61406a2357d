//! The search service: answers queries over a catalog and learns from searches and calls.

mod encoder_tiers;
mod expanding;
mod finding;
mod ranking;
mod replying;
mod reranking;
mod similar;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::experiment::{FusionRule, Treatment};
use riglm_domain::id::SessionId;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::retrieval::embedding::Embedding;
use riglm_domain::retrieval::{QualityRules, Query, RankingRules, SearchHit, Synonyms, ToolIndex};
use riglm_ports::clock::Clock;
use riglm_ports::encoder::Encoder;
use riglm_ports::token_counter::TokenCounter;
use sha2::{Digest, Sha256};
use tokio_util::task::TaskTracker;

use self::encoder_tiers::{EncoderTiers, GivenVector, PreparedQuery};
use self::finding::AnswerInputs;
pub use self::ranking::{CatalogRanking, TextFit};
use self::replying::AnswerWriter;
use self::similar::similar_tools;
use super::answer::AnswerRules;
use super::answer_cache::{AnswerCache, AnswerKey};
use super::catalog::Catalog;
use super::encoders::{EmbeddingTasks, EncoderCondition};
use super::escalation::{Escalation, ModelLimits, Reranking};
use super::index_cache::{IndexCache, SearchIndex};
use super::learning::PastSearch;
use super::memory::{SearchStores, UsageMemories};
use super::request::{FinishedCall, SearchReply, SearchRequest};
use super::skills::{Skill, SkillIndex};
use crate::experiments::{AssignedArm, Experiments, Participant};
use crate::fair_permits::{FairPermit, FairPermits};
use crate::learning::LivePredictions;

/// Concurrent searches per processor. Most of them wait for a vector, so there are more than one.
const TURNS_PER_PROCESSOR: usize = 4;
/// Minimum number of concurrent searches.
const MIN_TURNS: usize = 8;
/// The number of tools in an answer if the client gives no limit.
const DEFAULT_LIMIT: usize = 10;
/// Maximum number of tools in an answer.
pub const MAX_LIMIT: usize = 50;

/// Settings of searches.
#[derive(Clone, Debug)]
pub struct SearchRules {
    /// Ranking rules.
    pub ranking: RankingRules,
    /// Rules for grading answers.
    pub quality: QualityRules,
    /// Limits of answers.
    pub answer: AnswerRules,
    /// The synonyms.
    pub synonyms: Synonyms,
    /// Timeout of the encoder. After it, the search continues without vectors.
    pub encoder_deadline: Duration,
    /// Threshold of the fit. If no hit fits better, the answer says that no tool matches; see
    /// [`fit`](riglm_domain::retrieval::fit_probability()).
    pub min_fit: f64,
}

impl SearchRules {
    /// Returns the ranking rules for an arm.
    fn ranking_in(&self, arm: Option<&AssignedArm>) -> RankingRules {
        let ranking = self.ranking.clone();
        match arm.and_then(AssignedArm::fusion) {
            None => ranking,
            Some(FusionRule::Score) => RankingRules {
                rank_fusion: None,
                ..ranking
            },
            Some(FusionRule::ReciprocalRank(fusion)) => RankingRules {
                rank_fusion: Some(fusion.clone()),
                ..ranking
            },
        }
    }
}

impl Default for SearchRules {
    fn default() -> Self {
        Self {
            ranking: RankingRules::default(),
            quality: QualityRules::default(),
            answer: AnswerRules::default(),
            synonyms: Synonyms::built_in(),
            encoder_deadline: Duration::from_millis(500),
            min_fit: 0.001,
        }
    }
}

/// Dependencies of the search.
#[derive(Debug)]
pub struct SearchParts {
    /// Encoders, the better one first. A search uses the vectors of every encoder that has embedded
    /// the catalog and answers in time. Without vectors, it ranks by words alone.
    pub encoders: Vec<SearchEncoder>,
    /// Repositories of recorded data, or `None` if nothing is recorded.
    pub stores: Option<SearchStores>,
    /// Predictions of the next tools.
    pub predictions: LivePredictions,
    /// Counter of the tokens of answers.
    pub counter: Arc<dyn TokenCounter>,
    /// Clock for the age of memories.
    pub clock: Arc<dyn Clock>,
    /// Settings of searches.
    pub rules: SearchRules,
    /// Further tiers for results that are not good enough.
    pub escalation: Escalation,
    /// A/B experiments, whose arms may set the ranking.
    pub experiments: Option<Arc<Experiments>>,
}

impl SearchParts {
    /// Returns the parts of a search by words alone, without memory.
    #[must_use]
    pub fn words_only(counter: Arc<dyn TokenCounter>, clock: Arc<dyn Clock>) -> Self {
        Self {
            encoders: Vec::new(),
            stores: None,
            predictions: LivePredictions::default(),
            counter,
            clock,
            rules: SearchRules::default(),
            escalation: Escalation::default(),
            experiments: None,
        }
    }
}

/// An encoder, and whether its vectors are stored.
#[derive(Clone, Debug)]
pub struct SearchEncoder {
    /// The encoder.
    pub encoder: Arc<dyn Encoder>,
    /// Whether vectors of tools are stored. A fast encoder does not need that.
    pub is_stored: bool,
}

/// A new configuration of a search.
#[derive(Debug)]
pub struct SearchChange {
    /// Other encoders; `None` keeps the present ones with their vectors.
    pub encoders: Option<Vec<SearchEncoder>>,
    /// Settings of searches.
    pub rules: SearchRules,
    /// Further tiers for results that are not good enough.
    pub escalation: Escalation,
}

/// Search of tools by words, by meaning and by earlier use.
#[derive(Debug)]
pub struct ToolSearch {
    /// Replaced as a whole when the configuration changes. Searches in progress keep theirs.
    core: ArcSwap<SearchCore>,
    tasks: TaskTracker,
    /// A/B experiments, which can change the ranking.
    experiments: Option<Arc<Experiments>>,
}

#[derive(Debug)]
struct SearchCore {
    encoders: Arc<EncoderTiers>,
    stores: Option<SearchStores>,
    memories: Arc<UsageMemories>,
    catalogs: IndexCache,
    answers: AnswerCache,
    predictions: LivePredictions,
    writer: AnswerWriter,
    clock: Arc<dyn Clock>,
    rules: SearchRules,
    escalation: Escalation,
    flights: EmbeddingTasks,
    turns: Arc<FairPermits>,
}

impl ToolSearch {
    /// Returns a search over these parts. Nothing is loaded before the first catalog.
    #[must_use]
    pub fn new(parts: SearchParts) -> Self {
        let tiers = EncoderTiers::over(parts.encoders, parts.stores.as_ref());
        let core = SearchCore {
            catalogs: IndexCache::new(tiers.all().len(), parts.escalation.notes.clone()),
            encoders: Arc::new(tiers),
            memories: Arc::new(UsageMemories::new(parts.stores.clone())),
            stores: parts.stores,
            answers: AnswerCache::new(),
            writer: AnswerWriter {
                predictions: parts.predictions.clone(),
                counter: parts.counter,
                rules: parts.rules.answer.clone(),
            },
            predictions: parts.predictions,
            clock: parts.clock,
            rules: parts.rules,
            escalation: parts.escalation,
            flights: EmbeddingTasks::default(),
            turns: Arc::new(FairPermits::new(max_concurrent())),
        };
        Self {
            core: ArcSwap::from_pointee(core),
            tasks: TaskTracker::new(),
            experiments: parts.experiments,
        }
    }

    /// Applies a new configuration to searches that begin from now on. Catalogs are indexed again
    /// when they are next used.
    pub fn set_config(&self, change: SearchChange) {
        let core = self.core.load();
        let stores = core.stores.clone();
        let (encoders, memories) = match change.encoders {
            None => (Arc::clone(&core.encoders), Arc::clone(&core.memories)),
            // Memories have the vectors of the earlier encoders, so they are read again.
            Some(encoders) => (
                Arc::new(EncoderTiers::over(encoders, stores.as_ref())),
                Arc::new(UsageMemories::new(stores.clone())),
            ),
        };
        self.core.store(Arc::new(SearchCore {
            catalogs: IndexCache::new(encoders.all().len(), change.escalation.notes.clone()),
            encoders,
            stores,
            memories,
            answers: AnswerCache::new(),
            predictions: core.predictions.clone(),
            writer: AnswerWriter {
                predictions: core.predictions.clone(),
                counter: Arc::clone(&core.writer.counter),
                rules: change.rules.answer.clone(),
            },
            clock: Arc::clone(&core.clock),
            rules: change.rules,
            escalation: change.escalation,
            flights: EmbeddingTasks::default(),
            turns: Arc::clone(&core.turns),
        }));
    }

    fn core(&self) -> Arc<SearchCore> {
        self.core.load_full()
    }

    /// Limits the concurrent searches of one principal to `of_one(n)`, where `n` is the limit for
    /// all. Without this call, one principal may use all of them.
    pub fn limit_per_principal(&self, of_one: impl FnOnce(usize) -> usize) {
        self.core.load().turns.share(of_one);
    }

    /// Waits for a permit to rank on behalf of this principal.
    pub async fn acquire_turn(&self, principal: &Principal) -> FairPermit {
        self.core().turns.take(principal).await
    }

    /// Returns the arm that decides the ranking of a search, and records the exposure.
    fn arm_of(&self, call: &SearchRequest) -> Option<AssignedArm> {
        let who = Participant::of(&call.principal, call.session_key);
        let experiments = self.experiments.as_ref()?;
        experiments.expose(who, Treatment::Fusion)
    }

    /// Returns the request limits for models of clients, or `None` if clients' models are not used.
    #[must_use]
    pub fn client_limits(&self) -> Option<ModelLimits> {
        match &self.core.load().escalation.reranking {
            Reranking::Client { limits, .. } => Some(*limits),
            Reranking::None | Reranking::Endpoint { .. } => None,
        }
    }

    /// Returns the skills that fit a query, best first.
    #[must_use]
    pub fn find_skills(&self, skills: &SkillIndex, query: &str) -> Vec<Skill> {
        let core = self.core.load();
        let found = skills.find(Query::readable_part(query.trim()), &core.rules.synonyms);
        found.into_iter().cloned().collect()
    }

    /// Returns the encoders by model name, the better one first, each with its condition.
    pub fn encoders(&self) -> Vec<(String, EncoderCondition)> {
        self.core.load().encoders.conditions()
    }

    /// Builds the index of a catalog in the background, and embeds the texts that have no vector
    /// yet. Returns at once.
    pub fn index_catalog(&self, catalog: &Arc<Catalog>) {
        let shared = self.core();
        let Some(flight) = shared.flights.begin(catalog.id()) else {
            return;
        };
        let catalog = Arc::clone(catalog);
        self.tasks.spawn(async move {
            let _flight = flight;
            let prepared = shared.index_of(&catalog).await;
            shared.encoders.embed(&prepared).await;
        });
    }

    /// Answers a search.
    ///
    /// A repeated query of a work session gets the cached answer while its catalog is the same. An
    /// answer is cached only if all encoders, all models and the history of the principal were
    /// available for it. A query without words, and a query that no tool fits, get an answer that
    /// says so.
    pub async fn search(&self, call: SearchRequest) -> SearchReply {
        let shared = self.core();
        let limit = call.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
        let text = Query::readable_part(call.query.trim()).to_owned();
        let arm = self.arm_of(&call);
        let key = AnswerKey {
            principal: call.principal.clone(),
            session_key: call.session_key,
            catalog: call.catalog.id(),
            limit,
            text: normalize_query(&text),
            vector: call.vector.as_deref().map(vector_digest),
            arm: arm.as_ref().map(AssignedArm::name),
            pinned: call.pinned.clone(),
            predictor: shared.predictor_of(&call),
        };
        if let Some(known) = shared.answers.get(&key) {
            shared.record_repeat(&call, &text, &known);
            return known;
        }
        self.refresh_history(&shared, &call.principal).await;
        let prepared = self.index_and_embed(&shared, &call.catalog).await;
        // Checked before ranking: an answer made without the history of the principal must not be
        // cached.
        let is_known = shared.memories.has_history(&call.principal);
        let answering = shared.answer(call, text, limit, arm.as_ref(), prepared);
        let (reply, is_whole) = answering.await;
        if is_known && is_whole {
            shared.answers.put(key, reply.clone());
        }
        reply
    }

    /// Returns the index of a catalog, and starts the computation of missing vectors.
    async fn index_and_embed(
        &self,
        core: &Arc<SearchCore>,
        catalog: &Arc<Catalog>,
    ) -> Arc<SearchIndex> {
        let prepared = core.index_of(catalog).await;
        if !core.encoders.have_embedded(&prepared) {
            self.index_catalog(catalog);
        }
        prepared
    }

    /// Returns the positions of tools similar to one of the catalog, for callers that may not call
    /// it. Duplicates on other servers come first, then tools that match the words of its name and
    /// description. Returns `None` if the catalog is not indexed yet, or does not have the tool.
    pub fn similar(&self, catalog: &Arc<Catalog>, tool: &ToolRef) -> Option<Vec<usize>> {
        let core = self.core.load();
        let prepared = core.catalogs.get(catalog)?;
        let wanted = catalog.position_of(tool)?;
        similar_tools(&prepared, wanted, &core.rules)
    }

    /// Learns from a call.
    pub fn record_call(&self, event: &FinishedCall) {
        let core = self.core.load();
        core.memories.record_call(event, core.clock.now());
    }

    /// Waits until the background tasks are finished.
    pub async fn wait_until_idle(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        self.tasks.reopen();
    }

    /// Reads the history of a principal from the store if it is outdated. A search waits only
    /// briefly for it. If that is too short, the next search uses it.
    async fn refresh_history(&self, core: &Arc<SearchCore>, principal: &Principal) {
        const PATIENCE: Duration = Duration::from_millis(50);
        let shared = Arc::clone(core);
        let now = shared.clock.now();
        if !shared.memories.begin_reading(principal, now) {
            return;
        }
        let is_known = shared.memories.has_history(principal);
        let principal = principal.clone();
        let reading = self.tasks.spawn(async move {
            let encoders = shared.encoders.all();
            shared.memories.read(&principal, encoders, now).await;
        });
        if !is_known {
            // On a timeout the task continues, and the next search has its result.
            let _ = tokio::time::timeout(PATIENCE, reading).await;
        }
    }
}

impl SearchCore {
    /// Returns the number of the predictor that predicts the next tools for this caller.
    fn predictor_of(&self, call: &SearchRequest) -> usize {
        let who = Participant::of(&call.principal, call.session_key);
        let next_tools = self.predictions.get();
        next_tools.map_or(0, |next_tools| next_tools.predictor_of(who))
    }

    async fn index_of(self: &Arc<Self>, catalog: &Arc<Catalog>) -> Arc<SearchIndex> {
        if let Some(prepared) = self.catalogs.get(catalog) {
            return prepared;
        }
        let shared = Arc::clone(self);
        let own = Arc::clone(catalog);
        match tokio::task::spawn_blocking(move || shared.catalogs.build(&own)).await {
            Ok(prepared) => prepared,
            // A join error means that the runtime is shutting down.
            Err(_) => self.catalogs.build(catalog),
        }
    }

    /// Prepares a text for ranking.
    async fn prepare_query(
        &self,
        text: &str,
        given: Option<GivenVector>,
        prepared: &SearchIndex,
    ) -> PreparedQuery {
        self.encoders
            .prepare_query(text, given, prepared, &self.rules)
            .await
    }

    /// Ranks all tools with the history of the principal.
    fn rank(
        &self,
        principal: &Principal,
        session: SessionId,
        query: &Query,
        index: &ToolIndex,
        ranking: &RankingRules,
    ) -> Vec<SearchHit> {
        let now = self.clock.now();
        self.memories
            .rank(principal, session, query, index, ranking, now)
    }

    /// Records a repeated search of a session, so that the following calls are attributed to it.
    fn record_repeat(&self, call: &SearchRequest, words: &str, known: &SearchReply) {
        let Some(raw) = &known.query_vector else {
            return;
        };
        if let Some(text) = self.encoders.subtract_mean(raw) {
            self.record_search(call, text, words);
        }
    }

    /// Records a search of a session.
    fn record_search(&self, call: &SearchRequest, text: Embedding, words: &str) {
        let search = PastSearch {
            text,
            words: words.into(),
            at: self.clock.now(),
        };
        self.memories
            .record_search(&call.principal, call.session, search);
    }

    /// Returns the answer, and whether it may be cached: all encoders gave vectors, and no
    /// requested model failed.
    async fn answer(
        self: &Arc<Self>,
        call: SearchRequest,
        text: String,
        limit: usize,
        arm: Option<&AssignedArm>,
        prepared: Arc<SearchIndex>,
    ) -> (SearchReply, bool) {
        let turn = self.turns.take(&call.principal).await;
        let given = call.vector.as_deref();
        let given = given.map(|given| self.encoders.accept(given, &prepared));
        let (given, refusal) = match given.transpose() {
            Ok(given) => (given, None),
            Err(reason) => {
                let note = format!("the vector of the request was not used: {reason}");
                (None, Some(note))
            }
        };
        let PreparedQuery {
            query,
            vectors: encoded,
        } = self.prepare_query(&text, given, &prepared).await;
        let has_vectors = encoded.len() == self.encoders.all().len();
        let asked = Arc::new(AnswerInputs {
            ranking: self.rules.ranking_in(arm),
            call,
            text,
            query,
            limit,
            prepared,
            vector: encoded.first().map(|encoded| encoded.raw.clone()),
        });
        let found = self
            .in_background(turn, &asked, Self::rank_and_match_notes)
            .await;
        let (found, was_expanded) = self.expand(&asked, found).await;
        let (mut found, was_reranked) = self.escalation.rerank(&asked, found).await;
        found.notes.extend(refusal);
        self.writer.consult(&asked, &found, self.clock.now()).await;
        let writing = move |shared: &Self, asked: &AnswerInputs| {
            shared.writer.reply(asked, &found, shared.clock.now())
        };
        let turn = self.turns.take(&asked.call.principal).await;
        let mut reply = self.in_background(turn, &asked, writing).await;
        if let Some(encoded) = encoded.into_iter().next() {
            self.record_search(&asked.call, encoded.centred, &asked.text);
            reply.query_vector = Some(encoded.raw);
        }
        (reply, has_vectors && was_expanded && was_reranked)
    }

    /// Runs ranking or writing on a blocking thread, because both are slow for thousands of tools
    /// or long schemas. The turn ends with the work, also if the caller is cancelled.
    async fn in_background<T: Send + 'static>(
        self: &Arc<Self>,
        turn: FairPermit,
        asked: &Arc<AnswerInputs>,
        work: impl Fn(&Self, &AnswerInputs) -> T + Send + Sync + 'static,
    ) -> T {
        let work = Arc::new(work);
        let (shared, asking, doing) = (Arc::clone(self), Arc::clone(asked), Arc::clone(&work));
        let done = tokio::task::spawn_blocking(move || {
            let done = doing(&shared, &asking);
            drop(turn);
            done
        })
        .await;
        // A join error means that the runtime is shutting down.
        done.unwrap_or_else(|_| work(self, asked))
    }
}

/// Returns the maximum number of concurrent searches.
fn max_concurrent() -> usize {
    let n_processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let of_all = n_processors.saturating_mul(TURNS_PER_PROCESSOR);
    of_all.max(MIN_TURNS)
}

/// Returns a digest of a vector and its model.
fn vector_digest(embedding: &Embedding) -> [u8; 32] {
    let mut digest = Sha256::new();
    digest.update(embedding.model());
    digest.update([0]);
    for component in embedding.vector() {
        digest.update(component.to_le_bytes());
    }
    digest.finalize().into()
}

/// Normalizes a query for comparison: lower case, single spaces.
fn normalize_query(text: &str) -> String {
    let lower = text.to_lowercase();
    lower.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod escalation_tests;
#[cfg(test)]
mod tests;
