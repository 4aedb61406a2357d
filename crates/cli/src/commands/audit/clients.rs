//! The figures of each client: what stands at the head of its prompts, and what riglm would show.

use riglm_adapters_clients::transcripts::TranscriptClient;
use riglm_app::selection::FilteringConfig;
use riglm_domain::id::ToolName;
use riglm_domain::selection::ListPolicyName;
use riglm_evaluation::simulation::ListMetrics;
use serde_json::{Value, json};

use super::figures::MOST_CALLS;
use super::history::CallHistory;
use super::servers::ServerTools;
use crate::commands::replay::policy_json;
use crate::config::Config;

#[derive(Debug)]
pub(super) struct ClientFigures {
    /// The name of the product.
    pub(super) title: String,
    pub(super) n_servers: usize,
    /// The number of servers that listed their tools.
    pub(super) n_listed: usize,
    /// The number of tools, of the servers whose tools are known.
    pub(super) n_tools: usize,
    /// The tokens of their definitions, at the head of each prompt.
    pub(super) n_tokens: u64,
    /// The use of the tools; `None` if the client has no transcripts that can be read.
    pub(super) usage: Option<ClientUsage>,
}

/// The use of tools in the transcripts of a client.
#[derive(Debug)]
pub(super) struct ClientUsage {
    pub(super) n_sessions: usize,
    pub(super) n_calls: u64,
    /// The number of tools that made 95 % of the calls.
    pub(super) n_tools_for_most: usize,
    /// The results of lists of riglm.
    pub(super) live: ListMetrics,
    pub(super) lists: ClientLists,
}

/// The lists that riglm gives a client with the present configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientLists {
    /// Those of the replay.
    Short,
    /// The client loads tools on demand, so its list stays whole and has marks.
    OnDemand,
}

impl ClientFigures {
    /// Returns the figures of all clients with servers or calls, most calls first.
    ///
    /// # Errors
    ///
    /// Returns the error of a replay.
    pub(super) async fn all(
        config: &Config,
        servers: &[ServerTools],
        history: &CallHistory,
    ) -> anyhow::Result<Vec<Self>> {
        let titles = servers.iter().flat_map(|server| &server.clients).cloned();
        let with_calls = TranscriptClient::ALL.iter().copied();
        let with_calls = with_calls.filter(|client| history.has_sessions(*client));
        let titles = titles.chain(with_calls.map(|client| client.title().to_owned()));
        let mut all: Vec<Self> = Vec::new();
        for title in titles {
            if all.iter().all(|known| known.title != title) {
                all.push(Self::of(title, config, servers, history).await?);
            }
        }
        all.sort_by_key(|client| std::cmp::Reverse(client.n_calls()));
        Ok(all)
    }

    async fn of(
        title: String,
        config: &Config,
        servers: &[ServerTools],
        history: &CallHistory,
    ) -> anyhow::Result<Self> {
        let own: Vec<&ServerTools> = (servers.iter())
            .filter(|server| server.clients.contains(&title))
            .collect();
        let listed = || own.iter().filter_map(|server| server.tools.as_ref().ok());
        let tools = || listed().flatten();
        let mut clients = TranscriptClient::ALL.iter().copied();
        let usage = match clients.find(|client| client.title() == title) {
            Some(client) if history.has_sessions(client) => {
                Some(ClientUsage::of(client, config, &own, history).await?)
            }
            _ => None,
        };
        Ok(Self {
            n_servers: own.len(),
            n_listed: listed().count(),
            n_tools: tools().count(),
            n_tokens: tools().map(|counted| counted.n_tokens).sum(),
            usage,
            title,
        })
    }

    fn n_calls(&self) -> u64 {
        self.usage.as_ref().map_or(0, |usage| usage.n_calls)
    }

    /// Returns the tokens of definitions that each prompt would not have had: the mean share of
    /// tools that were not listed, of all tokens. An estimate, because definitions differ in length.
    pub(super) fn n_saved_tokens(&self) -> Option<u64> {
        let usage = self.usage.as_ref().filter(|_| self.n_tools > 0)?;
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an estimate from a share between 0 and 1"
        )]
        let saved = (usage.live.reduction.clamp(0.0, 1.0) * self.n_tokens as f64).round() as u64;
        Some(saved)
    }

    /// Returns the tokens at the head of each prompt; `None` if they are unknown.
    pub(super) fn tokens_per_prompt(&self) -> Option<u64> {
        (self.n_listed > 0).then_some(self.n_tokens)
    }

    /// Returns the results of lists of riglm as JSON.
    pub(super) fn live_as_json(&self) -> Value {
        let usage = self.usage.as_ref();
        usage.map_or(Value::Null, |usage| policy_json(&usage.live))
    }

    /// Returns the figures as JSON.
    pub(super) fn as_json(&self) -> Value {
        let usage = self.usage.as_ref();
        json!({
            "name": self.title,
            "servers": self.n_servers,
            "tools": (self.n_listed > 0).then_some(self.n_tools),
            "tokens_per_prompt": self.tokens_per_prompt(),
            "sessions": usage.map(|usage| usage.n_sessions),
            "calls": usage.map(|usage| usage.n_calls),
            "tools_for_95_percent": usage.map(|usage| usage.n_tools_for_most),
            "loads_on_demand": usage.map(|usage| usage.lists == ClientLists::OnDemand),
            "tokens_saved_per_prompt": self.n_saved_tokens(),
            "live": self.live_as_json(),
        })
    }
}

impl ClientUsage {
    async fn of(
        client: TranscriptClient,
        config: &Config,
        servers: &[&ServerTools],
        history: &CallHistory,
    ) -> anyhow::Result<Self> {
        let usage = history.usage_of(client);
        Ok(Self {
            n_sessions: history.sessions_of(client).count(),
            n_calls: usage.n_mcp_calls,
            n_tools_for_most: usage.n_tools_for(MOST_CALLS),
            live: history.replay(config, servers, client).await?,
            lists: lists_of(client, &config.filtering),
        })
    }
}

/// Returns the lists that riglm gives a client: by the first rule that matches its name.
fn lists_of(client: TranscriptClient, filtering: &FilteringConfig) -> ClientLists {
    let name = ToolName::from(client.declared_name());
    let rule = filtering
        .clients
        .iter()
        .find(|rule| rule.name.matches(&name));
    let policy = rule.and_then(|rule| rule.policy).or(filtering.policy);
    let loads_on_demand = rule.is_some_and(|rule| rule.loads_on_demand == Some(true));
    if policy == Some(ListPolicyName::Hints) || loads_on_demand {
        ClientLists::OnDemand
    } else {
        ClientLists::Short
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_of_a_client_tells_its_lists() {
        let mut filtering = FilteringConfig::default();
        let lists = |filtering: &FilteringConfig, client| lists_of(client, filtering);
        let claude = TranscriptClient::ClaudeCode;
        assert_eq!(lists(&filtering, claude), ClientLists::OnDemand);
        assert_eq!(
            lists(&filtering, TranscriptClient::Codex),
            ClientLists::Short
        );
        filtering.clients.clear();
        assert_eq!(lists(&filtering, claude), ClientLists::Short);
        filtering.policy = Some(ListPolicyName::Hints);
        assert_eq!(lists(&filtering, claude), ClientLists::OnDemand);
    }
}
