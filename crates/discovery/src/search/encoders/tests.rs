//! Tests with encoders that refuse texts, change the dimension of their vectors, or have invalid
//! names.

use std::collections::HashSet;
use std::sync::atomic::AtomicUsize;

use async_trait::async_trait;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{SessionId, ToolName, UpstreamName};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::retrieval::ToolText;
use riglm_domain::usage::invocation::SessionKey;
use riglm_ports::fake::{ManualClock, MemoryStore, WordCounter};

use super::*;
use crate::learning::LivePredictions;
use crate::search::{
    Catalog, CatalogTool, SearchEncoder, SearchParts, SearchRequest, SearchRules, ToolSearch,
};

const PATIENCE: Duration = Duration::from_secs(5);

/// An encoder with a fixed dimension that refuses requests as a server does.
#[derive(Debug)]
struct RefusingEncoder {
    model: String,
    dimension: usize,
    /// Maximum length of an accepted text in bytes.
    longest: usize,
    /// Texts that contain this string are refused.
    refused: &'static str,
    /// Whether the encoder cannot be reached.
    is_down: AtomicBool,
    n_requests: AtomicUsize,
    sent: Mutex<Vec<String>>,
}

fn refusing_encoder(dimension: usize) -> RefusingEncoder {
    RefusingEncoder {
        model: "picky".into(),
        dimension,
        longest: usize::MAX,
        refused: "poison",
        is_down: AtomicBool::new(false),
        n_requests: AtomicUsize::new(0),
        sent: Mutex::default(),
    }
}

impl RefusingEncoder {
    fn n_requests(&self) -> usize {
        self.n_requests.load(Ordering::Relaxed)
    }

    /// Takes the texts of tools that the encoder has received.
    fn take_sent(&self) -> Vec<String> {
        let mut sent = self.sent.lock();
        sent.drain(..).filter(|text| text.contains("zq")).collect()
    }
}

#[async_trait]
impl Encoder for RefusingEncoder {
    fn model(&self) -> &str {
        &self.model
    }

    async fn encode(
        &self,
        texts: Vec<String>,
        _role: TextRole,
    ) -> Result<Vec<Vec<f32>>, EncoderError> {
        self.n_requests.fetch_add(1, Ordering::Relaxed);
        tokio::task::yield_now().await;
        let model = self.model.clone();
        if self.is_down.load(Ordering::Relaxed) {
            let source = "down".into();
            return Err(EncoderError::Unavailable { model, source });
        }
        self.sent.lock().extend(texts.iter().cloned());
        let is_wrong = |text: &String| text.len() > self.longest || text.contains(self.refused);
        if texts.iter().any(is_wrong) {
            let source = "the server answered with status 400".into();
            return Err(EncoderError::Failed { model, source });
        }
        let mut vector = vec![0.0; self.dimension];
        vector[0] = 1.0;
        Ok(vec![vector; texts.len()])
    }
}

fn tool(name: &str, description: &str) -> IndexedTool {
    let tool = ToolRef {
        upstream: UpstreamName::parse("u").unwrap(),
        tool: ToolName::from(name),
    };
    let text = ToolText {
        name: name.into(),
        description: description.into(),
        ..ToolText::default()
    };
    IndexedTool::new(tool, text)
}

/// Returns `n` tools. One in the middle has a text that is refused.
fn tools(n: usize) -> Vec<IndexedTool> {
    let all = (0..n).map(|number| {
        let what = if number == n / 2 { "poison" } else { "bread" };
        tool(&format!("{what}_zq{number}"), "Bakes")
    });
    all.collect()
}

async fn vectors(tier: &EncoderTier, tools: &[IndexedTool]) -> Vec<ToolVectors> {
    tier.tools(tools, &|_, _| {}).await.unwrap().0
}

fn tier(encoder: &Arc<RefusingEncoder>, store: Option<&Arc<MemoryStore>>) -> EncoderTier {
    EncoderTier::new(
        Arc::clone(encoder) as _,
        store.map(|store| Arc::clone(store) as _),
    )
}

#[tokio::test]
async fn a_refused_text_does_not_affect_other_texts() {
    let encoder = Arc::new(refusing_encoder(2));
    let store = Arc::new(MemoryStore::default());
    let tier = tier(&encoder, Some(&store));
    let made = vectors(&tier, &tools(40)).await;
    for (number, made) in made.iter().enumerate() {
        let n = if number == 20 { 0 } else { 2 };
        assert_eq!((made.full.len(), made.short.len()), (n, n), "{number}");
    }
    assert_eq!(tier.condition(), EncoderCondition::Ready);
    encoder.take_sent();
    assert_eq!(vectors(&tier, &tools(40)).await, made);
    assert_eq!(encoder.take_sent(), Vec::<String>::new());
}

#[tokio::test]
async fn a_text_too_long_for_the_encoder_is_shortened() {
    for (longest, is_taken) in [(400, true), (200, true), (140, false)] {
        let encoder = Arc::new(RefusingEncoder {
            longest,
            ..refusing_encoder(2)
        });
        let tier = tier(&encoder, None);
        let long = "\u{6f22}".repeat(200);
        let made = vectors(&tier, &[tool("tool", &long), tool("other_tool", "")]).await;
        assert_eq!(made[0].full.is_empty(), !is_taken, "{longest}");
        assert_eq!(made[1].full.len(), 2);
    }
}

