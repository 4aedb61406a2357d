//! The calls in the transcripts of clients, and their replay.

use std::collections::HashMap;
use std::convert::Infallible;

use riglm_adapters_clients::transcripts::{
    ReadOptions, ReadSummary, RecordedCall, RecordedSession, ServerNames, SessionCollector,
    ToolUsage, TranscriptClient, TranscriptEvent, TranscriptListing, UsageFigures, comparable_name,
    read_transcripts,
};
use riglm_adapters_prediction::predictor_named;
use riglm_domain::prediction::PredictorName;
use riglm_evaluation::replay::{
    ReplayCall, ReplayCatalog, ReplayOptions, ReplaySession, ReplayTool, ReplayedPredictor,
    SessionSource,
};
use riglm_evaluation::simulation::{ListMetrics, SimulatedOptions, SimulatedPolicy};

use super::called_names::CalledNames;
use super::history_import::HistoryImport;
use super::servers::ServerTools;
use super::transcript_progress::TranscriptProgress;
use crate::commands::replay::run_replay;
use crate::compose::{answer_size, words};
use crate::config::Config;

/// Longer arguments are imported like a call without arguments.
const MAX_ARGUMENT_BYTES: usize = 1 << 20;

/// The calls of all sessions.
#[derive(Debug)]
pub(super) struct CallHistory {
    /// The use of tools by all clients.
    pub(super) usage: UsageFigures,
    usage_by_client: HashMap<TranscriptClient, UsageFigures>,
    pub(super) summary: ReadSummary,
    pub(super) sessions: Vec<RecordedSession>,
}

impl CallHistory {
    /// Reads transcripts. Calls are passed to `import`, too, in the order of the files.
    pub(super) fn read(
        transcripts: &TranscriptListing,
        names: &CalledNames,
        mut import: Option<&mut HistoryImport>,
        progress: &TranscriptProgress,
    ) -> Self {
        let options = ReadOptions {
            servers: names.server_names(),
            max_argument_bytes: import.as_ref().map_or(0, |_| MAX_ARGUMENT_BYTES),
            ..ReadOptions::default()
        };
        let behind_riglm = names.server_names();
        let (mut usage, mut collector) = (ToolUsage::default(), SessionCollector::default());
        let mut usage_by_client: HashMap<TranscriptClient, ToolUsage> = HashMap::new();
        let mut add = |mut event: TranscriptEvent| {
            if let TranscriptEvent::Call(call) = &mut event {
                let way = resolve_server(call, &behind_riglm, names);
                usage.add(call);
                usage_by_client.entry(call.client).or_default().add(call);
                if let Some(import) = &mut import {
                    import.add(call, way);
                }
            }
            collector.add(&event);
        };
        let summary = read_transcripts(transcripts, &options, &mut add, &mut |read| {
            progress.advance(&read);
        });
        Self {
            usage: usage.figures(),
            usage_by_client: (usage_by_client.into_iter())
                .map(|(client, usage)| (client, usage.figures()))
                .collect(),
            summary,
            sessions: collector.sessions(),
        }
    }

    /// Returns the use of tools by a client.
    pub(super) fn usage_of(&self, client: TranscriptClient) -> UsageFigures {
        self.usage_by_client
            .get(&client)
            .cloned()
            .unwrap_or_default()
    }

    pub(super) fn sessions_of(
        &self,
        client: TranscriptClient,
    ) -> impl Iterator<Item = &RecordedSession> {
        let of_client = move |session: &&RecordedSession| session.client == client.as_str();
        self.sessions.iter().filter(of_client)
    }

    pub(super) fn has_sessions(&self, client: TranscriptClient) -> bool {
        self.sessions_of(client).next().is_some()
    }

    /// Replays the sessions of a client with the configuration and the tools of its servers, and
    /// returns the results of the lists.
    ///
    /// # Errors
    ///
    /// Returns the error of the replay.
    pub(super) async fn replay(
        &self,
        config: &Config,
        servers: &[&ServerTools],
        client: TranscriptClient,
    ) -> anyhow::Result<ListMetrics> {
        let (catalog, positions) = self.catalog(servers, client);
        let sessions = self.sessions_of(client);
        let mut source = MemorySessions {
            sessions: sessions.map(|it| session(it, &positions)).collect(),
            next: 0,
        };
        let filtering = &config.filtering;
        let prediction = config.prediction.clone();
        let make = move || predictor_named(PredictorName::Mix, &prediction);
        let mut prices = filtering.prices(answer_size(&config.search));
        if let Some(tokens) = tokens_per_tool(servers) {
            prices.model.tokens_per_tool = tokens;
        }
        let options = ReplayOptions {
            predictors: vec![ReplayedPredictor::of(PredictorName::Mix.as_str(), make)],
            policies: vec![SimulatedPolicy::Live],
            lists: SimulatedOptions {
                bounds: filtering.bounds(),
                n_inline: config.search.n_predicted,
                prices,
            },
            words: words(config),
            // The proxy does not see what the user writes.
            with_query: false,
            unseen_tasks: false,
        };
        Ok(run_replay(&catalog, &mut source, &[], &options).await?.live)
    }

