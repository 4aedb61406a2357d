//! Selection of clients, and of their overrides.

use std::collections::BTreeSet;

use riglm_domain::catalog::tool_override::{OverrideScope, ToolOverride};
use riglm_domain::id::SessionId;
use riglm_domain::privacy::canonical::KeyedHash;
use riglm_ports::analytics::{ClientSelector, StoreError};

use crate::database::{Database, Statement};
use crate::repository::{session, tool_override};

const OVERRIDES: Statement = Statement {
    table: "overrides",
    sqlite: "
        SELECT json_array(
            hex(id), tool, action, json_object('kind', scope_kind, 'id', scope_id), expires_at,
            reason, created_by, created_at)
        FROM overrides
        WHERE ?1 = '[]' AND scope_kind IN ('client', 'session')
        ORDER BY id",
    postgres: "
        SELECT json_build_array(
            id, tool, action, json_build_object('kind', scope_kind, 'id', scope_id), expires_at,
            reason, created_by, created_at)::text
        FROM overrides
        WHERE $1 = '[]' AND scope_kind IN ('client', 'session')
        ORDER BY id",
};

// Selects the sessions of the clients among the given sessions. Parameters: the clients, the
// sessions.
const SESSIONS_AMONG: Statement = Statement {
    table: "sessions",
    sqlite: "
        SELECT json_array(hex(id))
        FROM sessions
        WHERE client IN (SELECT unhex(value) FROM json_each(?1 -> 0))
            AND id IN (SELECT unhex(value, '-') FROM json_each(?1 -> 1))",
    postgres: "
        SELECT json_build_array(id)::text
        FROM sessions
        WHERE client = ANY (ARRAY(
                SELECT decode(value, 'hex') FROM jsonb_array_elements_text($1::jsonb -> 0)))
            AND id = ANY (ARRAY(
                SELECT value::uuid FROM jsonb_array_elements_text($1::jsonb -> 1)))",
};

#[derive(Debug)]
pub(super) struct ClientSelection {
    pub(super) clients: BTreeSet<KeyedHash>,
}

impl ClientSelection {
    pub(super) async fn find(
        database: &Database,
        selector: &ClientSelector,
    ) -> Result<Self, StoreError> {
        let mut clients = session::clients_named(database, &selector.0).await?;
        clients.extend(KeyedHash::from_hex(&selector.0));
        Ok(Self { clients })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Returns the overrides for the clients and for their sessions, by identifier.
    pub(super) async fn overrides(
        &self,
        database: &Database,
    ) -> Result<Vec<ToolOverride>, StoreError> {
        let rows: Vec<tool_override::OverrideRow> = database.rows(&OVERRIDES, &[(); 0]).await?;
        let mut overrides: Vec<ToolOverride> = rows.into_iter().map(Into::into).collect();
        let named: BTreeSet<SessionId> = overrides.iter().filter_map(session_of).collect();
        let parameter = (&self.clients, named);
        let sessions: Vec<(SessionId,)> = database.rows(&SESSIONS_AMONG, &parameter).await?;
        let sessions: BTreeSet<SessionId> = sessions.into_iter().map(|(id,)| id).collect();
        overrides.retain(|row| match &row.scope {
            OverrideScope::Client(id) => {
                KeyedHash::from_hex(id).is_some_and(|client| self.clients.contains(&client))
            }
            _ => session_of(row).is_some_and(|session| sessions.contains(&session)),
        });
        Ok(overrides)
    }
}

fn session_of(row: &ToolOverride) -> Option<SessionId> {
    match &row.scope {
        OverrideScope::Session(id) => id.parse().ok(),
        _ => None,
    }
}
