//! Sessions, and the pages of tools that were listed to them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use async_trait::async_trait;
use jiff::Timestamp;
use riglm_domain::id::{RunId, SessionId, WorkSessionId};
use riglm_domain::mcp::protocol::{Revision, Transport};
use riglm_domain::privacy::canonical::KeyedHash;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::session::{ClientInfo, Session, SessionSummary};
use riglm_domain::usage::work_session::WorkSession;
use riglm_ports::analytics::{SessionFilter, SessionRepository, StoreError};
use serde::Deserialize;

use super::work_session;
use crate::database::{Database, EncodedRows, Statement, Transaction};
use crate::store::Store;
use crate::value::Micros;

const OPEN: Statement = Statement {
    table: "sessions",
    sqlite: "
        INSERT INTO sessions (
            id, run, principal, client, client_name, client_version, protocol, transport,
            started_at, profile, metadata)
        SELECT
            unhex(value ->> 0, '-'), unhex(value ->> 1, '-'), value ->> 2, unhex(value ->> 3),
            value ->> 4, value ->> 5, value ->> 6, value ->> 7, value ->> 8, value ->> 9,
            value -> 10
        FROM jsonb_each(?1)
        WHERE true
        ON CONFLICT (id) DO NOTHING",
    postgres: "
        INSERT INTO sessions (
            id, run, principal, client, client_name, client_version, protocol, transport,
            started_at, profile, metadata)
        SELECT
            (value ->> 0)::uuid, (value ->> 1)::uuid, value ->> 2, decode(value ->> 3, 'hex'),
            value ->> 4, value ->> 5, value ->> 6, value ->> 7, (value ->> 8)::bigint,
            value ->> 9, value ->> 10
        FROM jsonb_array_elements($1::jsonb)
        ON CONFLICT (id) DO NOTHING",
};

const CLOSE: Statement = Statement {
    table: "sessions",
    sqlite: "
        UPDATE sessions
        SET ended_at = ended.value ->> 1
        FROM jsonb_each(?1) AS ended
        WHERE sessions.id = unhex(ended.value ->> 0, '-') AND ended_at IS NULL",
    postgres: "
        UPDATE sessions
        SET ended_at = (ended.value ->> 1)::bigint
        FROM jsonb_array_elements($1::jsonb) AS ended
        WHERE sessions.id = (ended.value ->> 0)::uuid AND ended_at IS NULL",
};

const LOSE: Statement = Statement {
    table: "sessions",
    sqlite: "
        UPDATE sessions
        SET ended_at = ?1 ->> 1
        WHERE run = unhex(?1 ->> 0, '-') AND ended_at IS NULL",
    postgres: "
        UPDATE sessions
        SET ended_at = ($1::jsonb ->> 1)::bigint
        WHERE run = ($1::jsonb ->> 0)::uuid AND ended_at IS NULL",
};

const LIST: Statement = Statement {
    table: "session_tool_lists",
    sqlite: "
        INSERT INTO session_tool_lists (session, list, listed_at)
        SELECT unhex(value ->> 0, '-'), value ->> 1, value ->> 2
        FROM jsonb_each(?1)
        WHERE true
        ON CONFLICT (session, list) DO UPDATE SET
            listed_at = min(listed_at, excluded.listed_at)",
    postgres: "
        INSERT INTO session_tool_lists (session, list, listed_at)
        SELECT (value ->> 0)::uuid, value ->> 1, min((value ->> 2)::bigint)
        FROM jsonb_array_elements($1::jsonb)
        GROUP BY value ->> 0, value ->> 1
        ON CONFLICT (session, list) DO UPDATE SET
            listed_at = least(session_tool_lists.listed_at, excluded.listed_at)",
};

