//! What a batch of records does to the counts.

use std::collections::BTreeMap;

use riglm_domain::id::{InvocationId, SessionId};
use riglm_domain::invocation::{Invocation, InvocationEnd, Outcome};
use riglm_domain::principal::Principal;
use riglm_domain::tool::{ToolKey, ToolRef};
use riglm_domain::usage::{CountedCall, SessionTool, UsageChange};
use riglm_ports::analytics::StoreError;

use super::fold::Folded;
use crate::counts::{self, KnownCall, MovedCall};
use crate::database::Transaction;

/// The change, and the rows that belong to it.
#[derive(Debug, Default)]
pub(super) struct Change {
    counts: UsageChange,
    names: BTreeMap<ToolKey, ToolRef>,
    session_tools: Vec<(SessionId, Principal, SessionTool)>,
}

/// Returns what the batch changes, compared with the rows that are there.
pub(super) async fn change(
    transaction: &mut Transaction,
    batch: &Folded<'_>,
) -> Result<Change, StoreError> {
    let mut change = Change::default();
    let ids: Vec<InvocationId> = (batch.calls().map(|(call, _)| call.id))
        .chain(batch.ends().map(|end| end.id))
        .collect();
    if ids.is_empty() {
        return Ok(change);
    }
    let mut known = counts::known_calls(transaction, &ids).await?;
    for end in batch.ends() {
        if let Some(call) = known.get_mut(&end.id) {
            change.end(call, end);
        }
    }
    let mut new = Vec::new();
    for (call, end) in batch.calls() {
        match (known.get_mut(&call.id), end) {
            (Some(known), Some(end)) => change.end(known, end),
            (Some(_), None) => {}
            (None, end) => new.extend(change.open(call, end)),
        }
    }
    if !new.is_empty() {
        counts::count_successions(transaction, &new, 1, &mut change.counts).await?;
        change.use_in_sessions(transaction, &new).await?;
    }
    Ok(change)
}

/// Writes the change, after the rows.
pub(super) async fn write(transaction: &mut Transaction, change: Change) -> Result<(), StoreError> {
    counts::name_tools(transaction, &change.names).await?;
    counts::put_session_tools(transaction, &change.session_tools).await?;
    counts::apply(transaction, change.counts).await
}

impl Change {
    /// A call that has a row ends, or it becomes known how.
    fn end(&mut self, call: &mut KnownCall, end: &InvocationEnd) {
        let takes_place = match call.outcome {
            None => true,
            Some(Outcome::Unknown) => end.outcome != Outcome::Unknown,
            Some(_) => false,
        };
        if !takes_place {
            return;
        }
        call.outcome = Some(end.outcome);
        if let Some(before) = call.counted {
            let after = CountedCall {
                outcome: Some(end.outcome),
                duration_us: end.duration_us,
                ..before
            };
            call.counted = Some(after);
            self.counts.remove_call(&call.principal, &before);
            self.counts.add_call(&call.principal, &after);
            // The name may be missing where the counts of an older version were made anew.
            self.names
                .entry(before.tool)
                .or_insert_with(|| call.tool.clone());
        }
    }

    /// A call begins, and may have ended.
    fn open(&mut self, call: &Invocation, end: Option<&InvocationEnd>) -> Option<MovedCall> {
        let counted = CountedCall::new(call, end)?;
        self.counts.add_call(&call.principal, &counted);
        self.names.entry(counted.tool).or_insert_with(|| ToolRef {
            upstream: call.upstream.clone(),
            tool: call.tool.clone(),
        });
        Some(MovedCall {
            session: call.session,
            principal: call.principal.clone(),
            counted,
        })
    }

    /// Counts which tools the sessions of the new calls came to use.
    async fn use_in_sessions(
        &mut self,
        transaction: &mut Transaction,
        new: &[MovedCall],
    ) -> Result<(), StoreError> {
        let mut by_session: BTreeMap<SessionId, Vec<&MovedCall>> = BTreeMap::new();
        for call in new {
            by_session.entry(call.session).or_default().push(call);
        }
        let sessions: Vec<SessionId> = by_session.keys().copied().collect();
        let mut known = counts::session_tools_of(transaction, &sessions).await?;
        for (session, calls) in by_session {
            let before = known.remove(&session).unwrap_or_default();
            let mut after = before.clone();
            let mut has_changed = false;
            for call in &calls {
                has_changed |= after.note(&call.counted);
            }
            let Some(first) = calls.first().filter(|_| has_changed) else {
                continue;
            };
            let principal = &first.principal;
            self.counts.change_session(principal, &before, &after);
            let changed = (after.iter()).filter(|tool| before.get(tool.tool) != Some(tool));
            self.session_tools
                .extend(changed.map(|tool| (session, principal.clone(), *tool)));
        }
        Ok(())
    }
}
