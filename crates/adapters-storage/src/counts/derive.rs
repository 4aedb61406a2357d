//! Derivation of all counts from the rows.

use std::collections::BTreeMap;

use riglm_domain::catalog::tool::{ToolKey, ToolRef};
use riglm_domain::id::{InvocationId, SessionId, ToolName, UpstreamName};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::invocation::Outcome;
use riglm_domain::usage::{CountedCall, SessionTool, SessionTools, UsageChange};
use riglm_ports::analytics::StoreError;
use serde::Deserialize;

use super::existing_rows::session_tools_of;
use crate::database::{Statement, Transaction};
use crate::value::Micros;

// The number of rows per page.
const PAGE: usize = 5_000;

const CALLS_AFTER: Statement = Statement {
    table: "invocations",
    sqlite: "
        SELECT json_array(
            hex(id), hex(session), principal, upstream, tool, sequence, started_at, outcome,
            duration_us, continues IS NOT NULL)
        FROM invocations
        WHERE (session, sequence, id)
            > (unhex(?1 ->> 0, '-'), ?1 ->> 1, unhex(?1 ->> 2, '-'))
        ORDER BY session, sequence, id
        LIMIT ?1 ->> 3",
    postgres: "
        SELECT json_build_array(
            id, session, principal, upstream, tool, sequence, started_at, outcome, duration_us,
            (continues IS NOT NULL)::int)::text
        FROM invocations
        WHERE (session, sequence, id)
            > (($1::jsonb ->> 0)::uuid, ($1::jsonb ->> 1)::bigint, ($1::jsonb ->> 2)::uuid)
        ORDER BY session, sequence, id
        LIMIT ($1::jsonb ->> 3)::bigint",
};

const SESSION_TOOLS_AFTER: Statement = Statement {
    table: "session_tools",
    sqlite: "
        SELECT json_array(hex(session), tool, principal, first_sequence, first_at)
        FROM session_tools
        WHERE (session, tool) > (unhex(?1 ->> 0, '-'), ?1 ->> 1)
        ORDER BY session, tool
        LIMIT ?1 ->> 2",
    postgres: "
        SELECT json_build_array(session, tool, principal, first_sequence, first_at)::text
        FROM session_tools
        WHERE (session, tool) > (($1::jsonb ->> 0)::uuid, ($1::jsonb ->> 1)::bigint)
        ORDER BY session, tool
        LIMIT ($1::jsonb ->> 2)::bigint",
};

/// An identifier smaller than the identifier of any row.
const NIL: &str = "00000000-0000-0000-0000-000000000000";

/// The counts derived from the rows, as a change relative to empty counts.
#[derive(Debug, Default)]
pub(crate) struct DerivedCounts {
    pub(crate) change: UsageChange,
    pub(crate) names: BTreeMap<ToolKey, ToolRef>,
    /// First uses that follow from calls and are missing in the tools of their session.
    pub(crate) missing_session_tools: Vec<(SessionId, Principal, SessionTool)>,
    pub(crate) n_calls: u64,
}

/// Derives the counts. The tools of a session have their own rows, which stay when calls are
/// purged. Calls add tools that are missing there.
pub(crate) async fn derive(transaction: &mut Transaction) -> Result<DerivedCounts, StoreError> {
    let mut derived = DerivedCounts::default();
    count_sessions(transaction, &mut derived.change).await?;
    count_calls(transaction, &mut derived).await?;
    derived.change.simplify();
    Ok(derived)
}

/// Counts the pairs of all sessions whose tools are stored.
async fn count_sessions(
    transaction: &mut Transaction,
    change: &mut UsageChange,
) -> Result<(), StoreError> {
    #[derive(Deserialize)]
    struct SessionToolRow(SessionId, ToolKey, Principal, u64, Micros);
    let none = SessionTools::default();
    let mut after = (NIL.to_owned(), i64::MIN, PAGE);
    let mut current: Option<(SessionId, Principal, SessionTools)> = None;
    loop {
        let rows: Vec<SessionToolRow> = transaction.rows(&SESSION_TOOLS_AFTER, &after).await?;
        if let Some(SessionToolRow(session, tool, ..)) = rows.last() {
            after.0 = session.to_string();
            after.1 = tool.0;
        }
        let is_end = rows.is_empty();
        for SessionToolRow(session, tool, principal, first_sequence, first_at) in rows {
            if let Some((_, principal, tools)) = current.take_if(|known| known.0 != session) {
                change.change_session(&principal, &none, &tools);
            }
            let (_, _, tools) =
                current.get_or_insert_with(|| (session, principal, SessionTools::default()));
            tools.insert(SessionTool {
                tool,
                first_sequence,
                first_at: first_at.0,
            });
        }
        if is_end {
            if let Some((_, principal, tools)) = current {
                change.change_session(&principal, &none, &tools);
            }
            return Ok(());
        }
    }
}

