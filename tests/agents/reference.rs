//! Baselines for agents: a replay of the same sessions at the same times, and lists of the most
//! frequent tools so far.

use std::convert::Infallible;
use std::sync::Arc;

use riglm_adapters_prediction::{PredictionConfig, predictor_named};
use riglm_domain::prediction::PredictorName;
use riglm_domain::selection::economics::CostModel;
use riglm_domain::selection::{ListBounds, ListPrices, TopicWords};
use riglm_evaluation::replay::{
    ReplayCall, ReplayCatalog, ReplayOptions, ReplaySession, ReplayTexts, ReplayTool,
    ReplayedPredictor, SessionSource, replay,
};
use riglm_evaluation::simulation::{ListMetrics, SimulatedOptions, SimulatedPolicy};
use riglm_ports::clock::Clock as _;
use riglm_ports::fake::ManualClock;

use super::agent::{AgentKind, BETWEEN_CALLS};
use super::measure::ratio;
use super::run::BETWEEN_SESSIONS;
use super::stream::Stream;

/// The number of tools in a search result in addition to the found one.
const N_INLINE: usize = 9;

#[derive(Debug)]
struct Sessions(std::vec::IntoIter<ReplaySession>);

impl SessionSource for Sessions {
    type Error = Infallible;

    async fn next(&mut self) -> Result<Option<ReplaySession>, Infallible> {
        Ok(self.0.next())
    }

    async fn restart(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

/// Replays a stream under these policies, with the client class of `kind`. Every definition counts
/// as `tool_tokens` tokens.
pub(crate) async fn replay_stream(
    stream: &Stream,
    policies: &[SimulatedPolicy],
    kind: AgentKind,
    with_query: bool,
    tool_tokens: u32,
) -> Vec<(SimulatedPolicy, ListMetrics)> {
    let config = PredictionConfig::default();
    let predictor =
        ReplayedPredictor::of("mix", move || predictor_named(PredictorName::Mix, &config));
    let options = ReplayOptions {
        predictors: vec![predictor],
        policies: policies.to_vec(),
        lists: SimulatedOptions {
            bounds: ListBounds::default(),
            n_inline: N_INLINE,
            prices: ListPrices {
                model: CostModel {
                    tokens_per_tool: f64::from(tool_tokens),
                    ..CostModel::default()
                },
                ..ListPrices::default()
            },
        },
        words: TopicWords::built_in(),
        with_query,
        unseen_tasks: false,
    };
    let tools = stream.tools.iter().map(|tool| ReplayTool {
        name: tool.name.clone(),
        description: tool.description.clone(),
        server: tool.server.clone(),
    });
    let catalog = ReplayCatalog {
        tools: tools.collect(),
    };
    let mut sessions = Sessions(sessions(stream, kind).into_iter());
    let texts = Arc::new(ReplayTexts::of_catalog(&catalog));
    let report = replay(&catalog, &texts, &mut sessions, &options, &|_, _| {}).await;
    report.expect("sessions in memory can be read").policies
}

/// Returns the sessions with the times at which agents make their calls.
fn sessions(stream: &Stream, kind: AgentKind) -> Vec<ReplaySession> {
    let clock = ManualClock::default();
    let sessions = stream.sessions.iter().map(|session| {
        clock.advance(BETWEEN_SESSIONS);
        let started_at = clock.now();
        let calls = session.calls.iter().map(|tool| {
            clock.advance(BETWEEN_CALLS);
            ReplayCall {
                tool: *tool,
                ok: true,
                turn: None,
                at: Some(clock.now()),
            }
        });
        ReplaySession {
            client: Some(kind.client().into()),
            started_at: Some(started_at),
            query: session.query.clone(),
            calls: calls.collect(),
            ..ReplaySession::default()
        }
    });
    sessions.collect()
}

/// Returns the coverage of lists of the `n` tools that were called most often in earlier sessions,
/// without searches: the share of first calls of each tool in a session.
pub(crate) fn coverage_of_most_frequent(stream: &Stream, n: usize) -> f64 {
    let mut n_calls = vec![0_u64; stream.tools.len()];
    let (mut n_covered, mut n_first_uses) = (0, 0);
    for session in &stream.sessions {
        let mut ranked: Vec<usize> = (0..n_calls.len()).collect();
        ranked.sort_by_key(|tool| std::cmp::Reverse(n_calls[*tool]));
        ranked.truncate(n);
        let mut used: Vec<usize> = session.calls.clone();
        used.sort_unstable();
        used.dedup();
        n_first_uses += used.len() as u64;
        n_covered += used.iter().filter(|tool| ranked.contains(tool)).count() as u64;
        for tool in &session.calls {
            n_calls[*tool] += 1;
        }
    }
    ratio(n_covered, n_first_uses)
}
