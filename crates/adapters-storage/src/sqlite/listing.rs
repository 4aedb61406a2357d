//! Pages of tools: what was listed to whom, and what each tool looked like.

use std::collections::{BTreeSet, HashMap};

use jiff::Timestamp;
use riglm_domain::id::SessionId;
use riglm_domain::tool::ToolListing;
use riglm_ports::analytics::StoreError;
use sqlx::{SqliteConnection, SqlitePool};

use super::row::Rows;
use crate::error::failing;

const INSERT_LISTS: &str = "
    INSERT INTO tool_lists (id, upstream, tools)
    SELECT value ->> 0, value ->> 1, value -> 2
    FROM jsonb_each(?1)
    WHERE true
    ON CONFLICT (id) DO NOTHING";

const SEE_DEFINITIONS: &str = "
    INSERT INTO tool_definitions (upstream, name, content_hash, first_seen, last_seen)
    SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 3
    FROM jsonb_each(?1)
    WHERE true
    ON CONFLICT (upstream, name, content_hash) DO UPDATE SET
        first_seen = min(first_seen, excluded.first_seen),
        last_seen = max(last_seen, excluded.last_seen)";

const LIST_TO_SESSIONS: &str = "
    INSERT INTO session_tool_lists (session, list, listed_at)
    SELECT unhex(value ->> 0, '-'), value ->> 1, value ->> 2
    FROM jsonb_each(?1)
    WHERE true
    ON CONFLICT (session, list) DO UPDATE SET
        listed_at = min(listed_at, excluded.listed_at)";

const SELECT_LISTED: &str = "
    SELECT hex(session), list
    FROM session_tool_lists
    WHERE session IN (SELECT unhex(value) FROM json_each(?1))";

const SELECT_LISTS: &str = "
    SELECT id, tools
    FROM tool_lists
    WHERE id IN (SELECT value FROM json_each(?1))";

/// Writes pages and the definitions on them.
pub(super) async fn write_seen(
    connection: &mut SqliteConnection,
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
    Rows::new(lists)?.write(connection, INSERT_LISTS).await?;
    let definitions = pages.iter().flat_map(|(page, seen_at)| {
        let seen_at = seen_at.as_microsecond();
        page.tools
            .iter()
            .map(move |tool| (&page.upstream, &tool.name, &tool.content_hash, seen_at))
    });
    Rows::new(definitions)?
        .write(connection, SEE_DEFINITIONS)
        .await
}

/// Writes which page was listed to which session.
pub(super) async fn write_listed(
    connection: &mut SqliteConnection,
    listed: &[(SessionId, &str, Timestamp)],
) -> Result<(), StoreError> {
    let rows = listed
        .iter()
        .map(|(session, list, listed_at)| (session, list, listed_at.as_microsecond()));
    Rows::new(rows)?.write(connection, LIST_TO_SESSIONS).await
}

/// Returns the names of the tools that were listed to each of the sessions, which are named by
/// their identifiers in hexadecimal as the database writes them.
pub(super) async fn tools_of(
    readers: &SqlitePool,
    sessions: impl Iterator<Item = &String>,
) -> Result<HashMap<String, BTreeSet<String>>, StoreError> {
    let sessions: Vec<_> = sessions.collect();
    let listed: Vec<(String, String)> = sqlx::query_as(SELECT_LISTED)
        .bind(serde_json::to_string(&sessions).map_err(failing("encode sessions"))?)
        .fetch_all(readers)
        .await
        .map_err(failing("read the lists of sessions"))?;
    let lists: BTreeSet<&String> = listed.iter().map(|(_, list)| list).collect();
    let names = names_on(readers, &lists).await?;
    let mut tools: HashMap<String, BTreeSet<String>> = HashMap::new();
    for (session, list) in listed {
        // A list is missing when its record was lost; the session keeps its other lists.
        if let Some(names) = names.get(&list) {
            tools
                .entry(session)
                .or_default()
                .extend(names.iter().cloned());
        }
    }
    Ok(tools)
}

async fn names_on(
    readers: &SqlitePool,
    lists: &BTreeSet<&String>,
) -> Result<HashMap<String, Vec<String>>, StoreError> {
    let rows: Vec<(String, String)> = sqlx::query_as(SELECT_LISTS)
        .bind(serde_json::to_string(lists).map_err(failing("encode lists"))?)
        .fetch_all(readers)
        .await
        .map_err(failing("read tool lists"))?;
    rows.into_iter()
        .map(|(id, tools)| {
            let tools: Vec<(String, String)> =
                serde_json::from_str(&tools).map_err(|_| StoreError::Corrupt {
                    table: "tool_lists",
                    reason: "column tools".into(),
                })?;
            Ok((id, tools.into_iter().map(|(name, _)| name).collect()))
        })
        .collect()
}
