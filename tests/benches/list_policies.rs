//! Coverage, searches and costs of list policies, for agents that work through the proxy. Prints
//! the tables of docs/policies.md.
//!
//! `cargo bench -p riglm-tests --bench list_policies -- DIR [--streams a,b] [--kinds a,b]
//! [--sessions N] [--query]`
//!
//! `DIR` contains streams in the format of `riglm replay`: `NAME.catalog.json` with `NAME.jsonl`.
//! `--streams` selects streams by name. `--kinds` selects from `re-lists`, `conformal`, `never`,
//! `budget`, `hints` and `per-call`. `--sessions` limits the number of sessions of each stream.
//! With `--query`, agents send the task of their session as context.
#![expect(
    clippy::panic,
    reason = "arguments that are not understood end the bench"
)]
#![expect(clippy::print_stdout, reason = "it is what a measurement is for")]

#[expect(dead_code, reason = "tests of faults use more of it")]
#[path = "../agents/lib.rs"]
mod agents;

use std::path::PathBuf;

use agents::agent::AgentKind;
use agents::measure::StreamStatistics;
use agents::reference::{coverage_of_most_frequent, replay_stream};
use agents::run::{RunOptions, run_stream};
use agents::stream::Stream;
use riglm_domain::selection::ListPolicyName;
use riglm_evaluation::simulation::{ListMetrics, SimulatedPolicy};
use riglm_tests::streams::streams_in;

/// The minimum of tokens in a tool definition.
const TOOL_TOKENS: u32 = 200;

/// The token budget of lists in the row `budget`: ten tools.
const BUDGET: u64 = 10 * TOOL_TOKENS as u64;

/// The rows for each stream: name in `--kinds`, kind of agent, list policy, token budget of lists.
const ROWS: [(&str, AgentKind, Option<ListPolicyName>, Option<u64>); 6] = [
    ("re-lists", AgentKind::Relists, None, None),
    (
        "conformal",
        AgentKind::Relists,
        Some(ListPolicyName::Conformal),
        None,
    ),
    ("never", AgentKind::NeverRelists, None, None),
    ("budget", AgentKind::NeverRelists, None, Some(BUDGET)),
    ("hints", AgentKind::OnDemand, None, None),
    ("per-call", AgentKind::PerCall, None, None),
];

#[derive(Debug, Default)]
struct Arguments {
    folder: PathBuf,
    streams: Vec<String>,
    kinds: Vec<String>,
    n_sessions: Option<usize>,
    with_query: bool,
}

#[tokio::main]
async fn main() {
    let arguments = arguments();
    println!(
        "| Stream | Agent | Policy | calls | first uses | searches | in vain | changes | list | known | kilotokens | cost | dearer | model cost | failed |"
    );
    println!("{}", "| --- ".repeat(15) + "|");
    let mut parts = Vec::new();
    for (catalog, sessions) in streams_in(&arguments.folder) {
        let stream = Stream::read(&catalog, &sessions);
        if !arguments.streams.is_empty() && !arguments.streams.contains(&stream.name) {
            continue;
        }
        let stream = match arguments.n_sessions {
            Some(n) => stream.first(n),
            None => stream,
        };
        let simulated = [
            SimulatedPolicy::Live,
            SimulatedPolicy::StaticInline,
            SimulatedPolicy::Conformal(95),
        ];
        let simulated = replay_stream(
            &stream,
            &simulated,
            AgentKind::NeverRelists,
            arguments.with_query,
            TOOL_TOKENS,
        )
        .await;
        for (policy, metrics) in &simulated {
            println!("{}", row_of_replay(&stream, *policy, metrics));
            let agent = ["replay", &policy.to_string()];
            parts.push(fifths(&stream, agent, metrics.searches_by_fifth));
        }
        let rows = ROWS.iter().filter(|(name, ..)| {
            arguments.kinds.is_empty() || arguments.kinds.iter().any(|kind| kind == name)
        });
        // Concurrent, because an agent spends most of its time waiting.
        let runs = rows.map(|(_, kind, policy, token_budget)| {
            let (stream, kind, policy, token_budget, with_query) = (
                stream.clone(),
                *kind,
                *policy,
                *token_budget,
                arguments.with_query,
            );
            tokio::spawn(async move {
                let plan = RunOptions {
                    kind,
                    policy,
                    token_budget,
                    with_query,
                    tool_tokens: TOOL_TOKENS.into(),
                };
                let totals = run_stream(&stream, plan).await;
                (kind, name_of(&plan), totals)
            })
        });
        let runs: Vec<_> = runs.collect();
        let mut mean_list = None;
        for measured in runs {
            let (kind, policy, totals) = measured.await.expect("an agent gets to its end");
            if policy == "epoch" && kind == AgentKind::NeverRelists {
                mean_list = Some(as_count(totals.mean_list().ceil()));
            }
            println!("{}", row(&stream, kind, policy, &totals));
            let agent = [kind.as_str(), policy];
            parts.push(fifths(&stream, agent, totals.searches_by_part()));
        }
        // The baseline gets as many tools as the lists of the policy `epoch` have on average.
        if let Some(n_shown) = mean_list {
            let covered = 100.0 * coverage_of_most_frequent(&stream, n_shown);
            let rest = " |".repeat(10);
            println!(
                "| {} | | {n_shown} most frequent | | {covered:.1} |{rest}",
                stream.name
            );
        }
    }
    println!("\n| Stream | Agent | Policy | 1st fifth | 2nd | 3rd | 4th | 5th |");
    println!("{}", "| --- ".repeat(8) + "|");
    for part in parts {
        println!("{part}");
    }
}

