//! Transitions: pairs of consecutive calls in a session.

use std::collections::{BTreeSet, HashMap};

use riglm_domain::catalog::tool::ToolKey;
use riglm_domain::id::SessionId;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::{CountedCall, UsageChange};
use riglm_ports::analytics::StoreError;

use super::existing_rows::calls_at_positions;
use crate::database::Transaction;

/// A counted call that is added or deleted.
#[derive(Debug)]
pub(crate) struct ChangedCall {
    pub(crate) session: SessionId,
    pub(crate) principal: Principal,
    pub(crate) counted: CountedCall,
}

/// Counts `n` times each transition between these calls, and between them and calls that have rows;
/// a negative number takes the count back.
///
/// The calls themselves must have no rows: not yet, or no more.
pub(crate) async fn count_transitions(
    transaction: &mut Transaction,
    calls: &[ChangedCall],
    n: i64,
    change: &mut UsageChange,
) -> Result<(), StoreError> {
    let mut places: BTreeSet<(SessionId, u64)> = BTreeSet::new();
    let mut by_place: HashMap<(SessionId, u64), Vec<ToolKey>> = HashMap::new();
    for call in calls {
        let sequence = call.counted.sequence;
        let beside = [sequence.checked_sub(1), sequence.checked_add(1)];
        let beside = beside.into_iter().flatten();
        places.extend(beside.map(|place| (call.session, place)));
        by_place
            .entry((call.session, sequence))
            .or_default()
            .push(call.counted.tool);
    }
    let places: Vec<_> = places.into_iter().collect();
    let others = calls_at_positions(transaction, &places).await?;
    for call in calls {
        let tool = call.counted.tool;
        let at = |sequence| (call.session, sequence);
        if let Some(before) = call.counted.sequence.checked_sub(1).map(at) {
            let earlier = [others.get(&before), by_place.get(&before)];
            for from in earlier.into_iter().flatten().flatten() {
                change.count_transition(&call.principal, *from, tool, n);
            }
        }
        // A transition between two of these calls is counted once, at its later call.
        if let Some(after) = call.counted.sequence.checked_add(1).map(at) {
            for to in others.get(&after).into_iter().flatten() {
                change.count_transition(&call.principal, tool, *to, n);
            }
        }
    }
    Ok(())
}
