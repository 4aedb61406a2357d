pub(super) use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::atomic::AtomicBool;
pub(super) use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

pub(super) use async_trait::async_trait;
use futures_util::FutureExt;
use jiff::Timestamp;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{SessionId, ToolName, UpstreamName};
pub(super) use riglm_domain::retrieval::search::SearchQuality;
use riglm_domain::usage::invocation::SessionKey;
use riglm_ports::encoder::{EncoderError, TextRole};
use riglm_ports::fake::MemoryStore;
pub(super) use riglm_ports::fake::{ManualClock, WordCounter};

use super::*;
use crate::search::{CatalogTool, ServerText};

/// An encoder that knows two meanings and can be switched off.
#[derive(Debug, Default)]
pub(super) struct TwoMeanings {
    is_down: AtomicBool,
    n_queries: AtomicUsize,
}

#[async_trait]
impl Encoder for TwoMeanings {
    fn model(&self) -> &'static str {
        "two-meanings"
    }

    async fn encode(
        &self,
        texts: Vec<String>,
        role: TextRole,
    ) -> Result<Vec<Vec<f32>>, EncoderError> {
        if self.is_down.load(Ordering::Relaxed) {
            return Err(EncoderError::Unavailable {
                model: "two-meanings".into(),
                source: "down".into(),
            });
        }
        if role == TextRole::Query {
            self.n_queries.fetch_add(texts.len(), Ordering::Relaxed);
        }
        let vector = |text: &String| {
            let is_sky = ["weather", "rain", "umbrella"]
                .iter()
                .any(|word| text.contains(word));
            if is_sky {
                vec![0.0, 1.0]
            } else {
                vec![1.0, 0.0]
            }
        };
        Ok(texts.iter().map(vector).collect())
    }
}

fn catalog_tool(upstream: &str, tool: &str, description: &str) -> CatalogTool {
    let definition = serde_json::json!({
        "name": tool,
        "description": description,
        "inputSchema": {"type": "object", "properties": {"x": {"type": "string"}}},
    });
    CatalogTool {
        name: format!("{upstream}__{tool}"),
        tool: ToolRef {
            upstream: UpstreamName::parse(upstream).unwrap(),
            tool: ToolName::from(tool),
        },
        definition: definition.to_string().into(),
        is_hidden: false,
    }
}

pub(super) fn catalog() -> Arc<Catalog> {
    let tools = vec![
        catalog_tool("files", "read_file", "Reads a file"),
        catalog_tool("files", "write_file", "Writes a file"),
        catalog_tool("sky", "forecast", "Says what the weather will be like"),
        catalog_tool("mail", "send_mail", "Sends a letter"),
        catalog_tool("mail", "list_mail", "Lists letters"),
    ];
    let server = |name: &str| {
        let text = ServerText {
            name: name.into(),
            ..ServerText::default()
        };
        (UpstreamName::parse(name).unwrap(), text)
    };
    Arc::new(Catalog::new(
        tools,
        ["files", "sky", "mail"].map(server).into(),
    ))
}

fn search(encoder: Option<&Arc<TwoMeanings>>) -> ToolSearch {
    search_with(encoder, None, Arc::new(ManualClock::default()))
}

fn search_with(
    encoder: Option<&Arc<TwoMeanings>>,
    stores: Option<SearchStores>,
    clock: Arc<ManualClock>,
) -> ToolSearch {
    let encoders = encoder.map(|encoder| SearchEncoder {
        encoder: Arc::clone(encoder) as _,
        is_stored: false,
    });
    ToolSearch::new(SearchParts {
        encoders: encoders.into_iter().collect(),
        stores,
        predictions: LivePredictions::default(),
        counter: Arc::new(WordCounter),
        clock,
        rules: SearchRules::default(),
        escalation: Escalation::default(),
        experiments: None,
    })
}

pub(super) fn session(n: u8) -> SessionId {
    format!("01890000-0000-7000-8000-0000000000{n:02}")
        .parse()
        .unwrap()
}

pub(super) fn call(query: &str, catalog: &Arc<Catalog>) -> SearchRequest {
    SearchRequest {
        session: session(1),
        session_key: SessionKey::Connection(session(1)),
        principal: Principal::local(),
        client: "client".into(),
        query: query.into(),
        vector: None,
        limit: None,
        catalog: Arc::clone(catalog),
        shown: None,
        told: HashSet::new(),
        pinned: Vec::new(),
        client_model: None,
    }
}

