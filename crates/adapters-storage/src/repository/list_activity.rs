//! List activity: the lists, calls and searches of sessions, by which list policies are evaluated.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use jiff::Timestamp;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{SessionId, ToolName, UpstreamName, WorkSessionId};
use riglm_domain::selection::account::{
    ListActivity, ListTokens, RecordedCall, RecordedSearch, SeenList,
};
use riglm_domain::selection::shown::{ListShown, SelectionMode};
use riglm_domain::selection::{ExpectedCoverage, SizeChoice};
use riglm_domain::usage::invocation::ToolSource;
use riglm_ports::analytics::{ListRepository, StoreError};
use serde::{Deserialize, Serialize};

use super::{list_shown, tool_set};
use crate::database::{Database, Statement};
use crate::store::Store;
use crate::value::Micros;

const SESSIONS_OPEN_SINCE: Statement = Statement {
    table: "sessions",
    sqlite: "
        SELECT json_array(hex(id), started_at)
        FROM sessions
        WHERE ended_at IS NULL OR ended_at >= ?1 ->> 0
        ORDER BY started_at DESC, id DESC
        LIMIT ?1 ->> 1",
    postgres: "
        SELECT json_build_array(id, started_at)::text
        FROM sessions
        WHERE ended_at IS NULL OR ended_at >= ($1::jsonb ->> 0)::bigint
        ORDER BY started_at DESC, id DESC
        LIMIT ($1::jsonb ->> 1)::bigint",
};

/// A statement that reads the newest rows of a source, oldest first, for each session or in total. A
/// source is what follows `FROM`. Parameters: sessions, limit, and those of the source.
macro_rules! newest {
    (
        $table:literal,
        $columns:literal,
        ($partition:literal, $order:literal),
        [$sqlite:literal, $sqlite_source:expr],
        [$postgres:literal, $postgres_source:expr]
    ) => {
        Statement {
            table: $table,
            sqlite: concat!(
                "SELECT json_array(",
                $sqlite,
                ") FROM (SELECT ",
                $columns,
                ", row_number() OVER (",
                $partition,
                " ORDER BY ",
                $order,
                ") AS place FROM ",
                $sqlite_source,
                ") WHERE place <= ?1 ->> 1 ORDER BY place DESC"
            ),
            postgres: concat!(
                "SELECT json_build_array(",
                $postgres,
                ")::text FROM (SELECT ",
                $columns,
                ", row_number() OVER (",
                $partition,
                " ORDER BY ",
                $order,
                ") AS place FROM ",
                $postgres_source,
                ") AS fitting WHERE place <= ($1::jsonb ->> 1)::bigint ORDER BY place DESC"
            ),
        }
    };
}

macro_rules! newest_calls {
    ($partition:literal, $sqlite_source:expr, $postgres_source:expr) => {
        newest!(
            "invocations",
            "id, session, started_at, upstream, tool, source, work_session",
            ($partition, "id DESC"),
            [
                "hex(session), started_at, upstream, tool, source,
                iif(work_session IS NULL, NULL, hex(work_session))",
                $sqlite_source
            ],
            [
                "session, started_at, upstream, tool, source, work_session",
                $postgres_source
            ]
        )
    };
}

macro_rules! newest_searches {
    ($partition:literal, $sqlite_condition:expr, $postgres_condition:expr) => {
        newest!(
            "searches",
            "id, session, searched_at, results",
            ($partition, "id DESC"),
            [
                "hex(session), searched_at, json_array_length(results)",
                concat!("searches WHERE ", $sqlite_condition)
            ],
            [
                "session, searched_at, json_array_length(results::json)",
                concat!("searches WHERE ", $postgres_condition)
            ]
        )
    };
}

