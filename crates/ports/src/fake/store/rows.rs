//! The rows, and what records make of them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use riglm_domain::audit::AuditEntry;
use riglm_domain::context::Context;
use riglm_domain::embedding::Embedding;
use riglm_domain::exchange::Exchange;
use riglm_domain::experiment::{Assignment, ExperimentStop};
use riglm_domain::feedback::Feedback;
use riglm_domain::id::{
    AuditId, ContextId, ExchangeId, FeedbackId, InvocationId, OverrideId, RecommendationId, RunId,
    SearchId, SessionId, ToolName, UpstreamName, WorkSessionId,
};
use riglm_domain::invocation::{CallTokens, Invocation, InvocationEnd, InvocationSummary, Outcome};
use riglm_domain::learned_state::Snapshot;
use riglm_domain::list_epoch::ListEpoch;
use riglm_domain::list_shown::ListShown;
use riglm_domain::principal::Principal;
use riglm_domain::recommendation::Recommendation;
use riglm_domain::record::Record;
use riglm_domain::search::Search;
use riglm_domain::session::Session;
use riglm_domain::tool::{ToolDefinition, ToolKey, ToolListing, ToolRef, ToolSighting};
use riglm_domain::tool_approval::ToolApproval;
use riglm_domain::tool_override::ToolOverride;
use riglm_domain::usage::{CountedCall, SessionTools};
use riglm_domain::weights::WeightVersion;
use riglm_domain::work_session::WorkSession;

use super::stored::{Stored, micros};
use crate::analytics::Topic;

/// All that is stored, by what identifies it.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) records: Vec<Record>,
    pub(super) sessions: BTreeMap<SessionId, (Session, Option<Timestamp>)>,
    pub(super) listings: BTreeMap<String, ToolListing>,
    pub(super) listed: BTreeMap<(SessionId, String), Timestamp>,
    pub(super) definitions: BTreeMap<(UpstreamName, ToolName, String), ToolDefinition>,
    pub(super) calls: BTreeMap<InvocationId, InvocationSummary>,
    /// What each session used; it outlives the calls.
    pub(super) session_tools: BTreeMap<SessionId, (Principal, SessionTools)>,
    pub(super) tools: BTreeMap<ToolKey, ToolRef>,
    pub(super) exchanges: BTreeMap<ExchangeId, Exchange>,
    pub(super) lists_shown: BTreeMap<(SessionId, Timestamp), ListShown>,
    pub(super) searches: BTreeMap<SearchId, Search>,
    pub(super) contexts: BTreeMap<ContextId, Context>,
    pub(super) recommendations: BTreeMap<RecommendationId, Recommendation>,
    pub(super) feedback: BTreeMap<FeedbackId, Feedback>,
    pub(super) work_sessions: BTreeMap<WorkSessionId, WorkSession>,
    pub(super) list_epochs: BTreeMap<String, ListEpoch>,
    pub(super) overrides: BTreeMap<OverrideId, ToolOverride>,
    pub(super) tool_approvals: BTreeMap<(UpstreamName, ToolName), ToolApproval>,
    pub(super) audit: BTreeMap<AuditId, AuditEntry>,
    pub(super) weights: BTreeMap<String, BTreeMap<u64, WeightVersion>>,
    pub(super) used_weights: BTreeMap<String, u64>,
    pub(super) snapshots: BTreeMap<String, BTreeMap<u64, Snapshot>>,
    pub(super) embeddings: BTreeMap<(String, String), Embedding>,
    pub(super) assignments: BTreeMap<(String, String), Assignment>,
    pub(super) experiment_stops: BTreeMap<String, ExperimentStop>,
    pub(super) revisions: BTreeMap<&'static str, u64>,
}