    /// Returns the listed tools and those that were only called, and their positions by comparable
    /// name.
    fn catalog(
        &self,
        servers: &[&ServerTools],
        client: TranscriptClient,
    ) -> (ReplayCatalog, HashMap<String, usize>) {
        let mut catalog = ReplayCatalog::default();
        let mut positions = HashMap::new();
        let mut add = |tool: ReplayTool| {
            let position = catalog.tools.len();
            if let std::collections::hash_map::Entry::Vacant(entry) =
                positions.entry(comparable_name(&tool.name))
            {
                entry.insert(position);
                catalog.tools.push(tool);
            }
        };
        for server in servers {
            for counted in server.tools.iter().flatten() {
                add(ReplayTool {
                    name: format!("{}__{}", server.name, counted.tool.name),
                    description: counted.tool.description.clone(),
                    server: server.name.clone(),
                });
            }
        }
        for call in self.sessions_of(client).flat_map(|session| &session.calls) {
            let server = call.tool.split_once("__").map_or("", |(server, _)| server);
            add(ReplayTool {
                name: call.tool.clone(),
                description: String::new(),
                server: server.to_owned(),
            });
        }
        (catalog, positions)
    }
}

/// Returns the mean size of the definitions; `None` without tools.
fn tokens_per_tool(servers: &[&ServerTools]) -> Option<f64> {
    let tools = || {
        servers
            .iter()
            .flat_map(|server| server.tools.iter().flatten())
    };
    let n_tokens: u64 = tools().map(|counted| counted.n_tokens).sum();
    let n_tools = tools().count();
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let mean = n_tokens as f64 / n_tools as f64;
    (n_tools > 0).then_some(mean)
}

/// The way that a call took to its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallWay {
    /// The client called the server.
    Direct,
    /// The client called riglm, which recorded the call.
    ThroughRiglm,
}

/// Replaces the server of a call by that of the audit, also if the call went through riglm.
fn resolve_server(call: &mut RecordedCall, behind: &ServerNames, names: &CalledNames) -> CallWay {
    let is_riglm = (call.server.as_deref()).is_some_and(|name| names.is_riglm(name));
    if !is_riglm {
        if let Some(server) = names.server_of(call) {
            call.server = Some(server.to_owned());
        }
        return CallWay::Direct;
    }
    // riglm puts the name of the upstream before that of the tool, as Codex does with servers.
    let behind = behind.split(TranscriptClient::Codex, &call.tool);
    if let Some(upstream) = behind.server {
        let server = names.server_in_riglm(&upstream).map(str::to_owned);
        call.server = Some(server.unwrap_or(upstream));
        call.tool = behind.tool;
    }
    CallWay::ThroughRiglm
}

fn session(recorded: &RecordedSession, positions: &HashMap<String, usize>) -> ReplaySession {
    let calls = recorded.calls.iter().filter_map(|call| {
        Some(ReplayCall {
            tool: *positions.get(&comparable_name(&call.tool))?,
            ok: call.ok,
            turn: call.turn,
            at: Some(call.t),
        })
    });
    ReplaySession {
        id: recorded.session_id.clone(),
        principal: None,
        client: Some(recorded.client.to_owned()),
        task: recorded.project.clone(),
        started_at: Some(recorded.started_at),
        query: recorded.turns.first().cloned(),
        turns: recorded.turns.clone(),
        calls: calls.collect(),
    }
}

/// Sessions in memory, in the order of their start.
#[derive(Debug)]
struct MemorySessions {
    sessions: Vec<ReplaySession>,
    next: usize,
}

impl SessionSource for MemorySessions {
    type Error = Infallible;

    async fn next(&mut self) -> Result<Option<ReplaySession>, Infallible> {
        let session = self.sessions.get(self.next).cloned();
        self.next += 1;
        Ok(session)
    }

    async fn restart(&mut self) -> Result<(), Infallible> {
        self.next = 0;
        Ok(())
    }
}
