//! Agents that work through the proxy for weeks: lists get shorter, searches fewer, and no call
//! fails.

mod faults;

use std::path::Path;

use riglm_domain::selection::ListPolicyName;
use riglm_evaluation::simulation::SimulatedPolicy;
use riglm_tests::streams::streams_in;

use crate::simulation::agent::AgentKind;
use crate::simulation::measure::{PARTS, StreamStatistics};
use crate::simulation::reference::{coverage_of_most_frequent, replay_stream};
use crate::simulation::run::{RunOptions, run_stream};
use crate::simulation::stream::{Session, Stream, Tool};

/// The jobs of agents: a server each, with its tools in the order of use.
const JOBS: [(&str, [&str; 4]); 5] = [
    (
        "tickets",
        [
            "find_ticket",
            "read_ticket",
            "comment_ticket",
            "close_ticket",
        ],
    ),
    (
        "files",
        ["list_folder", "open_file", "write_file", "share_file"],
    ),
    (
        "mail",
        ["search_mail", "fetch_mail", "draft_reply", "send_mail"],
    ),
    (
        "calendar",
        ["free_slots", "create_event", "invite_guest", "cancel_event"],
    ),
    (
        "database",
        ["describe_table", "run_query", "explain_plan", "export_rows"],
    ),
];
/// The number of rarely used tools of each server.
const N_IDLE: usize = 3;

/// Catalogs with more tools are not small, at 200 tokens for each tool.
const SMALL_CATALOG: usize = 50;

/// The tokens of a definition. With long definitions it pays to hide some of a few tools.
const LONG_DEFINITION_TOKENS: u32 = 1_200;

/// Returns 35 tools of 5 servers and random sessions over them: each has one or two jobs in order,
/// with skipped and repeated steps, and sometimes a rarely used tool.
fn generated_stream(n_sessions: usize) -> Stream {
    let mut tools = Vec::new();
    for (server, names) in JOBS {
        let idle = (0..N_IDLE).map(|n| format!("{server}_setting_{n}"));
        for name in names.into_iter().map(str::to_owned).chain(idle) {
            tools.push(Tool {
                description: format!("Does {} for {server}.", name.replace('_', " ")),
                name,
                server: server.into(),
            });
        }
    }
    // A linear congruential generator produces the same sessions in every run.
    let mut state = 12_345_u64;
    let mut below = |n: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).expect("31 bits") % n
    };
    let of_server = JOBS[0].1.len() + N_IDLE;
    let sessions = (0..n_sessions).map(|_| {
        let mut calls = Vec::new();
        // Most calls go to two of the servers.
        for _ in 0..=below(2) {
            let job = [0, 0, 0, 1, 1, 2, 3, 4][below(8)];
            for step in 0..4 {
                for _ in 0..[0, 1, 1, 1, 1, 2][below(6)] {
                    calls.push(job * of_server + step);
                }
            }
            if below(8) == 0 {
                calls.push(job * of_server + 4 + below(N_IDLE));
            }
        }
        if calls.is_empty() {
            calls.push(0);
        }
        Session { query: None, calls }
    });
    Stream {
        name: "made-up".into(),
        sessions: sessions.collect(),
        tools,
    }
}

async fn run_agent(stream: &Stream, kind: AgentKind, tool_tokens: u64) -> StreamStatistics {
    let plan = RunOptions {
        kind,
        policy: None,
        token_budget: None,
        with_query: false,
        tool_tokens,
    };
    run_stream(stream, plan).await
}

#[expect(clippy::cast_precision_loss, reason = "there are few tools")]
fn as_f64(n: usize) -> f64 {
    n as f64
}

