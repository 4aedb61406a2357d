//! Transitions: pairs of consecutive calls in a session.

use std::collections::HashMap;

use riglm_domain::catalog::tool::ToolKey;
use riglm_domain::id::SessionId;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::{CountedCall, UsageChange};
use riglm_ports::analytics::StoreError;

use super::existing_rows::{PositionRange, calls_at_positions};
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
    let mut by_place: HashMap<(SessionId, u64), Vec<ToolKey>> = HashMap::new();
    for call in calls {
        by_place
            .entry((call.session, call.counted.sequence))
            .or_default()
            .push(call.counted.tool);
    }
    let others = calls_at_positions(transaction, &positions_around(by_place.keys())).await?;
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

/// Returns the positions before, at and after these, in as few ranges as possible.
fn positions_around<'a>(places: impl Iterator<Item = &'a (SessionId, u64)>) -> Vec<PositionRange> {
    let mut places: Vec<_> = places.copied().collect();
    places.sort_unstable();
    let mut ranges: Vec<PositionRange> = Vec::new();
    for (session, sequence) in places {
        let first = sequence.saturating_sub(1);
        let last = sequence.saturating_add(1);
        match ranges.last_mut() {
            Some(range) if range.session == session && first <= range.last.saturating_add(1) => {
                range.last = last;
            }
            _ => ranges.push(PositionRange {
                session,
                first,
                last,
            }),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use riglm_ports::contract::scene::{run, session};

    use super::*;

    #[test]
    fn positions_side_by_side_share_a_range() {
        let [one, two] = [1, 2].map(|n| session(run(1), n).id);
        let places = [(one, 3), (two, 0), (one, 4), (one, 9), (two, u64::MAX)];
        let ranges: Vec<_> = positions_around(places.iter())
            .into_iter()
            .map(|range| (range.session, range.first..=range.last))
            .collect();
        let expected = [
            (one, 2..=5),
            (one, 8..=10),
            (two, 0..=1),
            (two, u64::MAX - 1..=u64::MAX),
        ];
        assert_eq!(ranges, expected);
    }
}
