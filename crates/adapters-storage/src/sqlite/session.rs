//! Sessions.

use std::collections::{BTreeSet, HashMap};

use async_trait::async_trait;
use jiff::Timestamp;
use riglm_domain::id::{RunId, SessionId};
use riglm_domain::principal::Principal;
use riglm_domain::protocol::{Revision, Transport};
use riglm_domain::session::{ClientInfo, Session, SessionSummary};
use riglm_ports::analytics::{SessionRepository, StoreError};
use sqlx::{FromRow, SqliteConnection};

use super::row::{Column, Rows};
use super::{SqliteStore, listing};
use crate::error::failing;

const OPEN: &str = "
    INSERT INTO sessions (
        id, run, principal, client, client_name, client_version, protocol, transport, started_at)
    SELECT
        unhex(value ->> 0, '-'), unhex(value ->> 1, '-'), value ->> 2, unhex(value ->> 3),
        value ->> 4, value ->> 5, value ->> 6, value ->> 7, value ->> 8
    FROM jsonb_each(?1)
    WHERE true
    ON CONFLICT (id) DO NOTHING";

const CLOSE: &str = "
    UPDATE sessions
    SET ended_at = ended.value ->> 1
    FROM jsonb_each(?1) AS ended
    WHERE sessions.id = unhex(ended.value ->> 0, '-') AND ended_at IS NULL";

const LOSE: &str = "UPDATE sessions SET ended_at = ?2 WHERE run = ?1 AND ended_at IS NULL";

const SELECT_NEWEST: &str = "
    SELECT hex(id) AS id, hex(run) AS run, principal, hex(client) AS client, client_name,
        client_version, protocol, transport, started_at, ended_at,
        (SELECT count(*) FROM invocations WHERE session = sessions.id) AS n_calls
    FROM sessions
    ORDER BY started_at DESC, sessions.id DESC
    LIMIT ?1";

/// Writes sessions that started.
pub(super) async fn write_opened(
    connection: &mut SqliteConnection,
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
            session.transport.as_str(),
            session.started_at.as_microsecond(),
        )
    });
    Rows::new(rows)?.write(connection, OPEN).await
}

/// Writes the ends of sessions; the first end of a session stays.
pub(super) async fn write_closed(
    connection: &mut SqliteConnection,
    ends: &[(SessionId, Timestamp)],
) -> Result<(), StoreError> {
    let mut first_ends = HashMap::new();
    for (session, ended_at) in ends {
        first_ends.entry(session).or_insert(ended_at);
    }
    let rows = first_ends
        .into_iter()
        .map(|(session, ended_at)| (session, ended_at.as_microsecond()));
    Rows::new(rows)?.write(connection, CLOSE).await
}

/// Ends the open sessions of a lost run.
pub(super) async fn write_lost(
    connection: &mut SqliteConnection,
    run: RunId,
    noticed_at: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query(LOSE)
        .bind(run.as_uuid().into_bytes().to_vec())
        .bind(noticed_at.as_microsecond())
        .execute(connection)
        .await
        .map_err(failing("end the sessions of a lost run"))?;
    Ok(())
}

#[async_trait]
impl SessionRepository for SqliteStore {
    async fn sessions(&self, limit: u32) -> Result<Vec<SessionSummary>, StoreError> {
        let newest: Vec<Row> = sqlx::query_as(SELECT_NEWEST)
            .bind(limit)
            .fetch_all(&self.readers)
            .await
            .map_err(failing("read sessions"))?;
        let mut tools = listing::tools_of(&self.readers, newest.iter().map(|row| &row.id)).await?;
        newest
            .into_iter()
            .rev()
            .map(|row| {
                let listed = tools.remove(&row.id).unwrap_or_default();
                row.summary(listed)
            })
            .collect()
    }
}

#[derive(FromRow)]
struct Row {
    id: String,
    run: String,
    principal: String,
    client: String,
    client_name: String,
    client_version: String,
    protocol: String,
    transport: String,
    started_at: i64,
    ended_at: Option<i64>,
    n_calls: i64,
}

impl Row {
    fn summary(self, tools_available: BTreeSet<String>) -> Result<SessionSummary, StoreError> {
        let at = |column| Column {
            table: "sessions",
            column,
        };
        let session = Session {
            id: at("id").id(&self.id)?,
            run: at("run").id(&self.run)?,
            principal: Principal::named(&self.principal),
            client: at("client").hash(&self.client)?,
            client_info: ClientInfo {
                name: self.client_name,
                version: self.client_version,
            },
            protocol: Revision::new(&self.protocol),
            transport: at("transport").present(Transport::parse(&self.transport))?,
            started_at: at("started_at").time(self.started_at)?,
            profile: None,
            metadata: std::collections::BTreeMap::new(),
        };
        Ok(SessionSummary {
            session,
            ended_at: self
                .ended_at
                .map(|ended_at| at("ended_at").time(ended_at))
                .transpose()?,
            n_calls: at("n_calls").count(self.n_calls)?,
            tools_available: tools_available.into_iter().collect(),
        })
    }
}
