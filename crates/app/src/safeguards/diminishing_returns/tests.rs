use jiff::{SignedDuration, Timestamp};
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{ToolName, UpstreamName, WorkSessionId};
use riglm_domain::safeguards::diminishing_returns::DiminishingAdvice;
use serde_json::json;

use super::*;
use crate::safeguards::testing::{Scene, session};

#[derive(Debug, Default)]
struct ObservedEvents(Mutex<Vec<DiminishingReturnsEvent>>);

impl Observer for ObservedEvents {
    fn observe(&self, event: &Event<'_>) {
        if let Event::DiminishingReturns(event) = event {
            self.0.lock().push(*event);
        }
    }
}

struct Stage {
    scene: Scene,
    circles: DiminishingReturns,
    seen: Arc<ObservedEvents>,
    at: Instant,
    own: ToolName,
}

impl Stage {
    fn new(options: SearchesConfig) -> Self {
        let seen = Arc::new(ObservedEvents::default());
        let scene = Scene::new(&[
            ("search_web", "{}"),
            ("read", "{}"),
            (
                "lookup",
                r#"{"readOnlyHint":true},"inputSchema":{"properties":{"q":{}}}"#,
            ),
        ]);
        Self {
            at: scene.start,
            scene,
            circles: DiminishingReturns::new(options, seen.clone()),
            seen,
            own: "search_available_tools".into(),
        }
    }

    /// Returns the notice in the result of a search for tools.
    fn search(&mut self, query: &str, tools: &[(&str, f64)]) -> Option<String> {
        self.at += Duration::from_secs(1);
        let results: Vec<ScoredTool> = tools
            .iter()
            .map(|(name, score)| scored_tool(name, *score))
            .collect();
        (self.circles).record_search(session(1), self.at, query, &results);
        let call = GuardedCall {
            upstream: None,
            own: Some(OwnKind::Search),
            at: self.at,
            ..self.scene.call(&self.own, "{}")
        };
        self.result_notice(&call, "{}")
    }

    fn result_notice(&self, call: &GuardedCall<'_>, result: &str) -> Option<String> {
        let is_search = self.circles.is_search(call, &ToolNames::of_call(call));
        let notice = self.circles.record_result(call, is_search, result);
        notice.map(|notice| notice.text)
    }

    fn record_call(&self, call: &GuardedCall<'_>) {
        let is_search = self.circles.is_search(call, &ToolNames::of_call(call));
        self.circles.record_call(call, is_search);
    }

    /// Returns the notice in the result of a call of an upstream tool.
    fn call(&mut self, tool: &str, arguments: &str, result: &str) -> Option<String> {
        self.at += Duration::from_secs(1);
        let tool = tool.into();
        let call = GuardedCall {
            at: self.at,
            ..self.scene.call(&tool, arguments)
        };
        self.record_call(&call);
        self.result_notice(&call, result)
    }

    fn events(&self) -> Vec<DiminishingReturnsEvent> {
        std::mem::take(&mut *self.seen.0.lock())
    }
}

fn scored_tool(name: &str, score: f64) -> ScoredTool {
    ScoredTool {
        tool: ToolRef {
            upstream: UpstreamName::parse("notes").unwrap(),
            tool: name.into(),
        },
        score,
    }
}

fn listing(urls: &[&str]) -> String {
    let items: Vec<_> = urls.iter().map(|url| json!({"url": url})).collect();
    json!({"content": [], "structuredContent": {"items": items}}).to_string()
}

fn warning_event(advice: DiminishingAdvice, sign: &'static str) -> DiminishingReturnsEvent {
    DiminishingReturnsEvent::Warned { advice, sign }
}

const SEARCHED: DiminishingReturnsEvent = DiminishingReturnsEvent::Searched(SearchScope::Tools);

