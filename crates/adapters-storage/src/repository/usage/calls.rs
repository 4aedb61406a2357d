//! Call frequencies and statistics of tools.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Timestamp;
use riglm_domain::catalog::tool::{ToolKey, ToolRef};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::invocation::Outcome;
use riglm_domain::usage::{Hour, LatencyBucket, LatencyHistogram, ToolFrequency, ToolStatistics};
use riglm_ports::analytics::StoreError;

use super::names::names;
use super::{QueryLimits, StatementsByLimits};
use crate::database::{Database, Statement};

/// All principals with rows in a table. Each is looked up from the one before, so that not all rows
/// are read; `NULL` follows the last.
macro_rules! principals {
    ($table:literal) => {
        concat!(
            "SELECT min(principal) FROM ",
            $table,
            " UNION ALL
            SELECT (SELECT min(principal) FROM ",
            $table,
            " WHERE principal > name)
            FROM principals
            WHERE name IS NOT NULL"
        )
    };
}

/// A statement that sums rows by tool and another column, for principals and tools that match a
/// condition. Rows are ordered by principal and hour, so rows before the hour are not read.
/// Parameters: principal, keys of tools, hour.
macro_rules! sums {
    ($table:literal, $column:literal, [$($sqlite:tt)*], [$($postgres:tt)*], $sqlite_tools:literal,
        $postgres_tools:literal) => {
        Statement {
            table: $table,
            sqlite: concat!(
                "WITH RECURSIVE principals (name) AS (",
                $($sqlite)*,
                ")
                SELECT json_array(tool, ",
                $column,
                ", sum(n))
                FROM principals CROSS JOIN ",
                $table,
                " ON principal = name
                WHERE hour >= ?1 ->> 2 ",
                $sqlite_tools,
                " GROUP BY tool, ",
                $column
            ),
            postgres: concat!(
                "WITH RECURSIVE principals (name) AS (",
                $($postgres)*,
                ")
                SELECT json_build_array(tool, ",
                $column,
                ", sum(n))::text
                FROM principals JOIN ",
                $table,
                " ON principal = name
                WHERE hour >= ($1::jsonb ->> 2)::bigint ",
                $postgres_tools,
                " GROUP BY tool, ",
                $column
            ),
        }
    };
    ($table:literal, $column:literal, $sqlite_tools:literal, $postgres_tools:literal) => {
        sums!(
            $table,
            $column,
            [principals!($table)],
            [principals!($table)],
            $sqlite_tools,
            $postgres_tools
        )
    };
    (of_principal, $table:literal, $column:literal, $sqlite_tools:literal,
        $postgres_tools:literal) => {
        sums!(
            $table,
            $column,
            ["SELECT ?1 ->> 0"],
            ["SELECT $1::jsonb ->> 0"],
            $sqlite_tools,
            $postgres_tools
        )
    };
    ($table:literal, $column:literal) => {
        StatementsByLimits {
            all: sums!($table, $column, "", ""),
            of_principal: sums!(of_principal, $table, $column, "", ""),
            of_tools: sums!(
                $table,
                $column,
                "AND tool IN (SELECT value FROM json_each(?1 -> 1))",
                "AND tool IN (
                    SELECT value::bigint FROM jsonb_array_elements_text($1::jsonb -> 1))"
            ),
            of_both: sums!(
                of_principal,
                $table,
                $column,
                "AND tool IN (SELECT value FROM json_each(?1 -> 1))",
                "AND tool IN (
                    SELECT value::bigint FROM jsonb_array_elements_text($1::jsonb -> 1))"
            ),
        }
    };
}

pub(super) const CALLS: StatementsByLimits<Statement> = sums!("call_counts", "nullif(outcome, '')");

pub(super) const LATENCIES: StatementsByLimits<Statement> = sums!("latency_counts", "bucket");

/// Returns the number of calls of each tool, most frequent first; ties by upstream and name.
pub(super) async fn frequencies(
    database: &Database,
    scope: Option<&Principal>,
    since: Timestamp,
) -> Result<Vec<ToolFrequency>, StoreError> {
    let limits = QueryLimits::new(scope, None);
    let mut transaction = database.begin_reading().await?;
    let calls: Vec<(ToolKey, Option<Outcome>, u64)> = transaction
        .rows(limits.choose(&CALLS), &limits.since(since))
        .await?;
    let names = names(&mut transaction, calls.iter().map(|(tool, ..)| *tool)).await?;
    transaction.commit().await?;
    let mut sums: BTreeMap<&ToolRef, u64> = BTreeMap::new();
    for (tool, _, n) in calls {
        if let Some(tool) = names.get(&tool) {
            *sums.entry(tool).or_default() += n;
        }
    }
    let mut frequencies: Vec<_> = (sums.into_iter())
        .map(|(tool, n_calls)| ToolFrequency {
            tool: tool.clone(),
            n_calls,
        })
        .collect();
    frequencies.sort_by_key(|row| Reverse(row.n_calls));
    Ok(frequencies)
}

/// Returns the outcomes and durations of the calls of each tool, ordered by upstream and name.
pub(super) async fn statistics(
    database: &Database,
    limits: &QueryLimits<'_>,
    since: Timestamp,
) -> Result<Vec<ToolStatistics>, StoreError> {
    if limits.is_nothing() {
        return Ok(Vec::new());
    }
    let parameter = limits.since(since);
    let mut transaction = database.begin_reading().await?;
    let calls: Vec<(ToolKey, Option<Outcome>, u64)> =
        transaction.rows(limits.choose(&CALLS), &parameter).await?;
    let latencies: Vec<(ToolKey, LatencyBucket, u64)> = transaction
        .rows(limits.choose(&LATENCIES), &parameter)
        .await?;
    let names = names(&mut transaction, calls.iter().map(|(tool, ..)| *tool)).await?;
    transaction.commit().await?;
    let mut statistics: BTreeMap<&ToolRef, ToolStatistics> = BTreeMap::new();
    for (tool, outcome, n) in calls {
        let Some(tool) = names.get(&tool) else {
            continue;
        };
        let row = statistics
            .entry(tool)
            .or_insert_with(|| empty_statistics(tool));
        match outcome {
            Some(outcome) => *row.outcomes.entry(outcome).or_default() += n,
            None => row.n_open += n,
        }
    }
    for (tool, bucket, n) in latencies {
        if let Some(row) = (names.get(&tool)).and_then(|tool| statistics.get_mut(tool)) {
            row.latency.add(bucket, n);
        }
    }
    Ok(statistics.into_values().collect())
}

fn empty_statistics(tool: &ToolRef) -> ToolStatistics {
    ToolStatistics {
        tool: tool.clone(),
        outcomes: BTreeMap::new(),
        n_open: 0,
        latency: LatencyHistogram::default(),
    }
}

impl<'a> QueryLimits<'a> {
    /// Returns the parameter for these limits, from the hour of `moment` on.
    fn since(&self, moment: Timestamp) -> (Option<&'a Principal>, &Option<Vec<ToolKey>>, Hour) {
        (self.scope, &self.tools, Hour::of(moment))
    }
}