/// Counts all calls, and the pairs that follow from them and are missing in the tools of sessions.
async fn count_calls(
    transaction: &mut Transaction,
    derived: &mut DerivedCounts,
) -> Result<(), StoreError> {
    let mut after = (NIL.to_owned(), -1_i64, NIL.to_owned(), PAGE);
    let mut current: Option<SessionScan> = None;
    loop {
        let calls: Vec<CallRow> = transaction.rows(&CALLS_AFTER, &after).await?;
        let Some(last) = calls.last() else { break };
        after.0 = last.session.to_string();
        after.1 = i64::try_from(last.sequence).unwrap_or(i64::MAX);
        after.2 = last.id.to_string();
        let mut sessions: Vec<SessionId> = calls.iter().map(|call| call.session).collect();
        sessions.dedup();
        let mut known = session_tools_of(transaction, &sessions).await?;
        for call in calls {
            derived.n_calls += 1;
            // Further rounds of a multi-round call are not counted.
            if call.continues != 0 {
                continue;
            }
            if let Some(done) = current.take_if(|session| session.id != call.session) {
                derived.finish(done);
            }
            let session = current.get_or_insert_with(|| {
                let tools = known.remove(&call.session).unwrap_or_default();
                SessionScan::new(call.session, call.principal.clone(), tools)
            });
            derived.add(call, session);
        }
    }
    if let Some(done) = current {
        derived.finish(done);
    }
    Ok(())
}

#[derive(Deserialize)]
struct CallRow {
    id: InvocationId,
    session: SessionId,
    principal: Principal,
    upstream: UpstreamName,
    tool: ToolName,
    sequence: u64,
    started_at: Micros,
    outcome: Option<Outcome>,
    duration_us: Option<u64>,
    continues: u8,
}

/// The session whose calls are being read, in the order of their positions.
struct SessionScan {
    id: SessionId,
    principal: Principal,
    /// The used tools according to the session's own rows.
    known: SessionTools,
    /// The stored tools, and the tools of its calls.
    tools: SessionTools,
    sequence: u64,
    /// The tools of the calls at this position, and at the position before it.
    here: Vec<ToolKey>,
    before: Vec<ToolKey>,
}

impl SessionScan {
    fn new(id: SessionId, principal: Principal, known: SessionTools) -> Self {
        Self {
            id,
            principal,
            tools: known.clone(),
            known,
            sequence: 0,
            here: Vec::new(),
            before: Vec::new(),
        }
    }

    fn move_to(&mut self, sequence: u64) {
        if self.sequence == sequence {
            return;
        }
        let here = std::mem::take(&mut self.here);
        let is_next = self.sequence + 1 == sequence;
        self.before = if is_next { here } else { Vec::new() };
        self.sequence = sequence;
    }
}

impl DerivedCounts {
    fn add(&mut self, call: CallRow, session: &mut SessionScan) {
        let tool = ToolRef {
            upstream: call.upstream,
            tool: call.tool,
        };
        let counted = CountedCall {
            tool: tool.key(),
            sequence: call.sequence,
            started_at: call.started_at.0,
            outcome: call.outcome,
            duration_us: call.duration_us.unwrap_or(0),
        };
        self.names.entry(counted.tool).or_insert(tool);
        self.change.add_call(&call.principal, &counted);
        session.move_to(call.sequence);
        for from in &session.before {
            self.change
                .count_transition(&call.principal, *from, counted.tool, 1);
        }
        session.here.push(counted.tool);
        session.tools.record_call(&counted);
    }

    fn finish(&mut self, session: SessionScan) {
        let SessionScan {
            id,
            principal,
            known,
            tools,
            ..
        } = session;
        self.change.change_session(&principal, &known, &tools);
        let missing = (tools.iter()).filter(|tool| known.get(tool.tool) != Some(tool));
        self.missing_session_tools
            .extend(missing.map(|tool| (id, principal.clone(), *tool)));
    }
}