#[test]
fn repeated_searches_without_calls_give_escalating_warnings() {
    let mut stage = Stage::new(SearchesConfig::default());
    assert_eq!(stage.search("send mail", &[("a", 0.9)]), None);
    assert_eq!(stage.search("write to someone", &[("b", 0.9)]), None);
    let third = stage.search("mail \"x\"", &[("c", 0.9)]).unwrap();
    assert!(
        third.starts_with("Searching in circles: 3 searches without"),
        "{third}"
    );
    assert!(
        third.contains(r#""send mail", "write to someone", "mail 'x'""#),
        "{third}"
    );
    let fourth = stage.search("post a letter", &[("d", 0.9)]).unwrap();
    assert!(fourth.contains("ask the user"), "{fourth}");
    let expected = [
        SEARCHED,
        SEARCHED,
        SEARCHED,
        warning_event(DiminishingAdvice::Warning, "without_call"),
        SEARCHED,
        DiminishingReturnsEvent::Answered { has_stopped: false },
        warning_event(DiminishingAdvice::AskUser, "without_call"),
    ];
    assert_eq!(stage.events(), expected);
    // A call ends the series, so another search is fine.
    assert_eq!(stage.call("read", "{}", "{}"), None);
    assert_eq!(stage.search("send mail", &[("a", 0.9)]), None);
    let expected = [
        DiminishingReturnsEvent::Followed(SearchScope::Tools),
        DiminishingReturnsEvent::Answered { has_stopped: true },
        SEARCHED,
    ];
    assert_eq!(stage.events(), expected);
}

#[test]
fn searches_followed_by_calls_give_no_warning() {
    let mut stage = Stage::new(SearchesConfig::default());
    for n in 0..20 {
        let (query, name) = (format!("query {n}"), format!("tool {n}"));
        assert_eq!(stage.search(&query, &[(&name, 0.9)]), None);
        assert_eq!(stage.call("read", "{}", &listing(&["a"])), None);
    }
}

#[test]
fn results_far_below_the_best_are_not_compared() {
    let junk: Vec<(&str, f64)> = ["b", "c", "d", "e", "f"].map(|name| (name, 0.1)).into();
    let with = |best, score| [&[(best, score)], junk.as_slice()].concat();
    let mut stage = Stage::new(SearchesConfig::default());
    assert_eq!(stage.search("one", &with("a", 0.9)), None);
    assert_eq!(stage.search("two", &with("x", 0.9)), None);
    let mut stage = Stage::new(SearchesConfig::default());
    assert_eq!(stage.search("one", &with("a", 0.2)), None);
    assert_eq!(stage.search("two", &with("x", 0.2)), Some(
        "Searching in circles: 83 % of these results were found before. Tried: \"one\", \"two\". \
         Use what was found, or search for something different.".to_owned()
    ));
}

#[test]
fn upstream_searches_are_recognized_by_pattern_or_annotations() {
    let by_pattern = SearchesConfig {
        tools: vec![NamePattern::new("notes__search*")],
        ..SearchesConfig::default()
    };
    let by_annotation = SearchesConfig {
        annotated: true,
        ..SearchesConfig::default()
    };
    for (options, tool) in [
        (by_pattern.clone(), "search_web"),
        (by_annotation.clone(), "lookup"),
    ] {
        let mut stage = Stage::new(options);
        let mut find =
            |q, urls: &[&str]| stage.call(tool, &json!({"q": q}).to_string(), &listing(urls));
        assert_eq!(find("one", &["a", "b"]), None);
        let again = find("two", &["a", "b"]).unwrap();
        assert!(
            again.contains("100 % of these") && again.contains(r#""one", "two""#),
            "{again}"
        );
        assert!(find("TWO", &["c"]).unwrap().contains("ask the user"));
        assert_eq!(stage.call("read", "{}", "{}"), None);
        assert_eq!(stage.call(tool, r#"{"q":"two"}"#, &listing(&["a"])), None);
    }
    for (options, tool) in [
        (SearchesConfig::default(), "search_web"),
        (by_pattern, "lookup"),
        (by_annotation, "search_web"),
    ] {
        let mut stage = Stage::new(options);
        for _ in 0..5 {
            assert_eq!(stage.call(tool, r#"{"q":"one"}"#, &listing(&["a"])), None);
        }
    }
}

#[test]
fn upstream_searches_end_tool_searches_but_not_vice_versa() {
    let mut stage = Stage::new(SearchesConfig {
        tools: vec![NamePattern::new("search*")],
        ..SearchesConfig::default()
    });
    for n in 0..2 {
        assert_eq!(
            stage.search(&format!("find {n}"), &[("a", 0.9 + f64::from(n))]),
            None
        );
        let url = n.to_string();
        let found = stage.call(
            "search_web",
            &format!(r#"{{"q":"{n}"}}"#),
            &listing(&[&url]),
        );
        assert_eq!(found, None);
    }
    // Searches of the upstream are a series of their own, which searches for tools do not end.
    let third = stage
        .call("search_web", r#"{"q":"x"}"#, &listing(&["x"]))
        .unwrap();
    assert!(third.contains("3 searches without"), "{third}");
}

#[test]
fn other_own_tools_count_neither_as_search_nor_call() {
    let mut stage = Stage::new(SearchesConfig::default());
    stage.search("one", &[]);
    stage.search("two", &[]);
    for own in [OwnKind::Context, OwnKind::Other] {
        let call = GuardedCall {
            upstream: None,
            own: Some(own),
            ..stage.scene.call(&stage.own, "{}")
        };
        stage.record_call(&call);
        assert_eq!(stage.result_notice(&call, "{}"), None);
    }
    assert!(stage.search("three", &[]).is_some());
}

#[test]
fn each_result_gets_the_line_of_its_own_search() {
    let stage = Stage::new(SearchesConfig::default());
    let at = |n| stage.at + Duration::from_secs(n);
    for (n, query) in [(1, "one"), (2, "two"), (3, "three"), (4, "four")] {
        stage.circles.record_search(session(1), at(n), query, &[]);
    }
    let said = |n| {
        let call = GuardedCall {
            upstream: None,
            own: Some(OwnKind::Search),
            at: at(n),
            ..stage.scene.call(&stage.own, "{}")
        };
        stage.result_notice(&call, "{}")
    };
    assert!(said(4).unwrap().starts_with("Still searching"));
    assert!(said(3).unwrap().starts_with("Searching"));
    assert_eq!((said(2), said(3)), (None, None));
}

#[test]
fn silent_work_sessions_end_and_are_observed() {
    let mut stage = Stage::new(SearchesConfig::default());
    for query in ["one", "two", "three"] {
        stage.search(query, &[]);
    }
    stage.events();
    stage.at += CONNECTION_SILENCE;
    assert_eq!(
        stage.search("four", &[]),
        None,
        "it is another session by now"
    );
    let expected = [
        DiminishingReturnsEvent::Answered { has_stopped: true },
        DiminishingReturnsEvent::SessionOver { n_searches: 3 },
        SEARCHED,
    ];
    assert_eq!(stage.events(), expected);
}

#[test]
fn work_sessions_are_bounded_and_silent_ones_evicted() {
    let stage = Stage::new(SearchesConfig::default());
    let nth = |n: i64| {
        let at = Timestamp::UNIX_EPOCH + SignedDuration::from_millis(n);
        SessionKey::Work(WorkSessionId::new(at, [1; 10]))
    };
    for n in 0..4_096 {
        stage.circles.record_search(nth(n), stage.at, "one", &[]);
    }
    stage.events();
    (stage.circles).record_search(nth(5_000), stage.at, "one", &[]);
    let over = DiminishingReturnsEvent::SessionOver { n_searches: 1 };
    assert_eq!(stage.events(), [over, SEARCHED]);
    assert_eq!(stage.circles.sessions.lock().len(), 4_096);
    let later = stage.at + SILENCE + Duration::from_nanos(1);
    stage.circles.record_search(nth(6_000), later, "one", &[]);
    assert_eq!(stage.events(), [over, over, over, over, SEARCHED]);
    assert_eq!(stage.circles.sessions.lock().len(), 4_093);
}