pub(super) fn names(reply: &SearchReply) -> Vec<&str> {
    let tools = reply.results.iter();
    tools.map(|result| result.tool.tool.as_str()).collect()
}

#[tokio::test]
async fn words_alone_find_a_tool() {
    let search = search(None);
    let reply = search.search(call("read the file", &catalog())).await;
    assert_eq!(names(&reply)[0], "read_file");
    assert!(
        reply
            .text
            .contains("files__read_file(x?: string) - Reads a file")
    );
    assert!(reply.query_vector.is_none() && !reply.was_cached);
}

#[tokio::test]
async fn embedded_tools_are_found_by_their_meaning() {
    let encoder = Arc::new(TwoMeanings::default());
    let search = search(Some(&encoder));
    let catalog = catalog();
    search.index_catalog(&catalog);
    search.wait_until_idle().await;
    let reply = search.search(call("do I need an umbrella", &catalog)).await;
    assert_eq!(names(&reply)[0], "forecast");
    assert_eq!(reply.query_vector.unwrap().model(), "two-meanings");
}

#[tokio::test]
async fn a_vector_of_the_client_replaces_that_of_the_encoder() {
    let encoder = Arc::new(TwoMeanings::default());
    let search = search(Some(&encoder));
    let catalog = catalog();
    search.index_catalog(&catalog);
    search.wait_until_idle().await;
    let n_before = encoder.n_queries.load(Ordering::Relaxed);
    let ask = |model: &str, vector: &[f32]| SearchRequest {
        vector: Some(Arc::new(Embedding::new(model, vector.to_vec()).unwrap())),
        ..call("what now", &catalog)
    };
    let sky = search.search(ask("two-meanings", &[0.0, 1.0])).await;
    assert_eq!(names(&sky)[0], "forecast");
    assert_eq!(sky.query_vector.unwrap().vector(), [0.0, 1.0]);
    // The answer is cached for this vector only.
    let other = search.search(ask("two-meanings", &[1.0, 0.0])).await;
    assert!(
        !other.was_cached && names(&other)[0] != "forecast",
        "{other:?}"
    );
    let again = search.search(ask("two-meanings", &[0.0, 1.0])).await;
    assert!(again.was_cached);
    assert_eq!(encoder.n_queries.load(Ordering::Relaxed), n_before);

    let unknown = search.search(ask("other", &[0.0, 1.0])).await;
    let reason = "the vector of the request was not used: no encoder has the model \"other\", \
                  only two-meanings";
    assert!(unknown.text.contains(reason), "{}", unknown.text);
    let longer = search.search(ask("two-meanings", &[0.0, 1.0, 0.0])).await;
    let reason = "vectors of two-meanings do not have 3 components";
    assert!(longer.text.contains(reason), "{}", longer.text);
    // The encoder computed the vector of the same text for both.
    assert_eq!(encoder.n_queries.load(Ordering::Relaxed), n_before + 1);
}

#[tokio::test]
async fn words_find_a_tool_during_an_encoder_outage() {
    let encoder = Arc::new(TwoMeanings::default());
    let search = search(Some(&encoder));
    let catalog = catalog();
    search.index_catalog(&catalog);
    search.wait_until_idle().await;
    encoder.is_down.store(true, Ordering::Relaxed);
    let reply = search.search(call("send a letter", &catalog)).await;
    assert_eq!(names(&reply)[0], "send_mail");
    assert!(reply.query_vector.is_none());
}

#[tokio::test]
async fn repeated_queries_of_a_session_are_answered_from_cache() {
    let encoder = Arc::new(TwoMeanings::default());
    let search = search(Some(&encoder));
    let catalog = catalog();
    search.index_catalog(&catalog);
    search.wait_until_idle().await;
    let n_before = encoder.n_queries.load(Ordering::Relaxed);
    let first = search.search(call("send a letter", &catalog)).await;
    let second = search.search(call("  Send a  letter", &catalog)).await;
    assert!(second.was_cached && second.text == first.text);
    // The same work session over another connection repeats the query.
    let mut other = call("send a letter", &catalog);
    other.session = session(2);
    assert!(search.search(other.clone()).await.was_cached);
    other.session_key = SessionKey::Connection(session(2));
    assert!(!search.search(other.clone()).await.was_cached);
    other.principal = Principal::from_name("somebody else");
    assert!(!search.search(other).await.was_cached);
    assert_eq!(encoder.n_queries.load(Ordering::Relaxed) - n_before, 1);
}

