//! Sets of tools in lists. Each is written once, with its content hash as its identifier.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::selection::shown::ToolSet;
use riglm_ports::analytics::StoreError;
use serde::Deserialize;

use crate::database::{Database, EncodedRows, Statement, Transaction};

const INSERT: Statement = Statement {
    table: "tool_sets",
    sqlite: "
        INSERT INTO tool_sets (id, tools)
        SELECT value ->> 0, value -> 1
        FROM jsonb_each(?1)
        WHERE true
        ON CONFLICT (id) DO NOTHING",
    postgres: "
        INSERT INTO tool_sets (id, tools)
        SELECT value ->> 0, value ->> 1
        FROM jsonb_array_elements($1::jsonb)
        ON CONFLICT (id) DO NOTHING",
};

const SELECT: Statement = Statement {
    table: "tool_sets",
    sqlite: "
        SELECT json_array(id, json(tools))
        FROM tool_sets
        WHERE id IN (SELECT value FROM json_each(?1))",
    postgres: "
        SELECT json_build_array(id, tools::json)::text
        FROM tool_sets
        WHERE id = ANY (ARRAY(SELECT value FROM jsonb_array_elements_text($1::jsonb)))",
};

/// Returns the sets with these identifiers, as far as they exist.
pub(crate) async fn read(
    database: &Database,
    ids: &BTreeSet<&String>,
) -> Result<HashMap<String, Arc<ToolSet>>, StoreError> {
    let rows: Vec<(String, ToolsColumn)> = database.rows(&SELECT, ids).await?;
    let sets = rows.into_iter();
    Ok(sets
        .map(|(id, tools)| (id, Arc::new(tools.into())))
        .collect())
}

/// Writes the sets that do not exist yet.
pub(crate) async fn write(
    transaction: &mut Transaction,
    sets: impl IntoIterator<Item = &ToolSet>,
) -> Result<(), StoreError> {
    // Each set once, and ordered by identifier: concurrent writers lock the rows in the same order.
    let sets: BTreeMap<&str, &ToolSet> = sets.into_iter().map(|set| (set.id(), set)).collect();
    let rows = sets.into_iter().map(|(id, set)| {
        let tools: Vec<_> = (set.tools().iter())
            .map(|tool| (&tool.upstream, &tool.tool))
            .collect();
        (id, tools)
    });
    transaction.write(&INSERT, EncodedRows::new(rows)?).await?;
    Ok(())
}

#[derive(Deserialize)]
pub(crate) struct ToolsColumn(Vec<(UpstreamName, ToolName)>);

impl From<ToolsColumn> for ToolSet {
    fn from(tools: ToolsColumn) -> Self {
        let tools = tools.0.into_iter();
        Self::new(
            tools
                .map(|(upstream, tool)| ToolRef { upstream, tool })
                .collect(),
        )
    }
}