impl Rows {
    pub(super) fn apply(&mut self, record: &Record) {
        self.records.push(record.clone());
        match record {
            Record::SessionOpened(session) => {
                let row = || (session.stored(), None);
                self.sessions.entry(session.id).or_insert_with(row);
            }
            Record::SessionClosed { session, ended_at } => {
                if let Some((_, end)) = self.sessions.get_mut(session) {
                    end.get_or_insert(micros(*ended_at));
                }
            }
            Record::ToolsSeen { listing, seen_at } => self.see_tools(listing, micros(*seen_at)),
            Record::ToolsListed {
                session,
                listing,
                listed_at,
            } => keep(
                &mut self.listed,
                (*session, listing.clone()),
                micros(*listed_at),
            ),
            Record::CallOpened(call) => self.open_call(call.stored()),
            Record::CallClosed(end) => self.close_call(end.stored()),
            Record::CallMeasured(tokens) => self.measure_call(tokens.stored()),
            Record::Exchanged(row) => keep(&mut self.exchanges, row.id, row.stored()),
            Record::ListShown(row) => {
                let row = row.stored();
                keep(&mut self.lists_shown, (row.session, row.shown_at), row);
            }
            Record::Searched(row) => keep(&mut self.searches, row.id, row.stored()),
            Record::ContextGiven(row) => keep(&mut self.contexts, row.id, row.stored()),
            Record::Recommended(row) => keep(&mut self.recommendations, row.id, row.stored()),
            Record::FeedbackGiven(row) => keep(&mut self.feedback, row.id, row.stored()),
            Record::RunLost { run, noticed_at } => self.lose(*run, micros(*noticed_at)),
        }
    }

    /// Notes that a topic was changed.
    pub(super) fn touch(&mut self, topic: Topic) {
        *self.revisions.entry(topic.as_str()).or_default() += 1;
    }

    fn see_tools(&mut self, listing: &ToolListing, seen_at: Timestamp) {
        keep(&mut self.listings, listing.id.clone(), listing.clone());
        for sighting in &listing.tools {
            let key = (
                listing.upstream.clone(),
                sighting.name.clone(),
                sighting.content_hash.clone(),
            );
            let row = || ToolDefinition {
                upstream: listing.upstream.clone(),
                sighting: ToolSighting {
                    definition: String::new(),
                    ..sighting.clone()
                },
                first_seen: seen_at,
                last_seen: seen_at,
            };
            let known = self.definitions.entry(key).or_insert_with(row);
            known.first_seen = known.first_seen.min(seen_at);
            known.last_seen = known.last_seen.max(seen_at);
            if known.sighting.definition.is_empty() {
                known.sighting.definition.clone_from(&sighting.definition);
            }
        }
    }

    fn open_call(&mut self, call: Invocation) {
        if self.calls.contains_key(&call.id) {
            return;
        }
        if let Some(counted) = CountedCall::new(&call, None) {
            let tool = ToolRef {
                upstream: call.upstream.clone(),
                tool: call.tool.clone(),
            };
            keep(&mut self.tools, counted.tool, tool);
            let new = || (call.principal.clone(), SessionTools::default());
            let (_, used) = self.session_tools.entry(call.session).or_insert_with(new);
            used.note(&counted);
        }
        let row = InvocationSummary {
            invocation: call,
            end: None,
            request_tokens: None,
            response_tokens: None,
        };
        self.calls.insert(row.invocation.id, row);
    }

    fn close_call(&mut self, end: InvocationEnd) {
        let Some(call) = self.calls.get_mut(&end.id) else {
            return;
        };
        let is_known = |end: &InvocationEnd| end.outcome != Outcome::Unknown;
        if call
            .end
            .as_ref()
            .is_none_or(|first| !is_known(first) && is_known(&end))
        {
            call.end = Some(end);
        }
    }

    fn measure_call(&mut self, tokens: CallTokens) {
        if let Some(call) = self.calls.get_mut(&tokens.id) {
            call.request_tokens = call.request_tokens.or(tokens.request);
            call.response_tokens = call.response_tokens.or(tokens.response);
        }
    }

    fn lose(&mut self, run: RunId, noticed_at: Timestamp) {
        for call in self.calls.values_mut() {
            let session = self.sessions.get(&call.invocation.session);
            if session.is_some_and(|(session, _)| session.run == run) {
                call.end.get_or_insert(InvocationEnd {
                    id: call.invocation.id,
                    outcome: Outcome::Unknown,
                    duration_us: 0,
                    wait_us: 0,
                    response_bytes: 0,
                    result: None,
                });
            }
        }
        for (session, end) in self.sessions.values_mut() {
            if session.run == run {
                end.get_or_insert(noticed_at);
            }
        }
    }
}

/// Stores a row unless there is one with this key.
fn keep<K: Ord, V>(rows: &mut BTreeMap<K, V>, key: K, row: V) {
    rows.entry(key).or_insert(row);
}