/// Returns a call of a tool whose text is similar to no query of these tests.
fn found_call(catalog: &Catalog, began_at: Timestamp) -> FinishedCall {
    FinishedCall {
        session: session(1),
        principal: Principal::local(),
        tool: catalog.tools()[4].tool.clone(),
        is_ok: true,
        began_at,
    }
}

#[tokio::test]
async fn a_call_is_attributed_to_the_search_before_its_start() {
    let encoder = Arc::new(TwoMeanings::default());
    let clock = Arc::new(ManualClock::default());
    let search = search_with(Some(&encoder), None, Arc::clone(&clock));
    let catalog = catalog();
    search.index_catalog(&catalog);
    search.wait_until_idle().await;
    search.search(call("will there be rain", &catalog)).await;
    clock.advance(Duration::from_secs(1));
    let began_at = clock.now();
    clock.advance(Duration::from_secs(1));
    search.search(call("open the file", &catalog)).await;
    search.record_call(&found_call(&catalog, began_at));
    let mut rain = call("take an umbrella", &catalog);
    rain.session = session(2);
    let found = search.search(rain).await;
    assert!(names(&found)[..2].contains(&"list_mail"), "{found:?}");
    let mut file = call("read the document", &catalog);
    file.session = session(3);
    let found = search.search(file).await;
    assert!(!names(&found)[..1].contains(&"list_mail"), "{found:?}");
}

#[tokio::test]
async fn later_calls_are_attributed_to_a_repeated_cached_search() {
    let encoder = Arc::new(TwoMeanings::default());
    let clock = Arc::new(ManualClock::default());
    let search = search_with(Some(&encoder), None, Arc::clone(&clock));
    let catalog = catalog();
    search.index_catalog(&catalog);
    search.wait_until_idle().await;
    search.search(call("will there be rain", &catalog)).await;
    clock.advance(Duration::from_mins(9));
    let again = search.search(call("will there be rain", &catalog)).await;
    assert!(again.was_cached);
    clock.advance(Duration::from_mins(9));
    search.record_call(&found_call(&catalog, clock.now()));
    let memories = &search.core().memories;
    let history = memories.history_of(&Principal::local());
    let n_memories = history.map_or(0, |history| history.n_memories());
    assert_eq!(n_memories, 1);
}

#[tokio::test]
async fn memories_deleted_from_the_store_are_forgotten() {
    let encoder = Arc::new(TwoMeanings::default());
    let clock = Arc::new(ManualClock::default());
    let store = Arc::new(MemoryStore::default());
    let stores = SearchStores {
        embeddings: Arc::clone(&store) as _,
        usage: Arc::clone(&store) as _,
        contexts: Arc::clone(&store) as _,
        invocations: store,
    };
    let search = search_with(Some(&encoder), Some(stores), Arc::clone(&clock));
    let catalog = catalog();
    search.index_catalog(&catalog);
    search.wait_until_idle().await;
    let n_memories = || {
        let memories = &search.core().memories;
        let history = memories.history_of(&Principal::local());
        history.map_or(0, |history| history.n_memories())
    };
    search.search(call("will there be rain", &catalog)).await;
    search.wait_until_idle().await;
    search.record_call(&found_call(&catalog, clock.now()));
    assert_eq!(n_memories(), 1);
    clock.advance(Duration::from_mins(9));
    search.search(call("open the file", &catalog)).await;
    search.wait_until_idle().await;
    assert_eq!(n_memories(), 1);
    clock.advance(Duration::from_mins(2));
    search.search(call("open a file", &catalog)).await;
    search.wait_until_idle().await;
    assert_eq!(n_memories(), 0);
}

#[tokio::test]
async fn an_answer_without_vectors_is_not_cached() {
    let encoder = Arc::new(TwoMeanings::default());
    let search = search(Some(&encoder));
    let catalog = catalog();
    let asked = || search.search(call("do I need an umbrella", &catalog));
    // The tools have no vectors yet.
    assert!(asked().await.results.is_empty());
    search.wait_until_idle().await;
    encoder.is_down.store(true, Ordering::Relaxed);
    assert!(asked().await.results.is_empty());
    encoder.is_down.store(false, Ordering::Relaxed);
    let found = asked().await;
    assert_eq!(names(&found)[0], "forecast");
    assert!(!found.was_cached && asked().await.was_cached);
}

