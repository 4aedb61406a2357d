//! Tests of limits, by calls at given times.

use riglm_domain::prediction::NamePattern;
use riglm_domain::safeguards::limiter::LimitScope;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use proptest::prelude::*;
use riglm_domain::id::SessionId;
use riglm_ports::observer::NoObserver;

use super::*;
use riglm_discovery::search::CatalogTool;

const SECOND: Duration = Duration::from_secs(1);

pub(super) fn rule(tools: &[&str]) -> LimitRule {
    LimitRule {
        tools: tools.iter().map(|text| NamePattern::new(text)).collect(),
        calls: None,
        per: None,
        max_concurrent: None,
        scope: LimitScope::Session,
    }
}

fn rate_rule(tools: &[&str], calls: u32, secs: u64, scope: LimitScope) -> LimitRule {
    LimitRule {
        calls: Some(calls),
        per: Some(Duration::from_secs(secs)),
        scope,
        ..rule(tools)
    }
}

fn upstream() -> UpstreamName {
    UpstreamName::parse("notes").unwrap()
}

pub(super) fn catalog(names: &[&str]) -> Arc<Catalog> {
    let tools = names.iter().map(|name| CatalogTool {
        name: format!("notes__{name}"),
        tool: ToolRef {
            upstream: upstream(),
            tool: (*name).into(),
        },
        definition: "{}".into(),
        is_hidden: false,
    });
    Arc::new(Catalog::new(tools.collect(), Vec::new()))
}

fn limiter(config: CallLimitsConfig) -> Limiter {
    let parts = LimiterParts {
        config,
        context_tools: vec!["set_context".into(), "search_tools".into()],
        own_tools: Vec::new(),
        search: None,
        filter: ListFilter::default(),
        observer: Arc::new(NoObserver),
    };
    Limiter::new(parts).unwrap()
}

fn of_rules(rules: Vec<LimitRule>) -> Limiter {
    limiter(CallLimitsConfig {
        rules,
        ..CallLimitsConfig::default()
    })
}

fn admit(limiter: &Limiter, call: &GuardedCall<'_>) -> Result<LimitPermit, Refusal> {
    limiter.admit(call, &limiter.rules_of(&ToolNames::of_call(call)))
}

/// A client with a clock.
struct Scene {
    limiter: Limiter,
    start: Instant,
    catalog: Arc<Catalog>,
}

impl Scene {
    fn new(limiter: Limiter) -> Self {
        Self {
            limiter,
            start: Instant::now(),
            catalog: catalog(&["find", "find_all", "list"]),
        }
    }

