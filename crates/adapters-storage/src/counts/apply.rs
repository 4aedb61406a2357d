//! Additions to the tables of counts.

use std::collections::BTreeMap;

use jiff::Timestamp;
use riglm_domain::catalog::tool::{ToolKey, ToolRef};
use riglm_domain::id::SessionId;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::invocation::Outcome;
use riglm_domain::usage::{SessionTool, UsageChange};
use riglm_ports::analytics::StoreError;

use crate::database::{EncodedRows, Statement, Transaction};
use crate::value::{Micros, saturating_count};

// The maximum number of rows per statement, because a rebuild writes many rows.
const MAX_ROWS: usize = 20_000;

// `OR FAIL` saves SQLite a copy of each changed page, for undoing the statement alone. After an error
// the whole transaction is undone.

const ADD_CALLS: Statement = Statement {
    table: "call_counts",
    sqlite: "
        INSERT OR FAIL INTO call_counts (principal, hour, tool, outcome, n)
        SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4
        FROM jsonb_each(?1)
        WHERE true
        ON CONFLICT (principal, hour, tool, outcome) DO UPDATE SET n = n + excluded.n",
    postgres: "
        INSERT INTO call_counts (principal, hour, tool, outcome, n)
        SELECT value ->> 0, (value ->> 1)::bigint, (value ->> 2)::bigint, value ->> 3,
            (value ->> 4)::bigint
        FROM jsonb_array_elements($1::jsonb)
        ON CONFLICT (principal, hour, tool, outcome)
        DO UPDATE SET n = call_counts.n + excluded.n",
};

const DROP_CALLS: Statement = Statement {
    table: "call_counts",
    sqlite: "
        DELETE FROM call_counts
        WHERE n = 0 AND (principal, hour, tool, outcome) IN (
            SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM jsonb_each(?1))",
    postgres: "
        DELETE FROM call_counts
        USING jsonb_array_elements($1::jsonb) AS gone
        WHERE n = 0 AND call_counts.principal = gone.value ->> 0 AND call_counts.hour = (gone.value ->> 1)::bigint
            AND call_counts.tool = (gone.value ->> 2)::bigint AND call_counts.outcome = gone.value ->> 3",
};

const ADD_LATENCIES: Statement = Statement {
    table: "latency_counts",
    sqlite: "
        INSERT OR FAIL INTO latency_counts (principal, hour, tool, bucket, n)
        SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4
        FROM jsonb_each(?1)
        WHERE true
        ON CONFLICT (principal, hour, tool, bucket) DO UPDATE SET n = n + excluded.n",
    postgres: "
        INSERT INTO latency_counts (principal, hour, tool, bucket, n)
        SELECT value ->> 0, (value ->> 1)::bigint, (value ->> 2)::bigint, (value ->> 3)::bigint,
            (value ->> 4)::bigint
        FROM jsonb_array_elements($1::jsonb)
        ON CONFLICT (principal, hour, tool, bucket)
        DO UPDATE SET n = latency_counts.n + excluded.n",
};

const DROP_LATENCIES: Statement = Statement {
    table: "latency_counts",
    sqlite: "
        DELETE FROM latency_counts
        WHERE n = 0 AND (principal, hour, tool, bucket) IN (
            SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM jsonb_each(?1))",
    postgres: "
        DELETE FROM latency_counts
        USING jsonb_array_elements($1::jsonb) AS gone
        WHERE n = 0 AND latency_counts.principal = gone.value ->> 0 AND latency_counts.hour = (gone.value ->> 1)::bigint
            AND latency_counts.tool = (gone.value ->> 2)::bigint AND latency_counts.bucket = (gone.value ->> 3)::bigint",
};

const ADD_TRANSITIONS: Statement = Statement {
    table: "transition_counts",
    sqlite: "
        INSERT OR FAIL INTO transition_counts (principal, tool_from, tool_to, n)
        SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3
        FROM jsonb_each(?1)
        WHERE true
        ON CONFLICT (principal, tool_from, tool_to) DO UPDATE SET n = n + excluded.n",
    postgres: "
        INSERT INTO transition_counts (principal, tool_from, tool_to, n)
        SELECT value ->> 0, (value ->> 1)::bigint, (value ->> 2)::bigint, (value ->> 3)::bigint
        FROM jsonb_array_elements($1::jsonb)
        ON CONFLICT (principal, tool_from, tool_to)
        DO UPDATE SET n = transition_counts.n + excluded.n",
};