macro_rules! newest_lists {
    ($partition:literal, $sqlite_condition:expr, $postgres_condition:expr) => {
        newest!(
            "lists_shown",
            "session, shown_at, policy, tool_set, n_available, shown_tokens, available_tokens, mode,
            size_choice, expected_coverage",
            ($partition, "shown_at DESC, session DESC"),
            [
                "hex(session), shown_at, policy, tool_set, n_available, shown_tokens,
                available_tokens, mode, json(size_choice), expected_coverage",
                concat!("lists_shown WHERE ", $sqlite_condition)
            ],
            [
                "session, shown_at, policy, tool_set, n_available, shown_tokens, available_tokens,
                mode, size_choice::json, expected_coverage",
                concat!("lists_shown WHERE ", $postgres_condition)
            ]
        )
    };
}

macro_rules! sqlite_sessions {
    () => {
        "session IN (SELECT unhex(value, '-') FROM json_each(?1 -> 0))"
    };
}

macro_rules! postgres_sessions {
    () => {
        "session = ANY (ARRAY(
            SELECT value::uuid FROM jsonb_array_elements_text($1::jsonb -> 0)))"
    };
}

// The activity of each session separately. A session may have any number of calls, so the newest ones
// are found by the index of their sequence, without reading the others.
const OF_SESSIONS: ActivityStatements = ActivityStatements {
    calls: newest_calls!(
        "PARTITION BY session",
        "(SELECT unhex(value, '-') AS asked FROM json_each(?1 -> 0))
        CROSS JOIN invocations
        WHERE continues IS NULL AND session = asked AND sequence > coalesce(
            (SELECT sequence FROM invocations AS older
            WHERE older.session = asked AND older.continues IS NULL
            ORDER BY sequence DESC
            LIMIT 1 OFFSET ?1 ->> 1), -1)",
        "(SELECT value::uuid AS asked FROM jsonb_array_elements_text($1::jsonb -> 0)) AS sessions
        CROSS JOIN LATERAL (
            SELECT id, session, started_at, upstream, tool, source, work_session
            FROM invocations
            WHERE session = asked AND continues IS NULL
            ORDER BY sequence DESC
            LIMIT ($1::jsonb ->> 1)::bigint) AS newest"
    ),
    searches: newest_searches!(
        "PARTITION BY session",
        sqlite_sessions!(),
        postgres_sessions!()
    ),
    lists: newest_lists!(
        "PARTITION BY session",
        sqlite_sessions!(),
        postgres_sessions!()
    ),
};

