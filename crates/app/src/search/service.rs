//! The search itself: from a query to an answer, and what is learned on the way.

mod expanding;
mod fitting;
mod ranking;
mod replying;
mod reranking;
mod similar;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use riglm_domain::embedding::Embedding;
use riglm_domain::experiment::{FusionRule, Lever};
use riglm_domain::principal::Principal;
use riglm_domain::retrieval::{QualityRules, Query, RankingRules, Synonyms};
use riglm_ports::clock::Clock;
use riglm_ports::encoder::Encoder;
use riglm_ports::token_counter::TokenCounter;
use tokio_util::task::TaskTracker;

use self::fitting::Asking;
pub use self::fitting::TextFit;
pub use self::ranking::OfferRanking;
use self::replying::Asked;
use super::answer::AnswerRules;
use super::answers::{Answers, Question};
use super::encoders::{EncoderCondition, Flights, Tier};
use super::ladder::{Ladder, ModelLimits, Reranking};
use super::learning::PastSearch;
use super::memory::{Memories, SearchStores};
use super::offer::Offer;
use super::prepared::{Offers, Prepared};
use super::request::{SearchCall, SearchReply, ToolCalled};
use crate::experiments::{AssignedArm, Experiments, Participant};
use crate::learning::NextTools;
use crate::turns::{Turn, Turns};

/// The searches at once for each processor: most of them wait for a vector.
const TURNS_PER_PROCESSOR: usize = 4;
/// The fewest searches that are made at once.
const MIN_TURNS: usize = 8;
/// How many tools an answer has when the client does not say.
const DEFAULT_LIMIT: usize = 10;
/// The most tools of one answer.
pub const MAX_LIMIT: usize = 50;

/// How searches are answered.
#[derive(Clone, Debug)]
pub struct SearchRules {
    /// How tools are ranked.
    pub ranking: RankingRules,
    /// How answers are graded.
    pub quality: QualityRules,
    /// How answers are written.
    pub answer: AnswerRules,
    /// Which words mean the same.
    pub synonyms: Synonyms,
    /// How long a search waits for the encoder before it goes on without.
    pub encoder_deadline: Duration,
    /// An answer of which no hit fits better than this says that no tool matches; see
    /// [`fit`](riglm_domain::retrieval::fit()).
    pub min_fit: f64,
}

impl SearchRules {
    /// Returns how tools are ranked for who is in this arm.
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
            synonyms: Synonyms::shipped(),
            encoder_deadline: Duration::from_millis(500),
            min_fit: 0.001,
        }
    }
}

/// What a search is made of.
#[derive(Debug)]
pub struct SearchParts {
    /// The encoders, the better one first. A search takes the vectors of all that have done the
    /// catalog and answer in time; without any, words decide alone.
    pub encoders: Vec<SearchEncoder>,
    /// What was recorded before; `None` where nothing is.
    pub stores: Option<SearchStores>,
    /// Says which tools are needed next; `None` where nothing is learned.
    pub next_tools: Option<Arc<NextTools>>,
    /// Counts the tokens of answers.
    pub counter: Arc<dyn TokenCounter>,
    /// Tells how old memories are.
    pub clock: Arc<dyn Clock>,
    /// How searches are answered.
    pub rules: SearchRules,
}

impl SearchParts {
    /// Returns the parts of a search by words alone, which remembers nothing.
    #[must_use]
    pub fn words_only(counter: Arc<dyn TokenCounter>, clock: Arc<dyn Clock>) -> Self {
        Self {
            encoders: Vec::new(),
            stores: None,
            next_tools: None,
            counter,
            clock,
            rules: SearchRules::default(),
        }
    }
}

/// An encoder, and whether its vectors are worth keeping.
#[derive(Clone, Debug)]
pub struct SearchEncoder {
    /// The encoder.
    pub encoder: Arc<dyn Encoder>,
    /// Whether vectors of tools are stored: not for one that makes them in no time.
    pub is_stored: bool,
}

/// Finds tools by words and meaning, and by what was used before.
#[derive(Debug)]
pub struct ToolSearch {
    shared: Arc<Shared>,
    tasks: TaskTracker,
    /// What is tried out on a part of the clients.
    experiments: Option<Arc<Experiments>>,
}

