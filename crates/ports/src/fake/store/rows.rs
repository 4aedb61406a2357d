//! The rows, and the effect of each record on them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use riglm_domain::catalog::tool::{ToolDefinition, ToolKey, ToolListing, ToolRef, ToolSighting};
use riglm_domain::catalog::tool_approval::ToolApproval;
use riglm_domain::catalog::tool_override::ToolOverride;
use riglm_domain::experiment::{Assignment, ExperimentStop};
use riglm_domain::id::{
    AuditId, ContextId, ExchangeId, FeedbackId, InvocationId, OverrideId, RecommendationId, RunId,
    SearchId, SessionId, ToolName, UpstreamName, WorkSessionId,
};
use riglm_domain::intent::context::Context;
use riglm_domain::mcp::exchange::Exchange;
use riglm_domain::privacy::audit::AuditEntry;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::recommendation::record::Recommendation;
use riglm_domain::recommendation::weights::WeightVersion;
use riglm_domain::retrieval::embedding::Embedding;
use riglm_domain::retrieval::search::Search;
use riglm_domain::selection::epoch::ListEpoch;
use riglm_domain::selection::shown::ListShown;
use riglm_domain::usage::feedback::Feedback;
use riglm_domain::usage::invocation::{
    CallTokens, Invocation, InvocationEnd, InvocationSummary, Outcome,
};
use riglm_domain::usage::learned_state::Snapshot;
use riglm_domain::usage::record::Record;
use riglm_domain::usage::session::Session;
use riglm_domain::usage::work_session::WorkSession;
use riglm_domain::usage::{CountedCall, SessionTools};

use super::stored_form::{ToStored, micros};
use crate::analytics::{ServerMemory, Topic};

/// All stored rows, by their keys.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) records: Vec<Record>,
    pub(super) sessions: BTreeMap<SessionId, (Session, Option<Timestamp>)>,
    pub(super) listings: BTreeMap<String, ToolListing>,
    pub(super) listed: BTreeMap<(SessionId, String), Timestamp>,
    pub(super) definitions: BTreeMap<(UpstreamName, ToolName, String), ToolDefinition>,
    pub(super) calls: BTreeMap<InvocationId, InvocationSummary>,
    // The used tools of each session. They outlive the calls.
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
    pub(super) server_memories: BTreeMap<(UpstreamName, String), ServerMemory>,
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
                let row = || (session.to_stored(), None);
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
            } => insert_if_new(
                &mut self.listed,
                (*session, listing.clone()),
                micros(*listed_at),
            ),
            Record::CallOpened(call) => self.open_call(call.to_stored()),
            Record::CallClosed(end) => self.close_call(end.to_stored()),
            Record::CallMeasured(tokens) => self.measure_call(tokens.to_stored()),
            Record::Exchanged(row) => insert_if_new(&mut self.exchanges, row.id, row.to_stored()),
            Record::ListShown(row) => {
                let row = row.to_stored();
                insert_if_new(&mut self.lists_shown, (row.session, row.shown_at), row);
            }
            Record::Searched(row) => insert_if_new(&mut self.searches, row.id, row.to_stored()),
            Record::ContextGiven(row) => insert_if_new(&mut self.contexts, row.id, row.to_stored()),
            Record::Recommended(row) => {
                insert_if_new(&mut self.recommendations, row.id, row.to_stored());
            }
            Record::FeedbackGiven(row) => {
                insert_if_new(&mut self.feedback, row.id, row.to_stored());
            }
            Record::RunLost { run, noticed_at } => self.lose_run(*run, micros(*noticed_at)),
        }
    }

    /// Increases the revision of a topic.
    pub(super) fn touch(&mut self, topic: Topic) {
        *self.revisions.entry(topic.as_str()).or_default() += 1;
    }

    fn see_tools(&mut self, listing: &ToolListing, seen_at: Timestamp) {
        insert_if_new(&mut self.listings, listing.id.clone(), listing.clone());
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
            insert_if_new(&mut self.tools, counted.tool, tool);
            let new = || (call.principal.clone(), SessionTools::default());
            let (_, used) = self.session_tools.entry(call.session).or_insert_with(new);
            used.record_call(&counted);
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
        // Any other outcome replaces `unknown`, which a lost run writes without knowing the real
        // end.
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

    fn lose_run(&mut self, run: RunId, noticed_at: Timestamp) {
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

/// Stores a row unless the key exists.
fn insert_if_new<K: Ord, V>(rows: &mut BTreeMap<K, V>, key: K, row: V) {
    rows.entry(key).or_insert(row);
}
