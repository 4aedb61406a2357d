//! Session counts of tools, and co-occurrence of tools in sessions.

use riglm_domain::catalog::tool::ToolKey;
use riglm_domain::num::to_f64;
use riglm_domain::usage::{ToolCooccurrence, ToolSessions};
use riglm_ports::analytics::StoreError;
use serde::Deserialize;

use super::names::names;
use super::{QueryLimits, StatementsByLimits};
use crate::database::{Database, Statement};
use crate::value::Micros;

/// A statement that sums the pairs of a tool with itself that match a condition.
macro_rules! sessions_using {
    ($sqlite:literal, $postgres:literal) => {
        Statement {
            table: "pair_counts",
            sqlite: concat!(
                "SELECT json_array(tool_a, sum(n)) FROM pair_counts WHERE tool_b = tool_a ",
                $sqlite,
                " GROUP BY tool_a"
            ),
            postgres: concat!(
                "SELECT json_build_array(tool_a, sum(n))::text FROM pair_counts
                WHERE tool_b = tool_a ",
                $postgres,
                " GROUP BY tool_a"
            ),
        }
    };
}

pub(super) const SESSIONS_USING: StatementsByLimits<Statement> = StatementsByLimits {
    all: sessions_using!("", ""),
    of_principal: sessions_using!(
        "AND principal = ?1 ->> 0",
        "AND principal = $1::jsonb ->> 0"
    ),
    of_tools: sessions_using!(
        "AND tool_a IN (SELECT value FROM json_each(?1 -> 1))",
        "AND tool_a = ANY (ARRAY(
            SELECT value::bigint FROM jsonb_array_elements_text($1::jsonb -> 1)))"
    ),
    of_both: sessions_using!(
        "AND principal = ?1 ->> 0 AND tool_a IN (SELECT value FROM json_each(?1 -> 1))",
        "AND principal = $1::jsonb ->> 0 AND tool_a = ANY (ARRAY(
            SELECT value::bigint FROM jsonb_array_elements_text($1::jsonb -> 1)))"
    ),
};

