//! Usage counts: updated with the rows that they are derived from, or rebuilt from all rows.
//!
//! The domain defines the contribution of a row ([`riglm_domain::usage`]). This module turns the
//! contributions of new, changed and deleted rows into additions to the tables of counts, in the
//! transaction that writes the rows.

mod apply;
mod derive;
mod existing_rows;
mod transitions;

use riglm_ports::analytics::{RebuildReport, StoreError};

pub(crate) use self::apply::{apply, outcome_name, put_session_tools, store_tool_names};
pub(crate) use self::derive::{DerivedCounts, derive};
pub(crate) use self::existing_rows::{
    ExistingCall, known_calls, open_calls_of, possibly_known, session_tools_of,
};
pub(crate) use self::transitions::{ChangedCall, count_transitions};
use crate::database::{Statement, Transaction};

/// A statement that empties a table.
macro_rules! emptying {
    ($table:literal) => {
        Statement {
            table: $table,
            sqlite: concat!("DELETE FROM ", $table, " WHERE ?1 = '[]'"),
            postgres: concat!("DELETE FROM ", $table, " WHERE $1 = '[]'"),
        }
    };
}

const EMPTY: [Statement; 4] = [
    emptying!("call_counts"),
    emptying!("latency_counts"),
    emptying!("transition_counts"),
    emptying!("pair_counts"),
];

// Rebuilds all counts in the transaction of the caller, so that readers never see empty counts.
pub(crate) async fn rebuild(transaction: &mut Transaction) -> Result<RebuildReport, StoreError> {
    let derived = derive(transaction).await?;
    for statement in &EMPTY {
        transaction.execute(statement, &[(); 0]).await?;
    }
    store_tool_names(transaction, &derived.names).await?;
    put_session_tools(transaction, &derived.missing_session_tools).await?;
    let n_counts = derived.change.calls.len()
        + derived.change.latencies.len()
        + derived.change.transitions.len()
        + derived.change.pairs.len();
    apply(transaction, derived.change).await?;
    Ok(RebuildReport {
        n_calls: derived.n_calls,
        n_counts: n_counts as u64,
    })
}