// Parameters: limit, start and identifier of the session after the page, whether it is open, its
// identifier, the maximum of the call count. A null parameter is no condition.
const SELECT_NEWEST: Statement = Statement {
    table: "sessions",
    sqlite: "
        SELECT json_array(
            hex(id), hex(run), principal, hex(client), client_name, client_version, protocol,
            transport, started_at, profile, json(metadata), ended_at,
            (SELECT count(*) FROM (
                SELECT 1 FROM invocations WHERE session = sessions.id
                LIMIT coalesce(?1 ->> 5, -1))))
        FROM sessions
        WHERE (?1 ->> 1 IS NULL OR (started_at, id) < (?1 ->> 1, unhex(?1 ->> 2, '-')))
            AND (?1 ->> 3 IS NULL OR (ended_at IS NULL) = (?1 ->> 3))
            AND (?1 ->> 4 IS NULL OR id = unhex(?1 ->> 4, '-'))
        ORDER BY started_at DESC, id DESC
        LIMIT ?1 ->> 0",
    postgres: "
        SELECT json_build_array(
            id, run, principal, encode(client, 'hex'), client_name, client_version, protocol,
            transport, started_at, profile, metadata::json, ended_at,
            (SELECT count(*) FROM (
                SELECT 1 FROM invocations WHERE session = sessions.id
                LIMIT ($1::jsonb ->> 5)::bigint) AS counted))::text
        FROM sessions
        WHERE ($1::jsonb ->> 1 IS NULL
                OR (started_at, id) < (($1::jsonb ->> 1)::bigint, ($1::jsonb ->> 2)::uuid))
            AND ($1::jsonb ->> 3 IS NULL OR (ended_at IS NULL) = ($1::jsonb ->> 3)::boolean)
            AND ($1::jsonb ->> 4 IS NULL OR id = ($1::jsonb ->> 4)::uuid)
        ORDER BY started_at DESC, id DESC
        LIMIT ($1::jsonb ->> 0)::bigint",
};

const SELECT_LISTED: Statement = Statement {
    table: "session_tool_lists",
    sqlite: "
        SELECT json_array(hex(session), list)
        FROM session_tool_lists
        WHERE session IN (SELECT unhex(value, '-') FROM json_each(?1))",
    postgres: "
        SELECT json_build_array(session, list)::text
        FROM session_tool_lists
        WHERE session = ANY (ARRAY(
            SELECT value::uuid FROM jsonb_array_elements_text($1::jsonb)))",
};

const SELECT_LISTS: Statement = Statement {
    table: "tool_lists",
    sqlite: "
        SELECT json_array(id, json(tools))
        FROM tool_lists
        WHERE id IN (SELECT value FROM json_each(?1))",
    postgres: "
        SELECT json_build_array(id, tools::json)::text
        FROM tool_lists
        WHERE id = ANY (ARRAY(
            SELECT value FROM jsonb_array_elements_text($1::jsonb)))",
};

// Parameters: a name, and the keyed hash that it may be.
const SELECT_CLIENTS: Statement = Statement {
    table: "sessions",
    sqlite: "
        SELECT json_array(hex(client))
        FROM sessions
        WHERE client_name = ?1 ->> 0 OR client = unhex(?1 ->> 1)
        GROUP BY client",
    postgres: "
        SELECT json_build_array(encode(client, 'hex'))::text
        FROM sessions
        WHERE client_name = $1::jsonb ->> 0 OR client = decode($1::jsonb ->> 1, 'hex')
        GROUP BY client",
};

pub(crate) async fn write_opened(
    transaction: &mut Transaction,
    sessions: &[&Session],
) -> Result<(), StoreError> {
    let rows = sessions.iter().map(|session| {
        (
            session.id,
            session.run,
            &session.principal,
            session.client,
            &session.client_info.name,
            &session.client_info.version,
            &session.protocol,
            session.transport,
            Micros(session.started_at),
            &session.profile,
            &session.metadata,
        )
    });
    transaction.write(&OPEN, EncodedRows::new(rows)?).await?;
    Ok(())
}

/// Writes the ends of sessions. The first end of a session stays.
pub(crate) async fn write_closed(
    transaction: &mut Transaction,
    ends: &[(SessionId, Timestamp)],
) -> Result<(), StoreError> {
    // A statement can change a row only once.
    let mut first_ends = HashMap::new();
    for (session, ended_at) in ends {
        first_ends.entry(session).or_insert(ended_at);
    }
    let rows = (first_ends.into_iter()).map(|(session, ended_at)| (session, Micros(*ended_at)));
    transaction.write(&CLOSE, EncodedRows::new(rows)?).await?;
    Ok(())
}

/// Ends the open sessions of a lost run.
pub(crate) async fn write_lost(
    transaction: &mut Transaction,
    run: RunId,
    noticed_at: Timestamp,
) -> Result<(), StoreError> {
    transaction
        .execute(&LOSE, &(run, Micros(noticed_at)))
        .await?;
    Ok(())
}