#[derive(Debug)]
struct Shared {
    tiers: Vec<Tier>,
    memories: Memories,
    offers: Offers,
    answers: Answers,
    next_tools: Option<Arc<NextTools>>,
    counter: Arc<dyn TokenCounter>,
    clock: Arc<dyn Clock>,
    rules: SearchRules,
    ladder: Ladder,
    /// Catalogs are embedded one after the other.
    embedding: tokio::sync::Mutex<()>,
    flights: Flights,
    turns: Turns,
}

impl ToolSearch {
    /// Returns the search over these parts. Nothing is loaded before the first offer.
    #[must_use]
    pub fn new(parts: SearchParts) -> Self {
        Self::laddered(parts, Ladder::default())
    }

    /// Returns the search over these parts, which does more where its ranking finds little.
    #[must_use]
    pub fn laddered(parts: SearchParts, ladder: Ladder) -> Self {
        let embeddings = parts
            .stores
            .as_ref()
            .map(|stores| Arc::clone(&stores.embeddings));
        let tiers: Vec<Tier> = (parts.encoders.into_iter())
            .map(|it| Tier::new(it.encoder, embeddings.clone().filter(|_| it.is_stored)))
            .collect();
        Self {
            shared: Arc::new(Shared {
                offers: Offers::new(tiers.len(), ladder.notes.clone()),
                tiers,
                memories: Memories::new(parts.stores),
                answers: Answers::new(),
                next_tools: parts.next_tools,
                counter: parts.counter,
                clock: parts.clock,
                rules: parts.rules,
                ladder,
                embedding: tokio::sync::Mutex::new(()),
                flights: Flights::default(),
                turns: Turns::new(n_turns()),
            }),
            tasks: TaskTracker::new(),
            experiments: None,
        }
    }

    /// Has the searches of some clients ranked as their arms say.
    #[must_use]
    pub fn with_experiments(self, experiments: Option<Arc<Experiments>>) -> Self {
        Self {
            experiments,
            ..self
        }
    }

    /// Lets one principal have as many of the searches that are made at once as `of_one` says of their
    /// number. Until this is called one may have all.
    pub(crate) fn share(&self, of_one: impl FnOnce(usize) -> usize) {
        self.shared.turns.share(of_one);
    }

    /// Waits until something may be ranked for this principal.
    pub(crate) async fn turn(&self, principal: &Principal) -> Turn {
        self.shared.turns.take(principal).await
    }

    /// Returns the arm by which a search is ranked, and notes that it is.
    fn arm_of(&self, call: &SearchCall) -> Option<AssignedArm> {
        let who = Participant::of(&call.principal, call.together);
        let experiments = self.experiments.as_ref()?;
        experiments.exposed(who, Lever::Fusion)
    }

    /// Returns how much the models of clients are asked; `None` where they are not.
    #[must_use]
    pub fn client_limits(&self) -> Option<ModelLimits> {
        match &self.shared.ladder.reranking {
            Reranking::Client { limits, .. } => Some(*limits),
            Reranking::None | Reranking::Endpoint { .. } => None,
        }
    }

    /// Returns the models of the encoders, the better one first, and whether searches have their
    /// vectors.
    pub fn encoders(&self) -> Vec<(String, EncoderCondition)> {
        let tiers = self.shared.tiers.iter();
        tiers
            .map(|tier| (tier.model().to_owned(), tier.condition()))
            .collect()
    }

    /// Makes an offer ready to be searched, in the background: reads its texts and embeds what was
    /// not embedded before. Returns at once.
    pub fn learn_offer(&self, offer: &Arc<Offer>) {
        let Some(flight) = self.shared.flights.begin(offer.id()) else {
            return;
        };
        let shared = Arc::clone(&self.shared);
        let offer = Arc::clone(offer);
        self.tasks.spawn(async move {
            let _flight = flight;
            let prepared = shared.prepared(&offer).await;
            shared.embed(&prepared).await;
        });
    }

