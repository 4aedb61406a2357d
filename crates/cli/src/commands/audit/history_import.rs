//! `riglm audit --import-history`: the calls of transcripts, as rows that the predictor learns from.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use jiff::{SignedDuration, Timestamp};
use riglm_adapters_clients::transcripts::{CallOutcome, RecordedCall, ToolKey, TranscriptClient};
use riglm_adapters_storage::{RecordingMode, Store, keyed_hasher, open_reader};
use riglm_app::clock::SystemClock;
use riglm_app::tracking::{PastSession, PastSessionCall, PastSessionRecorder};
use riglm_domain::catalog::tool::{ToolListing, ToolPage};
use riglm_domain::id::{InvocationId, ToolName, UpstreamName};
use riglm_domain::usage::invocation::Outcome;
use riglm_domain::usage::record::Record;
use riglm_domain::usage::work_session::{IdleGap, WorkSession};
use riglm_ports::analytics::{
    InvocationRepository as _, RecordSink as _, SnapshotRepository as _, StoreError,
    WorkSessionRepository as _,
};
use riglm_ports::clock::Clock as _;
use serde::Serialize;

use super::history::CallWay;
use super::servers::ServerTools;
use crate::config::Config;

/// The number of records in one transaction.
const N_RECORDS: usize = 1_000;

/// The age from which a call without an end counts as ended: its row would keep the unknown outcome.
const MAX_RUNNING: SignedDuration = SignedDuration::from_hours(24);

