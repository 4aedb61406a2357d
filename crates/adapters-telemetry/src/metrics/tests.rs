use std::future::ready;
use std::time::Duration;

use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::retrieval::search::SearchQuality;
use riglm_domain::safeguards::limiter::LimitScope;
use riglm_domain::selection::shown::SelectionMode;
use riglm_domain::usage::invocation::{Outcome, ToolSource};
use riglm_ports::contract::observer::ObserverScene;
use riglm_ports::model_call::ModelUsage;
use riglm_ports::observer::{
    CallLimit, ListShownEvent, ModelKind, ModelOutcome, ModelPurpose, ModelRequestEvent,
    RequestEndedEvent, ResourceLimit, ToolCalledEvent,
};

use super::*;

impl ObserverScene for Metrics {
    fn observer(&self) -> &dyn Observer {
        self
    }

    fn size(&self) -> usize {
        self.text().unwrap().len()
    }
}

riglm_ports::observer_contract!(contract, ready(Box::new(Metrics::new().unwrap())));

fn upstream() -> UpstreamName {
    UpstreamName::parse("files").unwrap()
}

fn observe_call(metrics: &Metrics, tool: &str) {
    metrics.observe(&Event::RequestEnded(RequestEndedEvent {
        method: "tools/call",
        upstream: Some(&upstream()),
        tool: Some(&ToolName::from(tool)),
        outcome: Outcome::Ok,
        took: Duration::from_micros(1_500),
        with_upstream: Some(Duration::from_micros(1_460)),
        duration: Duration::from_micros(1_250),
    }));
}

fn observe_tools(metrics: &Metrics, tools: impl IntoIterator<Item = String>) {
    let tools: Vec<ToolName> = tools.into_iter().map(|name| name.as_str().into()).collect();
    metrics.observe(&Event::ToolsSeen {
        upstream: &upstream(),
        tools: &tools,
    });
}