// The activity of one work session. Parameters after the sessions and the limit: the work session,
// its beginning, its last activity.
const OF_WORK_SESSION: ActivityStatements = ActivityStatements {
    calls: newest_calls!(
        "",
        "(SELECT id, session, started_at, upstream, tool, source, work_session
        FROM invocations
        WHERE continues IS NULL AND work_session = unhex(?1 ->> 2, '-')
        ORDER BY id DESC
        LIMIT ?1 ->> 1)",
        "(SELECT id, session, started_at, upstream, tool, source, work_session
        FROM invocations
        WHERE continues IS NULL AND work_session = ($1::jsonb ->> 2)::uuid
        ORDER BY id DESC
        LIMIT ($1::jsonb ->> 1)::bigint) AS newest"
    ),
    searches: newest_searches!(
        "",
        concat!(
            "searched_at BETWEEN ?1 ->> 3 AND ?1 ->> 4 AND ",
            sqlite_sessions!()
        ),
        concat!(
            "searched_at BETWEEN ($1::jsonb ->> 3)::bigint AND ($1::jsonb ->> 4)::bigint AND ",
            postgres_sessions!()
        )
    ),
    lists: newest_lists!(
        "",
        concat!(
            "shown_at <= ?1 ->> 4 AND shown_at >= coalesce(
                (SELECT max(shown_at) FROM lists_shown WHERE shown_at <= ?1 ->> 3 AND ",
            sqlite_sessions!(),
            "), ?1 ->> 3) AND ",
            sqlite_sessions!()
        ),
        concat!(
            "shown_at <= ($1::jsonb ->> 4)::bigint AND shown_at >= coalesce(
                (SELECT max(shown_at) FROM lists_shown
                WHERE shown_at <= ($1::jsonb ->> 3)::bigint AND ",
            postgres_sessions!(),
            "), ($1::jsonb ->> 3)::bigint) AND ",
            postgres_sessions!()
        )
    ),
};

// The sessions of the newest calls of a work session, each with its first and last one. A work session
// may have any number of calls, and older ones are not read. Parameters: the work session, limit.
const CONNECTIONS: Statement = Statement {
    table: "invocations",
    sqlite: "
        SELECT json_array(hex(session), min(started_at), max(started_at))
        FROM (SELECT id, session, started_at
            FROM invocations
            WHERE continues IS NULL AND work_session = unhex(?1 ->> 0, '-')
            ORDER BY id DESC
            LIMIT ?1 ->> 1)
        GROUP BY session
        ORDER BY max(id) DESC",
    postgres: "
        SELECT json_build_array(session, min(started_at), max(started_at))::text
        FROM (SELECT id, session, started_at
            FROM invocations
            WHERE continues IS NULL AND work_session = ($1::jsonb ->> 0)::uuid
            ORDER BY id DESC
            LIMIT ($1::jsonb ->> 1)::bigint) AS newest
        GROUP BY session
        ORDER BY max(id::text) DESC",
};

// The work sessions of the newest calls of each session. Parameters: sessions, limit.
const WORK_SESSIONS: Statement = Statement {
    table: "invocations",
    sqlite: "
        SELECT json_array(hex(asked.id), hex(work_session))
        FROM (SELECT unhex(value, '-') AS id FROM json_each(?1 -> 0)) AS asked
        CROSS JOIN invocations
        WHERE work_session IS NOT NULL AND session = asked.id AND sequence > coalesce(
            (SELECT sequence FROM invocations AS older
            WHERE older.session = asked.id
            ORDER BY sequence DESC
            LIMIT 1 OFFSET ?1 ->> 1), -1)
        GROUP BY asked.id, work_session",
    postgres: "
        SELECT json_build_array(asked.id, work_session)::text
        FROM (SELECT value::uuid AS id
            FROM jsonb_array_elements_text($1::jsonb -> 0)) AS asked
        CROSS JOIN LATERAL (
            SELECT work_session
            FROM invocations
            WHERE session = asked.id
            ORDER BY sequence DESC
            LIMIT ($1::jsonb ->> 1)::bigint) AS newest
        WHERE work_session IS NOT NULL
        GROUP BY asked.id, work_session",
};

// The newest work sessions, each with the session of its newest call. A work session may have any
// number of calls, so each is found by the index, from the one after it. Parameters: the first
// identifier, limit.
const WORK_SESSIONS_SINCE: Statement = Statement {
    table: "invocations",
    sqlite: "
        WITH RECURSIVE newest (id) AS (
            SELECT max(work_session) FROM invocations
            WHERE work_session >= unhex(?1 ->> 0, '-')
            UNION ALL
            SELECT (
                SELECT max(work_session) FROM invocations
                WHERE work_session >= unhex(?1 ->> 0, '-') AND work_session < newest.id)
            FROM newest
            WHERE newest.id IS NOT NULL
            LIMIT ?1 ->> 1)
        SELECT json_array(hex(newest.id), hex((
            SELECT session FROM invocations
            WHERE work_session = newest.id
            ORDER BY invocations.id DESC
            LIMIT 1)))
        FROM newest
        WHERE newest.id IS NOT NULL",
    postgres: "
        WITH RECURSIVE newest (id) AS (
            (SELECT work_session FROM invocations
            WHERE work_session >= ($1::jsonb ->> 0)::uuid
            ORDER BY work_session DESC
            LIMIT 1)
            UNION ALL
            SELECT (
                SELECT work_session FROM invocations
                WHERE work_session >= ($1::jsonb ->> 0)::uuid AND work_session < newest.id
                ORDER BY work_session DESC
                LIMIT 1)
            FROM newest
            WHERE newest.id IS NOT NULL)
        SELECT json_build_array(newest.id, (
            SELECT session FROM invocations
            WHERE work_session = newest.id
            ORDER BY invocations.id DESC
            LIMIT 1))::text
        FROM newest
        WHERE newest.id IS NOT NULL
        LIMIT ($1::jsonb ->> 1)::bigint",
};

const SPAN: Statement = Statement {
    table: "work_sessions",
    sqlite: "
        SELECT json_array(started_at, last_active_at)
        FROM work_sessions
        WHERE id = unhex(?1 ->> 0, '-')",
    postgres: "
        SELECT json_build_array(started_at, last_active_at)::text
        FROM work_sessions
        WHERE id = ($1::jsonb ->> 0)::uuid",
};

struct ActivityStatements {
    calls: Statement,
    searches: Statement,
    lists: Statement,
}

impl ActivityStatements {
    /// Returns the rows, each with its session.
    async fn read(
        &self,
        database: &Database,
        parameter: &(impl Serialize + Sync),
    ) -> Result<ActivityRows, StoreError> {
        let calls: Vec<CallRow> = database.rows(&self.calls, parameter).await?;
        let searches: Vec<SearchRow> = database.rows(&self.searches, parameter).await?;
        let lists: Vec<ListRow> = database.rows(&self.lists, parameter).await?;
        let sets: BTreeSet<&String> = lists.iter().map(|row| &row.set).collect();
        let sets = tool_set::read(database, &sets).await?;
        let lists = lists.into_iter().filter_map(|row| {
            let tokens = row.shown.zip(row.available);
            let list = SeenList {
                at: row.at.0,
                policy: row.policy,
                // A set can be missing only in a damaged database.
                tools: sets.get(&row.set)?.clone(),
                n_available: row.n_available,
                tokens: tokens.map(|(shown, available)| ListTokens { shown, available }),
                mode: row.mode,
                size_choice: row.size_choice,
                expected_coverage: row.expected_coverage,
            };
            Some((row.session, list))
        });
        Ok(ActivityRows {
            lists: lists.collect(),
            calls: calls.into_iter().map(CallRow::into_session_call).collect(),
            searches: searches
                .into_iter()
                .map(SearchRow::into_session_search)
                .collect(),
        })
    }
}

struct ActivityRows {
    lists: Vec<(SessionId, SeenList)>,
    calls: Vec<(SessionId, RecordedCall)>,
    searches: Vec<(SessionId, RecordedSearch)>,
}

#[async_trait]
impl ListRepository for Store {
    async fn lists_shown(
        &self,
        session: SessionId,
        limit: u32,
    ) -> Result<Vec<ListShown>, StoreError> {
        list_shown::lists_shown(self, session, limit).await
    }

    async fn sessions_open_since(
        &self,
        since: Timestamp,
        limit: u32,
    ) -> Result<Vec<(SessionId, Timestamp)>, StoreError> {
        let database = self.database().await?;
        let parameter = (Micros(since), limit);
        let newest: Vec<(SessionId, Micros)> =
            database.rows(&SESSIONS_OPEN_SINCE, &parameter).await?;
        let oldest_first = newest.into_iter().rev();
        Ok(oldest_first.map(|(id, start)| (id, start.0)).collect())
    }

    async fn work_sessions_of(
        &self,
        sessions: &[SessionId],
        limit: u32,
    ) -> Result<BTreeMap<SessionId, BTreeSet<WorkSessionId>>, StoreError> {
        let database = self.database().await?;
        let parameter = (sessions, limit);
        let pairs: Vec<(SessionId, WorkSessionId)> =
            database.rows(&WORK_SESSIONS, &parameter).await?;
        let mut of: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for (session, work_session) in pairs {
            of.entry(session).or_default().insert(work_session);
        }
        Ok(of)
    }

    async fn work_sessions_since(
        &self,
        since: Timestamp,
        limit: u32,
    ) -> Result<BTreeMap<WorkSessionId, SessionId>, StoreError> {
        let database = self.database().await?;
        let parameter = (WorkSessionId::new(since, [0; 10]), limit);
        let pairs: Vec<(WorkSessionId, SessionId)> =
            database.rows(&WORK_SESSIONS_SINCE, &parameter).await?;
        Ok(pairs.into_iter().collect())
    }

    async fn list_activities(
        &self,
        sessions: &[SessionId],
        limit: u32,
    ) -> Result<BTreeMap<SessionId, ListActivity>, StoreError> {
        let database = self.database().await?;
        let found = OF_SESSIONS.read(database, &(sessions, limit)).await?;
        let nothing = |id: &SessionId| (*id, ListActivity::default());
        let mut activities: BTreeMap<_, _> = sessions.iter().map(nothing).collect();
        for (session, list) in found.lists {
            activities.entry(session).or_default().lists.push(list);
        }
        for (session, call) in found.calls {
            activities.entry(session).or_default().calls.push(call);
        }
        for (session, search) in found.searches {
            activities.entry(session).or_default().searches.push(search);
        }
        Ok(activities)
    }

    async fn list_activity_of(
        &self,
        work_session: WorkSessionId,
        limit: u32,
    ) -> Result<ListActivity, StoreError> {
        let database = self.database().await?;
        let over: Vec<(SessionId, i64, i64)> =
            database.rows(&CONNECTIONS, &(work_session, limit)).await?;
        let span: Option<(i64, i64)> = database.row(&SPAN, &[work_session]).await?;
        let spans = (over.iter().map(|(_, from, to)| (*from, *to))).chain(span);
        let whole = spans.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
        let Some((from, to)) = whole else {
            return Ok(ListActivity::default());
        };
        let sessions: Vec<SessionId> = over.into_iter().map(|(session, ..)| session).collect();
        let parameter = (sessions, limit, work_session, from, to);
        let found = OF_WORK_SESSION.read(database, &parameter).await?;
        Ok(ListActivity {
            lists: found.lists.into_iter().map(|(_, list)| list).collect(),
            calls: found.calls.into_iter().map(|(_, call)| call).collect(),
            searches: (found.searches.into_iter())
                .map(|(_, search)| search)
                .collect(),
        })
    }
}

#[derive(Deserialize)]
struct CallRow(
    SessionId,
    Micros,
    UpstreamName,
    ToolName,
    ToolSource,
    Option<WorkSessionId>,
);

impl CallRow {
    fn into_session_call(self) -> (SessionId, RecordedCall) {
        let Self(session, at, upstream, tool, source, work_session) = self;
        let call = RecordedCall {
            at: at.0,
            tool: ToolRef { upstream, tool },
            source,
            work_session,
        };
        (session, call)
    }
}

#[derive(Deserialize)]
struct SearchRow(SessionId, Micros, u64);

impl SearchRow {
    fn into_session_search(self) -> (SessionId, RecordedSearch) {
        let Self(session, at, n_results) = self;
        let search = RecordedSearch {
            at: at.0,
            n_results,
            answer_tokens: None,
        };
        (session, search)
    }
}

#[derive(Deserialize)]
struct ListRow {
    session: SessionId,
    at: Micros,
    policy: String,
    set: String,
    n_available: u64,
    shown: Option<u64>,
    available: Option<u64>,
    mode: Option<SelectionMode>,
    size_choice: Option<SizeChoice>,
    expected_coverage: Option<ExpectedCoverage>,
}

#[cfg(test)]
mod tests {
    use super::super::invocation::tests::steps;
    use super::*;

    #[tokio::test]
    async fn calls_of_work_sessions_are_found_by_their_index() {
        for plan in steps(&[WORK_SESSIONS_SINCE, CONNECTIONS]).await {
            let of_calls = plan.iter().filter(|step| step.contains(" invocations"));
            let of_calls: Vec<&String> = of_calls.collect();
            let has_index = |step: &&String| {
                step.starts_with("SEARCH") && step.contains("invocations_by_work_session")
            };
            assert!(!of_calls.is_empty(), "{plan:?}");
            assert!(of_calls.iter().all(has_index), "{plan:?}");
        }
    }
}
