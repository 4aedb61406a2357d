//! Sets of tools that lists showed: each is written once and named by its content.

use std::collections::BTreeMap;

use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::list_shown::ToolSet;
use riglm_domain::tool::ToolRef;
use riglm_ports::analytics::StoreError;
use serde::Deserialize;

use crate::database::{Rows, Statement, Transaction};

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

/// Writes the sets that are not there yet.
pub(crate) async fn write(
    transaction: &mut Transaction,
    sets: impl IntoIterator<Item = &ToolSet>,
) -> Result<(), StoreError> {
    // Each once, and by identifier: who writes several at a time meets others in the same order.
    let sets: BTreeMap<&str, &ToolSet> = sets.into_iter().map(|set| (set.id(), set)).collect();
    let rows = sets.into_iter().map(|(id, set)| {
        let tools: Vec<_> = (set.tools().iter())
            .map(|tool| (&tool.upstream, &tool.tool))
            .collect();
        (id, tools)
    });
    transaction.write(&INSERT, Rows::new(rows)?).await?;
    Ok(())
}

/// The column `tools` of a set.
#[derive(Deserialize)]
pub(crate) struct Tools(Vec<(UpstreamName, ToolName)>);

impl From<Tools> for ToolSet {
    fn from(tools: Tools) -> Self {
        let tools = tools.0.into_iter();
        Self::new(
            tools
                .map(|(upstream, tool)| ToolRef { upstream, tool })
                .collect(),
        )
    }
}