const DROP_TRANSITIONS: Statement = Statement {
    table: "transition_counts",
    sqlite: "
        DELETE FROM transition_counts
        WHERE n = 0 AND (principal, tool_from, tool_to) IN (
            SELECT value ->> 0, value ->> 1, value ->> 2 FROM jsonb_each(?1))",
    postgres: "
        DELETE FROM transition_counts
        USING jsonb_array_elements($1::jsonb) AS gone
        WHERE n = 0 AND transition_counts.principal = gone.value ->> 0 AND transition_counts.tool_from = (gone.value ->> 1)::bigint
            AND transition_counts.tool_to = (gone.value ->> 2)::bigint",
};

const ADD_PAIRS: Statement = Statement {
    table: "pair_counts",
    sqlite: "
        INSERT OR FAIL INTO pair_counts (principal, tool_a, tool_b, n, distance, last_at)
        SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5
        FROM jsonb_each(?1)
        WHERE true
        ON CONFLICT (principal, tool_a, tool_b) DO UPDATE SET
            n = n + excluded.n,
            distance = distance + excluded.distance,
            last_at = max(last_at, excluded.last_at)",
    postgres: "
        INSERT INTO pair_counts (principal, tool_a, tool_b, n, distance, last_at)
        SELECT value ->> 0, (value ->> 1)::bigint, (value ->> 2)::bigint, (value ->> 3)::bigint,
            (value ->> 4)::bigint, (value ->> 5)::bigint
        FROM jsonb_array_elements($1::jsonb)
        ON CONFLICT (principal, tool_a, tool_b) DO UPDATE SET
            n = pair_counts.n + excluded.n,
            distance = pair_counts.distance + excluded.distance,
            last_at = greatest(pair_counts.last_at, excluded.last_at)",
};

const DROP_PAIRS: Statement = Statement {
    table: "pair_counts",
    sqlite: "
        DELETE FROM pair_counts
        WHERE n = 0 AND (principal, tool_a, tool_b) IN (
            SELECT value ->> 0, value ->> 1, value ->> 2 FROM jsonb_each(?1))",
    postgres: "
        DELETE FROM pair_counts
        USING jsonb_array_elements($1::jsonb) AS gone
        WHERE n = 0 AND pair_counts.principal = gone.value ->> 0 AND pair_counts.tool_a = (gone.value ->> 1)::bigint
            AND pair_counts.tool_b = (gone.value ->> 2)::bigint",
};

// Recomputes the time of the newest session for pairs that lost their newest session.
const FIND_LAST_PAIRS: Statement = Statement {
    table: "pair_counts",
    sqlite: "
        UPDATE OR FAIL pair_counts
        SET last_at = coalesce((
            SELECT max(max(a.first_at, b.first_at))
            FROM session_tools AS a
            JOIN session_tools AS b ON b.session = a.session AND b.tool = pair_counts.tool_b
            WHERE a.tool = pair_counts.tool_a AND a.principal = pair_counts.principal), last_at)
        FROM jsonb_each(?1) AS removed
        WHERE principal = removed.value ->> 0 AND tool_a = removed.value ->> 1
            AND tool_b = removed.value ->> 2 AND last_at <= removed.value ->> 3",
    postgres: "
        UPDATE pair_counts
        SET last_at = coalesce((
            SELECT max(greatest(a.first_at, b.first_at))
            FROM session_tools AS a
            JOIN session_tools AS b ON b.session = a.session AND b.tool = pair_counts.tool_b
            WHERE a.tool = pair_counts.tool_a AND a.principal = pair_counts.principal), last_at)
        FROM jsonb_array_elements($1::jsonb) AS removed
        WHERE principal = removed.value ->> 0 AND tool_a = (removed.value ->> 1)::bigint
            AND tool_b = (removed.value ->> 2)::bigint
            AND last_at <= (removed.value ->> 3)::bigint",
};

const NAME_TOOLS: Statement = Statement {
    table: "tools",
    sqlite: "
        INSERT OR FAIL INTO tools (key, upstream, name)
        SELECT value ->> 0, value ->> 1, value ->> 2
        FROM jsonb_each(?1)
        WHERE true
        ON CONFLICT (key) DO NOTHING",
    postgres: "
        INSERT INTO tools (key, upstream, name)
        SELECT (value ->> 0)::bigint, value ->> 1, value ->> 2
        FROM jsonb_array_elements($1::jsonb)
        ON CONFLICT (key) DO NOTHING",
};

