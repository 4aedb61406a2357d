//! Tests of the tiers of a search beyond its ranking.

use std::collections::VecDeque;

use riglm_domain::prediction::NamePattern;
use riglm_domain::retrieval::ExpansionRules;
use riglm_domain::usage::invocation::SessionKey;
use riglm_ports::fake::{RerankScript, ScriptedReranker};
use riglm_ports::model_call::{ModelCallError, ModelUsage};
use riglm_ports::observer::{Event, ModelKind, ModelOutcome, ModelRequestEvent, Observer};
use riglm_ports::query_expander::{QueryExpander, QueryVariants};

use super::tests::*;
use super::*;
use crate::search::{GuardedModel, Note, NotesConfig};

/// An observer that records events.
#[derive(Debug, Default)]
struct Log {
    asked: Mutex<Vec<ModelRequestEvent>>,
    expanded: Mutex<Vec<(usize, bool)>>,
    n_curated: AtomicUsize,
}

impl Observer for Log {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::ModelAsked(asked) => self.asked.lock().push(*asked),
            Event::SearchExpanded {
                n_variants,
                has_helped,
            } => {
                let mut expanded = self.expanded.lock();
                expanded.push((*n_variants, *has_helped));
            }
            Event::SearchCurated => {
                self.n_curated.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

impl Log {
    fn outcomes(&self) -> Vec<ModelOutcome> {
        let asked = self.asked.lock();
        asked.iter().map(|asked| asked.outcome).collect()
    }
}

struct Scene {
    search: ToolSearch,
    log: Arc<Log>,
    clock: Arc<ManualClock>,
}

fn scene_with(encoder: Option<&Arc<TwoMeanings>>, escalation: Escalation) -> Scene {
    let log = Arc::new(Log::default());
    let clock = Arc::new(ManualClock::default());
    let encoders = encoder.map(|encoder| SearchEncoder {
        encoder: Arc::clone(encoder) as _,
        is_stored: false,
    });
    let parts = SearchParts {
        encoders: encoders.into_iter().collect(),
        escalation: Escalation {
            observer: log.clone(),
            ..escalation
        },
        ..SearchParts::words_only(Arc::new(WordCounter), clock.clone())
    };
    Scene {
        search: ToolSearch::new(parts),
        log,
        clock,
    }
}

fn scene(escalation: Escalation) -> Scene {
    scene_with(None, escalation)
}

fn reranking(
    script: impl IntoIterator<Item = RerankScript>,
) -> (Arc<ScriptedReranker>, Escalation) {
    let reranker = Arc::new(ScriptedReranker::new(script));
    let escalation = Escalation {
        reranking: Reranking::Endpoint {
            reranker: GuardedModel::new(reranker.clone(), ModelLimits::default()),
            max_tools: 30,
        },
        ..Escalation::default()
    };
    (reranker, escalation)
}

fn note(tools: &[&str], text: &str) -> Note {
    Note {
        tools: tools
            .iter()
            .map(|pattern| NamePattern::new(pattern))
            .collect(),
        text: text.into(),
    }
}

fn escalation_with_notes(notes: Vec<Note>) -> Escalation {
    Escalation {
        notes: NotesConfig {
            entries: notes,
            ..NotesConfig::default()
        },
        ..Escalation::default()
    }
}

/// A query with medium quality: some of its words are words of a tool.
const MEDIUM: &str = "send the letter by courier tonight";

#[tokio::test]
async fn a_model_reranks_the_found_tools() {
    let plain = scene(Escalation::default())
        .search
        .search(call(MEDIUM, &catalog()))
        .await;
    assert_ne!(plain.quality, SearchQuality::High);
    let (model, escalation) = reranking([RerankScript::Order(vec![1])]);
    let scene = scene(escalation);
    let reply = scene.search.search(call(MEDIUM, &catalog())).await;
    let (before, after) = (names(&plain), names(&reply));
    assert_eq!(after[0], before[1]);
    assert_eq!(after[1], before[0]);
    assert_eq!(after[2..], before[2..]);
    assert_eq!(reply.quality, plain.quality);
    let scores: Vec<f64> = reply.results.iter().map(|result| result.score).collect();
    assert!(scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
    let (query, told) = model.asked().remove(0);
    assert_eq!(query, MEDIUM);
    assert_eq!(told[0], format!("mail__{}", before[0]));
    let asked = scene.log.asked.lock()[0];
    assert_eq!(asked.outcome, ModelOutcome::Used);
    assert_eq!(
        (asked.kind, asked.usage),
        (ModelKind::Endpoint, ScriptedReranker::USAGE)
    );
    // The answer is cached and needs no further request.
    assert!(
        scene
            .search
            .search(call(MEDIUM, &catalog()))
            .await
            .was_cached
    );
    assert_eq!(model.asked().len(), 1);
}

#[tokio::test]
async fn good_answers_and_named_tools_need_no_model() {
    let (model, escalation) = reranking([]);
    let scene = scene(escalation);
    for (query, quality) in [
        ("reads a file", Some(SearchQuality::High)),
        ("read_file", None),
        ("Forecast", None),
        ("read-fil", None),
        ("", None),
    ] {
        let reply = scene.search.search(call(query, &catalog())).await;
        assert!(
            quality.is_none_or(|quality| reply.quality == quality),
            "{query}: {reply:?}"
        );
    }
    assert!(model.asked().is_empty(), "{:?}", model.asked());
}

#[tokio::test(start_paused = true)]
async fn a_failing_model_keeps_the_order_and_prevents_caching() {
    let plain = scene(Escalation::default())
        .search
        .search(call(MEDIUM, &catalog()))
        .await;
    for (script, outcome) in [
        (RerankScript::Down, ModelOutcome::Unavailable),
        (RerankScript::Refuse, ModelOutcome::Refused),
        (RerankScript::Nonsense, ModelOutcome::Nonsense),
        (RerankScript::Hang, ModelOutcome::Late),
    ] {
        let is_nonsense = script == RerankScript::Nonsense;
        let (model, escalation) = reranking([script]);
        let scene = scene(escalation);
        let start = tokio::time::Instant::now();
        let reply = scene.search.search(call(MEDIUM, &catalog())).await;
        assert!(start.elapsed() <= Duration::from_millis(2_100));
        assert_eq!(reply.structured, plain.structured);
        assert_eq!(scene.log.outcomes(), [outcome]);
        let usage = scene.log.asked.lock()[0].usage;
        let expected = if is_nonsense {
            ScriptedReranker::USAGE
        } else {
            ModelUsage::default()
        };
        assert_eq!(usage, expected);
        let again = scene.search.search(call(MEDIUM, &catalog())).await;
        assert!(!again.was_cached);
        // A failure starts the back-off, but a single unusable answer does not.
        assert_eq!(model.asked().len(), if is_nonsense { 2 } else { 1 });
    }
}

#[tokio::test]
async fn without_matches_only_tools_chosen_by_the_model_remain() {
    let query = "zzz qqq";
    let plain = scene(Escalation::default())
        .search
        .search(call(query, &catalog()))
        .await;
    assert!(plain.results.is_empty(), "{plain:?}");
    let (_, escalation) = reranking([RerankScript::Order(vec![2])]);
    let reply = scene(escalation)
        .search
        .search(call(query, &catalog()))
        .await;
    assert_eq!(
        (names(&reply).len(), reply.quality),
        (1, SearchQuality::Low)
    );
    assert!(
        reply.text.contains("No tool is a certain match"),
        "{}",
        reply.text
    );
    let (_, escalation) = reranking([RerankScript::Order(vec![])]);
    let scene = scene(escalation);
    let reply = scene.search.search(call(query, &catalog())).await;
    assert!(reply.results.is_empty());
    assert_eq!(scene.log.outcomes(), [ModelOutcome::Unchanged]);
}

#[tokio::test]
async fn the_model_of_the_client_is_used_if_offered() {
    let escalation = Escalation {
        reranking: Reranking::Client {
            limits: ModelLimits::default(),
            max_tools: 2,
        },
        ..Escalation::default()
    };
    let scene = scene(escalation);
    assert_eq!(scene.search.client_limits(), Some(ModelLimits::default()));
    let without = scene.search.search(call(MEDIUM, &catalog())).await;
    assert!(scene.log.outcomes().is_empty());
    let model = Arc::new(ScriptedReranker::new([]));
    let mut with = call(MEDIUM, &catalog());
    with.session = session(2);
    with.session_key = SessionKey::Connection(session(2));
    with.client_model = Some(GuardedModel::new(model.clone(), ModelLimits::default()));
    let reply = scene.search.search(with).await;
    assert_eq!(names(&reply)[0], names(&without)[1]);
    assert_eq!(model.asked()[0].1.len(), 2);
    assert_eq!(scene.log.asked.lock()[0].kind, ModelKind::Client);
}

#[tokio::test]
async fn a_matching_note_answers_the_search_with_its_tools() {
    let text = "Vacation and sick leave are requested here";
    let escalation = Escalation {
        reranking: reranking([]).1.reranking,
        ..escalation_with_notes(vec![
            note(&["forecast", "sky__*"], text),
            note(&["nowhere*"], "vacation and sick leave, too"),
        ])
    };
    let scene = scene(escalation);
    let reply = scene
        .search
        .search(call("request vacation or sick leave", &catalog()))
        .await;
    assert_eq!(
        (names(&reply)[0], reply.quality),
        ("forecast", SearchQuality::High)
    );
    let said = format!("Note of the operator: {text}");
    assert!(reply.text.starts_with(&said), "{}", reply.text);
    assert_eq!(scene.log.n_curated.load(Ordering::Relaxed), 1);
    assert!(scene.log.outcomes().is_empty());
    // A query that does not match the note is answered as usual.
    let other = scene.search.search(call("reads a file", &catalog())).await;
    assert_eq!(names(&other)[0], "read_file");
    assert!(!other.text.contains("Note of the operator"));
}

#[tokio::test]
async fn a_note_is_also_found_by_its_meaning() {
    let encoder = Arc::new(TwoMeanings::default());
    let notes = vec![note(&["list_mail"], "umbrella umbrella umbrella")];
    let with = scene_with(Some(&encoder), escalation_with_notes(notes));
    let catalog = catalog();
    with.search.index_catalog(&catalog);
    with.search.wait_until_idle().await;
    let reply = with
        .search
        .search(call("will there be rain", &catalog))
        .await;
    let place = |reply: &SearchReply| names(reply).iter().position(|name| *name == "list_mail");
    let without = scene_with(Some(&encoder), Escalation::default());
    without.search.index_catalog(&catalog);
    without.search.wait_until_idle().await;
    let plain = without
        .search
        .search(call("will there be rain", &catalog))
        .await;
    assert!(
        place(&reply).unwrap() < place(&plain).unwrap_or(9),
        "{reply:?} {plain:?}"
    );
}

#[tokio::test]
async fn a_pinned_tool_comes_first_if_it_fits() {
    let scene = scene(Escalation::default());
    let ask = |query: &str, pinned: Vec<usize>| SearchRequest {
        pinned,
        ..call(query, &catalog())
    };
    // Both tools have one of the two words.
    let query = "letters";
    let plain = scene.search.search(ask(query, Vec::new())).await;
    let second = names(&plain)[1];
    let catalog = catalog();
    let at = catalog
        .tools()
        .iter()
        .position(|tool| tool.tool.tool.as_str() == second);
    let pinned = scene.search.search(ask(query, vec![at.unwrap()])).await;
    assert_eq!(names(&pinned)[0], second, "{pinned:?}");
    // A pinned tool that does not fit keeps its place.
    let other = scene.search.search(ask(query, vec![0])).await;
    assert_eq!(names(&other), names(&plain));
    let off = Escalation {
        notes: NotesConfig {
            pins: false,
            ..NotesConfig::default()
        },
        ..Escalation::default()
    };
    let off = self::scene(off)
        .search
        .search(ask(query, vec![at.unwrap()]))
        .await;
    assert_eq!(names(&off), names(&plain));
}

fn expanding() -> Escalation {
    Escalation {
        expansion: Some(ExpansionRules::default()),
        ..Escalation::default()
    }
}

#[tokio::test]
async fn weak_answers_try_other_wordings_and_keep_improvements() {
    let query = "obtain zebra doc yonder quickly tomorrow";
    let plain = scene(Escalation::default())
        .search
        .search(call(query, &catalog()))
        .await;
    assert_eq!(plain.quality, SearchQuality::Low);
    let scene = scene(expanding());
    let reply = scene.search.search(call(query, &catalog())).await;
    let tried = scene.log.expanded.lock().clone();
    assert_eq!(tried.len(), 1);
    let (n_variants, has_helped) = tried[0];
    assert!((1..=3).contains(&n_variants));
    assert_eq!(reply.quality < SearchQuality::Low, has_helped);
    assert_eq!(
        reply.text.contains("also searched for: \"read"),
        has_helped,
        "{}",
        reply.text
    );
    // A good result is not expanded.
    scene.search.search(call("reads a file", &catalog())).await;
    assert_eq!(scene.log.expanded.lock().len(), 1);
}

/// An expander that returns scripted answers.
#[derive(Debug, Default)]
struct Wordings(Mutex<VecDeque<Result<Vec<String>, ModelCallError>>>);

#[async_trait]
impl QueryExpander for Wordings {
    async fn expand(&self, _query: &str, n: usize) -> Result<QueryVariants, ModelCallError> {
        let texts = self.0.lock().pop_front().unwrap()?;
        Ok(QueryVariants {
            texts: texts.into_iter().take(n).collect(),
            usage: ScriptedReranker::USAGE,
        })
    }
}

#[tokio::test]
async fn a_model_suggests_other_wordings_and_may_fail() {
    let plan = VecDeque::from([
        Err(ModelCallError::Unavailable("down".into())),
        Ok(vec!["reads a file".to_owned()]),
    ]);
    let escalation = || {
        let wordings = Arc::new(Wordings::default());
        let expander: Arc<dyn QueryExpander> = wordings.clone();
        let expander = GuardedModel::new(expander, ModelLimits::default());
        let escalation = Escalation {
            expander: Some(expander),
            ..expanding()
        };
        (wordings, escalation)
    };
    let query = "zzz qqq";
    let mut replies = Vec::new();
    for planned in plan {
        let (wordings, escalation) = escalation();
        wordings.0.lock().push_back(planned);
        let scene = scene(escalation);
        let reply = scene.search.search(call(query, &catalog())).await;
        replies.push((
            reply,
            scene.log.outcomes(),
            scene.log.expanded.lock().clone(),
        ));
    }
    let (failed, outcomes, expanded) = &replies[0];
    assert!(failed.results.is_empty() && expanded.is_empty());
    assert_eq!(*outcomes, [ModelOutcome::Unavailable]);
    let (found, outcomes, expanded) = &replies[1];
    assert_eq!(*outcomes, [ModelOutcome::Used]);
    assert_eq!(*expanded, [(1, true)]);
    assert_eq!(names(found)[0], "read_file");
    assert!(
        found.text.contains(r#"also searched for: "reads a file"."#),
        "{}",
        found.text
    );
}

#[tokio::test]
async fn earlier_queries_of_the_principal_before_a_call_are_variants() {
    let encoder = Arc::new(TwoMeanings::default());
    let scene = scene_with(Some(&encoder), expanding());
    let catalog = catalog();
    scene.search.index_catalog(&catalog);
    scene.search.wait_until_idle().await;
    scene.search.search(call("send a letter", &catalog)).await;
    scene.clock.advance(Duration::from_secs(1));
    scene.search.record_call(&FinishedCall {
        session: session(1),
        principal: Principal::local(),
        tool: catalog.tools()[3].tool.clone(),
        is_ok: true,
        began_at: scene.clock.now(),
    });
    let memories = &scene.search.core().memories;
    let vector = |x: f32, y: f32| Embedding::new("two-meanings", vec![x, y]).unwrap();
    let earlier = |principal: &Principal| {
        // One of these angles is closer to the query than any two texts of this encoder are.
        let angles = (0..13_u8).map(|n| f32::from(n) * 0.5);
        let near: Vec<Embedding> = angles
            .map(|angle| vector(angle.cos(), angle.sin()))
            .collect();
        let all = near
            .iter()
            .flat_map(|text| memories.earlier_queries(principal, text, 3));
        let mut texts: Vec<String> = all.map(|variant| variant.text).collect();
        texts.dedup();
        texts
    };
    assert_eq!(earlier(&Principal::local()), ["send a letter"]);
    let other = Principal::from_name("somebody-else");
    assert!(earlier(&other).is_empty());
}