#[tokio::test]
async fn an_encoder_refusing_all_tools_gets_few_requests() {
    let encoder = Arc::new(RefusingEncoder {
        refused: "zq",
        ..refusing_encoder(2)
    });
    let tier = tier(&encoder, None);
    let tools = tools(500);
    let error = tier.tools(&tools, &|_, _| {}).await.unwrap_err();
    assert!(matches!(error, EncoderError::Failed { .. }), "{error}");
    assert!(encoder.n_requests() < 60, "{}", encoder.n_requests());
}

#[tokio::test]
async fn only_stored_vectors_of_another_dimension_are_recomputed() {
    let store = Arc::new(MemoryStore::default());
    let tools = [tool("zq1", "Bakes bread"), tool("zq2", "Bakes cake")];
    let mut n_sent = Vec::new();
    for dimension in [2, 2, 3, 3] {
        let encoder = Arc::new(refusing_encoder(dimension));
        let tier = tier(&encoder, Some(&store));
        let made = vectors(&tier, &tools).await;
        assert!(made.iter().all(|made| made.full.len() == dimension));
        assert!(made.iter().all(|made| made.short.len() == dimension));
        let query = tier.query("cake", PATIENCE).await.unwrap();
        let centred = tier.subtract_mean(&query).unwrap();
        assert_eq!(centred.vector().len(), dimension);
        let old = Embedding::new("picky", vec![1.0; 5 - dimension]).unwrap();
        assert_eq!(tier.subtract_mean_when_ready(&old).await, None);
        n_sent.push(encoder.take_sent().len());
    }
    assert_eq!((n_sent[1], n_sent[3]), (0, 0));
    assert!(n_sent[0] > 0 && n_sent[2] == n_sent[0], "{n_sent:?}");
}

#[tokio::test]
async fn a_model_name_beyond_the_maximum_is_a_failure() {
    let encoder = Arc::new(RefusingEncoder {
        model: "m".repeat(Embedding::MAX_MODEL_CHARS + 1),
        ..refusing_encoder(2)
    });
    let tier = tier(&encoder, None);
    assert!(tier.query("cake", PATIENCE).await.is_none());
    assert_eq!(tier.condition(), EncoderCondition::Failing);
}

fn search(encoder: &Arc<RefusingEncoder>) -> ToolSearch {
    ToolSearch::new(SearchParts {
        encoders: vec![SearchEncoder {
            encoder: Arc::clone(encoder) as _,
            is_stored: false,
        }],
        stores: None,
        predictions: LivePredictions::default(),
        counter: Arc::new(WordCounter),
        clock: Arc::new(ManualClock::default()),
        rules: SearchRules::default(),
        escalation: crate::search::Escalation::default(),
        experiments: None,
    })
}

fn catalog() -> Arc<Catalog> {
    let definition = r#"{"name":"zq","inputSchema":{"type":"object"}}"#;
    let tool = CatalogTool {
        name: "tool".into(),
        tool: ToolRef {
            upstream: UpstreamName::parse("u").unwrap(),
            tool: ToolName::from("zq"),
        },
        definition: definition.to_owned().into(),
        is_hidden: false,
    };
    Arc::new(Catalog::new(vec![tool], Vec::new()))
}

#[tokio::test]
async fn a_catalog_is_embedded_once_for_concurrent_searches() {
    let encoder = Arc::new(refusing_encoder(2));
    encoder.is_down.store(true, Ordering::Relaxed);
    let search = search(&encoder);
    let catalog = catalog();
    for _ in 0..10 {
        search.index_catalog(&catalog);
    }
    search.wait_until_idle().await;
    assert_eq!(encoder.n_requests(), 1);
    search.index_catalog(&catalog);
    search.wait_until_idle().await;
    assert_eq!(encoder.n_requests(), 2, "the next one tries again");
}

#[tokio::test(start_paused = true)]
async fn an_encoder_refusing_the_tools_has_a_back_off() {
    let encoder = Arc::new(RefusingEncoder {
        refused: "zq",
        ..refusing_encoder(2)
    });
    let search = search(&encoder);
    let catalog = catalog();
    let session: SessionId = "01890000-0000-7000-8000-000000000001".parse().unwrap();
    let ask = |query: String| SearchRequest {
        session,
        session_key: SessionKey::Connection(session),
        principal: Principal::local(),
        client: "client".into(),
        query,
        vector: None,
        limit: None,
        catalog: Arc::clone(&catalog),
        shown: None,
        told: HashSet::new(),
        pinned: Vec::new(),
        client_model: None,
    };
    search.search(ask("first".into())).await;
    search.wait_until_idle().await;
    let n_first = encoder.n_requests();
    assert!(n_first > 0);
    for number in 0..20 {
        search.search(ask(format!("query {number}"))).await;
        search.wait_until_idle().await;
    }
    assert_eq!(encoder.n_requests(), n_first);
    tokio::time::advance(Duration::from_hours(1)).await;
    search.search(ask("last".into())).await;
    search.wait_until_idle().await;
    assert!(encoder.n_requests() > n_first);
}
