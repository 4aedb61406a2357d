//! Lists as they were shown to sessions.

use riglm_domain::id::SessionId;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::selection::shown::{
    ListShown, SelectionDetails, SelectionMode, SelectionReason, ToolSet,
};
use riglm_domain::selection::{ExpectedCoverage, SizeChoice};
use riglm_ports::analytics::StoreError;
use serde::Deserialize;

use super::tool_set::{self, ToolsColumn};
use crate::database::{EncodedRows, Statement, Transaction};
use crate::store::Store;
use crate::value::{Micros, saturating_count};

const INSERT: Statement = Statement {
    table: "lists_shown",
    sqlite: "
        INSERT INTO lists_shown (
            session, shown_at, principal, epoch, policy, tool_set, n_available, mode, is_fallback,
            reason, pool, shown_tokens, available_tokens, size_choice, expected_coverage)
        SELECT
            unhex(value ->> 0, '-'), value ->> 1, value ->> 2, value ->> 3, value ->> 4,
            value ->> 5, value ->> 6, value ->> 7, value ->> 8, value ->> 9, value ->> 10,
            value ->> 11, value ->> 12, value ->> 13, value ->> 14
        FROM jsonb_each(?1)
        WHERE true
        ON CONFLICT (session, shown_at) DO NOTHING",
    postgres: "
        INSERT INTO lists_shown (
            session, shown_at, principal, epoch, policy, tool_set, n_available, mode, is_fallback,
            reason, pool, shown_tokens, available_tokens, size_choice, expected_coverage)
        SELECT
            (value ->> 0)::uuid, (value ->> 1)::bigint, value ->> 2, (value ->> 3)::bigint,
            value ->> 4, value ->> 5, (value ->> 6)::bigint, value ->> 7,
            (value ->> 8)::boolean, value ->> 9, value ->> 10, (value ->> 11)::bigint,
            (value ->> 12)::bigint, value ->> 13, (value ->> 14)::double precision
        FROM jsonb_array_elements($1::jsonb)
        ON CONFLICT (session, shown_at) DO NOTHING",
};

const SELECT_NEWEST: Statement = Statement {
    table: "lists_shown",
    sqlite: "
        SELECT json_array(
            hex(session), principal, shown_at, epoch, policy, json(shown.tools), n_available,
            mode, is_fallback, reason, json(pools.tools), shown_tokens, available_tokens,
            json(size_choice), expected_coverage)
        FROM lists_shown
        JOIN tool_sets AS shown ON shown.id = tool_set
        LEFT JOIN tool_sets AS pools ON pools.id = pool
        WHERE session = unhex(?1 ->> 0, '-')
        ORDER BY shown_at DESC
        LIMIT ?1 ->> 1",
    postgres: "
        SELECT json_build_array(
            session, principal, shown_at, epoch, policy, shown.tools::json, n_available,
            mode, is_fallback::int, reason, pools.tools::json, shown_tokens,
            available_tokens, size_choice::json, expected_coverage)::text
        FROM lists_shown
        JOIN tool_sets AS shown ON shown.id = tool_set
        LEFT JOIN tool_sets AS pools ON pools.id = pool
        WHERE session = ($1::jsonb ->> 0)::uuid
        ORDER BY shown_at DESC
        LIMIT ($1::jsonb ->> 1)::bigint",
};

/// Writes lists and their sets of tools.
pub(crate) async fn write(
    transaction: &mut Transaction,
    lists: &[&ListShown],
) -> Result<(), StoreError> {
    let pools = (lists.iter())
        .filter_map(|list| list.selection.as_ref())
        .map(|selection| &selection.pool);
    let sets: Vec<&ToolSet> = lists.iter().map(|list| &list.tools).chain(pools).collect();
    tool_set::write(transaction, sets).await?;
    let rows = lists.iter().map(|list| {
        let selection = list.selection.as_ref();
        (
            list.session,
            Micros(list.shown_at),
            &list.principal,
            saturating_count(list.epoch),
            &list.policy,
            list.tools.id(),
            saturating_count(list.n_available),
            selection.map(|selection| selection.mode),
            selection.map(|selection| selection.is_fallback),
            selection.and_then(|selection| selection.reason),
            selection.map(|selection| selection.pool.id()),
            selection.map(|selection| saturating_count(selection.shown_tokens)),
            selection.map(|selection| saturating_count(selection.available_tokens)),
            selection.and_then(|selection| selection.size_choice.as_ref()),
            selection.and_then(|selection| selection.expected_coverage),
        )
    });
    transaction.write(&INSERT, EncodedRows::new(rows)?).await?;
    Ok(())
}

/// Returns the newest lists of a session, oldest first.
pub(super) async fn lists_shown(
    store: &Store,
    session: SessionId,
    limit: u32,
) -> Result<Vec<ListShown>, StoreError> {
    let database = store.database().await?;
    let newest: Vec<ListShownRow> = database.rows(&SELECT_NEWEST, &(session, limit)).await?;
    Ok(newest.into_iter().rev().map(Into::into).collect())
}

/// The columns in the order of the statement.
#[derive(Deserialize)]
pub(crate) struct ListShownRow {
    session: SessionId,
    principal: Principal,
    shown_at: Micros,
    epoch: u64,
    policy: String,
    tools: ToolsColumn,
    n_available: u64,
    mode: Option<SelectionMode>,
    is_fallback: Option<u8>,
    reason: Option<SelectionReason>,
    pool: Option<ToolsColumn>,
    shown_tokens: Option<u64>,
    available_tokens: Option<u64>,
    size_choice: Option<SizeChoice>,
    expected_coverage: Option<ExpectedCoverage>,
}

impl From<ListShownRow> for ListShown {
    fn from(row: ListShownRow) -> Self {
        let selection = row.mode.zip(row.pool).map(|(mode, pool)| SelectionDetails {
            mode,
            is_fallback: row.is_fallback.is_some_and(|is_fallback| is_fallback != 0),
            reason: row.reason,
            size_choice: row.size_choice,
            expected_coverage: row.expected_coverage,
            pool: pool.into(),
            shown_tokens: row.shown_tokens.unwrap_or(0),
            available_tokens: row.available_tokens.unwrap_or(0),
        });
        Self {
            session: row.session,
            principal: row.principal,
            shown_at: row.shown_at.0,
            epoch: row.epoch,
            policy: row.policy,
            tools: row.tools.into(),
            n_available: row.n_available,
            selection,
        }
    }
}
