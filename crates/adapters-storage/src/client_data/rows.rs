//! Statements that read a page of the rows of clients. Parameters: the clients, the cursor of the
//! page, and the maximum number of rows.

use crate::database::Statement;

/// A statement that reads rows of the clients' sessions. The columns of the sort order have the
/// types of `$sqlite_after` and `$postgres_after`.
macro_rules! of_sessions {
    (
        $table:literal,
        $order:literal,
        [$sqlite:literal, $sqlite_after:literal],
        [$postgres:literal, $postgres_after:literal]
    ) => {
        // The plus prevents the planner from scanning all rows of the sessions for each page.
        Statement {
            table: $table,
            sqlite: concat!(
                "SELECT json_array(",
                $sqlite,
                ") FROM ",
                $table,
                " WHERE +session IN (
                    SELECT id FROM sessions
                    WHERE client IN (SELECT unhex(value) FROM json_each(?1 -> 0)))
                AND (",
                $order,
                ") > (",
                $sqlite_after,
                ") ORDER BY ",
                $order,
                " LIMIT ?1 ->> 2"
            ),
            postgres: concat!(
                "SELECT json_build_array(",
                $postgres,
                ")::text FROM ",
                $table,
                " WHERE session IN (
                    SELECT id FROM sessions
                    WHERE client = ANY (ARRAY(
                        SELECT decode(value, 'hex')
                        FROM jsonb_array_elements_text($1::jsonb -> 0))))
                AND (",
                $order,
                ") > (",
                $postgres_after,
                ") ORDER BY ",
                $order,
                " LIMIT ($1::jsonb ->> 2)::bigint"
            ),
        }
    };
    ($table:literal, $sqlite:literal, $postgres:literal) => {
        of_sessions!(
            $table,
            "id",
            [$sqlite, "unhex(?1 -> 1 ->> 0, '-')"],
            [$postgres, "($1::jsonb -> 1 ->> 0)::uuid"]
        )
    };
}

/// A statement that reads rows of the clients' sessions and work sessions, ordered by identifier.
macro_rules! of_work {
    ($table:literal, $sqlite:literal, $postgres:literal) => {
        Statement {
            table: $table,
            sqlite: concat!(
                "SELECT json_array(",
                $sqlite,
                ") FROM ",
                $table,
                " WHERE (+session IN (
                        SELECT id FROM sessions
                        WHERE client IN (SELECT unhex(value) FROM json_each(?1 -> 0)))
                    OR +work_session IN (
                        SELECT id FROM work_sessions
                        WHERE client IN (SELECT unhex(value) FROM json_each(?1 -> 0))))
                AND id > unhex(?1 -> 1 ->> 0, '-')
                ORDER BY id LIMIT ?1 ->> 2"
            ),
            postgres: concat!(
                "SELECT json_build_array(",
                $postgres,
                ")::text FROM ",
                $table,
                " WHERE (session IN (
                        SELECT id FROM sessions
                        WHERE client = ANY (ARRAY(
                            SELECT decode(value, 'hex')
                            FROM jsonb_array_elements_text($1::jsonb -> 0))))
                    OR work_session IN (
                        SELECT id FROM work_sessions
                        WHERE client = ANY (ARRAY(
                            SELECT decode(value, 'hex')
                            FROM jsonb_array_elements_text($1::jsonb -> 0)))))
                AND id > ($1::jsonb -> 1 ->> 0)::uuid
                ORDER BY id LIMIT ($1::jsonb ->> 2)::bigint"
            ),
        }
    };
}

/// A statement that reads rows of the clients themselves.
macro_rules! of_clients {
    ($table:literal, $sqlite:literal, $postgres:literal) => {
        Statement {
            table: $table,
            sqlite: concat!(
                "SELECT json_array(",
                $sqlite,
                ") FROM ",
                $table,
                " WHERE +client IN (SELECT unhex(value) FROM json_each(?1 -> 0))
                    AND id > unhex(?1 -> 1 ->> 0, '-')
                ORDER BY id
                LIMIT ?1 ->> 2"
            ),
            postgres: concat!(
                "SELECT json_build_array(",
                $postgres,
                ")::text FROM ",
                $table,
                " WHERE client = ANY (ARRAY(
                        SELECT decode(value, 'hex')
                        FROM jsonb_array_elements_text($1::jsonb -> 0)))
                    AND id > ($1::jsonb -> 1 ->> 0)::uuid
                ORDER BY id
                LIMIT ($1::jsonb ->> 2)::bigint"
            ),
        }
    };
}

pub(super) const SESSIONS: Statement = of_clients!(
    "sessions",
    "hex(id), hex(run), principal, hex(client), client_name, client_version, protocol, transport,
    started_at, profile, json(metadata), ended_at, 0",
    "id, run, principal, encode(client, 'hex'), client_name, client_version, protocol, transport,
    started_at, profile, metadata::json, ended_at, 0"
);

pub(super) const CALLS: Statement = of_sessions!(
    "invocations",
    "hex(id), hex(session), principal, upstream, tool, hex(arguments_hash), arguments, started_at,
    sequence, source, request_bytes, iif(continues IS NULL, NULL, hex(continues)),
    iif(work_session IS NULL, NULL, hex(work_session)), list_epoch,
    iif(context IS NULL, NULL, hex(context)), outcome, duration_us, response_bytes, result,
    request_tokens, response_tokens, wait_us",
    "id, session, principal, upstream, tool, encode(arguments_hash, 'hex'), arguments, started_at,
    sequence, source, request_bytes, continues, work_session, list_epoch, context, outcome,
    duration_us, response_bytes, result, request_tokens, response_tokens, wait_us"
);

