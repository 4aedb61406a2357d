//! A recommender over a store in memory and what it is asked, for tests.

use std::sync::Arc;

use jiff::Timestamp;
use riglm_domain::canonical::KeyedHasher;
use riglm_domain::id::{RunId, SessionId, UpstreamName};
use riglm_domain::invocation::CallSession;
use riglm_domain::principal::Principal;
use riglm_domain::tool::ToolRef;
use riglm_ports::fake::{ManualClock, MemoryStore, WordCounter};
use riglm_ports::observer::Unobserved;

use super::{Hindrances, Project, RecommendCall, RecommendOptions, Recommender, RecommenderParts};
use crate::search::{Offer, OfferedTool, SearchParts, ServerText, ToolSearch};
use crate::tracking::{Recorder, RecorderOptions};
use crate::weight_tuning::WeightSource;

/// When tests begin.
pub(crate) const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

/// What is recorded, who records it, and what recommends by it.
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
            observer: Arc::new(Unobserved),
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

/// Returns what a connection asks, of which the calls belong to `together`.
pub(crate) fn asked(query: &str, session: SessionId, together: CallSession) -> RecommendCall {
    let described = [
        ("read_file", "Reads a file"),
        ("write_file", "Writes a file"),
        ("list_mail", "Lists letters"),
    ];
    let tools = described.map(|(name, description)| OfferedTool {
        name: name.into(),
        tool: tool(name),
        definition: serde_json::json!({"name": name, "description": description})
            .to_string()
            .into(),
        is_hidden: false,
    });
    let servers = vec![(files(), ServerText::default())];
    RecommendCall {
        session: Some(session),
        together: Some(together),
        is_of_session: true,
        principal: Principal::named("alice"),
        query: query.into(),
        limit: None,
        offer: Arc::new(Offer::new(tools.into(), servers)),
        project: Project::default(),
        hindrances: Hindrances::default(),
    }
}

fn files() -> UpstreamName {
    UpstreamName::parse("files").unwrap()
}
