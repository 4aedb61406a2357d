//! Lookup of tools by their keys.

use std::collections::HashMap;

use riglm_domain::catalog::tool::{ToolKey, ToolRef};
use riglm_domain::id::{ToolName, UpstreamName};
use riglm_ports::analytics::StoreError;

use crate::database::{Statement, Transaction};

const NAMES: Statement = Statement {
    table: "tools",
    sqlite: "
        SELECT json_array(key, upstream, name)
        FROM tools
        WHERE key IN (SELECT value FROM json_each(?1))",
    postgres: "
        SELECT json_build_array(key, upstream, name)::text
        FROM tools
        WHERE key IN (SELECT value::bigint FROM jsonb_array_elements_text($1::jsonb))",
};

/// Returns the tools with these keys. Unknown keys are omitted.
pub(super) async fn names(
    transaction: &mut Transaction,
    keys: impl Iterator<Item = ToolKey>,
) -> Result<HashMap<ToolKey, ToolRef>, StoreError> {
    let mut keys: Vec<_> = keys.collect();
    keys.sort_unstable();
    keys.dedup();
    if keys.is_empty() {
        return Ok(HashMap::new());
    }
    let rows: Vec<(ToolKey, UpstreamName, ToolName)> = transaction.rows(&NAMES, &keys).await?;
    let names = rows.into_iter();
    Ok(names
        .map(|(key, upstream, tool)| (key, ToolRef { upstream, tool }))
        .collect())
}