/// A statement that sums the pairs of two tools in the rows of another query.
macro_rules! cooccurrences {
    ($sqlite:literal, $postgres:literal) => {
        Statement {
            table: "pair_counts",
            sqlite: concat!(
                "SELECT json_array(tool_a, tool_b, sum(n), sum(distance), max(last_at)) FROM (",
                $sqlite,
                ") GROUP BY tool_a, tool_b"
            ),
            postgres: concat!(
                "SELECT json_build_array(tool_a, tool_b, sum(n), sum(distance), max(last_at))::text
                FROM (",
                $postgres,
                ") AS pair GROUP BY tool_a, tool_b"
            ),
        }
    };
}

// Pairs with given tools are found from either side, through the index of that side, and pairs of
// two given tools from the first side. (Otherwise SQLite scans all pairs of the principal.)
pub(super) const COOCCURRENCES: StatementsByLimits<Statement> = StatementsByLimits {
    all: cooccurrences!(
        "SELECT * FROM pair_counts WHERE tool_b <> tool_a",
        "SELECT * FROM pair_counts WHERE tool_b <> tool_a"
    ),
    of_principal: cooccurrences!(
        "SELECT * FROM pair_counts WHERE principal = ?1 ->> 0 AND tool_b <> tool_a",
        "SELECT * FROM pair_counts WHERE principal = $1::jsonb ->> 0 AND tool_b <> tool_a"
    ),
    of_tools: cooccurrences!(
        "SELECT * FROM pair_counts
        WHERE tool_a IN (SELECT value FROM json_each(?1 -> 1)) AND tool_b <> tool_a
        UNION ALL
        SELECT * FROM pair_counts
        WHERE tool_b IN (SELECT value FROM json_each(?1 -> 1))
            AND tool_a NOT IN (SELECT value FROM json_each(?1 -> 1))",
        "SELECT * FROM pair_counts
        WHERE tool_a = ANY (ARRAY(
                SELECT value::bigint FROM jsonb_array_elements_text($1::jsonb -> 1)))
            AND tool_b <> tool_a
        UNION ALL
        SELECT * FROM pair_counts
        WHERE tool_b = ANY (ARRAY(
                SELECT value::bigint FROM jsonb_array_elements_text($1::jsonb -> 1)))
            AND tool_a NOT IN (
                SELECT value::bigint FROM jsonb_array_elements_text($1::jsonb -> 1))"
    ),
    of_both: cooccurrences!(
        "SELECT * FROM pair_counts
        WHERE principal = ?1 ->> 0
            AND tool_a IN (SELECT value FROM json_each(?1 -> 1)) AND tool_b <> tool_a
        UNION ALL
        SELECT * FROM pair_counts INDEXED BY pair_counts_by_tool_b
        WHERE principal = ?1 ->> 0
            AND tool_b IN (SELECT value FROM json_each(?1 -> 1))
            AND tool_a NOT IN (SELECT value FROM json_each(?1 -> 1))",
        "SELECT * FROM pair_counts
        WHERE principal = $1::jsonb ->> 0
            AND tool_a = ANY (ARRAY(
                SELECT value::bigint FROM jsonb_array_elements_text($1::jsonb -> 1)))
            AND tool_b <> tool_a
        UNION ALL
        SELECT * FROM pair_counts
        WHERE principal = $1::jsonb ->> 0
            AND tool_b = ANY (ARRAY(
                SELECT value::bigint FROM jsonb_array_elements_text($1::jsonb -> 1)))
            AND tool_a NOT IN (
                SELECT value::bigint FROM jsonb_array_elements_text($1::jsonb -> 1))"
    ),
};

/// Returns the number of sessions that used each tool, ordered by upstream and name.
pub(super) async fn sessions_using(
    database: &Database,
    limits: &QueryLimits<'_>,
) -> Result<Vec<ToolSessions>, StoreError> {
    if limits.is_nothing() {
        return Ok(Vec::new());
    }
    let mut transaction = database.begin_reading().await?;
    let rows: Vec<(ToolKey, u64)> = transaction
        .rows(
            limits.choose(&SESSIONS_USING),
            &(limits.scope, &limits.tools),
        )
        .await?;
    let mut names = names(&mut transaction, rows.iter().map(|(tool, _)| *tool)).await?;
    transaction.commit().await?;
    let mut sessions: Vec<_> = (rows.into_iter())
        .filter_map(|(tool, n_sessions)| {
            let tool = names.remove(&tool)?;
            Some(ToolSessions { tool, n_sessions })
        })
        .collect();
    sessions.sort_by(|one, other| one.tool.cmp(&other.tool));
    Ok(sessions)
}

/// Returns the pairs that contain one of the tools, ordered by both.
pub(super) async fn cooccurrences(
    database: &Database,
    limits: &QueryLimits<'_>,
) -> Result<Vec<ToolCooccurrence>, StoreError> {
    #[derive(Deserialize)]
    struct PairRow {
        a: ToolKey,
        b: ToolKey,
        n: u64,
        distance: f64,
        last_at: Micros,
    }
    if limits.is_nothing() {
        return Ok(Vec::new());
    }
    let mut transaction = database.begin_reading().await?;
    let rows: Vec<PairRow> = transaction
        .rows(
            limits.choose(&COOCCURRENCES),
            &(limits.scope, &limits.tools),
        )
        .await?;
    let keys = rows.iter().flat_map(|row| [row.a, row.b]);
    let names = names(&mut transaction, keys).await?;
    transaction.commit().await?;
    let mut pairs: Vec<_> = (rows.into_iter())
        .filter_map(|row| {
            let (a, b) = (names.get(&row.a)?, names.get(&row.b)?);
            let mean_distance = row.distance / to_f64(row.n);
            // A row has the lower key first, and the order of keys is not the order of names.
            Some(ToolCooccurrence {
                tool_a: a.min(b).clone(),
                tool_b: a.max(b).clone(),
                count: row.n,
                mean_distance,
                last_updated: row.last_at.0,
            })
        })
        .collect();
    pairs.sort_by(|one, other| (&one.tool_a, &one.tool_b).cmp(&(&other.tool_a, &other.tool_b)));
    Ok(pairs)
}
