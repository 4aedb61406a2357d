//! Test fixture: a recommender over a store in memory, and requests to it.

#![expect(
    clippy::unwrap_used,
    reason = "a fixture that cannot be made fails its test"
)]

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{FeedbackId, RecommendationId, SessionId, UpstreamName};
use riglm_domain::privacy::canonical::KeyedHasher;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::recommendation::Lexicon;
use riglm_domain::recommendation::record::Recommendation;
use riglm_domain::usage::feedback::Feedback;
use riglm_domain::usage::invocation::SessionKey;
use riglm_domain::usage::record::Record;
use riglm_ports::analytics::Journal;
use riglm_ports::fake::{ManualClock, MemoryStore, WordCounter};
use riglm_ports::observer::NoObserver;

use crate::learning::LearningIsolation;

use super::{
    Exclusions, Project, RecommendConfig, RecommendRequest, RecommendationDetails,
    RecommendationLog, Recommender, RecommenderParts,
};
use crate::entropy::EntropySource;
use crate::search::{Catalog, CatalogTool, SearchParts, ServerText, ToolSearch};
use crate::weight_tuning::WeightSource;

/// Start time of the tests.
pub const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

/// A log that writes into a store at once.
#[derive(Debug)]
pub struct StoreLog {
    store: Arc<MemoryStore>,
    entropy: EntropySource,
}

impl StoreLog {
    fn new(store: Arc<MemoryStore>) -> Self {
        Self {
            store,
            entropy: EntropySource::new(),
        }
    }

    async fn append(&self, record: Record) {
        self.store.append(&record).await.unwrap();
    }

    /// Returns a new identifier for feedback.
    pub fn feedback_id(&self) -> FeedbackId {
        FeedbackId::new(NOW, self.entropy.next())
    }
}

#[async_trait]
impl RecommendationLog for StoreLog {
    async fn record_recommendation(&self, details: RecommendationDetails<'_>) -> RecommendationId {
        let id = RecommendationId::new(details.shown_at, self.entropy.next());
        let recommendation = Recommendation {
            id,
            session: details.session,
            work_session: details.work_session,
            principal: details.principal.clone(),
            shown_at: details.shown_at,
            intent_hash: KeyedHasher::new(&[7; 32]).hash_text(details.intent),
            intent: None,
            weights: details.weights,
            experiment: details.experiment,
            tools: details.tools,
        };
        self.append(Record::Recommended(recommendation)).await;
        id
    }

    async fn record_feedback(&self, feedback: Feedback) {
        self.append(Record::FeedbackGiven(feedback)).await;
    }
}

/// A recommender with its store, clock and log.
#[derive(Debug)]
pub struct Scene {
    /// The store of the recommender.
    pub store: Arc<MemoryStore>,
    /// The clock of the recommender.
    pub clock: Arc<ManualClock>,
    /// The log, which writes into the store.
    pub log: Arc<StoreLog>,
    /// The recommender.
    pub recommender: Arc<Recommender>,
}

impl Default for Scene {
    fn default() -> Self {
        Self::new()
    }
}

impl Scene {
    /// Creates a recommender over an empty store at [`NOW`].
    pub fn new() -> Self {
        let store = Arc::new(MemoryStore::default());
        let clock = Arc::new(ManualClock::at(NOW));
        let log = Arc::new(StoreLog::new(store.clone()));
        let search = SearchParts::words_only(Arc::new(WordCounter), clock.clone());
        let parts = RecommenderParts {
            search: Arc::new(ToolSearch::new(search)),
            store: Some(store.clone()),
            log: log.clone(),
            observer: Arc::new(NoObserver),
            clock: clock.clone(),
            config: RecommendConfig::default(),
            lexicon: Lexicon::built_in(),
            weights: Arc::new(WeightSource::new(None)),
            experiments: None,
            isolation: LearningIsolation::Shared,
        };
        Self {
            store,
            clock,
            log,
            recommender: Arc::new(Recommender::new(parts)),
        }
    }
}

/// Returns a tool of the upstream `files`.
pub fn tool(name: &str) -> ToolRef {
    ToolRef {
        upstream: files(),
        tool: name.into(),
    }
}

/// Returns the request of a session whose session key is `together`.
pub fn request(query: &str, session: SessionId, session_key: SessionKey) -> RecommendRequest {
    let described = [
        ("read_file", "Reads a file"),
        ("write_file", "Writes a file"),
        ("list_mail", "Lists letters"),
    ];
    let tools = described.map(|(name, description)| CatalogTool {
        name: name.into(),
        tool: tool(name),
        definition: serde_json::json!({"name": name, "description": description})
            .to_string()
            .into(),
        is_hidden: false,
    });
    let servers = vec![(files(), ServerText::default())];
    RecommendRequest {
        session: Some(session),
        session_key: Some(session_key),
        is_of_session: true,
        principal: Principal::from_name("alice"),
        query: query.into(),
        limit: None,
        catalog: Arc::new(Catalog::new(tools.into(), servers)),
        project: Project::default(),
        exclusions: Exclusions::default(),
    }
}

fn files() -> UpstreamName {
    UpstreamName::parse("files").unwrap()
}
