//! Which calls follow which.

use std::collections::{BTreeSet, HashMap};

use riglm_domain::id::SessionId;
use riglm_domain::principal::Principal;
use riglm_domain::tool::ToolKey;
use riglm_domain::usage::{CountedCall, UsageChange};
use riglm_ports::analytics::StoreError;

use super::known::neighbours;
use crate::database::Transaction;

/// A call that comes or goes and is counted.
#[derive(Debug)]
pub(crate) struct MovedCall {
    /// The session that made it.
    pub(crate) session: SessionId,
    /// Who called.
    pub(crate) principal: Principal,
    /// What is counted of it.
    pub(crate) counted: CountedCall,
}

/// Counts `n` times which of the calls follow which, and which of those that have rows; takes it
/// back for a negative number. The calls themselves must have no rows: not yet, or no more.
pub(crate) async fn count_successions(
    transaction: &mut Transaction,
    calls: &[MovedCall],
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
    let others = neighbours(transaction, &places).await?;
    for call in calls {
        let tool = call.counted.tool;
        let at = |sequence| (call.session, sequence);
        if let Some(before) = call.counted.sequence.checked_sub(1).map(at) {
            let earlier = [others.get(&before), by_place.get(&before)];
            for from in earlier.into_iter().flatten().flatten() {
                change.count_transition(&call.principal, *from, tool, n);
            }
        }
        // Those among the calls are counted from the later side.
        if let Some(after) = call.counted.sequence.checked_add(1).map(at) {
            for to in others.get(&after).into_iter().flatten() {
                change.count_transition(&call.principal, tool, *to, n);
            }
        }
    }
    Ok(())
}