#[tokio::test]
async fn a_call_after_a_search_improves_the_next_search() {
    let encoder = Arc::new(TwoMeanings::default());
    let search = search(Some(&encoder));
    let catalog = catalog();
    search.index_catalog(&catalog);
    search.wait_until_idle().await;
    search.search(call("will there be rain", &catalog)).await;
    search.record_call(&found_call(&catalog, ManualClock::default().now()));
    let mut later = call("take an umbrella", &catalog);
    later.session = session(2);
    let learned = search.search(later.clone()).await;
    let place = |reply: &SearchReply| names(reply).iter().position(|name| *name == "list_mail");
    assert!(place(&learned) <= Some(1), "{:?}", names(&learned));
    later.principal = Principal::from_name("somebody else");
    later.session = session(3);
    let other = search.search(later).await;
    assert!(place(&other) > Some(1), "{:?}", names(&other));
}

#[tokio::test]
async fn unmatched_queries_find_nothing_and_unknown_names_the_nearest() {
    let search = search(None);
    let nothing = search
        .search(call("quantum chromodynamics", &catalog()))
        .await;
    assert_eq!(nothing.quality, SearchQuality::Low);
    assert!(nothing.results.is_empty());
    assert!(
        nothing.text.contains("No matching tool found"),
        "{}",
        nothing.text
    );
    let near = search.search(call("raedfile", &catalog())).await;
    assert_eq!(names(&near)[0], "read_file");
    assert!(near.text.contains("nearest names"), "{}", near.text);
    for query in ["", "the of and", "🦀"] {
        let reply = search.search(call(query, &catalog())).await;
        assert_eq!(reply.quality, SearchQuality::Low, "{query:?}");
    }
    let empty = Arc::new(Catalog::new(Vec::new(), Vec::new()));
    let reply = search.search(call("read", &empty)).await;
    assert!(reply.text.contains("There are no tools"));
}

#[tokio::test]
async fn duplicate_tools_are_one_match_with_all_names() {
    let search = search(None);
    let mut tools = catalog().tools().to_vec();
    tools.push(catalog_tool("other", "read_file", "Reads a file"));
    let catalog = Arc::new(Catalog::new(tools, Vec::new()));
    let reply = search.search(call("read a file", &catalog)).await;
    assert_eq!(
        names(&reply)[..2],
        ["read_file", "read_file"],
        "both were found"
    );
    let structured: serde_json::Value = serde_json::from_str(&reply.structured).unwrap();
    assert_ne!(structured["matches"][1]["name"], "other__read_file");
    assert!(
        reply.text.contains("same as: other__read_file"),
        "{}",
        reply.text
    );
}

#[tokio::test]
async fn duplicate_tools_of_many_servers_share_one_place() {
    let search = search(None);
    let names = ["read_file", "write_file", "move_file"];
    let tools = (0..12).flat_map(|server| {
        names.map(|name| catalog_tool(&format!("w{server}"), name, &format!("Does {name} well")))
    });
    let catalog = Arc::new(Catalog::new(tools.collect(), Vec::new()));
    let reply = search.search(call("read a file", &catalog)).await;
    let structured: serde_json::Value = serde_json::from_str(&reply.structured).unwrap();
    let matches = structured["matches"].as_array().unwrap();
    assert_eq!(matches.len(), 3, "{}", reply.text);
    assert_eq!(matches[0]["name"], "w0__read_file");
    let others: Vec<String> = (1..12).map(|n| format!("w{n}__read_file")).collect();
    assert_eq!(matches[0]["same_as"], serde_json::json!(others));
    let line = format!("   same as: {}\n", others.join(", "));
    assert!(reply.text.contains(&line), "{}", reply.text);
    assert_eq!(reply.results.len(), 36);
    let mut one = call("read a file", &catalog);
    one.limit = Some(1);
    assert_eq!(search.search(one).await.results.len(), 12);
}

/// Returns the names in the answer to a query over tools with these names and descriptions.
async fn answer_over(tools: &[(&str, &str)], query: &str) -> (Vec<String>, SearchReply) {
    let tools = tools
        .iter()
        .map(|(name, about)| catalog_tool("u", name, about));
    let catalog = Arc::new(Catalog::new(tools.collect(), Vec::new()));
    let reply = search(None).search(call(query, &catalog)).await;
    let names = names(&reply).into_iter().map(str::to_owned).collect();
    (names, reply)
}