/// Writes the pages that were listed to sessions.
pub(crate) async fn write_listed(
    transaction: &mut Transaction,
    listed: &[(SessionId, &str, Timestamp)],
) -> Result<(), StoreError> {
    let rows = (listed.iter()).map(|(session, list, at)| (session, list, Micros(*at)));
    transaction.write(&LIST, EncodedRows::new(rows)?).await?;
    Ok(())
}

#[async_trait]
impl SessionRepository for Store {
    async fn sessions_where(
        &self,
        filter: &SessionFilter,
        limit: u32,
    ) -> Result<Vec<SessionSummary>, StoreError> {
        let database = self.database().await?;
        let (started_at, behind) = filter.before.unzip();
        let parameter = (
            limit,
            started_at.map(Micros),
            behind,
            filter.is_open,
            filter.id,
            filter.count_up_to,
        );
        let newest: Vec<SessionRow> = database.rows(&SELECT_NEWEST, &parameter).await?;
        let ids: Vec<SessionId> = newest.iter().map(|row| row.id).collect();
        let mut tools = tools_of(database, &ids).await?;
        Ok(newest
            .into_iter()
            .rev()
            .map(|row| {
                let listed = tools.remove(&row.id).unwrap_or_default();
                row.summary(listed)
            })
            .collect())
    }

    async fn clients_named(&self, name: &str) -> Result<BTreeSet<KeyedHash>, StoreError> {
        clients_named(self.database().await?, name).await
    }

    async fn work_session(&self, id: WorkSessionId) -> Result<Option<WorkSession>, StoreError> {
        work_session::work_session(self, id).await
    }

    async fn work_sessions(&self, limit: u32) -> Result<Vec<WorkSession>, StoreError> {
        work_session::work_sessions(self, limit).await
    }
}

/// Returns the clients with this name, and the client whose keyed hash it is.
pub(crate) async fn clients_named(
    database: &Database,
    name: &str,
) -> Result<BTreeSet<KeyedHash>, StoreError> {
    let parameter = (name, KeyedHash::from_hex(name));
    let rows: Vec<(KeyedHash,)> = database.rows(&SELECT_CLIENTS, &parameter).await?;
    Ok(rows.into_iter().map(|(client,)| client).collect())
}

/// Returns the names of the tools that were listed to each session.
async fn tools_of(
    database: &Database,
    sessions: &[SessionId],
) -> Result<HashMap<SessionId, BTreeSet<String>>, StoreError> {
    let listed: Vec<(SessionId, String)> = database.rows(&SELECT_LISTED, &sessions).await?;
    let lists: BTreeSet<&String> = listed.iter().map(|(_, list)| list).collect();
    let pages: Vec<(String, Vec<(String, String)>)> = database.rows(&SELECT_LISTS, &lists).await?;
    let names: HashMap<String, Vec<(String, String)>> = pages.into_iter().collect();
    let mut tools: HashMap<SessionId, BTreeSet<String>> = HashMap::new();
    for (session, list) in &listed {
        // A page is missing when its record was lost. The session keeps its other pages.
        let on_page = names.get(list).into_iter().flatten();
        tools
            .entry(*session)
            .or_default()
            .extend(on_page.map(|(name, _)| name.clone()));
    }
    Ok(tools)
}

#[derive(Deserialize)]
pub(crate) struct SessionRow {
    id: SessionId,
    run: RunId,
    principal: Principal,
    client: KeyedHash,
    name: String,
    version: String,
    protocol: Revision,
    transport: Transport,
    started_at: Micros,
    profile: Option<String>,
    metadata: BTreeMap<String, String>,
    ended_at: Option<Micros>,
    n_calls: u64,
}

impl SessionRow {
    pub(crate) fn summary(self, tools_available: BTreeSet<String>) -> SessionSummary {
        SessionSummary {
            session: Session {
                id: self.id,
                run: self.run,
                principal: self.principal,
                client: self.client,
                client_info: ClientInfo {
                    name: self.name,
                    version: self.version,
                },
                protocol: self.protocol,
                transport: self.transport,
                started_at: self.started_at.0,
                profile: self.profile,
                metadata: self.metadata,
            },
            ended_at: self.ended_at.map(|ended_at| ended_at.0),
            n_calls: self.n_calls,
            tools_available: tools_available.into_iter().collect(),
        }
    }
}