pub(super) const EXCHANGES: Statement = of_sessions!(
    "exchanges",
    "hex(id), hex(session), principal, upstream, method, target, started_at, duration_us, outcome",
    "id, session, principal, upstream, method, target, started_at, duration_us, outcome"
);

pub(super) const TOOLS_LISTED: Statement = of_sessions!(
    "session_tool_lists",
    "session, list",
    [
        "hex(session), list, listed_at",
        "unhex(?1 -> 1 ->> 0, '-'), ?1 -> 1 ->> 1"
    ],
    [
        "session, list, listed_at",
        "($1::jsonb -> 1 ->> 0)::uuid, $1::jsonb -> 1 ->> 1"
    ]
);

pub(super) const LISTS_SHOWN: Statement = of_sessions!(
    "lists_shown",
    "session, shown_at",
    [
        "hex(session), principal, shown_at, epoch, policy,
        (SELECT json(tools) FROM tool_sets WHERE id = tool_set), n_available, mode, is_fallback,
        reason, (SELECT json(tools) FROM tool_sets WHERE id = pool), shown_tokens,
        available_tokens, json(size_choice), expected_coverage",
        "unhex(?1 -> 1 ->> 0, '-'), ?1 -> 1 ->> 1"
    ],
    [
        "session, principal, shown_at, epoch, policy,
        (SELECT tools::json FROM tool_sets WHERE id = tool_set), n_available, mode,
        is_fallback::int, reason, (SELECT tools::json FROM tool_sets WHERE id = pool),
        shown_tokens, available_tokens, size_choice::json, expected_coverage",
        "($1::jsonb -> 1 ->> 0)::uuid, ($1::jsonb -> 1 ->> 1)::bigint"
    ]
);

pub(super) const SEARCHES: Statement = of_sessions!(
    "searches",
    "hex(id), hex(session), principal, searched_at, duration_us, hex(query_hash), query, quality,
    json(results)",
    "id, session, principal, searched_at, duration_us, encode(query_hash, 'hex'), query, quality,
    results::json"
);

pub(super) const CONTEXTS: Statement = of_sessions!(
    "contexts",
    "hex(id), hex(session), principal, source, given_at, hex(text_hash), text, model,
    iif(vector IS NULL, NULL, hex(vector))",
    "id, session, principal, source, given_at, encode(text_hash, 'hex'), text, model,
    encode(vector, 'hex')"
);

pub(super) const RECOMMENDATIONS: Statement = of_work!(
    "recommendations",
    "hex(id), iif(session IS NULL, NULL, hex(session)), principal, shown_at, hex(intent_hash),
    intent, weights, experiment, arm, json(tools),
    iif(work_session IS NULL, NULL, hex(work_session))",
    "id, session, principal, shown_at, encode(intent_hash, 'hex'), intent, weights, experiment,
    arm, tools::json, work_session"
);

pub(super) const FEEDBACK: Statement = of_work!(
    "feedback",
    "hex(id), principal, iif(session IS NULL, NULL, hex(session)), upstream, tool, verdict, rating,
    iif(recommendation IS NULL, NULL, hex(recommendation)),
    iif(invocation IS NULL, NULL, hex(invocation)), given_at,
    iif(work_session IS NULL, NULL, hex(work_session)), comment",
    "id, principal, session, upstream, tool, verdict, rating, recommendation, invocation, given_at,
    work_session, comment"
);

// Ordered by scope, with the same parameters as the other statements.
pub(super) const LIST_EPOCHS: Statement = Statement {
    table: "list_epochs",
    sqlite: "
        SELECT json_array(
            scope, epoch, policy, (SELECT json(tools) FROM tool_sets WHERE id = tool_set), began_at,
            (SELECT json(tools) FROM tool_sets WHERE id = known), mode, reason, search_first,
            hex(client), json(size_choice), expected_coverage)
        FROM list_epochs
        WHERE +client IN (SELECT unhex(value) FROM json_each(?1 -> 0))
            AND (?1 -> 1 ->> 1 = 0 OR scope > ?1 -> 1 ->> 0)
        ORDER BY scope
        LIMIT ?1 ->> 2",
    postgres: "
        SELECT json_build_array(
            scope, epoch, policy, (SELECT tools::json FROM tool_sets WHERE id = tool_set),
            began_at, (SELECT tools::json FROM tool_sets WHERE id = known), mode, reason,
            search_first::int, encode(client, 'hex'), size_choice::json,
            expected_coverage)::text
        FROM list_epochs
        WHERE client = ANY (ARRAY(
                SELECT decode(value, 'hex') FROM jsonb_array_elements_text($1::jsonb -> 0)))
            AND ($1::jsonb -> 1 ->> 1 = '0' OR scope COLLATE \"C\" > $1::jsonb -> 1 ->> 0)
        ORDER BY scope COLLATE \"C\"
        LIMIT ($1::jsonb ->> 2)::bigint",
};

pub(super) const WORK_SESSIONS: Statement = of_clients!(
    "work_sessions",
    "hex(id), hex(key), principal, hex(client), started_at, last_active_at",
    "id, encode(key, 'hex'), principal, encode(client, 'hex'), started_at, last_active_at"
);
