//! Pages of tools, and the history of tool definitions.

use async_trait::async_trait;
use jiff::Timestamp;
use riglm_domain::catalog::tool::{ToolDefinition, ToolListing, ToolRef, ToolSighting};
use riglm_domain::id::{ToolName, UpstreamName};
use riglm_ports::analytics::{StoreError, ToolDefinitionRepository};
use serde::Deserialize;

use crate::database::{EncodedRows, Statement, Transaction};
use crate::store::Store;
use crate::value::Micros;

const INSERT_LISTS: Statement = Statement {
    table: "tool_lists",
    sqlite: "
        INSERT INTO tool_lists (id, upstream, tools)
        SELECT value ->> 0, value ->> 1, value -> 2
        FROM jsonb_each(?1)
        WHERE true
        ON CONFLICT (id) DO NOTHING",
    postgres: "
        INSERT INTO tool_lists (id, upstream, tools)
        SELECT value ->> 0, value ->> 1, value ->> 2
        FROM jsonb_array_elements($1::jsonb)
        ON CONFLICT (id) DO NOTHING",
};

// One row for each definition, because a batch may contain a page twice.
const SEE_DEFINITIONS: Statement = Statement {
    table: "tool_definitions",
    sqlite: "
        INSERT INTO tool_definitions (
            upstream, name, content_hash, first_seen, last_seen, definition)
        SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 3, value ->> 4
        FROM jsonb_each(?1)
        WHERE true
        ON CONFLICT (upstream, name, content_hash) DO UPDATE SET
            first_seen = min(first_seen, excluded.first_seen),
            last_seen = max(last_seen, excluded.last_seen),
            definition = iif(definition = '', excluded.definition, definition)",
    postgres: "
        INSERT INTO tool_definitions (
            upstream, name, content_hash, first_seen, last_seen, definition)
        SELECT value ->> 0, value ->> 1, value ->> 2, min((value ->> 3)::bigint),
            max((value ->> 3)::bigint), max(value ->> 4)
        FROM jsonb_array_elements($1::jsonb)
        GROUP BY value ->> 0, value ->> 1, value ->> 2
        ON CONFLICT (upstream, content_hash, md5(name)) DO UPDATE SET
            first_seen = least(tool_definitions.first_seen, excluded.first_seen),
            last_seen = greatest(tool_definitions.last_seen, excluded.last_seen),
            definition = CASE tool_definitions.definition
                WHEN '' THEN excluded.definition ELSE tool_definitions.definition END",
};

const SELECT: Statement = Statement {
    table: "tool_definitions",
    sqlite: "
        SELECT json_array(upstream, name, content_hash, definition, first_seen, last_seen)
        FROM tool_definitions
        WHERE ?1 ->> 0 IS NULL OR upstream = ?1 ->> 0",
    postgres: "
        SELECT json_build_array(
            upstream, name, content_hash, definition, first_seen, last_seen)::text
        FROM tool_definitions
        WHERE $1::jsonb ->> 0 IS NULL OR upstream = $1::jsonb ->> 0",
};

const SELECT_TOOLS: Statement = Statement {
    table: "tool_definitions",
    sqlite: "
        SELECT DISTINCT json_array(upstream, name) FROM tool_definitions WHERE ?1 = '[]'",
    postgres: "
        SELECT json_build_array(upstream, name)::text
        FROM tool_definitions
        WHERE $1 = '[]'
        GROUP BY upstream, name",
};

/// Writes pages and the definitions in them.
pub(crate) async fn write_seen(
    transaction: &mut Transaction,
    pages: &[(&ToolListing, Timestamp)],
) -> Result<(), StoreError> {
    let lists = pages.iter().map(|(page, _)| {
        let tools: Vec<_> = page
            .tools
            .iter()
            .map(|tool| (&tool.name, &tool.content_hash))
            .collect();
        (&page.id, &page.upstream, tools)
    });
    transaction
        .write(&INSERT_LISTS, EncodedRows::new(lists)?)
        .await?;
    let definitions = pages.iter().flat_map(|(page, seen_at)| {
        page.tools.iter().map(move |tool| {
            let ToolSighting {
                name,
                content_hash,
                definition,
            } = tool;
            (
                &page.upstream,
                name,
                content_hash,
                Micros(*seen_at),
                definition,
            )
        })
    });
    transaction
        .write(&SEE_DEFINITIONS, EncodedRows::new(definitions)?)
        .await?;
    Ok(())
}

#[async_trait]
impl ToolDefinitionRepository for Store {
    async fn tool_definitions(
        &self,
        upstream: Option<&UpstreamName>,
    ) -> Result<Vec<ToolDefinition>, StoreError> {
        #[derive(Deserialize)]
        struct ToolDefinitionRow(UpstreamName, ToolName, String, String, Micros, Micros);
        let rows: Vec<ToolDefinitionRow> =
            self.database().await?.rows(&SELECT, &[upstream]).await?;
        let mut definitions: Vec<_> = rows
            .into_iter()
            .map(
                |ToolDefinitionRow(
                    upstream,
                    name,
                    content_hash,
                    definition,
                    first_seen,
                    last_seen,
                )| {
                    ToolDefinition {
                        upstream,
                        sighting: ToolSighting {
                            name,
                            content_hash,
                            definition,
                        },
                        first_seen: first_seen.0,
                        last_seen: last_seen.0,
                    }
                },
            )
            .collect();
        // Ordered by the bytes of the names, independent of the collation of the database.
        definitions.sort_by(|one, other| {
            let key = |definition: &ToolDefinition| {
                (
                    definition.upstream.clone(),
                    definition.sighting.name.clone(),
                    definition.first_seen,
                    definition.sighting.content_hash.clone(),
                )
            };
            key(one).cmp(&key(other))
        });
        Ok(definitions)
    }

    async fn tools_seen(&self) -> Result<Vec<ToolRef>, StoreError> {
        let none: [(); 0] = [];
        let rows: Vec<(UpstreamName, ToolName)> =
            self.database().await?.rows(&SELECT_TOOLS, &none).await?;
        let tools = rows.into_iter();
        let mut tools: Vec<ToolRef> = tools
            .map(|(upstream, tool)| ToolRef { upstream, tool })
            .collect();
        // Ordered by the bytes of the names, independent of the collation of the database.
        tools.sort();
        Ok(tools)
    }
}