fn series(metrics: &Metrics) -> Vec<String> {
    let text = metrics.text().unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

fn assert_has(metrics: &Metrics, line: &str) {
    let all = series(metrics);
    assert!(all.iter().any(|one| one == line), "{line} in {all:#?}");
}

#[test]
fn requests_are_counted_with_total_and_proxy_latency() {
    let metrics = Metrics::new().unwrap();
    observe_tools(&metrics, ["read".to_owned()]);
    observe_call(&metrics, "read");
    let of = r#"method="tools/call",outcome="ok",upstream="files""#;
    assert_has(&metrics, &format!("riglm_requests_total{{{of}}} 1"));
    assert_has(
        &metrics,
        &format!("riglm_request_duration_seconds_bucket{{{of},le=\"0.001\"}} 0"),
    );
    assert_has(
        &metrics,
        &format!("riglm_request_duration_seconds_bucket{{{of},le=\"0.0025\"}} 1"),
    );
    assert_has(
        &metrics,
        r#"riglm_proxy_duration_seconds_bucket{method="tools/call",le="0.00005"} 1"#,
    );
    assert_has(
        &metrics,
        r#"riglm_tool_calls_total{outcome="ok",tool="read",upstream="files"} 1"#,
    );
}

#[test]
fn unlisted_names_create_no_series() {
    let metrics = Metrics::new().unwrap();
    observe_tools(&metrics, ["read".to_owned()]);
    observe_call(&metrics, "read");
    let before = series(&metrics).len();
    for n in 0..500 {
        observe_call(&metrics, &format!("made_up_{n}"));
    }
    let after = series(&metrics).len();
    assert!(after - before <= 60, "{before} before, {after} after");
    assert_has(
        &metrics,
        r#"riglm_tool_calls_total{outcome="ok",tool="_other",upstream="files"} 500"#,
    );
}

#[test]
fn at_most_two_hundred_tools_have_their_own_series() {
    let metrics = Metrics::new().unwrap();
    observe_tools(&metrics, (0..1_000).map(|n| format!("tool_{n}")));
    observe_tools(&metrics, ["x".repeat(10_000)]);
    for n in 0..1_000 {
        observe_call(&metrics, &format!("tool_{n}"));
    }
    let calls = series(&metrics);
    let calls = calls
        .iter()
        .filter(|line| line.starts_with("riglm_tool_calls_total"));
    assert_eq!(calls.count(), 201);
}

#[test]
fn a_tool_with_an_odd_name_stays_within_its_line() {
    let metrics = Metrics::new().unwrap();
    let name = "a\"b\\c\nd{e}=🦀";
    observe_tools(&metrics, [name.to_owned()]);
    observe_call(&metrics, name);
    assert_has(
        &metrics,
        r#"riglm_tool_calls_total{outcome="ok",tool="a\"b\\c\nd{e}=🦀",upstream="files"} 1"#,
    );
}

#[test]
fn calls_are_counted_by_source_and_prediction_coverage() {
    let metrics = Metrics::new().unwrap();
    let sources = [
        (ToolSource::Shown, true),
        (ToolSource::Found, true),
        (ToolSource::Hidden, false),
    ];
    for (source, is_first_use) in sources {
        metrics.observe(&Event::ToolCalled(ToolCalledEvent {
            upstream: &upstream(),
            tool: &"read".into(),
            source,
            is_first_use,
            predicted_mass: Some(0.75),
        }));
    }
    assert_has(
        &metrics,
        r#"riglm_tool_calls_by_source_total{first_use="true",source="found"} 1"#,
    );
    assert_has(&metrics, "riglm_prediction_calls_total 3");
    assert_has(&metrics, "riglm_prediction_covered_calls_total 1");
    assert_has(&metrics, "riglm_prediction_mass_total 2.25");
}

#[test]
fn lists_searches_and_limits_are_counted() {
    let metrics = Metrics::new().unwrap();
    metrics.observe(&Event::ListShown(ListShownEvent {
        policy: "epoch",
        mode: SelectionMode::Prediction,
        n_shown: 20,
        n_available: 100,
        shown_tokens: 2_000,
        available_tokens: 11_000,
    }));
    metrics.observe(&Event::Searched {
        quality: SearchQuality::Low,
        n_matches: 0,
        is_repeated: true,
        took: Duration::from_millis(2),
    });
    metrics.observe(&Event::LimitReached(ResourceLimit::InFlight));
    metrics.observe(&Event::CallLimited {
        limit: CallLimit::Rate,
        scope: LimitScope::Principal,
    });
    metrics.observe(&Event::ConfigChanged { version: 3 });
    assert_has(
        &metrics,
        r#"riglm_lists_shown_total{mode="prediction",policy="epoch"} 1"#,
    );
    assert_has(
        &metrics,
        r#"riglm_list_tokens_saved_total{policy="epoch"} 9000"#,
    );
    assert_has(
        &metrics,
        r#"riglm_searches_total{quality="low",repeated="true"} 1"#,
    );
    assert_has(
        &metrics,
        r#"riglm_limits_reached_total{limit="in_flight"} 1"#,
    );
    assert_has(
        &metrics,
        r#"riglm_calls_limited_total{limit="rate",scope="principal"} 1"#,
    );
    assert_has(
        &metrics,
        r#"riglm_calls_limited_total{limit="context",scope="session"} 0"#,
    );
    assert_has(&metrics, "riglm_config_version 3");
}

#[test]
fn escalations_of_searches_are_counted() {
    let metrics = Metrics::new().unwrap();
    let requests = |outcome: &str, n: u64| {
        format!(
            r#"riglm_model_requests_total{{model="client",outcome="{outcome}",purpose="reranking"}} {n}"#
        )
    };
    assert_has(&metrics, &requests("used", 0));
    assert_has(
        &metrics,
        r#"riglm_search_expansions_total{helped="true"} 0"#,
    );
    metrics.observe(&Event::SearchCurated);
    metrics.observe(&Event::SearchExpanded {
        n_variants: 2,
        has_helped: true,
    });
    for outcome in [ModelOutcome::Used, ModelOutcome::OverBudget] {
        let usage = match outcome {
            ModelOutcome::Used => ModelUsage {
                n_input_tokens: 70,
                n_output_tokens: 7,
            },
            _ => ModelUsage::default(),
        };
        metrics.observe(&Event::ModelAsked(ModelRequestEvent {
            purpose: ModelPurpose::Reranking,
            kind: ModelKind::Client,
            outcome,
            usage,
            took: Duration::from_millis(20),
        }));
    }
    assert_has(&metrics, "riglm_searches_curated_total 1");
    assert_has(
        &metrics,
        r#"riglm_search_expansions_total{helped="true"} 1"#,
    );
    assert_has(&metrics, &requests("used", 1));
    assert_has(&metrics, &requests("over_budget", 1));
    let tokens =
        r#"riglm_model_tokens_total{direction="input",model="client",purpose="reranking"} 70"#;
    assert_has(&metrics, tokens);
    // A skipped request is not in the histogram of durations.
    let asked =
        r#"riglm_model_request_duration_seconds_count{model="client",purpose="reranking"} 1"#;
    assert_has(&metrics, asked);
}

#[test]
fn gauges_are_read_at_each_scrape() {
    let metrics = Metrics::new().unwrap();
    let asked = std::sync::atomic::AtomicU64::new(0);
    metrics.set_readings_source(move || Readings {
        version: "1.2.3",
        n_sessions: asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
        upstreams: vec![UpstreamReading {
            name: "files".into(),
            is_available: false,
            n_connections: 7,
            n_waiting: 0,
        }],
        recording: Some(RecordingReading {
            is_sound: true,
            waiting_bytes: 12,
            n_dropped: 5,
        }),
        share_sought: Some(0.5),
        ..Readings::default()
    });
    assert_has(&metrics, "riglm_hidden_tools_sought_ratio 0.5");
    assert_has(&metrics, r#"riglm_build_info{version="1.2.3"} 1"#);
    assert_has(&metrics, r#"riglm_upstream_available{upstream="files"} 0"#);
    assert_has(&metrics, "riglm_spool_bytes 12");
    assert_has(&metrics, "riglm_records_dropped_total 5");
    let sessions = || {
        let all = series(&metrics);
        all.into_iter()
            .find(|line| line.starts_with("riglm_sessions "))
    };
    assert_ne!(sessions(), sessions());
}