    /// Answers a search.
    ///
    /// A work session that asks the same again is given the same answer, as long as its tools are the
    /// same, once there is one that was made with the vectors of all encoders and with what is
    /// known of the principal. A query without a word, or one that no tool fits, is answered with that.
    pub async fn search(&self, call: SearchCall) -> SearchReply {
        let shared = &self.shared;
        let limit = call.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
        let text = Query::cut(call.query.trim()).to_owned();
        let arm = self.arm_of(&call);
        let key = Question {
            principal: call.principal.clone(),
            together: call.together,
            offer: call.offer.id(),
            limit,
            text: normalised(&text),
            arm: arm.as_ref().map(AssignedArm::name),
            pinned: call.pinned.clone(),
            predictor: shared.predictor_of(&call),
        };
        if let Some(known) = shared.answers.get(&key) {
            shared.note_again(&call, &text, &known);
            return known;
        }
        self.remember(&call.principal).await;
        let prepared = self.prepared(&call.offer).await;
        // An answer from before all is known that could be is not the one to give again.
        let is_known = shared.memories.knows(&call.principal);
        let asked = (call, text, limit);
        let (reply, is_whole) = shared.answer(asked, arm.as_ref(), prepared).await;
        if is_known && is_whole {
            shared.answers.put(key, reply.clone());
        }
        reply
    }

    /// Returns an offer made ready, and sees to it that its vectors are made.
    async fn prepared(&self, offer: &Arc<Offer>) -> Arc<Prepared> {
        let prepared = self.shared.prepared(offer).await;
        if !(0..self.shared.tiers.len()).all(|tier| prepared.is_embedded(tier)) {
            self.learn_offer(offer);
        }
        prepared
    }

    /// Learns from a call.
    pub fn called(&self, event: &ToolCalled) {
        self.shared.memories.called(event, self.shared.clock.now());
    }

    /// Waits until what goes on in the background is done.
    pub async fn settle(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        self.tasks.reopen();
    }

    /// Reads what the store has of a principal, where that was not done lately. A search does not
    /// wait long for it: the next one has it.
    async fn remember(&self, principal: &Principal) {
        const PATIENCE: Duration = Duration::from_millis(50);
        let shared = Arc::clone(&self.shared);
        let now = shared.clock.now();
        if !shared.memories.begin_reading(principal, now) {
            return;
        }
        let is_known = shared.memories.knows(principal);
        let principal = principal.clone();
        let reading = self.tasks.spawn(async move {
            shared.memories.read(&principal, &shared.tiers, now).await;
        });
        if !is_known {
            // Later is not too late.
            let _ = tokio::time::timeout(PATIENCE, reading).await;
        }
    }
}

impl Shared {
    /// Returns by the number of which predictor it is told what who asks needs next.
    fn predictor_of(&self, call: &SearchCall) -> usize {
        let who = Participant::of(&call.principal, call.together);
        let next_tools = self.next_tools.as_ref();
        next_tools.map_or(0, |next_tools| next_tools.predictor_of(who))
    }

    async fn prepared(self: &Arc<Self>, offer: &Arc<Offer>) -> Arc<Prepared> {
        if let Some(prepared) = self.offers.get(offer) {
            return prepared;
        }
        let shared = Arc::clone(self);
        let own = Arc::clone(offer);
        match tokio::task::spawn_blocking(move || shared.offers.prepare(&own)).await {
            Ok(prepared) => prepared,
            // The runtime is ending.
            Err(_) => self.offers.prepare(offer),
        }
    }

    /// Makes the vectors of an offer, with the quickest encoder first.
    async fn embed(&self, prepared: &Prepared) {
        for (number, tier) in self.tiers.iter().enumerate().rev() {
            let _one_at_a_time = self.embedding.lock().await;
            if prepared.is_embedded(number) || tier.is_resting() {
                continue;
            }
            let tools = prepared.by_words.tools();
            let model = tier.model();
            let progress = |done: usize, all: usize| {
                tracing::debug!(%model, "embedded {done} of {all} texts of tools");
            };
            let started = std::time::Instant::now();
            match tier.tools(tools, &progress).await {
                Ok((vectors, centre)) => {
                    if let Some(notes) = &prepared.notes {
                        match tier.tools(notes.documents(), &|_, _| {}).await {
                            Ok((of_notes, _)) => {
                                let all = (vectors.as_slice(), of_notes.as_slice());
                                notes.add_vectors((number, model), all, &centre);
                            }
                            Err(error) => {
                                tier.failed(&error);
                                continue;
                            }
                        }
                    }
                    prepared.add_vectors((number, model), &vectors, &centre);
                    let n_tools = tools.len();
                    let took_ms = started.elapsed().as_millis();
                    tracing::debug!(%model, took_ms, "vectors of {n_tools} tools are there");
                }
                Err(error) => tier.failed(&error),
            }
        }
    }

