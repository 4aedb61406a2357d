//! Transitions between tools in sessions.

use riglm_domain::catalog::tool::ToolKey;
use riglm_domain::usage::ToolTransition;
use riglm_ports::analytics::StoreError;

use super::names::names;
use super::{QueryLimits, StatementsByLimits};
use crate::database::{Database, Statement};

/// A statement that sums the transitions that match a condition.
macro_rules! transitions {
    ($sqlite:literal, $postgres:literal) => {
        Statement {
            table: "transition_counts",
            sqlite: concat!(
                "SELECT json_array(tool_from, tool_to, sum(n)) FROM transition_counts ",
                $sqlite,
                " GROUP BY tool_from, tool_to"
            ),
            postgres: concat!(
                "SELECT json_build_array(tool_from, tool_to, sum(n))::text
                FROM transition_counts ",
                $postgres,
                " GROUP BY tool_from, tool_to"
            ),
        }
    };
}

pub(super) const TRANSITIONS: StatementsByLimits<Statement> = StatementsByLimits {
    all: transitions!("", ""),
    of_principal: transitions!(
        "WHERE principal = ?1 ->> 0",
        "WHERE principal = $1::jsonb ->> 0"
    ),
    of_tools: transitions!(
        "WHERE tool_from IN (SELECT value FROM json_each(?1 -> 1))",
        "WHERE tool_from = ANY (ARRAY(
            SELECT value::bigint FROM jsonb_array_elements_text($1::jsonb -> 1)))"
    ),
    of_both: transitions!(
        "WHERE principal = ?1 ->> 0 AND tool_from IN (SELECT value FROM json_each(?1 -> 1))",
        "WHERE principal = $1::jsonb ->> 0 AND tool_from = ANY (ARRAY(
            SELECT value::bigint FROM jsonb_array_elements_text($1::jsonb -> 1)))"
    ),
};

/// Returns the transitions from the tools, ordered by both.
pub(super) async fn transitions(
    database: &Database,
    limits: &QueryLimits<'_>,
) -> Result<Vec<ToolTransition>, StoreError> {
    if limits.is_nothing() {
        return Ok(Vec::new());
    }
    let mut transaction = database.begin_reading().await?;
    let rows: Vec<(ToolKey, ToolKey, u64)> = transaction
        .rows(limits.choose(&TRANSITIONS), &(limits.scope, &limits.tools))
        .await?;
    let keys = rows.iter().flat_map(|(from, to, _)| [*from, *to]);
    let names = names(&mut transaction, keys).await?;
    transaction.commit().await?;
    let mut transitions: Vec<_> = (rows.into_iter())
        .filter_map(|(from, to, count)| {
            Some(ToolTransition {
                from: names.get(&from)?.clone(),
                to: names.get(&to)?.clone(),
                count,
            })
        })
        .collect();
    transitions.sort_by(|one, other| (&one.from, &one.to).cmp(&(&other.from, &other.to)));
    Ok(transitions)
}