#[tokio::test]
async fn a_single_word_is_searched_before_similar_names() {
    let tools = [
        ("comment", "Adds a remark to an issue"),
        ("git_save", "Commit the staged changes to the repository"),
        ("transfer", "Moves money to another account"),
        ("lang_convert", "Translate text into another language"),
        ("play_song", "Plays a song"),
    ];
    for (query, expected) in [("commit", "git_save"), ("Translate", "lang_convert")] {
        let (names, reply) = answer_over(&tools, query).await;
        assert_eq!(names[0], expected, "{query}");
        assert!(!reply.text.contains("No tool has"), "{}", reply.text);
    }
    let (names, _) = answer_over(&tools, "commit").await;
    assert_eq!(names[1], "comment", "what is near is named too");
    let (names, reply) = answer_over(&tools, "lang-translate").await;
    assert_eq!(names[0], "lang_convert", "{}", reply.text);
    let (names, _) = answer_over(&tools, "play_songs").await;
    assert_eq!(names[0], "play_song");
}

#[tokio::test]
async fn a_tool_with_the_exact_name_comes_first() {
    let tools = [
        ("list", "Enumerates entries"),
        (
            "list_lists",
            "list list list: a list of lists, list everything",
        ),
        ("the", "Does something"),
        ("查询", "Something else"),
    ];
    for (query, expected) in [
        ("list", "list"),
        ("LIST", "list"),
        ("u__list", "list"),
        ("the", "the"),
        ("查询", "查询"),
    ] {
        let (names, reply) = answer_over(&tools, query).await;
        assert_eq!(names[0], expected, "{query}");
        assert_ne!(reply.quality, SearchQuality::Low, "{query}");
        let structured: serde_json::Value = serde_json::from_str(&reply.structured).unwrap();
        assert_eq!(structured["notes"], serde_json::json!([]), "{query}");
    }
}

#[tokio::test]
async fn a_question_without_spaces_is_no_name() {
    let tools = [("查询天气", "x"), ("天气查询表", "预报")];
    let (_, reply) = answer_over(&tools, "查询明天的天气预报").await;
    assert!(!reply.text.contains("by name"), "{}", reply.text);
}

#[tokio::test]
async fn an_answer_has_a_note_about_a_truncated_catalog() {
    let search = search(None);
    let whole = catalog();
    let part = Arc::new(Catalog::clone(&whole).mark_truncated());
    assert_ne!(part.id(), whole.id());
    let note = "Only the first 5 tools are searched; there are more.";
    for query in ["read a file", "quantum chromodynamics"] {
        let all = search.search(call(query, &whole)).await;
        assert!(!all.text.contains(note) && !all.structured.contains(note));
        let some = search.search(call(query, &part)).await;
        assert!(some.text.contains(note) && some.structured.contains(note));
    }
    let nothing = search.search(call("quantum chromodynamics", &part)).await;
    let said = "No matching tool found among more than 5.";
    assert!(nothing.text.contains(said), "{}", nothing.text);
}

/// A counter that blocks until another task has run, or until a timeout.
#[derive(Debug)]
struct BlockingCounter(Mutex<Receiver<()>>);

impl TokenCounter for BlockingCounter {
    fn count(&self, _: &str) -> u64 {
        let other = self.0.lock();
        // The sender is dropped when the other task has finished.
        match other.recv_timeout(Duration::from_secs(20)) {
            Ok(()) | Err(RecvTimeoutError::Disconnected) => 1,
            Err(RecvTimeoutError::Timeout) => panic!("no other task could run"),
        }
    }
}

#[tokio::test]
async fn a_slow_answer_does_not_block_the_runtime() {
    let (other, has_run) = channel();
    let counter = Arc::new(BlockingCounter(Mutex::new(has_run)));
    let clock = Arc::new(ManualClock::default());
    let search = ToolSearch::new(SearchParts::words_only(counter, clock));
    let catalog = catalog();
    search.index_catalog(&catalog);
    search.wait_until_idle().await;
    let searching = search.search(call("read a file", &catalog));
    let running = async move {
        tokio::task::yield_now().await;
        drop(other);
    };
    let (reply, ()) = tokio::join!(searching, running);
    assert_eq!(names(&reply)[0], "read_file");
}

#[tokio::test]
async fn a_query_of_a_megabyte_is_answered() {
    let search = search(None);
    let long = format!("read the file {}", "x ".repeat(500_000));
    let reply = search.search(call(&long, &catalog())).await;
    assert_eq!(names(&reply)[0], "read_file");
}

