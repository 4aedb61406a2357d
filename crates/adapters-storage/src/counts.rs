//! The counts: kept with the rows that they are made of, and made anew from them.
//!
//! What a row contributes is a rule of the domain ([`riglm_domain::usage`]). Here the
//! contributions of rows that come, change and go become additions to the tables of counts, in the
//! transaction that writes the rows.

mod apply;
mod derive;
mod known;
mod successions;

use riglm_ports::analytics::{Rebuilt, StoreError};

pub(crate) use self::apply::{apply, name_tools, outcome_name, put_session_tools};
pub(crate) use self::derive::{Derived, derive};
pub(crate) use self::known::{KnownCall, known_calls, open_calls_of, session_tools_of};
pub(crate) use self::successions::{MovedCall, count_successions};
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

/// Makes all counts anew from the rows.
pub(crate) async fn rebuild(transaction: &mut Transaction) -> Result<Rebuilt, StoreError> {
    let derived = derive(transaction).await?;
    for statement in &EMPTY {
        transaction.execute(statement, &[(); 0]).await?;
    }
    name_tools(transaction, &derived.names).await?;
    put_session_tools(transaction, &derived.missing_session_tools).await?;
    let n_counts = derived.change.calls.len()
        + derived.change.latencies.len()
        + derived.change.transitions.len()
        + derived.change.pairs.len();
    apply(transaction, derived.change).await?;
    Ok(Rebuilt {
        n_calls: derived.n_calls,
        n_counts: n_counts as u64,
    })
}
