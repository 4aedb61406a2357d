//! Test fixture: a recommender over a store in memory, and requests to it.

use std::sync::Arc;

use jiff::Timestamp;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{RunId, SessionId, UpstreamName};
use riglm_domain::privacy::canonical::KeyedHasher;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::invocation::SessionKey;
use riglm_ports::fake::{ManualClock, MemoryStore, WordCounter};
use riglm_ports::observer::NoObserver;

use super::{
    Exclusions, Project, RecommendOptions, RecommendRequest, Recommender, RecommenderParts,
};
use crate::search::{Catalog, CatalogTool, SearchParts, ServerText, ToolSearch};
use crate::tracking::{Recorder, RecorderOptions};
use crate::weight_tuning::WeightSource;

/// Start time of the tests.
pub(crate) const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

/// A recommender with its store, clock and recorder.
pub(crate) struct Scene {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) recommender: Arc<Recommender>,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let store = Arc::new(MemoryStore::default());
        let clock = Arc::new(ManualClock::at(NOW));
        let recorder = Arc::new(Recorder::new(
            store.clone(),
            KeyedHasher::new(&[7; 32]),
            clock.clone(),
            RunId::new(NOW, [0; 10]),
            RecorderOptions::default(),
        ));
        let search = SearchParts::words_only(Arc::new(WordCounter), clock.clone());
        let parts = RecommenderParts {
            search: Arc::new(ToolSearch::new(search)),
            store: Some(store.clone()),
            recorder: Arc::clone(&recorder),
            observer: Arc::new(NoObserver),
            clock: clock.clone(),
            options: RecommendOptions::default(),
            weights: Arc::new(WeightSource::new(None)),
            experiments: None,
        };
        Self {
            store,
            clock,
            recorder,
            recommender: Arc::new(Recommender::new(parts)),
        }
    }
}

/// Returns a tool of the upstream `files`.
pub(crate) fn tool(name: &str) -> ToolRef {
    ToolRef {
        upstream: files(),
        tool: name.into(),
    }
}

/// Returns the request of a session whose session key is `together`.
pub(crate) fn request(
    query: &str,
    session: SessionId,
    session_key: SessionKey,
) -> RecommendRequest {
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
        offer: Arc::new(Catalog::new(tools.into(), servers)),
        project: Project::default(),
        hindrances: Exclusions::default(),
    }
}

fn files() -> UpstreamName {
    UpstreamName::parse("files").unwrap()
}
