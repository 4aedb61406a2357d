//! Agents work through the proxy for weeks: lists get shorter, searches fewer, and nothing fails.

mod faults;

use std::path::Path;

use riglm_domain::evaluation::replay::SimulatedPolicy;
use riglm_domain::listing::ListPolicyName;
use riglm_tests::streams::streams_in;

use crate::simulation::agent::Kind;
use crate::simulation::measure::{PARTS, Totals};
use crate::simulation::reference::{most_frequent, replayed};
use crate::simulation::run::{Plan, run};
use crate::simulation::stream::{Session, Stream, Tool};

/// The jobs that agents are given: a server each, and its tools in the order in which they are used.
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
/// Tools of each server that hardly anybody uses.
const N_IDLE: usize = 3;

/// A catalog of more tools is not small, at 200 tokens a tool.
const WHOLE: usize = 50;

/// How many tokens a definition has, so that leaving out some of a few pays.
const LONG: u32 = 1_200;

/// Returns 35 tools of 5 servers and sessions over them: one or two jobs in their order, some steps
/// left out, and now and then a tool that is hardly used.
fn made_up(n_sessions: usize) -> Stream {
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
    // A linear congruential generator: the same sessions every time.
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
        // Two of the servers have most of the work.
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

async fn worked(stream: &Stream, kind: Kind, tool_tokens: u64) -> Totals {
    let plan = Plan {
        kind,
        policy: None,
        token_budget: None,
        with_query: false,
        tool_tokens,
    };
    run(stream, plan).await
}

#[expect(clippy::cast_precision_loss, reason = "there are few tools")]
fn as_f64(n: usize) -> f64 {
    n as f64
}

/// Checks what holds for every kind of agent.
fn check(stream: &Stream, kind: Kind, totals: &Totals) {
    let what = format!("{} on {}: {totals:?}", kind.as_str(), stream.name);
    assert_eq!(totals.all.n_failed, 0, "{what}");
    assert!(
        totals.mean_list() < 0.9 * as_f64(stream.tools.len()),
        "{what}"
    );
    assert!(totals.dearer() <= 0.1, "{what}");
    assert!(totals.cost() < 1.0, "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_agents_did_makes_their_lists_shorter_and_nothing_fails() {
    let stream = made_up(40);
    for kind in [Kind::NeverRelists, Kind::OnDemand, Kind::PerCall] {
        let totals = worked(&stream, kind, LONG.into()).await;
        check(&stream, kind, &totals);
        let what = format!("{} {totals:?}", kind.as_str());
        if kind == Kind::OnDemand {
            // What is not marked yet has to be loaded.
            let searches = totals.searches_by_part();
            assert!(searches[PARTS - 1] < searches[0], "{what}");
        } else {
            let sizes = 1..stream.tools.len();
            let n_shown = sizes.rev().find(|n| as_f64(*n) <= totals.mean_list());
            let frequent = most_frequent(&stream, n_shown.unwrap_or(1));
            assert!(totals.first_use_coverage() >= frequent, "{frequent} {what}");
            assert!(totals.per_session(totals.all.n_searches) < 1.5, "{what}");
        }
        if kind == Kind::NeverRelists {
            let simulated = replayed(&stream, &[SimulatedPolicy::Live], kind, false, LONG).await;
            let difference = simulated[0].1.coverage - totals.coverage();
            assert!(difference.abs() < 0.1, "{simulated:?} {what}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_asks_again_has_lists_that_follow_its_calls() {
    let stream = made_up(8);
    let plan = Plan {
        kind: Kind::Relists,
        policy: Some(ListPolicyName::Conformal),
        token_budget: None,
        with_query: false,
        tool_tokens: 200,
    };
    let totals = run(&stream, plan).await;
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
    // The smaller half of the streams: it is about behaviour, not about figures.
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
        let totals = worked(&stream, Kind::NeverRelists, 200).await;
        // A small catalog is shown whole, which costs what showing everything costs.
        let what = format!("{}: {totals:?}", stream.name);
        assert_eq!(totals.all.n_failed, 0, "{what}");
        assert!(totals.cost() <= 1.001, "{what}");
        // Three in a hundred by the prices of the replay; the tools of the proxy itself come on top here.
        assert!(totals.dearer() <= 0.04, "{what}");
        let is_whole = totals.mean_list() > 0.99 * as_f64(stream.tools.len());
        if !is_whole || stream.tools.len() > WHOLE {
            check(&stream, Kind::NeverRelists, &totals);
        }
    }
}
