//! Comparison of the stored counts with counts derived from the rows.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use jiff::Timestamp;
use riglm_domain::catalog::tool::{ToolKey, ToolRef};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::{Hour, LatencyBucket, UsageChange};
use riglm_ports::analytics::StoreError;
use serde::de::DeserializeOwned;

use super::CheckFindings;
use crate::counts::{self, DerivedCounts, outcome_name};
use crate::database::{Database, Statement, Transaction};

/// A statement that reads a table of counts: the key of each count, and its value.
macro_rules! select {
    ($table:literal, $key:literal, $value:literal) => {
        Statement {
            table: $table,
            sqlite: concat!(
                "SELECT json_array(json_array(",
                $key,
                "), ",
                $value,
                ") FROM ",
                $table,
                " WHERE ?1 = '[]'"
            ),
            postgres: concat!(
                "SELECT json_build_array(json_build_array(",
                $key,
                "), ",
                $value,
                ")::text FROM ",
                $table,
                " WHERE $1 = '[]'"
            ),
        }
    };
}

const CALLS: Statement = select!("call_counts", "principal, hour, tool, outcome", "n");

const LATENCIES: Statement = select!("latency_counts", "principal, hour, tool, bucket", "n");

const TRANSITIONS: Statement = select!("transition_counts", "principal, tool_from, tool_to", "n");

const PAIRS: Statement = Statement {
    table: "pair_counts",
    sqlite: "
        SELECT json_array(
            json_array(principal, tool_a, tool_b), json_array(n, distance, last_at))
        FROM pair_counts
        WHERE ?1 = '[]'",
    postgres: "
        SELECT json_build_array(
            json_build_array(principal, tool_a, tool_b),
            json_build_array(n, distance, last_at))::text
        FROM pair_counts
        WHERE $1 = '[]'",
};

const NAMED_TOOLS: Statement = Statement {
    table: "tools",
    sqlite: "SELECT json_array(key) FROM tools WHERE ?1 = '[]'",
    postgres: "SELECT json_build_array(key)::text FROM tools WHERE $1 = '[]'",
};

/// The correct counts by key.
type ExpectedCounts<K, V> = BTreeMap<K, V>;

/// Compares the stored counts with the derived ones, in one snapshot of the database.
pub(super) async fn check(
    database: &Database,
    findings: &mut CheckFindings,
) -> Result<(), StoreError> {
    let mut transaction = database.begin_reading().await?;
    let DerivedCounts {
        change,
        names,
        missing_session_tools,
        ..
    } = counts::derive(&mut transaction).await?;
    let UsageChange {
        calls,
        latencies,
        transitions,
        pairs,
    } = change;
    let calls: ExpectedCounts<(Principal, Hour, ToolKey, String), i64> = calls
        .into_iter()
        .map(|(by, n)| {
            let outcome = outcome_name(by.outcome).to_owned();
            ((by.principal, by.hour, by.tool, outcome), n)
        })
        .collect();
    compare(&mut transaction, &CALLS, calls, findings).await?;
    let latencies: ExpectedCounts<(Principal, Hour, ToolKey, LatencyBucket), i64> = latencies
        .into_iter()
        .map(|(by, n)| ((by.principal, by.hour, by.tool, by.bucket), n))
        .collect();
    compare(&mut transaction, &LATENCIES, latencies, findings).await?;
    let transitions: ExpectedCounts<(Principal, ToolKey, ToolKey), i64> = transitions
        .into_iter()
        .map(|(by, n)| ((by.principal, by.from, by.to), n))
        .collect();
    compare(&mut transaction, &TRANSITIONS, transitions, findings).await?;
    let pairs: ExpectedCounts<(Principal, ToolKey, ToolKey), (i64, i64, i64)> = pairs
        .into_iter()
        .map(|(by, pair)| {
            let last_at = pair.added_at.map_or(i64::MIN, Timestamp::as_microsecond);
            (by, (pair.n_sessions, pair.distance, last_at))
        })
        .collect();
    compare(&mut transaction, &PAIRS, pairs, findings).await?;
    let missing = (missing_session_tools.iter())
        .map(|(session, _, used)| format!("tool {} of session {session} is missing", used.tool.0));
    findings.add_limited("session_tools", missing.collect());
    check_names(&mut transaction, &names, findings).await
}

/// Finds counts that are wrong, missing, or superfluous.
async fn compare<K, V>(
    transaction: &mut Transaction,
    statement: &Statement,
    mut expected: ExpectedCounts<K, V>,
    findings: &mut CheckFindings,
) -> Result<(), StoreError>
where
    K: Ord + Debug + DeserializeOwned,
    V: PartialEq + Debug + DeserializeOwned,
{
    let rows: Vec<(K, V)> = transaction.rows(statement, &[(); 0]).await?;
    let mut problems = Vec::new();
    for (by, found) in rows {
        match expected.remove(&by) {
            Some(right) if right == found => {}
            Some(right) => problems.push(format!(
                "{by:?} is {found:?}, expected {right:?} from the rows"
            )),
            None => problems.push(format!("{by:?} is {found:?}, expected none from the rows")),
        }
    }
    let missing = expected.iter();
    problems.extend(
        missing.map(|(by, right)| format!("{by:?} is missing, expected {right:?} from the rows")),
    );
    findings.add_limited(statement.table, problems);
    Ok(())
}

/// Finds counted tools without a stored name.
async fn check_names(
    transaction: &mut Transaction,
    names: &BTreeMap<ToolKey, ToolRef>,
    findings: &mut CheckFindings,
) -> Result<(), StoreError> {
    let known: Vec<(ToolKey,)> = transaction.rows(&NAMED_TOOLS, &[(); 0]).await?;
    let known: BTreeSet<ToolKey> = known.into_iter().map(|(key,)| key).collect();
    let nameless = (names.iter())
        .filter(|(key, _)| !known.contains(key))
        .map(|(key, tool)| format!("the key {} of {tool:?} is missing", key.0));
    findings.add_limited("tools", nameless.collect());
    Ok(())
}