#[tokio::test]
async fn fits_of_a_text_use_words_and_meaning() {
    let encoder = Arc::new(TwoMeanings::default());
    let search = search(Some(&encoder));
    let catalog = catalog();
    let fit = async |text: &str| {
        search
            .fits(&catalog, text, &Principal::local(), session(1))
            .await
    };
    let by_words = fit("read a file").await;
    assert_eq!(by_words.fits.first().map(|(at, _)| *at), Some(0));
    assert_eq!(by_words.vector, None, "nothing was embedded so far");
    search.wait_until_idle().await;
    let by_meaning = fit("will there be rain").await;
    assert_eq!(by_meaning.fits.first().map(|(at, _)| *at), Some(2));
    assert!(by_meaning.vector.is_some());
    assert!(
        by_meaning
            .fits
            .is_sorted_by(|(_, one), (_, other)| one >= other)
    );
    assert_eq!(by_meaning.intent("rain").fits, by_meaning.fits);
    assert_eq!(fit(" ").await, TextFit::default());
}

#[tokio::test]
async fn fits_of_a_text_are_not_cached_as_a_search() {
    let search = search(None);
    let catalog = catalog();
    let local = Principal::local();
    search
        .fits(&catalog, "send a letter", &local, session(1))
        .await;
    let reply = search.search(call("send a letter", &catalog)).await;
    assert!(!reply.was_cached);
}

#[tokio::test]
async fn units_of_an_arm_search_with_its_fusion() {
    use riglm_domain::experiment::{ArmPlan, AssignmentUnit, ExperimentMetric, ExperimentPlan};
    use riglm_domain::privacy::canonical::KeyedHasher;
    use riglm_domain::retrieval::RankFusion;

    use crate::experiments::ExperimentStores;

    let store = Arc::new(MemoryStore::default());
    let stores = ExperimentStores {
        experiments: store.clone(),
        changes: store,
    };
    let arm = |name: &str, fusion| ArmPlan {
        name: name.into(),
        share: 0.5,
        weights: None,
        fusion,
        policy: None,
        predictors: None,
    };
    let plan = ExperimentPlan {
        name: "e".into(),
        is_running: true,
        unit: AssignmentUnit::Principal,
        metric: ExperimentMetric::ClickThrough,
        alpha: 0.05,
        window: Duration::from_hours(1),
        control: "control".into(),
        arms: vec![
            arm("control", None),
            arm(
                "rrf",
                Some(FusionRule::ReciprocalRank(RankFusion::default())),
            ),
        ],
    };
    let clock = Arc::new(ManualClock::default());
    let hasher = KeyedHasher::new(&[1; 32]);
    let experiments = Arc::new(Experiments::new(&[plan], hasher, stores, clock));
    let in_experiments = |experiments| {
        let clock = Arc::new(ManualClock::default());
        ToolSearch::new(SearchParts {
            experiments,
            ..SearchParts::words_only(Arc::new(WordCounter), clock)
        })
    };
    let untried = in_experiments(None);
    let in_arms = in_experiments(Some(Arc::clone(&experiments)));
    let marks = |reply: &SearchReply| -> Vec<u64> {
        let scored = reply.results.iter();
        scored.map(|result| result.score.to_bits()).collect()
    };
    let mut n_other = 0;
    for n in 0..20 {
        let principal = Principal::from_name(&format!("p{n}"));
        let asked = || SearchRequest {
            principal: principal.clone(),
            session: session(n),
            ..call("read the file", &catalog())
        };
        let (usual, found) = (untried.search(asked()).await, in_arms.search(asked()).await);
        let who = Participant::of(&principal, SessionKey::Connection(session(n)));
        let arm = experiments.arm(who, Treatment::Fusion).unwrap();
        let is_other = arm.name().arm == "rrf";
        assert_eq!(marks(&usual) != marks(&found), is_other, "{n}");
        n_other += usize::from(is_other);
    }
    assert!((1..20).contains(&n_other));
}

#[tokio::test]
async fn a_principal_at_its_limit_does_not_delay_others() {
    let search = search(None);
    search.limit_per_principal(|n| n / 2);
    let [one, other] = ["one", "other"].map(Principal::from_name);
    let of = |principal: &Principal| SearchRequest {
        principal: principal.clone(),
        ..call("read the file", &catalog())
    };
    let mut held = Vec::new();
    while let Some(turn) = search.acquire_turn(&one).now_or_never() {
        held.push(turn);
    }
    let own = search.search(of(&one));
    tokio::pin!(own);
    let soon = Duration::from_millis(50);
    assert!(tokio::time::timeout(soon, &mut own).await.is_err());
    let reply = search.search(of(&other)).await;
    assert!(!reply.text.is_empty());
    assert!(tokio::time::timeout(soon, &mut own).await.is_err());
    held.pop();
    assert!(!own.await.text.is_empty());
}