#[derive(Debug)]
pub(super) struct HistoryImport {
    recorder: PastSessionRecorder,
    /// The upstream of each server, by the name of the server.
    upstreams: HashMap<String, UpstreamName>,
    /// The servers that did not list their tools.
    unlisted: HashSet<String>,
    /// The names of listed tools, by their comparable form.
    tools: HashMap<ToolKey, ToolName>,
    listings: Vec<ToolListing>,
    sessions: BTreeMap<SessionKey, PastSession>,
    counts: ImportedHistory,
    store: Store,
    now: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SessionKey {
    client: TranscriptClient,
    id: Arc<str>,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct ImportedHistory {
    /// Sessions with calls that are stored.
    pub(super) sessions: u64,
    /// Calls that were not stored before.
    pub(super) new_calls: u64,
    /// Calls that an earlier import has stored.
    pub(super) known_calls: u64,
    /// Calls through riglm, which recorded them itself.
    pub(super) recorded_calls: u64,
    /// Calls to servers that are neither in riglm nor imported by `riglm import`.
    pub(super) foreign_calls: u64,
    /// Calls to servers that did not list their tools, whose exact names are unknown.
    pub(super) unlisted_calls: u64,
    /// Calls that are older than rows are kept.
    pub(super) old_calls: u64,
    /// Calls that may still be running, and calls with a time in the future.
    pub(super) unfinished_calls: u64,
}

impl HistoryImport {
    /// Prepares an import of calls to these servers, and opens the store.
    ///
    /// # Errors
    ///
    /// Returns an error if nothing is recorded, and if the key for hashes or the store cannot be used.
    pub(super) async fn new(config: &Config, servers: &[ServerTools]) -> anyhow::Result<Self> {
        if config.recording.mode == RecordingMode::Off {
            bail!("--import-history stores calls, but recording.mode is off");
        }
        let mut recorder = PastSessionRecorder::new(keyed_hasher(&config.data_dir)?);
        if config.logging.include_arguments {
            recorder = recorder.with_arguments();
        }
        if config.work_sessions.enabled {
            recorder = recorder.with_work_sessions(config.work_sessions.idle_gap());
        }
        let kept = config.recording.retention();
        let now = SystemClock.now();
        if let Some(since) = kept.and_then(|kept| now.checked_sub(kept).ok()) {
            recorder = recorder.since(since);
        }
        let store = open_reader(&config.storage, &config.data_dir, &SystemClock).await?;
        let mut import = Self {
            recorder,
            store,
            now,
            upstreams: HashMap::new(),
            unlisted: HashSet::new(),
            tools: HashMap::new(),
            listings: Vec::new(),
            sessions: BTreeMap::new(),
            counts: ImportedHistory::default(),
        };
        for server in servers {
            if let (Some(upstream), Ok(_)) = (&server.upstream, &server.tools) {
                import.add_server(server, upstream);
            }
            let is_unlisted = server.upstream.is_some() && server.tools.is_err();
            import
                .unlisted
                .extend(is_unlisted.then(|| server.name.clone()));
        }
        Ok(import)
    }

    fn add_server(&mut self, server: &ServerTools, upstream: &UpstreamName) {
        (self.upstreams).insert(server.name.clone(), upstream.clone());
        let mut definitions = Vec::new();
        for counted in server.tools.iter().flatten() {
            let key = ToolKey {
                server: server.name.clone(),
                tool: counted.tool.name.clone(),
            };
            let name = ToolName::from(&*counted.tool.name);
            self.tools.entry(key.comparable()).or_insert(name);
            definitions.push(&*counted.tool.definition);
        }
        let result = format!("{{\"tools\":[{}]}}", definitions.join(","));
        if let Ok(page) = ToolPage::split(&result)
            && !page.tools().is_empty()
        {
            (self.listings).push(ToolListing::new(upstream, &page, &result));
        }
    }

    /// Adds a call, whose server is that of the audit.
    pub(super) fn add(&mut self, call: &RecordedCall, way: CallWay) {
        let key = SessionKey {
            client: call.client,
            id: Arc::clone(&call.session),
        };
        let past = self.past_call(call, way);
        let session = self.sessions.entry(key).or_insert_with(|| PastSession {
            client: call.client.declared_name().to_owned(),
            id: call.session.to_string(),
            started_at: call.started_at,
            calls: Vec::new(),
        });
        session.started_at = session.started_at.min(call.started_at);
        session.calls.extend(past);
    }

    /// Returns the call as it is recorded; `None` for a tool of the client itself.
    fn past_call(&mut self, call: &RecordedCall, way: CallWay) -> Option<PastSessionCall> {
        let server = call.server.as_ref()?;
        let key = ToolKey {
            server: server.clone(),
            tool: call.tool.clone(),
        };
        let known = self.tools.get(&key.comparable()).cloned();
        let upstream = self.upstream_of(call, server, way);
        let arguments = call.arguments.as_deref().filter(|_| upstream.is_some());
        Some(PastSessionCall {
            identity: call.identity,
            arguments: self.recorder.arguments(arguments),
            upstream,
            tool: known.unwrap_or_else(|| ToolName::from(&*call.tool)),
            started_at: call.started_at,
            duration: call.duration,
            outcome: match call.outcome {
                CallOutcome::Success => Outcome::Ok,
                CallOutcome::Error => Outcome::Error,
                CallOutcome::Cancelled => Outcome::Cancelled,
                CallOutcome::Unknown => Outcome::Unknown,
            },
        })
    }

    /// Returns the upstream of a call; `None` if the call is left out, and counts it.
    fn upstream_of(
        &mut self,
        call: &RecordedCall,
        server: &str,
        way: CallWay,
    ) -> Option<UpstreamName> {
        let age = self.now.duration_since(call.started_at);
        let may_run = call.outcome == CallOutcome::Unknown && age < MAX_RUNNING;
        let counts = &mut self.counts;
        let counter = if way == CallWay::ThroughRiglm {
            &mut counts.recorded_calls
        } else if age.is_negative() || may_run {
            &mut counts.unfinished_calls
        } else if self.unlisted.contains(server) {
            &mut counts.unlisted_calls
        } else if let Some(upstream) = self.upstreams.get(server) {
            return Some(upstream.clone());
        } else {
            &mut counts.foreign_calls
        };
        *counter += 1;
        None
    }

    /// Stores the calls, and makes predictors learn from all calls again.
    ///
    /// # Errors
    ///
    /// Returns the error of the store. What was stored before it stays, and a second import stores
    /// the rest.
    pub(super) async fn store(self) -> anyhow::Result<ImportedHistory> {
        let store = self.store.clone();
        let stored = self.store_calls().await;
        store.close().await;
        stored
    }

    async fn store_calls(self) -> anyhow::Result<ImportedHistory> {
        let (mut counts, store, seen_at) = (self.counts, &self.store, self.now);
        let seen = self.listings.into_iter();
        let mut records: Vec<Record> = seen
            .map(|listing| Record::ToolsSeen { listing, seen_at })
            .collect();
        for mut session in self.sessions.into_values() {
            // A stable sort: calls of one time stay in the order of the transcript.
            session.calls.sort_by_key(|call| call.started_at);
            let has_upstream = |call: &&PastSessionCall| call.upstream.is_some();
            let n_all = session.calls.iter().filter(has_upstream).count() as u64;
            let rows = self.recorder.rows(&session);
            let calls = rows.records.iter().filter_map(|record| match record {
                Record::CallOpened(call) => Some(call.id),
                _ => None,
            });
            let calls: Vec<InvocationId> = calls.collect();
            let n_known = store.calls_by_id(&calls).await?.len() as u64;
            let n_calls = calls.len() as u64;
            counts.known_calls += n_known;
            counts.new_calls += n_calls - n_known;
            counts.old_calls += n_all - n_calls;
            counts.sessions += u64::from(n_calls > 0);
            for work in &rows.work_sessions {
                store_work_session(store, work).await?;
            }
            // Copies of known calls in another session would leave it without calls.
            if n_known < n_calls {
                records.extend(rows.records);
            }
            if records.len() >= N_RECORDS {
                apply(store, &records, &counts).await?;
                records.clear();
            }
        }
        apply(store, &records, &counts).await?;
        Ok(counts)
    }
}

/// Stores records, and makes predictors learn from all calls again if any is new. That is done for each
/// part, so that calls of an import that ends early are learned, too.
async fn apply(
    store: &Store,
    records: &[Record],
    counts: &ImportedHistory,
) -> Result<(), StoreError> {
    store.apply(records).await?;
    if counts.new_calls > 0 {
        store.delete_snapshots().await?;
    }
    Ok(())
}

/// Stores a work session, or its later end. Its key belongs to it alone, so no pause is too long.
async fn store_work_session(store: &Store, work: &WorkSession) -> Result<(), StoreError> {
    let no_gap = IdleGap::from(Duration::MAX);
    let stored = store.resolve_work_session(work, no_gap).await?;
    if stored.last_active_at < work.last_active_at {
        let later = WorkSession {
            started_at: work.last_active_at,
            ..work.clone()
        };
        store.resolve_work_session(&later, no_gap).await?;
    }
    Ok(())
}

impl ImportedHistory {
    /// Returns the sentences for people.
    pub(super) fn sentences(&self) -> Vec<String> {
        let mut lines = vec![match self.new_calls {
            0 => "No new call was imported.".to_owned(),
            new => format!(
                "{new} calls were imported; the predictor learns from them within seconds, or at the \
                 next start."
            ),
        }];
        let others = [
            (self.known_calls, "were imported before"),
            (
                self.recorded_calls,
                "went through riglm, which recorded them",
            ),
            (
                self.foreign_calls,
                "were to servers that riglm has not and would not import",
            ),
            (
                self.unlisted_calls,
                "were to servers that did not list their tools",
            ),
            (self.old_calls, "are older than recording.retention_days"),
            (
                self.unfinished_calls,
                "may still be running, or have a time in the future",
            ),
        ];
        let others = others.iter().filter(|(n_calls, _)| *n_calls > 0);
        lines.extend(others.map(|(n_calls, reason)| format!("{n_calls} calls {reason}.")));
        lines
    }
}
