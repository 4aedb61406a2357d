//! All sessions of a stream, one after the other, with hours between them.

use std::sync::Arc;
use std::time::Duration;

use riglm_adapters_prediction::O200kTokenCounter;
use riglm_domain::economics::CostModel;
use riglm_domain::listing::ListPolicyName;
use riglm_ports::fake::ManualClock;
use riglm_ports::token_counter::TokenCounter as _;

use super::agent::{Agent, Kind, Line};
use super::definitions::Definitions;
use super::measure::Totals;
use super::server::{CatalogServer, servers_of};
use super::stage::{Stage, StageOptions};
use super::stream::Stream;

/// The time before each session.
pub(super) const BETWEEN_SESSIONS: Duration = Duration::from_hours(2);

/// Who works, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// What the agent does with lists.
    pub(crate) kind: Kind,
    /// The policy; `None` for that of the kind of client.
    pub(crate) policy: Option<ListPolicyName>,
    /// The most tokens of a list, held however little is known.
    pub(crate) token_budget: Option<u64>,
    /// Whether it says what it was asked for before its first list.
    pub(crate) with_query: bool,
    /// How many tokens the definition of a tool has at least.
    pub(crate) tool_tokens: u64,
}

/// Has an agent do all sessions of a stream; what each teaches is known before the next.
pub(crate) async fn run(stream: &Stream, plan: Plan) -> Totals {
    let data = tempfile::tempdir().expect("a temporary directory");
    let costs = CostModel::default();
    let definitions = Definitions::of(&stream.tools, plan.tool_tokens);
    let servers = servers_of(&stream.tools, &definitions);
    let all_tokens = tokens_of_all(&servers).await;
    let options = StageOptions {
        policy: plan.policy,
        token_budget: plan.token_budget,
        ..StageOptions::default()
    };
    let clock = Arc::new(ManualClock::default());
    let mut stage = Stage::start(data.path(), Arc::clone(&clock), servers, &options).await;
    if plan.kind == Kind::Relists {
        show_relisting(&stage).await;
    }
    let mut agent = Agent::new(plan.kind, &stage.url, &stream.tools, costs, true);
    let mut totals = Totals::default();
    let n_sessions = stream.sessions.len();
    for (at, session) in stream.sessions.iter().enumerate() {
        clock.advance(BETWEEN_SESSIONS);
        stage.learn().await;
        let key = format!("{}-{at}", stream.name);
        let measured = agent.live(session, &key, &clock, plan.with_query).await;
        let all = (stream.tools.len(), all_tokens);
        totals.add(&measured, (at, n_sessions), &costs, all);
    }
    stage.stop().await;
    totals
}

/// Returns how many tokens a list has that shows everything, with what the proxy itself adds to it.
async fn tokens_of_all(servers: &[Arc<CatalogServer>]) -> u64 {
    let data = tempfile::tempdir().expect("a temporary directory");
    let options = StageOptions {
        policy: Some(ListPolicyName::All),
        ..StageOptions::default()
    };
    let clock = Arc::new(ManualClock::default());
    let stage = Stage::start(data.path(), clock, servers.to_vec(), &options).await;
    let mut line = Line::open(&stage.url, "agent", None, false).await;
    let list = line.list("{}").await;
    let list = list.expect("a session that was just opened");
    let sizes = list
        .iter()
        .map(|tool| O200kTokenCounter.count(&tool.to_string()));
    let n_tokens = sizes.sum();
    stage.stop().await;
    n_tokens
}

/// Has a server change its list and back, so that the proxy sees that the agent asks for lists again.
async fn show_relisting(stage: &Stage) {
    let mut line = Line::open(&stage.url, Kind::Relists.client(), None, true).await;
    line.list("{}")
        .await
        .expect("a session that was just opened");
    for _ in 0..2 {
        let before = line.client.n_received();
        stage.servers[0].change().await;
        line.client
            .method_after(before, "notifications/tools/list_changed", 1)
            .await;
        line.list("{}").await.expect("a session that is open");
    }
    line.client.delete().await;
}
