//! Checks of the references between rows. A row of a session that was never recorded is not damage.

use riglm_ports::analytics::StoreError;

use super::CheckFindings;
use crate::database::{Database, Statement};

/// A statement that counts rows, the same in both databases except for the parameter.
macro_rules! count {
    ($table:literal, $condition:literal) => {
        Statement {
            table: $table,
            sqlite: concat!(
                "SELECT json_array(count(*)) FROM ",
                $table,
                " WHERE ?1 = '[]' AND (",
                $condition,
                ")"
            ),
            postgres: concat!(
                "SELECT json_build_array(count(*))::text FROM ",
                $table,
                " WHERE $1 = '[]' AND (",
                $condition,
                ")"
            ),
        }
    };
}

const COUNTS: [(Statement, &str); 6] = [
    (
        count!("invocations", "(outcome IS NULL) <> (duration_us IS NULL)"),
        "have only one of outcome and duration",
    ),
    (
        count!(
            "session_tools",
            "NOT EXISTS (SELECT 1 FROM sessions WHERE id = session_tools.session)
                AND NOT EXISTS (
                    SELECT 1 FROM invocations WHERE session = session_tools.session)"
        ),
        "belong to sessions that have neither a row nor a call",
    ),
    (
        count!(
            "lists_shown",
            "NOT EXISTS (SELECT 1 FROM tool_sets WHERE id = lists_shown.tool_set)"
        ),
        "refer to missing tool sets",
    ),
    (
        count!(
            "lists_shown",
            "(pool IS NULL) <> (mode IS NULL)
                OR pool IS NOT NULL
                    AND NOT EXISTS (SELECT 1 FROM tool_sets WHERE id = lists_shown.pool)"
        ),
        "were selected from missing tool sets",
    ),
    (
        count!(
            "list_epochs",
            "NOT EXISTS (SELECT 1 FROM tool_sets WHERE id = list_epochs.tool_set)"
        ),
        "refer to missing tool sets",
    ),
    (
        count!(
            "list_epochs",
            "NOT EXISTS (SELECT 1 FROM tool_sets WHERE id = list_epochs.known)"
        ),
        "were selected from missing tool sets",
    ),
];

pub(super) async fn check(
    database: &Database,
    findings: &mut CheckFindings,
) -> Result<(), StoreError> {
    for (statement, problem) in &COUNTS {
        let counted: Option<(u64,)> = database.row(statement, &[(); 0]).await?;
        if let Some((n,)) = counted
            && n > 0
        {
            findings.add(statement.table, format!("{n} rows {problem}"));
        }
    }
    Ok(())
}