    /// Returns the vectors of a query by the encoders that have done the offer and answer in time,
    /// the better ones first.
    async fn encoded(&self, text: &str, prepared: &Prepared) -> Vec<Encoded> {
        let done = self.tiers.iter().enumerate();
        let done = done.filter(|(number, _)| prepared.is_embedded(*number));
        let encoding = done.map(|(_, tier)| async move {
            let vector = tier.query(text, self.rules.encoder_deadline).await?;
            Some(Encoded {
                raw: Embedding::new(tier.model(), vector.to_vec()).ok()?,
                centred: tier.centred(&vector)?,
            })
        });
        let encoded = join_all(encoding).await;
        encoded.into_iter().flatten().collect()
    }

    /// Notes that a session searched for what it had searched for before: what it calls from now on
    /// belongs to that again.
    fn note_again(&self, call: &SearchCall, words: &str, known: &SearchReply) {
        let Some(raw) = &known.query_vector else {
            return;
        };
        let mut tiers = self.tiers.iter();
        let tier = tiers.find(|tier| tier.model() == raw.model());
        if let Some(text) = tier.and_then(|tier| tier.centred(raw.vector())) {
            self.searched(call, text, words);
        }
    }

    /// Notes that a session searched for a text with this vector.
    fn searched(&self, call: &SearchCall, text: Embedding, words: &str) {
        let search = PastSearch {
            text,
            words: words.into(),
            at: self.clock.now(),
        };
        self.memories
            .searched(&call.principal, call.session, search);
    }

    /// Returns the answer, and whether it is one to give again: it was made with the vectors of all
    /// encoders, and no model that was to be asked failed.
    async fn answer(
        self: &Arc<Self>,
        (call, text, limit): (SearchCall, String, usize),
        arm: Option<&AssignedArm>,
        prepared: Arc<Prepared>,
    ) -> (SearchReply, bool) {
        let turn = self.turns.take(&call.principal).await;
        let Asking {
            query,
            vectors: encoded,
        } = self.asking(&text, &prepared).await;
        let has_vectors = encoded.len() == self.tiers.len();
        let asked = Arc::new(Asked {
            ranking: self.rules.ranking_in(arm),
            call,
            text,
            query,
            limit,
            prepared,
            vector: encoded.first().map(|encoded| encoded.raw.clone()),
        });
        let found = self.in_background(turn, &asked, Self::found).await;
        let (found, was_expanded) = self.expanded(&asked, found).await;
        let (found, was_reranked) = self.reranked(&asked, found).await;
        let writing = move |shared: &Self, asked: &Asked| shared.reply(asked, &found);
        let turn = self.turns.take(&asked.call.principal).await;
        let mut reply = self.in_background(turn, &asked, writing).await;
        if let Some(encoded) = encoded.into_iter().next() {
            self.searched(&asked.call, encoded.centred, &asked.text);
            reply.query_vector = Some(encoded.raw);
        }
        (reply, has_vectors && was_expanded && was_reranked)
    }

    /// Does something where it holds up nobody: thousands of tools take a while to be ranked, and long
    /// schemas to be read. The turn is over when it is done, also if nobody waits for it any more.
    async fn in_background<T: Send + 'static>(
        self: &Arc<Self>,
        turn: Turn,
        asked: &Arc<Asked>,
        work: impl Fn(&Self, &Asked) -> T + Send + Sync + 'static,
    ) -> T {
        let work = Arc::new(work);
        let (shared, asking, doing) = (Arc::clone(self), Arc::clone(asked), Arc::clone(&work));
        let done = tokio::task::spawn_blocking(move || {
            let done = doing(&shared, &asking);
            drop(turn);
            done
        })
        .await;
        // Where it was not done, the runtime is ending.
        done.unwrap_or_else(|_| work(self, asked))
    }
}

/// The vector of a query, as it was made and centred.
struct Encoded {
    raw: Embedding,
    centred: Embedding,
}

/// Returns the most searches that are made at once.
fn n_turns() -> usize {
    let n_processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let of_all = n_processors.saturating_mul(TURNS_PER_PROCESSOR);
    of_all.max(MIN_TURNS)
}

/// Returns the text by which queries count as the same: in lower case, with single spaces.
fn normalised(text: &str) -> String {
    let lower = text.to_lowercase();
    lower.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod ladder_tests;
#[cfg(test)]
mod tests;