fn fifths(stream: &Stream, [agent, policy]: [&str; 2], searches: [f64; 5]) -> String {
    let searches = searches.map(|searches| format!("{searches:.2}"));
    let searches = searches.join(" | ");
    format!("| {} | {agent} | {policy} | {searches} |", stream.name)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number of tools"
)]
fn as_count(n: f64) -> usize {
    n as usize
}

fn name_of(plan: &RunOptions) -> &'static str {
    match (plan.policy, plan.kind) {
        _ if plan.token_budget.is_some() => "epoch, budget",
        (Some(policy), _) => policy.as_str(),
        (None, AgentKind::Relists) => "append",
        (None, AgentKind::OnDemand) => "hints",
        (None, AgentKind::NeverRelists | AgentKind::PerCall) => "epoch",
    }
}

fn row(stream: &Stream, kind: AgentKind, policy: &str, totals: &StreamStatistics) -> String {
    let all = &totals.all;
    format!(
        "| {} | {} | {} | {:.1} | {:.1} | {:.2} | {:.2} | {:.2} | {:.1} | {:.1} | {:.1} | {:.3} | {:.1} | {:.3} | {} |",
        stream.name,
        kind.as_str(),
        policy,
        100.0 * totals.coverage(),
        100.0 * totals.first_use_coverage(),
        totals.per_session(all.n_searches),
        totals.per_session(all.n_in_vain),
        totals.per_session(all.n_changes),
        totals.mean_list(),
        totals.mean_known(),
        totals.per_session(all.list_tokens + all.answer_tokens) / 1_000.0,
        totals.cost(),
        100.0 * totals.share_of_dearer_sessions(),
        totals.model_cost(),
        all.n_failed,
    )
}

fn row_of_replay(stream: &Stream, policy: SimulatedPolicy, metrics: &ListMetrics) -> String {
    format!(
        "| {} | replay | {policy} | {:.1} | {:.1} | {:.2} | | {:.2} | | {:.1} | | | {:.1} | {:.3} | |",
        stream.name,
        100.0 * metrics.coverage,
        100.0 * metrics.first_use_coverage,
        metrics.searches_per_session,
        metrics.changes_per_session,
        metrics.mean_size,
        100.0 * metrics.dearer_sessions,
        metrics.cost_vs_all,
    )
}

fn arguments() -> Arguments {
    let mut arguments = Arguments::default();
    let mut words = std::env::args().skip(1);
    let list = |text: Option<String>| -> Vec<String> {
        let text = text.expect("a value");
        text.split(',').map(str::to_owned).collect()
    };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--streams" => arguments.streams = list(words.next()),
            "--kinds" => arguments.kinds = list(words.next()),
            "--sessions" => {
                let n = words.next().and_then(|n| n.parse().ok());
                arguments.n_sessions = Some(n.expect("a number of sessions"));
            }
            "--query" => arguments.with_query = true,
            // Added by cargo.
            "--bench" => {}
            option if option.starts_with("--") => panic!("unknown argument {option}"),
            path => arguments.folder = path.into(),
        }
    }
    arguments
}
