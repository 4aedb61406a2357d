//! The changes of the usage counts by a batch of records.

use std::collections::{BTreeMap, HashSet};

use riglm_domain::catalog::tool::{ToolKey, ToolRef};
use riglm_domain::id::{InvocationId, SessionId};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::invocation::{Invocation, InvocationEnd, Outcome};
use riglm_domain::usage::{CountedCall, SessionTool, UsageChange};
use riglm_ports::analytics::StoreError;

use super::fold::FoldedBatch;
use crate::counts::{self, ChangedCall, ExistingCall};
use crate::database::Transaction;

/// The change of the counts, and the rows that belong to it.
#[derive(Debug, Default)]
pub(super) struct CountsChange {
    /// The calls that begin in the batch and have no rows yet.
    pub(super) new_calls: HashSet<InvocationId>,
    counts: UsageChange,
    names: BTreeMap<ToolKey, ToolRef>,
    session_tools: Vec<(SessionId, Principal, SessionTool)>,
}

/// Returns the change by the batch, relative to the existing rows.
pub(super) async fn change(
    transaction: &mut Transaction,
    batch: &FoldedBatch<'_>,
) -> Result<CountsChange, StoreError> {
    let mut change = CountsChange::default();
    let opened: Vec<InvocationId> = batch.calls().map(|call| call.opened.id).collect();
    let mut ids = counts::possibly_known(transaction, &opened).await?;
    ids.extend(batch.ends().map(|end| end.id));
    let mut known = counts::known_calls(transaction, &ids).await?;
    // Before the calls of the batch: these ends belong to earlier rows.
    for end in batch.ends() {
        if let Some(call) = known.get_mut(&end.id) {
            change.end(call, end);
        }
    }
    let mut new = Vec::new();
    for call in batch.calls() {
        match (known.get_mut(&call.opened.id), call.end) {
            (Some(known), Some(end)) => change.end(known, end),
            (Some(_), None) => {}
            (None, end) => {
                change.new_calls.insert(call.opened.id);
                new.extend(change.open(call.opened, end));
            }
        }
    }
    if !new.is_empty() {
        counts::count_transitions(transaction, &new, 1, &mut change.counts).await?;
        change.count_session_tools(transaction, &new).await?;
    }
    Ok(change)
}

/// Writes the change. The rows must be written before.
pub(super) async fn write(
    transaction: &mut Transaction,
    change: CountsChange,
) -> Result<(), StoreError> {
    counts::store_tool_names(transaction, &change.names).await?;
    counts::put_session_tools(transaction, &change.session_tools).await?;
    counts::apply(transaction, change.counts).await
}

impl CountsChange {
    /// Counts the end of a call that has a row, or its replaced outcome.
    fn end(&mut self, call: &mut ExistingCall, end: &InvocationEnd) {
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
            // The name may be missing if the counts were rebuilt from the rows of an older version.
            self.names
                .entry(before.tool)
                .or_insert_with(|| call.tool.clone());
        }
    }

    /// Counts a new call, with its end if it is known.
    fn open(&mut self, call: &Invocation, end: Option<&InvocationEnd>) -> Option<ChangedCall> {
        let counted = CountedCall::new(call, end)?;
        self.counts.add_call(&call.principal, &counted);
        self.names.entry(counted.tool).or_insert_with(|| ToolRef {
            upstream: call.upstream.clone(),
            tool: call.tool.clone(),
        });
        Some(ChangedCall {
            session: call.session,
            principal: call.principal.clone(),
            counted,
        })
    }

    /// Counts the tools that are new in the sessions of the new calls.
    async fn count_session_tools(
        &mut self,
        transaction: &mut Transaction,
        new: &[ChangedCall],
    ) -> Result<(), StoreError> {
        let mut by_session: BTreeMap<SessionId, Vec<&ChangedCall>> = BTreeMap::new();
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
                has_changed |= after.record_call(&call.counted);
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
