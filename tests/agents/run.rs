//! A run of all sessions of a stream, one after the other, with hours between them.

use std::sync::Arc;
use std::time::Duration;

use riglm_adapters_prediction::O200kTokenCounter;
use riglm_domain::selection::ListPolicyName;
use riglm_domain::selection::economics::CostModel;
use riglm_ports::fake::ManualClock;
use riglm_ports::token_counter::TokenCounter as _;

use super::agent::{Agent, AgentKind, AgentSession};
use super::definitions::Definitions;
use super::measure::StreamStatistics;
use super::server::{CatalogServer, servers_of};
use super::stage::{InProcessProxy, InProcessProxyOptions};
use super::stream::Stream;

/// The simulated time before each session.
pub(super) const BETWEEN_SESSIONS: Duration = Duration::from_hours(2);

#[derive(Clone, Copy, Debug)]
pub(crate) struct RunOptions {
    pub(crate) kind: AgentKind,
    /// The list policy. `None` for the default of the client class.
    pub(crate) policy: Option<ListPolicyName>,
    /// The maximum tokens of a list, also for sessions about which little is known.
    pub(crate) token_budget: Option<u64>,
    /// Whether the agent sends its task as context with its first list request.
    pub(crate) with_query: bool,
    /// The minimum tokens of a tool definition.
    pub(crate) tool_tokens: u64,
}

/// Runs all sessions of a stream with one agent. The learner absorbs each session before the next
/// one starts.
pub(crate) async fn run_stream(stream: &Stream, plan: RunOptions) -> StreamStatistics {
    let data = tempfile::tempdir().expect("a temporary directory");
    let costs = CostModel::default();
    let definitions = Definitions::of(&stream.tools, plan.tool_tokens);
    let servers = servers_of(&stream.tools, &definitions);
    let all_tokens = tokens_of_all(&servers).await;
    let options = InProcessProxyOptions {
        policy: plan.policy,
        token_budget: plan.token_budget,
        ..InProcessProxyOptions::default()
    };
    let clock = Arc::new(ManualClock::default());
    let mut stage = InProcessProxy::start(data.path(), Arc::clone(&clock), servers, &options).await;
    if plan.kind == AgentKind::Relists {
        teach_relisting(&stage).await;
    }
    let mut agent = Agent::new(plan.kind, &stage.url, &stream.tools, costs, true);
    let mut totals = StreamStatistics::default();
    let n_sessions = stream.sessions.len();
    for (at, session) in stream.sessions.iter().enumerate() {
        clock.advance(BETWEEN_SESSIONS);
        stage.learn().await;
        let key = format!("{}-{at}", stream.name);
        let measured = agent
            .run_session(session, &key, &clock, plan.with_query)
            .await;
        let all = (stream.tools.len(), all_tokens);
        totals.add(&measured, (at, n_sessions), &costs, all);
    }
    stage.stop().await;
    totals
}

/// Returns the tokens of a list with all tools, including the own tools of the proxy.
async fn tokens_of_all(servers: &[Arc<CatalogServer>]) -> u64 {
    let data = tempfile::tempdir().expect("a temporary directory");
    let options = InProcessProxyOptions {
        policy: Some(ListPolicyName::All),
        ..InProcessProxyOptions::default()
    };
    let clock = Arc::new(ManualClock::default());
    let stage = InProcessProxy::start(data.path(), clock, servers.to_vec(), &options).await;
    let mut line = AgentSession::open(&stage.url, "agent", None, false).await;
    let list = line.list("{}").await;
    let list = list.expect("a session that was just opened");
    let sizes = list
        .iter()
        .map(|tool| O200kTokenCounter.count(&tool.to_string()));
    let n_tokens = sizes.sum();
    stage.stop().await;
    n_tokens
}

/// Changes a list and changes it back, so that the proxy observes that the agent requests lists
/// again.
async fn teach_relisting(stage: &InProcessProxy) {
    let mut line = AgentSession::open(&stage.url, AgentKind::Relists.client(), None, true).await;
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