    fn with<T>(
        &self,
        (session, principal): (u8, &str),
        tool: &str,
        after: Duration,
        then: impl FnOnce(&GuardedCall<'_>) -> T,
    ) -> T {
        let (upstream, tool) = (upstream(), ToolName::from(tool));
        then(&GuardedCall {
            session_key: over(session),
            principal: &Principal::from_name(principal),
            asker: None,
            profile: None,
            upstream: Some(&upstream),
            fingerprint: "",
            tool: &tool,
            own: None,
            arguments: None,
            is_task: false,
            token_budget: None,
            catalog: Some(&self.catalog),
            now: Timestamp::UNIX_EPOCH,
            at: self.start + after,
        })
    }

    fn call_after(
        &self,
        who: (u8, &str),
        tool: &str,
        after: Duration,
    ) -> Result<LimitPermit, String> {
        self.with(who, tool, after, |call| {
            admit(&self.limiter, call).map_err(|refusal| refusal.text)
        })
    }

    fn call(&self, who: (u8, &str), tool: &str, secs: f64) -> Result<LimitPermit, String> {
        self.call_after(who, tool, Duration::from_secs_f64(secs))
    }

    /// Returns whether a call is admitted that ends at once.
    fn passes(&self, who: (u8, &str), tool: &str, secs: f64) -> bool {
        self.call(who, tool, secs).is_ok()
    }
}

fn over(n: u8) -> SessionKey {
    SessionKey::Connection(SessionId::new(Timestamp::UNIX_EPOCH, [n; 10]))
}

const ANN: (u8, &str) = (1, "ann");
const ANN_AGAIN: (u8, &str) = (2, "ann");
const BOB: (u8, &str) = (3, "bob");

#[test]
fn rules_limit_their_matching_tools_together() {
    let scene = Scene::new(of_rules(vec![rate_rule(
        &["find*"],
        2,
        60,
        LimitScope::Session,
    )]));
    assert!(scene.passes(ANN, "find", 0.0) && scene.passes(ANN, "find_all", 10.0));
    let refused = scene.call(ANN, "find", 20.5).unwrap_err();
    assert!(refused.contains("Try again in 40 s"), "{refused}");
    assert!(scene.passes(ANN, "list", 20.5));
    assert!(!scene.passes(ANN, "find_all", 59.9) && scene.passes(ANN, "find_all", 60.0));
}

#[test]
fn limits_are_counted_per_scope() {
    for (scope, of_same, of_other) in [
        (LimitScope::Session, true, true),
        (LimitScope::Principal, false, true),
        (LimitScope::Global, false, false),
    ] {
        let scene = Scene::new(of_rules(vec![rate_rule(&["*"], 1, 60, scope)]));
        assert!(scene.passes(ANN, "find", 0.0));
        assert!(!scene.passes(ANN, "find", 1.0));
        assert_eq!(scene.passes(ANN_AGAIN, "find", 1.0), of_same, "{scope:?}");
        assert_eq!(scene.passes(BOB, "find", 1.0), of_other, "{scope:?}");
    }
}

#[test]
fn refused_calls_count_for_no_other_rule() {
    let rules = vec![
        rate_rule(&["*"], 3, 60, LimitScope::Session),
        rate_rule(&["find"], 1, 60, LimitScope::Session),
    ];
    let scene = Scene::new(of_rules(rules));
    assert!(scene.passes(ANN, "find", 0.0));
    for _ in 0..5 {
        assert!(!scene.passes(ANN, "find", 1.0));
    }
    assert!(scene.passes(ANN, "list", 1.0) && scene.passes(ANN, "list", 1.0));
    assert!(!scene.passes(ANN, "list", 1.0));
}

#[test]
fn patterns_with_upstream_match_unlisted_tools() {
    let mut scene = Scene::new(of_rules(vec![rate_rule(
        &["notes__*"],
        1,
        60,
        LimitScope::Session,
    )]));
    scene.catalog = catalog(&[]);
    assert!(scene.passes(ANN, "unlisted", 0.0) && !scene.passes(ANN, "unlisted", 0.0));
}

#[test]
fn ended_calls_release_their_permit() {
    let rules = vec![LimitRule {
        max_concurrent: Some(2),
        scope: LimitScope::Principal,
        ..rule(&["find*"])
    }];
    let scene = Scene::new(of_rules(rules));
    let first = scene.call(ANN, "find", 0.0).unwrap();
    let second = scene.call(ANN_AGAIN, "find_all", 0.0).unwrap();
    let refused = scene.call(ANN, "find", 0.0).unwrap_err();
    assert!(
        refused.contains("2 calls of tools like find* may run at the same time"),
        "{refused}"
    );
    assert!(scene.passes(BOB, "find", 0.0) && scene.passes(ANN, "list", 0.0));
    drop(first);
    let third = scene.call(ANN, "find", 0.0).unwrap();
    assert!(!scene.passes(ANN, "find", 0.0));
    drop((second, third));
}

#[test]
fn principals_with_running_calls_are_not_evicted() {
    let rules = vec![LimitRule {
        max_concurrent: Some(1),
        scope: LimitScope::Principal,
        ..rule(&["find"])
    }];
    let scene = Scene::new(of_rules(rules));
    let _running = scene.call((1, "busy"), "find", 0.0).unwrap();
    for n in 0..10_050 {
        assert!(scene.passes((1, &n.to_string()), "find", 0.0));
    }
    assert_eq!(scene.limiter.state.lock().n_keys(), 10_000);
    assert!(!scene.passes((1, "busy"), "find", 0.0));
}

#[test]
fn calls_at_one_upstream_are_limited_together() {
    let scene = Scene::new(limiter(CallLimitsConfig {
        max_concurrent: Some(1),
        ..CallLimitsConfig::default()
    }));
    let running = scene.call(ANN, "find", 0.0).unwrap();
    let refused = scene.call(BOB, "list", 0.0).unwrap_err();
    assert!(
        refused.contains("1 call of the tools of this server"),
        "{refused}"
    );
    drop(running);
    assert!(scene.passes(BOB, "list", 0.0));
}

#[test]
fn calls_refused_for_concurrency_consume_no_rate_token() {
    let rules = vec![LimitRule {
        max_concurrent: Some(1),
        ..rate_rule(&["find"], 2, 60, LimitScope::Session)
    }];
    let scene = Scene::new(of_rules(rules));
    let running = scene.call(ANN, "find", 0.0).unwrap();
    assert!(!scene.passes(ANN, "find", 0.0) && !scene.passes(ANN, "find", 0.0));
    drop(running);
    assert!(scene.passes(ANN, "find", 0.0) && !scene.passes(ANN, "find", 0.0));
}

#[test]
fn continued_calls_take_a_permit_but_no_token() {
    let rules = vec![LimitRule {
        max_concurrent: Some(1),
        ..rate_rule(&["find"], 2, 60, LimitScope::Session)
    }];
    let scene = Scene::new(of_rules(rules));
    drop(scene.call(ANN, "find", 0.0));
    let again = scene.with(ANN, "find", Duration::ZERO, |call| {
        let rules = scene.limiter.rules_of(&ToolNames::of_call(call));
        scene.limiter.admit_again(call, &rules)
    });
    assert!(!scene.passes(ANN, "find", 0.0));
    drop(again);
    assert!(scene.passes(ANN, "find", 0.0));
}

#[test]
fn calls_without_a_new_context_or_search_are_limited() {
    let scene = Scene::new(limiter(CallLimitsConfig {
        max_calls_per_context: Some(2),
        ..CallLimitsConfig::default()
    }));
    let said = |who, own, is_error| {
        scene.with(who, "search_tools", Duration::ZERO, |call| {
            let call = GuardedCall {
                own: Some(own),
                upstream: None,
                ..*call
            };
            assert!(
                admit(&scene.limiter, &call).is_ok(),
                "it is always possible"
            );
            let result = format!(r#"{{"isError":{is_error}}}"#);
            scene.limiter.record_result(&call, &result);
        });
    };
    for own in [OwnKind::Search, OwnKind::Context] {
        assert!(scene.passes(ANN, "find", 0.0) && scene.passes(ANN, "list", 0.0));
        let refused = scene.call(ANN, "list", 9e3).unwrap_err();
        assert!(
            refused.contains("Call set_context or search_tools with your current task first"),
            "{refused}"
        );
        assert!(scene.passes(ANN_AGAIN, "find", 0.0), "{own:?}");
        said(BOB, own, false);
        said(ANN, own, true);
        said(ANN, OwnKind::Other, false);
        assert!(!scene.passes(ANN, "list", 9e3));
        said(ANN, own, false);
        said(ANN_AGAIN, own, false);
    }
}

#[test]
fn rate_limited_tools_are_listed_with_their_wait() {
    let rules = vec![
        rate_rule(&["find*"], 1, 60, LimitScope::Session),
        rate_rule(&["find_all"], 1, 90, LimitScope::Session),
    ];
    let scene = Scene::new(of_rules(rules));
    let hindered = |(session, principal): (u8, &str), secs: u64| {
        let whose = LimitSubject {
            session_key: over(session),
            principal: &Principal::from_name(principal),
        };
        let at = scene.start + Duration::from_secs(secs);
        let hindered = scene.limiter.rate_limited_tools(&scene.catalog, whose, at);
        let mut hindered: Vec<(String, u64)> = hindered
            .into_iter()
            .map(|(tool, wait)| (tool.tool.as_str().to_owned(), wait.as_secs()))
            .collect();
        hindered.sort();
        hindered
    };
    assert_eq!(hindered(ANN, 0), []);
    assert!(scene.passes(ANN, "find_all", 0.0));
    let all = |find, find_all| [("find".to_owned(), find), ("find_all".to_owned(), find_all)];
    assert_eq!(hindered(ANN, 10), all(50, 80));
    assert_eq!(hindered(BOB, 10), []);
    assert_eq!(hindered(ANN, 60), all(0, 30)[1..]);
    assert_eq!(hindered(ANN, 90), []);
}

#[test]
fn refusals_suggest_similar_available_tools() {
    let rules = vec![
        rate_rule(&["find_note"], 1, 60, LimitScope::Session),
        rate_rule(&["find_notes"], 1, 60, LimitScope::Session),
    ];
    let mut scene = Scene::new(of_rules(rules));
    let names = [
        "find_note",
        "find_notes",
        "find_a_note",
        "find_some_note",
        "find_note_2",
        "pay",
    ];
    scene.catalog = catalog(&names);
    assert!(scene.passes(ANN, "find_notes", 0.0) && scene.passes(ANN, "find_note", 0.0));
    let refused = scene.call(ANN, "find_note", 0.0).unwrap_err();
    let (_, similar) = refused
        .split_once("Similar tools that are free now: ")
        .unwrap();
    let similar: Vec<&str> = similar.trim_end_matches('.').split(", ").collect();
    assert_eq!(similar.len(), 2, "{refused}");
    for tool in similar {
        let is_one = [
            "notes__find_a_note",
            "notes__find_some_note",
            "notes__find_note_2",
        ];
        assert!(is_one.contains(&tool), "{refused}");
    }
}

#[test]
fn alternatives_to_read_only_tools_are_read_only() {
    let rules = || vec![rate_rule(&["find_note"], 1, 60, LimitScope::Session)];
    let names = ["find_note", "find_notes", "find_a_note", "find_some_note"];
    for (reading, expected) in [
        (
            &["find_note", "find_a_note"][..],
            vec!["notes__find_a_note"],
        ),
        (
            &["find_a_note"],
            vec!["notes__find_notes", "notes__find_a_note"],
        ),
    ] {
        let mut scene = Scene::new(of_rules(rules()));
        let annotated = catalog(&names).tools().to_vec().into_iter().map(|tool| {
            let hint = reading.contains(&tool.tool.tool.as_str());
            CatalogTool {
                definition: format!(r#"{{"annotations":{{"readOnlyHint":{hint}}}}}"#).into(),
                ..tool
            }
        });
        scene.catalog = Arc::new(Catalog::new(annotated.collect(), Vec::new()));
        assert!(scene.passes(ANN, "find_note", 0.0));
        let refused = scene.call(ANN, "find_note", 0.0).unwrap_err();
        let (_, similar) = refused.split_once("free now: ").unwrap();
        let similar: Vec<&str> = similar.trim_end_matches('.').split(", ").collect();
        assert_eq!(similar.len(), expected.len(), "{refused}");
        let is_reading = reading.contains(&"find_note");
        assert!(!is_reading || similar == expected, "{refused}");
    }
}

#[test]
fn limit_state_is_bounded_and_evicts_the_oldest() {
    let scene = Scene::new(limiter(CallLimitsConfig {
        rules: vec![rate_rule(&["find"], 1, 60, LimitScope::Principal)],
        max_calls_per_context: Some(1_000),
        ..CallLimitsConfig::default()
    }));
    for n in 0..10_050 {
        assert!(scene.passes((1, &n.to_string()), "find", 0.0));
        if n % 100 == 0 {
            // A session with calls now and then is kept.
            assert_eq!(scene.passes((1, "kept"), "find", 0.0), n == 0);
        }
        scene.limiter.state.lock().context_given(over(1));
    }
    assert_eq!(scene.limiter.state.lock().n_keys(), 10_000);
    assert!(
        scene.passes((1, "0"), "find", 0.0),
        "the oldest was forgotten"
    );
    assert!(!scene.passes((1, "10049"), "find", 0.0));
}

proptest! {
    #[test]
    fn rate_and_concurrency_limits_hold_for_any_sequence(
        steps in proptest::collection::vec((0_u8..4, 0_u64..900, any::<bool>()), 1..200),
    ) {
        let rules = vec![LimitRule {
            max_concurrent: Some(3),
            ..rate_rule(&["find"], 5, 2, LimitScope::Global)
        }];
        let scene = Scene::new(of_rules(rules));
        let (mut after, mut admitted, mut running) = (Duration::ZERO, Vec::new(), Vec::new());
        for (session, ms, ends) in steps {
            after += Duration::from_millis(ms);
            if ends {
                running.pop();
            }
            let n_in_window = admitted.iter().filter(|then| after < **then + 2 * SECOND).count();
            let is_allowed = n_in_window < 5 && running.len() < 3;
            let call = scene.call_after((session, "ann"), "find", after);
            prop_assert_eq!(call.is_ok(), is_allowed);
            if let Ok(permit) = call {
                admitted.push(after);
                running.push(permit);
            }
        }
    }
}