const PUT_SESSION_TOOLS: Statement = Statement {
    table: "session_tools",
    sqlite: "
        INSERT OR FAIL INTO session_tools (session, tool, principal, first_sequence, first_at)
        SELECT unhex(value ->> 0, '-'), value ->> 1, value ->> 2, value ->> 3, value ->> 4
        FROM jsonb_each(?1)
        WHERE true
        ON CONFLICT (session, tool) DO UPDATE SET
            first_sequence = excluded.first_sequence, first_at = excluded.first_at",
    postgres: "
        INSERT INTO session_tools (session, tool, principal, first_sequence, first_at)
        SELECT (value ->> 0)::uuid, (value ->> 1)::bigint, value ->> 2, (value ->> 3)::bigint,
            (value ->> 4)::bigint
        FROM jsonb_array_elements($1::jsonb)
        ON CONFLICT (session, tool) DO UPDATE SET
            first_sequence = excluded.first_sequence, first_at = excluded.first_at",
};

/// Returns the name of an outcome in rows of counts; empty for calls in flight.
pub(crate) fn outcome_name(outcome: Option<Outcome>) -> &'static str {
    outcome.map_or("", Outcome::as_str)
}

/// Adds a change to the counts. The rows that it is derived from, and the tools of sessions, must
/// be written before.
pub(crate) async fn apply(
    transaction: &mut Transaction,
    mut change: UsageChange,
) -> Result<(), StoreError> {
    // Changes that cancel out need no statement.
    change.simplify();
    let calls = change.calls.iter().map(|(count, n)| {
        let outcome = outcome_name(count.outcome);
        (&count.principal, count.hour, count.tool, outcome, *n)
    });
    add(transaction, &ADD_CALLS, &DROP_CALLS, calls, |row| row.4).await?;
    let latencies = (change.latencies.iter())
        .map(|(count, n)| (&count.principal, count.hour, count.tool, count.bucket, *n));
    add(
        transaction,
        &ADD_LATENCIES,
        &DROP_LATENCIES,
        latencies,
        |row| row.4,
    )
    .await?;
    let transitions =
        (change.transitions.iter()).map(|(count, n)| (&count.principal, count.from, count.to, *n));
    add(
        transaction,
        &ADD_TRANSITIONS,
        &DROP_TRANSITIONS,
        transitions,
        |row| row.3,
    )
    .await?;
    let pairs = change.pairs.iter().map(|((principal, a, b), count)| {
        // The smallest value never wins in `max`.
        let added_at = count.added_at.map_or(i64::MIN, Timestamp::as_microsecond);
        (principal, a, b, count.n_sessions, count.distance, added_at)
    });
    add(transaction, &ADD_PAIRS, &DROP_PAIRS, pairs, |row| row.3).await?;
    let removed = change
        .pairs
        .iter()
        .filter_map(|((principal, a, b), count)| {
            let removed_at = count.removed_at?;
            Some((principal, a, b, Micros(removed_at)))
        });
    transaction
        .write(&FIND_LAST_PAIRS, EncodedRows::new(removed)?)
        .await?;
    Ok(())
}

/// Adds rows, and deletes rows whose count is zero afterwards. Only a negative addition can cause
/// that.
async fn add<R: serde::Serialize>(
    transaction: &mut Transaction,
    add: &Statement,
    drop: &Statement,
    rows: impl Iterator<Item = R>,
    n_of: impl Fn(&R) -> i64,
) -> Result<(), StoreError> {
    let rows: Vec<R> = rows.collect();
    for part in rows.chunks(MAX_ROWS) {
        transaction.write(add, EncodedRows::new(part)?).await?;
    }
    let lowered = rows.iter().filter(|row| n_of(row) < 0);
    transaction.write(drop, EncodedRows::new(lowered)?).await?;
    Ok(())
}

/// Stores the names of these tools under their keys.
pub(crate) async fn store_tool_names(
    transaction: &mut Transaction,
    names: &BTreeMap<ToolKey, ToolRef>,
) -> Result<(), StoreError> {
    let rows = (names.iter()).map(|(key, tool)| (key, &tool.upstream, &tool.tool));
    transaction
        .write(&NAME_TOOLS, EncodedRows::new(rows)?)
        .await?;
    Ok(())
}

/// Writes the first uses of tools in sessions, and replaces existing ones.
pub(crate) async fn put_session_tools(
    transaction: &mut Transaction,
    tools: &[(SessionId, Principal, SessionTool)],
) -> Result<(), StoreError> {
    for part in tools.chunks(MAX_ROWS) {
        let rows = part.iter().map(|(session, principal, tool)| {
            let sequence = saturating_count(tool.first_sequence);
            (
                session,
                tool.tool,
                principal,
                sequence,
                Micros(tool.first_at),
            )
        });
        transaction
            .write(&PUT_SESSION_TOOLS, EncodedRows::new(rows)?)
            .await?;
    }
    Ok(())
}