/// Checks the limits for every kind of agent.
fn assert_cheaper_than_all(stream: &Stream, kind: AgentKind, totals: &StreamStatistics) {
    let what = format!("{} on {}: {totals:?}", kind.as_str(), stream.name);
    assert_eq!(totals.all.n_failed, 0, "{what}");
    assert!(
        totals.mean_list() < 0.9 * as_f64(stream.tools.len()),
        "{what}"
    );
    assert!(totals.share_of_dearer_sessions() <= 0.1, "{what}");
    assert!(totals.cost() < 1.0, "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_calls_shorten_lists_and_no_call_fails() {
    let stream = generated_stream(40);
    for kind in [
        AgentKind::NeverRelists,
        AgentKind::OnDemand,
        AgentKind::PerCall,
    ] {
        let totals = run_agent(&stream, kind, LONG_DEFINITION_TOKENS.into()).await;
        assert_cheaper_than_all(&stream, kind, &totals);
        let what = format!("{} {totals:?}", kind.as_str());
        if kind == AgentKind::OnDemand {
            // Tools without a mark have to be loaded by a search.
            let searches = totals.searches_by_part();
            assert!(searches[PARTS - 1] < searches[0], "{what}");
        } else {
            let sizes = 1..stream.tools.len();
            let n_shown = sizes.rev().find(|n| as_f64(*n) <= totals.mean_list());
            let frequent = coverage_of_most_frequent(&stream, n_shown.unwrap_or(1));
            assert!(totals.first_use_coverage() >= frequent, "{frequent} {what}");
            assert!(totals.per_session(totals.all.n_searches) < 1.5, "{what}");
        }
        if kind == AgentKind::NeverRelists {
            let simulated = replay_stream(
                &stream,
                &[SimulatedPolicy::Live],
                kind,
                false,
                LONG_DEFINITION_TOKENS,
            )
            .await;
            let difference = simulated[0].1.coverage - totals.coverage();
            assert!(difference.abs() < 0.1, "{simulated:?} {what}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_follow_the_calls_of_relisting_agents() {
    let stream = generated_stream(8);
    let plan = RunOptions {
        kind: AgentKind::Relists,
        policy: Some(ListPolicyName::Conformal),
        token_budget: None,
        with_query: false,
        tool_tokens: 200,
    };
    let totals = run_stream(&stream, plan).await;
    assert_eq!(totals.all.n_failed, 0, "{totals:?}");
    assert!(totals.all.n_changes > 0, "{totals:?}");
    assert!(
        totals.mean_list() < as_f64(stream.tools.len()),
        "{totals:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs streams of calls"]
async fn recorded_sessions_cost_no_more_than_with_everything_shown() {
    let folder = std::env::var_os("RIGLM_TEST_STREAMS").expect("RIGLM_TEST_STREAMS names a folder");
    // Only two small streams, because the test is about behaviour and not about figures.
    let mut streams: Vec<Stream> = streams_in(Path::new(&folder))
        .iter()
        .map(|(catalog, sessions)| Stream::read(catalog, sessions))
        .filter(|stream| stream.tools.len() > 20)
        .collect();
    streams.sort_by_key(|stream| {
        stream
            .sessions
            .iter()
            .map(|session| session.calls.len())
            .sum::<usize>()
    });
    streams.truncate(2);
    assert!(!streams.is_empty(), "there are no streams");
    for stream in streams {
        let totals = run_agent(&stream, AgentKind::NeverRelists, 200).await;
        // A small catalog is shown completely, so its cost equals the cost of showing all tools.
        let what = format!("{}: {totals:?}", stream.name);
        assert_eq!(totals.all.n_failed, 0, "{what}");
        assert!(totals.cost() <= 1.001, "{what}");
        // The replay allows 3 %. Here the own tools of the proxy add to the cost.
        assert!(totals.share_of_dearer_sessions() <= 0.04, "{what}");
        let is_whole = totals.mean_list() > 0.99 * as_f64(stream.tools.len());
        if !is_whole || stream.tools.len() > SMALL_CATALOG {
            assert_cheaper_than_all(&stream, AgentKind::NeverRelists, &totals);
        }
    }
}
